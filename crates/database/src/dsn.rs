//! Connection strings, services, the environment and passwords, interpreted as by libpq.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use tokio_postgres::config::TargetSessionAttrs;

use crate::Error;

/// Environment variables of parameters that the connection string does not set.
const ENVIRONMENT: [(&str, &str); 15] = [
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("port", "PGPORT"),
    ("dbname", "PGDATABASE"),
    ("user", "PGUSER"),
    ("password", "PGPASSWORD"),
    ("passfile", "PGPASSFILE"),
    ("service", "PGSERVICE"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("options", "PGOPTIONS"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
];

/// Parameters of libpq that are accepted and have no effect here.
const IGNORED: [&str; 20] = [
    "application_name",
    "client_encoding",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "load_balance_hosts",
    "replication",
    "ssl_max_protocol_version",
    "sslcertmode",
    "sslcompression",
    "sslnegotiation",
    "sslpassword",
    "sslsni",
    "tcp_user_timeout",
];

/// Parameters that request protection which the driver does not support, with their environment variables and the values that are harmless.
const REFUSED: [(&str, &str, &[&str]); 6] = [
    ("channel_binding", "PGCHANNELBINDING", &["disable", "prefer"]),
    ("require_auth", "PGREQUIREAUTH", &[]),
    ("requirepeer", "PGREQUIREPEER", &[]),
    // The driver never uses TLS older than 1.2.
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", &["TLSv1", "TLSv1.1", "TLSv1.2"]),
    ("sslcrl", "PGSSLCRL", &[]),
    ("sslcrldir", "PGSSLCRLDIR", &[]),
];

/// libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    /// No TLS.
    Disable,
    /// TLS if the server offers it.
    Prefer,
    /// TLS; the certificate is checked if `sslrootcert` is given.
    Require,
    /// TLS with a valid certificate.
    VerifyCa,
    /// TLS with a valid certificate for this host name.
    VerifyFull,
}

/// The server and database to connect to.
#[derive(Clone, Debug)]
pub struct Dsn {
    parameters: BTreeMap<String, String>,
    home: PathBuf,
}

impl Dsn {
    /// Parses `key=value …` or `postgresql://…`. Other parameters come from the service, then from the environment.
    ///
    /// # Errors
    /// The string is malformed, or the service does not exist.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::with(text, &|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn with(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let text = text.trim();
        let mut parameters = match text.split_once("://") {
            Some(("postgres" | "postgresql", rest)) => uri(rest)?,
            Some(_) if !text.contains('=') => {
                return Err(Error::Dsn("an address begins with postgresql://".to_owned()));
            }
            _ if text.is_empty() || text.contains('=') => pairs(text)?,
            // A plain word is the name of a database, as for psql.
            _ => BTreeMap::from([("dbname".to_owned(), text.to_owned())]),
        };
        let home = PathBuf::from(variable("HOME").unwrap_or_else(|| "/".to_owned()));
        let service = parameters.get("service").cloned().or_else(|| variable("PGSERVICE"));
        if let Some(service) = service {
            for (key, value) in self::service(&service, &home, variable)? {
                parameters.entry(key).or_insert(value);
            }
        }
        for (key, name) in ENVIRONMENT {
            if let (false, Some(value)) = (parameters.contains_key(key), variable(name)) {
                parameters.insert(key.to_owned(), value);
            }
        }
        if let (false, Some(user)) = (parameters.contains_key("user"), variable("USER").or_else(|| variable("LOGNAME")))
        {
            parameters.insert("user".to_owned(), user);
        }
        for (key, name, harmless) in REFUSED {
            let demanded = parameters.remove(key).filter(|value| !value.is_empty()).or_else(|| variable(name));
            if let Some(value) = demanded.filter(|value| !harmless.contains(&value.as_str())) {
                return Err(Error::Dsn(format!("{key} \"{value}\" is not supported")));
            }
        }
        let is_known =
            |key: &&String| ENVIRONMENT.iter().any(|(known, _)| known == key) || IGNORED.contains(&key.as_str());
        match parameters.keys().find(|key| !is_known(key)) {
            Some(key) => Err(Error::Dsn(format!("option \"{key}\" is unknown"))),
            None => Ok(Self { parameters, home }),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.parameters.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The database; `None` means all databases of the server.
    #[must_use]
    pub fn database(&self) -> Option<&str> {
        self.get("dbname")
    }

    /// The database to connect to if one is needed: by default the one with the user's name, as in libpq.
    #[must_use]
    pub fn database_or_default(&self) -> &str {
        self.database().or_else(|| self.get("user")).unwrap_or("postgres")
    }

    /// The address, the host name or the directory of the socket.
    #[must_use]
    pub fn host(&self) -> &str {
        self.get("hostaddr").or_else(|| self.get("host")).unwrap_or("/var/run/postgresql")
    }

    /// The host name that a certificate must be valid for.
    pub(crate) fn name(&self) -> &str {
        self.get("host").unwrap_or_else(|| self.host())
    }

    /// Host and port, for messages.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.host(), self.get("port").unwrap_or("5432"))
    }

    pub(crate) fn sslmode(&self) -> Result<SslMode, Error> {
        Ok(match self.get("sslmode") {
            None | Some("prefer" | "allow") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some("require") => SslMode::Require,
            Some("verify-ca") => SslMode::VerifyCa,
            Some("verify-full") => SslMode::VerifyFull,
            Some(other) => return Err(Error::Dsn(format!("sslmode \"{other}\" is unknown"))),
        })
    }

    /// The driver's configuration for a connection to `database`.
    pub(crate) fn config(&self, database: &str) -> Result<tokio_postgres::Config, Error> {
        let mut config = tokio_postgres::Config::new();
        let number = |key: &str, text: &str| {
            text.parse::<u16>().map_err(|_| Error::Dsn(format!("{key} \"{text}\" is no number")))
        };
        let ports = self.get("port").unwrap_or("5432").split(',').map(|port| number("port", port));
        let ports = ports.collect::<Result<Vec<u16>, Error>>()?;
        ports.iter().for_each(|&port| _ = config.port(port));
        // A comma-separated list names several servers, such as a primary and its standbys.
        self.name().split(',').for_each(|host| _ = config.host(host));
        // A rebuild may be silent for hours, and firewalls drop idle connections.
        config.keepalives_idle(Duration::from_secs(60)).keepalives_interval(Duration::from_secs(10));
        config.dbname(database);
        for address in self.get("hostaddr").iter().flat_map(|addresses| addresses.split(',')) {
            // `hostaddr` is used beside the host name, against which the certificate is verified.
            let wrong = || Error::Dsn(format!("hostaddr \"{address}\" is no address"));
            config.hostaddr(address.parse().map_err(|_| wrong())?);
        }
        if let Some(options) = self.get("options") {
            config.options(options);
        }
        config.target_session_attrs(match self.get("target_session_attrs") {
            None | Some("any" | "prefer-standby") => TargetSessionAttrs::Any,
            Some("read-write" | "primary") => TargetSessionAttrs::ReadWrite,
            Some("read-only" | "standby") => TargetSessionAttrs::ReadOnly,
            Some(other) => return Err(Error::Dsn(format!("target_session_attrs \"{other}\" is unknown"))),
        });
        let user = self.get("user").unwrap_or("postgres");
        config.user(user);
        if let Some(password) =
            self.get("password").map(str::to_owned).or_else(|| self.stored_password(ports[0], database, user))
        {
            config.password(password);
        }
        match number("connect_timeout", self.get("connect_timeout").unwrap_or("0"))? {
            0 => {}
            seconds => _ = config.connect_timeout(Duration::from_secs(seconds.into())),
        }
        config.ssl_mode(match self.sslmode()? {
            SslMode::Disable => tokio_postgres::config::SslMode::Disable,
            SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
            _ => tokio_postgres::config::SslMode::Require,
        });
        Ok(config)
    }

    fn stored_password(&self, port: u16, database: &str, user: &str) -> Option<String> {
        let path = self.get("passfile").map_or_else(|| self.home.join(".pgpass"), PathBuf::from);
        let host = if self.name().starts_with('/') { "localhost" } else { self.name() };
        password(&fs::read_to_string(path).ok()?, [host, &port.to_string(), database, user])
    }
}

/// The password of the first matching line `host:port:database:user:password` of a password file. `*`
/// matches anything, `\` escapes `:` and `\`.
fn password(file: &str, wanted: [&str; 4]) -> Option<String> {
    file.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (mut fields, mut chars) = (vec![String::new()], line.chars());
        while let Some(c) = chars.next() {
            match c {
                '\\' => fields.last_mut()?.extend(chars.next()),
                ':' if fields.len() < 5 => fields.push(String::new()),
                c => fields.last_mut()?.push(c),
            }
        }
        let fits =
            fields.len() == 5 && fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        fits.then(|| fields.swap_remove(4))
    })
}

