//! Clients: names, addresses and limits.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use protocol::{ErrorReport, Refuse, SqlState};

/// The hint for clients that exceed their limits.
pub const LIMITS_HINT: &str = "The limit stands beside the client's token in the --token-file.";

/// Why a build waits: its client's limits hold back this build, or an earlier one of the client.
#[must_use]
pub fn held_back(client: &str) -> String {
    format!(
        "{client} has reached its limit of builds or memory, counting running builds and those that wait before this one"
    )
}

/// A named client's limits; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most running builds.
    pub builds: u32,
    /// The most waiting builds.
    pub waiting: u32,
    /// The most memory of all its builds, in bytes.
    pub memory: u64,
    /// The most rows of one build.
    pub rows: u64,
}

impl Limits {
    /// For each limit the lower of the two.
    #[must_use]
    pub fn lower(self, other: &Self) -> Self {
        fn lower<T: Ord + Default>(one: T, other: T) -> T {
            let none = T::default();
            if one == none || (other != none && other < one) { other } else { one }
        }
        Self {
            builds: lower(self.builds, other.builds),
            waiting: lower(self.waiting, other.waiting),
            memory: lower(self.memory, other.memory),
            rows: lower(self.rows, other.rows),
        }
    }

    /// Checks a client's estimate of rows against the limit.
    ///
    /// # Errors
    /// The refusal for the client.
    pub fn check_rows(&self, rows: u64) -> Result<(), Box<Refuse>> {
        if self.rows == 0 || rows <= self.rows {
            return Ok(());
        }
        let message = format!("table has about {rows} rows, this client may have at most {} indexed", self.rows);
        Err(ErrorReport::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).hint(LIMITS_HINT).refuse(0))
    }
}

/// The client of a build: its name, if it has authenticated with one, and its address.
///
/// The fair queue treats builds of clients with the same [`key`](Client::key) as one client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The name of its token or certificate.
    pub name: Option<Arc<str>>,
    /// Its address, as the first daemon sees it.
    pub address: IpAddr,
    /// Its limits.
    pub limits: Limits,
}

impl Client {
    /// A client without a name.
    #[must_use]
    pub fn unnamed(peer: SocketAddr) -> Self {
        Self { name: None, address: peer.ip().to_canonical(), limits: Limits::default() }
    }

    /// The key by which the fair queue groups clients: the name, or else the address.
    #[must_use]
    pub fn key(&self) -> Arc<str> {
        self.name.clone().unwrap_or_else(|| self.address.to_string().into())
    }

    /// The client as text for [`Client::parse`].
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{} {} {}", self.address, self.limits.rows, self.name.as_deref().unwrap_or_default())
    }

    /// Parses the text of [`Client::to_text`]. Of the limits it has only that of rows.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(3, ' ');
        let (address, rows, name) = (words.next()?, words.next()?, words.next()?);
        let limits = Limits { rows: rows.parse().ok()?, ..Limits::default() };
        Some(Self { name: (!name.is_empty()).then(|| name.into()), address: address.parse().ok()?, limits })
    }
}

impl fmt::Display for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(out, "{name} ({})", self.address),
            None => self.address.fmt(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Client, Limits};

    #[test]
    fn parse_restores_what_to_text_wrote() {
        for (name, address) in [(Some("tenant-a"), "::1"), (None, "10.0.0.7"), (Some("two words"), "10.0.0.7")] {
            let client = Client {
                name: name.map(Into::into),
                address: address.parse().unwrap(),
                limits: Limits { rows: 7, ..Limits::default() },
            };
            assert_eq!(Client::parse(&client.to_text()), Some(client));
        }
        assert_eq!(Client::parse("nowhere name"), None);
    }

    #[test]
    fn the_key_is_the_name_or_else_the_address() {
        let mut client = Client::unnamed("[::ffff:10.0.0.7]:5432".parse().unwrap());
        assert_eq!(&*client.key(), "10.0.0.7");
        client.name = Some("tenant-a".into());
        assert_eq!((&*client.key(), client.to_string().as_str()), ("tenant-a", "tenant-a (10.0.0.7)"));
    }
}
