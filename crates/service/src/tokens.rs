//! The tokens by which clients authenticate.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use ring::error::Unspecified;
use ring::hmac::{self, HMAC_SHA256, Tag};
use ring::rand::SystemRandom;
use thiserror::Error;

use crate::Reload;
use crate::client::Limits;
use crate::hex::unhex;
use crate::size::parse_size;
use crate::token_making::{HASHED, check_token_name};

/// The minimum length of a token: shorter ones could be guessed.
const MIN_TOKEN_BYTES: usize = 16;
/// The maximum length of a token, which is sent as a text of the protocol.
const MAX_TOKEN_BYTES: usize = 1024;
/// The most tokens, as each attempt is compared with all of them.
const MAX_TOKENS: usize = 1000;

/// Why tokens could not be read.
#[derive(Debug, Error)]
pub enum TokensError {
    /// The file cannot be read.
    #[error("cannot read token file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An invalid line.
    #[error("token file {path}, line {line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// No token, or far too many.
    #[error("token file {0} must hold 1 to {MAX_TOKENS} tokens, one per line")]
    Count(PathBuf),
    /// The system has no random numbers.
    #[error("no random numbers to be had")]
    Random(Unspecified),
}

/// The owner of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenOwner {
    /// The name, if the token has one.
    pub name: Option<Arc<str>>,
    /// The client's limits.
    pub limits: Limits,
}

/// The accepted tokens. Several are valid at the same time, so that they can be replaced one by one.
///
/// A line of the file is a token, or `NAME SECRET` followed by limits (`builds=2 waiting=4 memory=8GB rows=1000000`), where
/// SECRET is a token or `sha256:` and the hash of one in hexadecimal digits. Empty lines and lines that begin with `#` are
/// ignored.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    /// A random key per process: the stored tags are useless elsewhere.
    key: hmac::Key,
    entries: RwLock<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// The HMAC of the token's SHA-256.
    tag: Tag,
    owner: TokenOwner,
}

impl Tokens {
    /// Reads a file.
    ///
    /// # Errors
    /// [`TokensError`] names the file and the line, but never a token.
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        let key = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new()).map_err(TokensError::Random)?;
        let entries = RwLock::new(read(path, &key)?);
        Ok(Self { path: path.to_owned(), key, entries })
    }

    /// The owner of a token; `None` if the token is unknown. Timing reveals nothing about the tokens.
    #[must_use]
    pub fn owner(&self, token: &str) -> Option<TokenOwner> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let hash = digest(&SHA256, token.as_bytes());
        // `verify` compares in constant time, and the token is compared with all entries, even after a match.
        let fits = |entry: &&Entry| hmac::verify(&self.key, hash.as_ref(), entry.tag.as_ref()).is_ok();
        entries.iter().filter(fits).last().map(|entry| entry.owner.clone())
    }
}

impl Reload for Tokens {
    fn what(&self) -> &'static str {
        "tokens"
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn reload(&self) -> Result<(), Box<dyn std::error::Error>> {
        let entries = read(&self.path, &self.key)?;
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = entries;
        Ok(())
    }
}

fn read(path: &Path, key: &hmac::Key) -> Result<Vec<Entry>, TokensError> {
    let failed = |source| TokensError::Read { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    let mut entries = Vec::new();
    let is_world_readable = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o004 != 0;
    let mut has_secrets = false;
    for (line, text) in (1..).zip(text.lines().map(str::trim)) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (hash, owner) =
            parse(text).map_err(|problem| TokensError::Line { path: path.to_owned(), line, problem })?;
        has_secrets |= !text.contains(HASHED);
        entries.push(Entry { tag: hmac::sign(key, &hash), owner });
    }
    if !(1..=MAX_TOKENS).contains(&entries.len()) {
        return Err(TokensError::Count(path.to_owned()));
    }
    // Only if all is well: a file with a mistake is read every two seconds, which would repeat the warning.
    if is_world_readable && has_secrets {
        tracing::warn!(file = %path.display(), "everybody on this machine can read the tokens");
    }
    Ok(entries)
}