/// The parameters of a service, from the user's file or the system's.
fn service(
    service: &str,
    home: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>, Error> {
    let of_user = variable("PGSERVICEFILE").map_or_else(|| home.join(".pg_service.conf"), PathBuf::from);
    let of_system = PathBuf::from(variable("PGSYSCONFDIR").unwrap_or_else(|| "/etc/postgresql-common".to_owned()));
    for path in [of_user, of_system.join("pg_service.conf")] {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let heading = format!("[{service}]");
        let mut lines = text.lines().map(str::trim).skip_while(|line| *line != heading);
        if lines.next().is_some() {
            let of_service = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
            return Ok(of_service
                .filter_map(|line| line.split_once('='))
                .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
                .collect());
        }
    }
    Err(Error::Dsn(format!("service \"{service}\" is in no service file")))
}

/// `key=value key='a value'`
fn pairs(text: &str) -> Result<BTreeMap<String, String>, Error> {
    let mut found = BTreeMap::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or_else(|| Error::Dsn("\"=\" is missing after a key".to_owned()))?;
        let mut value = String::new();
        let after = after.trim_start();
        let quoted = after.starts_with('\'');
        let mut chars = after.char_indices().skip(usize::from(quoted));
        let mut end = after.len();
        let mut closed = !quoted;
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => value.extend(chars.next().map(|(_, c)| c)),
                '\'' if quoted => {
                    (end, closed) = (at + 1, true);
                    break;
                }
                c if !quoted && c.is_whitespace() => {
                    end = at;
                    break;
                }
                c => value.push(c),
            }
        }
        if !closed {
            return Err(Error::Dsn("a quote is not closed".to_owned()));
        }
        found.insert(key.trim().to_owned(), value);
        rest = after[end..].trim_start();
    }
    Ok(found)
}

