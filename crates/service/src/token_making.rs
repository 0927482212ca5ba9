//! New tokens, and their lines in a token file.

use std::io;

use ring::digest::{SHA256, digest};

use crate::Limits;
use crate::hex::{hex, random};

/// The prefix of a hash in a token file.
pub(crate) const HASHED: &str = "sha256:";

/// The most characters of a token's name.
const MAX_NAME: usize = 63;

/// A new token. Its secret is stored nowhere else.
pub struct NewToken(String);

impl NewToken {
    /// A token of 32 random bytes, in hexadecimal digits.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn generate() -> io::Result<Self> {
        random::<32>().map(Self)
    }

    /// The secret, for the client.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The token's line for a daemon's token file. It contains only the hash, from which the token cannot be recovered.
    #[must_use]
    pub fn line(&self, name: &str, limits: &Limits) -> String {
        let Limits { builds, waiting, memory, rows } = *limits;
        let memory_text = in_unit(memory);
        let all = [
            ("builds", builds > 0, builds.to_string()),
            ("waiting", waiting > 0, waiting.to_string()),
            ("memory", memory > 0, memory_text),
            ("rows", rows > 0, rows.to_string()),
        ];
        let given = all.into_iter().filter(|(_, given, _)| *given);
        let limits: String = given.map(|(key, _, value)| format!(" {key}={value}")).collect();
        format!("{name} {HASHED}{}{limits}", hex(digest(&SHA256, self.0.as_bytes()).as_ref()))
    }
}

/// Checks a token's name, and returns it if it is valid.
///
/// # Errors
/// The rules for names.
pub fn check_token_name(name: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(fits) {
        return Ok(name.to_owned());
    }
    Err(format!("a name has 1 to {MAX_NAME} characters of A-Z, a-z, 0-9, '.', '_' and '-'"))
}

/// Formats bytes in the largest unit of the settings that gives an integer, at least kB.
fn in_unit(bytes: u64) -> String {
    let units = [(40, "TB"), (30, "GB"), (20, "MB")];
    let whole = units.into_iter().find(|(shift, _)| bytes.trailing_zeros() >= *shift);
    let (shift, unit) = whole.unwrap_or((10, "kB"));
    format!("{}{unit}", bytes >> shift)
}

#[cfg(test)]
mod tests {
    use super::{NewToken, check_token_name, in_unit};
    use crate::Limits;

    #[test]
    fn a_line_has_the_hash_and_the_limits() {
        // SHA-256 of "abc", from FIPS 180-2.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let token = NewToken("abc".to_owned());
        assert_eq!(token.line("db.1", &Limits::default()), format!("db.1 sha256:{abc}"));
        let limits = Limits { builds: 2, waiting: 0, memory: 48 << 30, rows: 5_000_000 };
        assert_eq!(token.line("a", &limits), format!("a sha256:{abc} builds=2 memory=48GB rows=5000000"));
    }

    #[test]
    fn tokens_are_random_hexadecimal_digits() {
        let [one, two] = [(); 2].map(|()| NewToken::generate().unwrap());
        assert_ne!(one.secret(), two.secret());
        assert!(one.secret().len() == 64 && one.secret().chars().all(|c| c.is_ascii_hexdigit()));
    }

    #[test]
    fn names_are_limited_in_length_and_characters() {
        let longest = "x".repeat(63);
        for good in ["a", "db-1", "Tenant_7.eu", &longest] {
            assert_eq!(check_token_name(good).as_deref(), Ok(good));
        }
        for bad in ["", "a b", "a\n", "#a", "a=1", "sha256:a", "ü", &"x".repeat(64)] {
            assert!(check_token_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_written_without_rounding() {
        for (bytes, text) in [(1 << 40, "1TB"), (48 << 30, "48GB"), (1536 << 20, "1536MB"), (3 << 10, "3kB")] {
            assert_eq!(in_unit(bytes), text);
        }
    }
}
