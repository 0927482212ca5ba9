//! Connection strings, services, the environment and passwords, as libpq understands them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use crate::Error;

/// Where parameters come from if the connection string does not have them.
const ENVIRONMENT: [(&str, &str); 13] = [
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
];

/// How much of TLS is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    /// None.
    Disable,
    /// If the server has it.
    Prefer,
    /// Encrypted; the certificate is checked if there is a root.
    Require,
    /// The certificate is checked.
    VerifyCa,
    /// And that it is for the host.
    VerifyFull,
}

/// What to connect to.
#[derive(Clone, Debug)]
pub struct Dsn {
    parameters: BTreeMap<String, String>,
    home: PathBuf,
}

impl Dsn {
    /// Reads `key=value …` or `postgresql://…`, then the service it names and the environment. An empty string takes all from there.
    ///
    /// # Errors
    /// The string is not one, or the service is unknown.
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
            // As psql does.
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
        Ok(Self { parameters, home })
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.parameters.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The database that is named; `None` to take all.
    #[must_use]
    pub fn database(&self) -> Option<&str> {
        self.get("dbname")
    }

    /// The host, or the directory of its socket.
    #[must_use]
    pub fn host(&self) -> &str {
        self.get("hostaddr").or_else(|| self.get("host")).unwrap_or("/var/run/postgresql")
    }

    /// The name that a certificate must be for.
    pub(crate) fn name(&self) -> &str {
        self.get("host").unwrap_or_else(|| self.host())
    }

    /// The place for messages.
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

    /// For the driver, with a database.
    pub(crate) fn config(&self, database: &str) -> Result<tokio_postgres::Config, Error> {
        let mut config = tokio_postgres::Config::new();
        let number = |key, default: u16| match self.get(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| Error::Dsn(format!("{key} \"{text}\" is no number"))),
        };
        let port = number("port", 5432)?;
        // A rebuild may be silent for hours, while what lies between forgets connections without traffic.
        config.keepalives_idle(Duration::from_secs(60)).keepalives_interval(Duration::from_secs(10));
        config.host(self.name()).port(port).dbname(database).application_name("lantern-index maintain");
        if let Some(address) = self.get("hostaddr") {
            // The name is what the certificate is for.
            let wrong = || Error::Dsn(format!("hostaddr \"{address}\" is no address"));
            config.hostaddr(address.parse().map_err(|_| wrong())?);
        }
        let user = self.get("user").unwrap_or("postgres");
        config.user(user);
        if let Some(password) =
            self.get("password").map(str::to_owned).or_else(|| self.stored_password(port, database, user))
        {
            config.password(password);
        }
        match number("connect_timeout", 0)? {
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

/// The password of the first line that fits: `host:port:database:user:password`, where `*` fits all and `\` stands before `:` and `\`.
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
    let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
        Some((address, port)) => (address, port.trim_start_matches(':')),
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let parts = [("user", user), ("password", password), ("host", host), ("port", port), ("dbname", database)];
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    for (key, value) in parts.into_iter().chain(query) {
        if !value.is_empty() {
            found.insert(decoded(key)?, decoded(value)?);
        }
    }
    Ok(found)
}

/// `%41` is `A`.
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
    fn mistakes_are_told() {
        for (text, word) in
            [("host", ""), ("host='x", "quote"), ("postgresql://%4/x", "hexadecimal"), ("x=1 y", "missing")]
        {
            match Dsn::with(text, &|_| None) {
                Err(error) => assert!(error.to_string().contains(word), "{error}"),
                Ok(dsn) => assert_eq!(dsn.database(), Some("host")),
            }
        }
        assert!(Dsn::with("service=none", &|_| None).unwrap_err().to_string().contains("\"none\""));
        assert!(read("sslmode=perhaps").sslmode().is_err());
    }

    #[test]
    fn a_line_of_the_password_file_fits_or_not() {
        let file = "# host:port:db:user:pw\ndb:5432:*:u:a\\:b\n*:*:*:*:other";
        assert_eq!(password(file, ["db", "5432", "x", "u"]).unwrap(), "a:b");
        assert_eq!(password(file, ["db", "5433", "x", "u"]).unwrap(), "other");
        assert_eq!(password("db:1:2", ["db", "1", "2", "3"]), None);
    }
}