/// The hash of a line's token, and its owner.
fn parse(line: &str) -> Result<([u8; SHA256_OUTPUT_LEN], TokenOwner), String> {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let Some(secret) = words.next() else {
        if first.starts_with(HASHED) {
            // The text of the hash, which need not be kept secret, would itself be the token.
            return Err("a hash has a name before it".to_owned());
        }
        return Ok((hash(first)?, TokenOwner { name: None, limits: Limits::default() }));
    };
    let name = check_token_name(first)?;
    let mut limits = Limits::default();
    for word in words {
        let (what, value) = word.split_once('=').ok_or_else(|| unknown_limit(word))?;
        let number = || value.parse().map_err(|_| format!("{what} is not a number"));
        match what {
            "builds" => limits.builds = number()?,
            "waiting" => limits.waiting = number()?,
            "rows" => limits.rows = value.parse().map_err(|_| "rows is not a number".to_owned())?,
            "memory" => limits.memory = parse_size(value).map_err(|problem| format!("memory: {problem}"))?,
            _ => return Err(unknown_limit(what)),
        }
    }
    let hash = match secret.strip_prefix(HASHED) {
        Some(digits) => unhex(digits)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| format!("{HASHED} is followed by {} hexadecimal digits", 2 * SHA256_OUTPUT_LEN))?,
        None => hash(secret)?,
    };
    Ok((hash, TokenOwner { name: Some(name.into()), limits }))
}

fn unknown_limit(word: &str) -> String {
    format!("{word:?} is not a limit; there are builds, waiting, memory and rows, as in builds=2")
}

/// The hash of a token, or an error if its length is invalid.
fn hash(token: &str) -> Result<[u8; SHA256_OUTPUT_LEN], String> {
    if !(MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&token.len()) || token.chars().any(char::is_control) {
        return Err(format!("a token has {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} characters, none of them a space"));
    }
    let hash = digest(&SHA256, token.as_bytes());
    hash.as_ref().try_into().map_err(|_| "no hash".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ring::digest::{SHA256, digest};

    use super::{MAX_TOKENS, Tokens};
    use crate::Reload;
    use crate::client::Limits;
    use crate::hex::hex;

    const ONE: &str = "0123456789abcdef";
    const TWO: &str = "fedcba9876543210";

    #[test]
    fn a_reload_replaces_tokens_unless_the_file_is_invalid() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), format!("# old and new\n{ONE}\n\n  {TWO}\n")).unwrap();
        let tokens = Tokens::open(file.path()).unwrap();
        let good = |token: &str| tokens.owner(token).is_some();
        assert!(good(ONE) && good(TWO));
        for bad in ["", "0123456789abcde", "0123456789abcdef0", "# old and new", "0123456789ABCDEF"] {
            assert!(!good(bad), "{bad}");
        }
        fs::write(file.path(), TWO).unwrap();
        tokens.reload().unwrap();
        assert!(!good(ONE) && good(TWO));
        fs::write(file.path(), "short").unwrap();
        assert!(tokens.reload().is_err());
        assert!(good(TWO), "as before");
    }

    #[test]
    fn a_line_may_name_its_client_and_hold_only_a_hash() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let hashed = hex(digest(&SHA256, TWO.as_bytes()).as_ref());
        let lines = format!("tenant-a {ONE} builds=2 waiting=3 memory=8GB rows=1000\ntenant.b sha256:{hashed}\n");
        fs::write(file.path(), lines).unwrap();
        let tokens = Tokens::open(file.path()).unwrap();
        let first = tokens.owner(ONE).unwrap();
        assert_eq!(first.name.as_deref(), Some("tenant-a"));
        assert_eq!(first.limits, Limits { builds: 2, waiting: 3, memory: 8 << 30, rows: 1000 });
        let second = tokens.owner(TWO).unwrap();
        assert_eq!((second.name.as_deref(), second.limits), (Some("tenant.b"), Limits::default()));
        assert_eq!(tokens.owner(&hashed), None, "the hash is not the token");
    }

    #[test]
    fn errors_name_the_line_and_no_token() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, expected) in [
            ("".to_owned(), "must hold 1 to 1000 tokens"),
            ("# none\n".to_owned(), "must hold 1 to 1000 tokens"),
            (format!("{ONE}\n").repeat(MAX_TOKENS + 1), "must hold 1 to 1000 tokens"),
            (format!("{ONE}\nsecret"), "line 2: a token has 16 to 1024 characters"),
            ("a secret".to_owned(), "line 1: a token has 16 to 1024 characters"),
            (format!("a/b {ONE}"), "line 1: a name has 1 to 63"),
            (format!("a {ONE} cats=2"), "line 1: \"cats\" is not a limit"),
            (format!("a {ONE} builds=many"), "line 1: builds is not a number"),
            (format!("a {ONE} memory=7"), "line 1: memory: the unit must be"),
            (format!("sha256:{}", "0".repeat(64)), "line 1: a hash has a name before it"),
            ("a sha256:00ff".to_owned(), "line 1: sha256: is followed by 64"),
        ] {
            fs::write(file.path(), text).unwrap();
            let error = Tokens::open(file.path()).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
        assert!(Tokens::open("/nonexistent".as_ref()).unwrap_err().to_string().contains("/nonexistent"));
    }
}
