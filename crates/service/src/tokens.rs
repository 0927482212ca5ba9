use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use ring::error::Unspecified;
use ring::hmac::{self, HMAC_SHA256, Tag};
use ring::rand::SystemRandom;
use thiserror::Error;

/// The least a token may have: shorter ones can be guessed.
const MIN_TOKEN_BYTES: usize = 16;
/// The most; it goes into a text on the wire.
const MAX_TOKEN_BYTES: usize = 1024;
/// Each attempt is compared with all of them.
const MAX_TOKENS: usize = 100;

/// Why there are no tokens.
#[derive(Debug, Error)]
pub enum TokensError {
    /// The file cannot be read.
    #[error("cannot read token file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A token that can be guessed or sent by nobody.
    #[error(
        "token file {path}, line {line}: a token has {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} characters, none of them a space"
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Which one.
        line: usize,
    },
    /// No token, or far too many.
    #[error("token file {0} must hold 1 to {MAX_TOKENS} tokens, one per line")]
    Count(PathBuf),
    /// The system has no random numbers.
    #[error("no random numbers to be had")]
    Random(Unspecified),
}

/// The secrets of which a client must know one. Several are good at a time, so that they can be replaced one after the other.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    /// Made anew by each process: what is kept of a token is of no use elsewhere.
    key: hmac::Key,
    tags: RwLock<Vec<Tag>>,
}

impl Tokens {
    /// Reads a file with a token per line; empty lines and those that begin with `#` do not count.
    ///
    /// # Errors
    /// [`TokensError`] names the file and the line, but never a token.
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        let key = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new()).map_err(TokensError::Random)?;
        let tags = RwLock::new(read(path, &key)?);
        Ok(Self { path: path.to_owned(), key, tags })
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// As [`Tokens::open`]; then the tokens stay as they were.
    pub fn reload(&self) -> Result<(), TokensError> {
        let tags = read(&self.path, &self.key)?;
        *self.tags.write().unwrap_or_else(PoisonError::into_inner) = tags;
        Ok(())
    }

    /// Whether it is one of the tokens. How long that takes tells nothing about them.
    #[must_use]
    pub fn allow(&self, token: &str) -> bool {
        let tags = self.tags.read().unwrap_or_else(PoisonError::into_inner);
        // `verify` compares in constant time; all are compared, whichever fits.
        let fits = |tag: &Tag| hmac::verify(&self.key, token.as_bytes(), tag.as_ref()).is_ok();
        tags.iter().fold(false, |any, tag| any | fits(tag))
    }
}

fn read(path: &Path, key: &hmac::Key) -> Result<Vec<Tag>, TokensError> {
    let failed = |source| TokensError::Read { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    if fs::metadata(path).map_err(failed)?.permissions().mode() & 0o004 != 0 {
        tracing::warn!(file = %path.display(), "everybody on this machine can read the tokens");
    }
    let mut tags = Vec::new();
    for (line, token) in (1..).zip(text.lines().map(str::trim)) {
        if token.is_empty() || token.starts_with('#') {
            continue;
        }
        let printable = token.chars().all(|c| !c.is_whitespace() && !c.is_control());
        if !printable || !(MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&token.len()) {
            return Err(TokensError::Length { path: path.to_owned(), line });
        }
        tags.push(hmac::sign(key, token.as_bytes()));
    }
    if (1..=MAX_TOKENS).contains(&tags.len()) { Ok(tags) } else { Err(TokensError::Count(path.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Tokens;

    const ONE: &str = "0123456789abcdef";
    const TWO: &str = "fedcba9876543210";

    #[test]
    fn several_are_good_until_the_file_says_otherwise() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), format!("# old and new\n{ONE}\n\n  {TWO}\n")).unwrap();
        let tokens = Tokens::open(file.path()).unwrap();
        assert!(tokens.allow(ONE) && tokens.allow(TWO));
        for bad in ["", "0123456789abcde", "0123456789abcdef0", "# old and new", "0123456789ABCDEF"] {
            assert!(!tokens.allow(bad), "{bad}");
        }
        fs::write(file.path(), TWO).unwrap();
        tokens.reload().unwrap();
        assert!(!tokens.allow(ONE) && tokens.allow(TWO));
        fs::write(file.path(), "short").unwrap();
        assert!(tokens.reload().is_err());
        assert!(tokens.allow(TWO), "as before");
    }

    #[test]
    fn errors_name_the_line_and_no_token() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, expected) in [
            ("".to_owned(), "must hold 1 to 100 tokens"),
            ("# none\n".to_owned(), "must hold 1 to 100 tokens"),
            (format!("{ONE}\n").repeat(101), "must hold 1 to 100 tokens"),
            (format!("{ONE}\nsecret"), "line 2: a token has 16 to 1024 characters"),
            (format!("{ONE} {TWO}"), "line 1"),
        ] {
            fs::write(file.path(), text).unwrap();
            let error = Tokens::open(file.path()).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
        assert!(Tokens::open("/nonexistent".as_ref()).unwrap_err().to_string().contains("/nonexistent"));
    }
}
