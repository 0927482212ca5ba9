use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use ring::hmac::{self, HMAC_SHA256};
use thiserror::Error;

use crate::client::Client;
use crate::hex::{hex, random, unhex};
use crate::{Reload, lock};

/// Bytes of a ticket's id.
const ID_BYTES: usize = 16;
/// The minimum length of a key in bytes.
const MIN_KEY_BYTES: usize = 32;

/// Why ticket keys could not be read.
#[derive(Debug, Error)]
pub enum TicketKeyError {
    /// The file cannot be read.
    #[error("cannot read ticket key {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// There is no key, or one that is so short that it could be guessed.
    #[error("ticket key {0} holds none, or one that is shorter than {MIN_KEY_BYTES} bytes")]
    Short(PathBuf),
}

/// Why a ticket is not valid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TicketError {
    /// The client has sent no ticket.
    #[error("this builder takes builds only from its router")]
    Missing,
    /// It was not issued with a valid key for this builder.
    #[error("the ticket is not one for this builder")]
    Forged,
    /// It has expired.
    #[error("the ticket has expired")]
    Expired,
    /// It was used before.
    #[error("the ticket was used before")]
    Used,
}

/// The keys with which routers sign tickets and builders verify them, from a file that can be reloaded.
///
/// The file has one key per line. The first key signs and all keys verify, so that a key can be replaced without interruption:
/// append the new one everywhere, then move it to the front everywhere, then remove the old one.
#[derive(Debug)]
pub struct TicketKeys {
    /// `None` if the keys are not from a file.
    path: Option<PathBuf>,
    keys: RwLock<Vec<hmac::Key>>,
}

impl TicketKeys {
    /// Reads the keys of a file: its lines, without surrounding white space.
    ///
    /// # Errors
    /// If the file cannot be read, or a key is too short.
    pub fn open(path: &Path) -> Result<Self, TicketKeyError> {
        Ok(Self { path: Some(path.to_owned()), keys: RwLock::new(read(path)?) })
    }

    /// The key from a text of [`generate`](Self::generate).
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self { path: None, keys: RwLock::new(vec![hmac::Key::new(HMAC_SHA256, text.as_bytes())]) }
    }

    /// Generates a new key as text, for a file.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn generate() -> io::Result<String> {
        random::<32>()
    }

    /// Issues a ticket for a build of `client` that begins on `builder` before `expiry`, in seconds since 1970 by the builder's
    /// clock. It has the client's limits of memory and rows, which only a builder can enforce.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn issue(&self, builder: &str, client: &Client, expiry: u64) -> io::Result<String> {
        // Older builders take the part before the colon as the ticket's id, or the whole text.
        let id = format!("{}-{}:{}", random::<ID_BYTES>()?, client.limits.memory, hex(client.to_text().as_bytes()));
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.first().ok_or_else(|| io::Error::other("there is no ticket key"))?;
        let tag = hmac::sign(key, &signed(builder, &id, expiry));
        Ok(format!("{id}.{expiry}.{}", hex(tag.as_ref())))
    }

    fn verify(&self, message: &[u8], tag: &[u8]) -> bool {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().any(|key| hmac::verify(key, message, tag).is_ok())
    }
}

impl Reload for TicketKeys {
    fn what(&self) -> &'static str {
        "ticket keys"
    }

    fn files(&self) -> Vec<PathBuf> {
        self.path.clone().into_iter().collect()
    }

    fn reload(&self) -> Result<(), Box<dyn std::error::Error>> {
        if let Some(path) = &self.path {
            let keys = read(path)?;
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<hmac::Key>, TicketKeyError> {
    let bytes = fs::read(path).map_err(|source| TicketKeyError::Read { path: path.to_owned(), source })?;
    let lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let keys: Vec<&[u8]> = lines.collect();
    if keys.is_empty() || keys.iter().any(|key| key.len() < MIN_KEY_BYTES) {
        return Err(TicketKeyError::Short(path.to_owned()));
    }
    Ok(keys.into_iter().map(|key| hmac::Key::new(HMAC_SHA256, key)).collect())
}

/// Estimates another machine's clock from its last reading; the two may differ by hours. Clones share the reading.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    /// Records a reading of the other clock.
    pub fn read(&self, there: SystemTime) {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        self.0.store(seconds(there) - now().cast_signed(), Ordering::Relaxed);
    }

    /// The estimated time of the other clock, in seconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        now().saturating_add_signed(self.0.load(Ordering::Relaxed))
    }
}