/// `user:password@host:port/database?key=value&…`, after the scheme.
fn uri(rest: &str) -> Result<BTreeMap<String, String>, Error> {
    let mut found = BTreeMap::new();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    // Hosts are separated by commas, each with its own port.
    let places = place.split(',').map(|place| match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
        Some((address, port)) => (address, port.trim_start_matches(':')),
        None => place.split_once(':').unwrap_or((place, "")),
    });
    let (hosts, ports): (Vec<&str>, Vec<&str>) = places.unzip();
    let has_port = ports.iter().any(|port| !port.is_empty());
    let usual = |port: &&str| if port.is_empty() { "5432".to_owned() } else { (*port).to_owned() };
    let host = hosts.join(",");
    let port = if has_port { ports.iter().map(usual).collect::<Vec<_>>().join(",") } else { String::new() };
    let parts = [("user", user), ("password", password), ("host", &host), ("port", &port), ("dbname", database)];
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    for (key, value) in parts.into_iter().chain(query) {
        if !value.is_empty() {
            found.insert(decoded(key)?, decoded(value)?);
        }
    }
    Ok(found)
}

/// Decodes percent-encoding.
fn decoded(text: &str) -> Result<String, Error> {
    let wrong = || Error::Dsn("a % is followed by no two hexadecimal digits".to_owned());
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digits = str::from_utf8(digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::{Host, TargetSessionAttrs};

    use super::{Dsn, password};

    fn read(text: &str) -> Dsn {
        Dsn::with(text, &|name| (name == "PGPORT").then(|| "6000".to_owned())).unwrap()
    }

    #[test]
    fn both_forms_say_the_same() {
        for text in [
            "host=db.example port=5433 dbname='my db' user=u password='it\\'s' sslmode=verify-full",
            "postgresql://u:it%27s@db.example:5433/my%20db?sslmode=verify-full",
        ] {
            let dsn = read(text);
            let found = ["host", "port", "dbname", "user", "password", "sslmode"].map(|key| dsn.get(key).unwrap());
            assert_eq!(found, ["db.example", "5433", "my db", "u", "it's", "verify-full"], "{text}");
        }
        let dsn = read("postgres://[::1]/x");
        assert_eq!((dsn.host(), dsn.get("port"), dsn.database()), ("::1", Some("6000"), Some("x")));
        assert_eq!((read("").place().as_str(), read("").database()), ("/var/run/postgresql:6000", None));
        assert_eq!(read("shop").database(), Some("shop"));
    }

    #[test]
    fn malformed_strings_are_rejected() {
        for (text, word) in [
            ("host", ""),
            ("host='x", "quote"),
            ("postgresql://%4/x", "hexadecimal"),
            ("x=1 y", "missing"),
            ("require_auth=scram-sha-256", "require_auth \"scram-sha-256\" is not supported"),
            ("postgresql://db/items?channel_binding=require", "channel_binding \"require\" is not supported"),
            ("ssl_min_protocol_version=TLSv1.3", "ssl_min_protocol_version \"TLSv1.3\" is not supported"),
            ("pasword=x", "\"pasword\" is unknown"),
        ] {
            match Dsn::with(text, &|_| None) {
                Err(error) => assert!(error.to_string().contains(word), "{error}"),
                Ok(dsn) => assert_eq!(dsn.database(), Some("host")),
            }
        }
        assert!(Dsn::with("service=none", &|_| None).unwrap_err().to_string().contains("\"none\""));
        assert!(read("sslmode=perhaps").sslmode().is_err());
        for wrong in ["port=x", "hostaddr=db.example", "target_session_attrs=both", "connect_timeout=soon"] {
            assert!(read(wrong).config("x").is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_demands_nothing_new_is_taken() {
        read("channel_binding=prefer ssl_min_protocol_version=TLSv1.2 require_auth=''");
        let variable = |name: &str| (name == "PGREQUIREAUTH").then(|| "md5".to_owned());
        assert!(Dsn::with("dbname=items", &variable).unwrap_err().to_string().contains("require_auth \"md5\""));
    }

    #[test]
    fn several_hosts() {
        for text in [
            "host=a,b port=5433,5432 target_session_attrs=primary options='-c role=keeper'",
            "postgresql://a:5433,b/x?target_session_attrs=read-write&options=-c%20role%3Dkeeper",
        ] {
            expect_two_hosts(&read(text).config("x").unwrap());
        }
    }

    fn expect_two_hosts(config: &tokio_postgres::Config) {
        let hosts = ["a", "b"].map(|host| Host::Tcp(host.to_owned()));
        assert_eq!((config.get_hosts(), config.get_ports()), (&hosts[..], &[5433, 5432][..]));
        assert_eq!(config.get_options(), Some("-c role=keeper"));
        assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn a_line_of_the_password_file_fits_or_not() {
        let file = "# host:port:db:user:pw\ndb:5432:*:u:a\\:b\n*:*:*:*:other";
        assert_eq!(password(file, ["db", "5432", "x", "u"]).unwrap(), "a:b");
        assert_eq!(password(file, ["db", "5433", "x", "u"]).unwrap(), "other");
        assert_eq!(password("db:1:2", ["db", "1", "2", "3"]), None);
    }
}
