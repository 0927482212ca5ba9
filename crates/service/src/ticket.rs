use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;

/// Bytes of a ticket's number.
const ID_BYTES: usize = 16;
/// The least a key file may hold.
const MIN_KEY_BYTES: usize = 32;

/// Why there is no key.
#[derive(Debug, Error)]
pub enum TicketKeyError {
    /// The file cannot be read.
    #[error("cannot read ticket key {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Too easy to guess.
    #[error("ticket key {0} is shorter than {MIN_KEY_BYTES} bytes")]
    Short(PathBuf),
}

/// Why a ticket is not good.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TicketError {
    /// There is none.
    #[error("this builder takes builds only from its router")]
    Missing,
    /// Not made with this key for this builder.
    #[error("the ticket is not one for this builder")]
    Forged,
    /// Too old.
    #[error("the ticket has expired")]
    Expired,
    /// Used before.
    #[error("the ticket was used before")]
    Used,
}

/// The secret that routers make tickets with, and builders check them with.
#[derive(Debug)]
pub struct TicketKey(hmac::Key);

impl TicketKey {
    /// The key in a file: its bytes, without white space around them.
    ///
    /// # Errors
    /// A file that cannot be read, or holds too little.
    pub fn read(path: &Path) -> Result<Self, TicketKeyError> {
        let bytes = fs::read(path).map_err(|source| TicketKeyError::Read { path: path.to_owned(), source })?;
        let key = bytes.trim_ascii();
        if key.len() < MIN_KEY_BYTES {
            return Err(TicketKeyError::Short(path.to_owned()));
        }
        Ok(Self(hmac::Key::new(HMAC_SHA256, key)))
    }

    /// The key of a text that [`generate`](Self::generate) has made.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, text.as_bytes()))
    }

    /// The text of a new key, for a file.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn generate() -> io::Result<String> {
        Ok(hex(&random::<32>()?))
    }

    /// A new ticket for a build on `builder` that begins within `lifetime`.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn issue(&self, builder: &str, lifetime: Duration) -> io::Result<String> {
        let id = hex(&random::<ID_BYTES>()?);
        let expiry = now() + lifetime.as_secs().max(1);
        let tag = hmac::sign(&self.0, &signed(builder, &id, expiry));
        Ok(format!("{id}.{expiry}.{}", hex(tag.as_ref())))
    }
}

/// Lets each good ticket in once.
#[derive(Debug)]
pub struct TicketGate {
    key: TicketKey,
    builder: String,
    /// When the tickets that were used expire, by number.
    used: Mutex<HashMap<String, u64>>,
}

impl TicketGate {
    /// The gate of the builder that routers know as `builder`.
    #[must_use]
    pub fn new(key: TicketKey, builder: String) -> Self {
        Self { key, builder, used: Mutex::default() }
    }

    /// Takes a ticket and returns its number.
    ///
    /// # Errors
    /// [`TicketError`]
    pub fn admit(&self, ticket: &str) -> Result<String, TicketError> {
        if ticket.is_empty() {
            return Err(TicketError::Missing);
        }
        let mut parts = ticket.splitn(3, '.');
        let (Some(id), Some(expiry), Some(tag)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(TicketError::Forged);
        };
        let (Ok(expiry), Some(tag)) = (expiry.parse::<u64>(), unhex(tag)) else { return Err(TicketError::Forged) };
        // In constant time, and before anything the ticket says is believed.
        hmac::verify(&self.key.0, &signed(&self.builder, id, expiry), &tag).map_err(|_| TicketError::Forged)?;
        let now = now();
        if expiry < now {
            return Err(TicketError::Expired);
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, expiry| *expiry >= now);
        if used.insert(id.to_owned(), expiry).is_some() {
            return Err(TicketError::Used);
        }
        Ok(id.to_owned())
    }
}

fn signed(builder: &str, id: &str, expiry: u64) -> Vec<u8> {
    format!("lantern-index ticket\n{builder}\n{id}\n{expiry}").into_bytes()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no random bytes"))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::{TicketError, TicketGate, TicketKey};

    const MINUTE: Duration = Duration::from_secs(60);

    fn key(text: &str) -> TicketKey {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        TicketKey::read(file.path()).unwrap()
    }

    #[test]
    fn a_ticket_is_good_once_and_for_one_builder() {
        let text = TicketKey::generate().unwrap();
        let gate = TicketGate::new(key(&text), "b-1".to_owned());
        let ticket = key(&format!("{text}\n")).issue("b-1", MINUTE).unwrap();
        assert!(ticket.starts_with(&gate.admit(&ticket).unwrap()));
        assert_eq!(gate.admit(&ticket), Err(TicketError::Used));
        assert_eq!(gate.admit(&key(&text).issue("b-2", MINUTE).unwrap()), Err(TicketError::Forged));
        assert_eq!(gate.admit(""), Err(TicketError::Missing));
        assert!(gate.admit(&key(&text).issue("b-1", MINUTE).unwrap()).is_ok());
    }

    #[test]
    fn a_ticket_that_was_changed_is_forged() {
        let text = TicketKey::generate().unwrap();
        let gate = TicketGate::new(key(&text), String::new());
        let ticket = key(&text).issue("", MINUTE).unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(gate.admit(&changed), Err(TicketError::Forged), "{changed}");
            assert!(gate.admit(&ticket[..at]).is_err());
        }
        let other = key(&TicketKey::generate().unwrap());
        assert_eq!(gate.admit(&other.issue("", MINUTE).unwrap()), Err(TicketError::Forged));
        assert!(gate.admit(&ticket).is_ok(), "the attempts have not used it up");
    }

    #[test]
    fn an_old_ticket_is_not_taken() {
        let text = TicketKey::generate().unwrap();
        let key = key(&text);
        let tag = super::hmac::sign(&key.0, &super::signed("b", "00", 1_000_000));
        let ticket = format!("00.1000000.{}", super::hex(tag.as_ref()));
        assert_eq!(TicketGate::new(key, "b".to_owned()).admit(&ticket), Err(TicketError::Expired));
    }

    #[test]
    fn a_short_key_is_no_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), format!("  {}  \n", "x".repeat(31))).unwrap();
        let error = TicketKey::read(file.path()).unwrap_err().to_string();
        assert!(error.contains("shorter than 32 bytes"), "{error}");
        assert!(TicketKey::read(&file.path().with_extension("absent")).is_err());
    }
}