/// A valid ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its id, for logs.
    pub id: String,
    /// The client for which the router has issued it, if the ticket names one.
    pub client: Option<Client>,
}

/// Admits each valid ticket once.
#[derive(Debug)]
pub struct TicketGate {
    keys: Arc<TicketKeys>,
    builder: String,
    /// Expiry of used tickets, by id.
    used: Mutex<HashMap<String, u64>>,
}

impl TicketGate {
    /// The gate of a builder that routers know by the name `builder`.
    #[must_use]
    pub fn new(keys: Arc<TicketKeys>, builder: String) -> Self {
        Self { keys, builder, used: Mutex::default() }
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> Arc<TicketKeys> {
        self.keys.clone()
    }

    /// Verifies a ticket and marks it as used.
    ///
    /// # Errors
    /// [`TicketError`]
    pub fn admit(&self, ticket: &str) -> Result<Shown, TicketError> {
        if ticket.is_empty() {
            return Err(TicketError::Missing);
        }
        let mut parts = ticket.splitn(3, '.');
        let (Some(id), Some(expiry), Some(tag)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(TicketError::Forged);
        };
        let (Ok(expiry), Some(tag)) = (expiry.parse::<u64>(), unhex(tag)) else { return Err(TicketError::Forged) };
        // In constant time, and before anything in the ticket is trusted.
        if !self.keys.verify(&signed(&self.builder, id, expiry), &tag) {
            return Err(TicketError::Forged);
        }
        let now = now();
        if expiry < now {
            return Err(TicketError::Expired);
        }
        let mut used = lock(&self.used);
        used.retain(|_, expiry| *expiry >= now);
        if used.insert(id.to_owned(), expiry).is_some() {
            return Err(TicketError::Used);
        }
        let (number, client) = id.split_once(':').unwrap_or((id, ""));
        // Tickets of older routers have no limit of memory.
        let (number, memory) = number.split_once('-').unwrap_or((number, "0"));
        let mut client = unhex(client).and_then(|text| Client::parse(&String::from_utf8(text).ok()?));
        if let (Some(client), Ok(memory)) = (&mut client, memory.parse()) {
            client.limits.memory = memory;
        }
        Ok(Shown { id: number.to_owned(), client })
    }
}

fn signed(builder: &str, id: &str, expiry: u64) -> Vec<u8> {
    format!("lantern-index ticket\n{builder}\n{id}\n{expiry}").into_bytes()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::{Client, Clock, TicketError, TicketGate, TicketKeys, hmac, now, signed};
    use crate::hex::hex;
    use crate::{Limits, Reload};

    fn keys(text: &str) -> Arc<TicketKeys> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Arc::new(TicketKeys::open(file.path()).unwrap())
    }

    fn client() -> Client {
        let limits = Limits { memory: 1 << 40, rows: 7, ..Limits::default() };
        Client { name: Some("tenant.a".into()), limits, ..Client::unnamed("10.0.0.7:5432".parse().unwrap()) }
    }

    fn issue(keys: &TicketKeys, builder: &str) -> String {
        keys.issue(builder, &client(), now() + 60).unwrap()
    }

    #[test]
    fn a_ticket_is_good_once_and_for_one_builder() {
        let text = TicketKeys::generate().unwrap();
        let gate = TicketGate::new(keys(&text), "b-1".to_owned());
        let ticket = issue(&keys(&format!("{text}\n")), "b-1");
        let shown = gate.admit(&ticket).unwrap();
        assert!(ticket.starts_with(&shown.id));
        assert_eq!(shown.client, Some(client()));
        assert_eq!(gate.admit(&ticket), Err(TicketError::Used));
        assert_eq!(gate.admit(&issue(&keys(&text), "b-2")), Err(TicketError::Forged));
        assert_eq!(gate.admit(""), Err(TicketError::Missing));
        assert!(gate.admit(&issue(&keys(&text), "b-1")).is_ok());
    }

    #[test]
    fn a_ticket_of_an_older_router_has_no_limit_of_memory() {
        let keys = keys(&TicketKeys::generate().unwrap());
        let (id, expiry) = (format!("07:{}", hex(client().to_text().as_bytes())), now() + 60);
        let tag = hmac::sign(&keys.keys.read().unwrap()[0], &signed("b", &id, expiry));
        let ticket = format!("{id}.{expiry}.{}", hex(tag.as_ref()));
        let shown = TicketGate::new(keys, "b".to_owned()).admit(&ticket).unwrap();
        let limits = Limits { memory: 0, ..client().limits };
        assert_eq!((shown.id.as_str(), shown.client), ("07", Some(Client { limits, ..client() })));
    }

    #[test]
    fn a_ticket_that_was_changed_is_forged() {
        let text = TicketKeys::generate().unwrap();
        let gate = TicketGate::new(keys(&text), String::new());
        let ticket = issue(&keys(&text), "");
        for at in 0..ticket.len() {
            let mut changed = ticket.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(gate.admit(&changed), Err(TicketError::Forged), "{changed}");
            assert!(gate.admit(&ticket[..at]).is_err());
        }
        let other = keys(&TicketKeys::generate().unwrap());
        assert_eq!(gate.admit(&issue(&other, "")), Err(TicketError::Forged));
        assert!(gate.admit(&ticket).is_ok(), "the attempts have not used it up");
    }

    #[test]
    fn an_expired_ticket_is_refused() {
        let keys = keys(&TicketKeys::generate().unwrap());
        let ticket = keys.issue("b", &client(), 1_000_000).unwrap();
        assert_eq!(TicketGate::new(keys, "b".to_owned()).admit(&ticket), Err(TicketError::Expired));
    }

    #[test]
    fn tickets_expire_by_the_other_clock() {
        let clock = Clock::default();
        let hours = Duration::from_secs(7200);
        for there in [SystemTime::now() + hours, SystemTime::now() - hours, SystemTime::now()] {
            clock.clone().read(there);
            let expected = there.duration_since(UNIX_EPOCH).unwrap().as_secs();
            assert!(clock.now().abs_diff(expected) <= 1);
        }
    }

    #[test]
    fn a_key_is_replaced_without_a_pause() {
        let (old, new) = (TicketKeys::generate().unwrap(), TicketKeys::generate().unwrap());
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &old).unwrap();
        let gate = TicketGate::new(Arc::new(TicketKeys::open(file.path()).unwrap()), String::new());
        fs::write(file.path(), format!("{old}\n{new}\n")).unwrap();
        gate.keys().reload().unwrap();
        for text in [&old, &new, &format!("{new}\n{old}")] {
            assert!(gate.admit(&issue(&keys(text), "")).is_ok());
        }
        fs::write(file.path(), &new).unwrap();
        gate.keys().reload().unwrap();
        assert_eq!(gate.admit(&issue(&keys(&old), "")), Err(TicketError::Forged));
        fs::write(file.path(), "short").unwrap();
        assert!(gate.keys().reload().is_err());
        assert!(gate.admit(&issue(&keys(&new), "")).is_ok(), "as before");
    }

    #[test]
    fn short_and_missing_keys_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), format!("  {}  \n", "x".repeat(31))).unwrap();
        let error = TicketKeys::open(file.path()).unwrap_err().to_string();
        assert!(error.contains("shorter than 32 bytes"), "{error}");
        assert!(TicketKeys::open(&file.path().with_extension("absent")).is_err());
    }
}
