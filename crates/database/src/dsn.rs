//! Connection strings, services, the environment and passwords, interpreted as by libpq.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use tokio_postgres::config::TargetSessionAttrs;

use crate::Error;
use crate::tls::Tls;

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

/// Parameters of libpq that have no environment variable.
const WITHOUT_VARIABLE: [&str; 5] =
    ["keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "tcp_user_timeout"];

/// Parameters of libpq that are accepted and have no effect here.
const IGNORED: [&str; 13] = [
    "application_name",
    "client_encoding",
    "fallback_application_name",
    "gssdelegation",
    "gsslib",
    "krbsrvname",
    "load_balance_hosts",
    "replication",
    "ssl_max_protocol_version",
    "sslcompression",
    "sslnegotiation",
    "sslpassword",
    "sslsni",
];

/// Parameters that request protection which the driver does not support, with their environment variables and the values that are harmless.
const REFUSED: [(&str, &str, &[&str]); 8] = [
    ("channel_binding", "PGCHANNELBINDING", &["disable", "prefer"]),
    ("gssencmode", "PGGSSENCMODE", &["disable", "prefer"]),
    ("require_auth", "PGREQUIREAUTH", &[]),
    ("requirepeer", "PGREQUIREPEER", &[]),
    // The driver never uses TLS older than 1.2.
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", &["TLSv1", "TLSv1.1", "TLSv1.2"]),
    ("sslcertmode", "PGSSLCERTMODE", &["allow"]),
    ("sslcrl", "PGSSLCRL", &[]),
    ("sslcrldir", "PGSSLCRLDIR", &[]),
];

/// Files in `~/.postgresql` that are used as in libpq, if they exist and the parameter is not set: the root certificate with an `sslmode`
/// of `require` or more; the client's certificate and key whenever there may be TLS, if neither is missing.
const FILES: [(&str, &str); 3] =
    [("sslrootcert", "root.crt"), ("sslcert", "postgresql.crt"), ("sslkey", "postgresql.key")];

/// Directories of sockets for which a PostgreSQL may be compiled, Debian's in both spellings. In the password file they are called
/// `localhost`.
const SOCKETS: [&str; 3] = ["/var/run/postgresql", "/run/postgresql", "/tmp"];

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
    /// The string is malformed or demands what is not supported, or a service or file that it names cannot be read.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let dsn = Self::with(text, &|name| env::var(name).ok().filter(|value| !value.is_empty()))?;
        for server in dsn.servers()? {
            server.config("")?;
            Tls::new(&server)?;
        }
        Ok(dsn)
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
        let mode = parameters.get("sslmode").map_or("", String::as_str);
        // `prefer` does not insist on a valid certificate of the server.
        let (encrypts, verifies) = (mode != "disable", !matches!(mode, "" | "prefer" | "allow" | "disable"));
        let files = FILES.map(|(key, file)| {
            let path = home.join(".postgresql").join(file);
            (key, path.is_file().then(|| path.to_string_lossy().into_owned()))
        });
        let has = |at: usize| parameters.contains_key(files[at].0) || files[at].1.is_some();
        let has_pair = encrypts && has(1) && has(2);
        for ((key, path), is_taken) in files.into_iter().zip([verifies, has_pair, has_pair]) {
            if let Some(path) = path.filter(|_| is_taken) {
                parameters.entry(key.to_owned()).or_insert(path);
            }
        }
        let is_known = |key: &&String| {
            let others = WITHOUT_VARIABLE.iter().chain(&IGNORED);
            ENVIRONMENT.iter().map(|(known, _)| known).chain(others).any(|known| known == key)
        };
        match parameters.keys().find(|key| !is_known(key)) {
            Some(key) => Err(Error::Dsn(format!("option \"{key}\" is unknown"))),
            None => Ok(Self { parameters, home }),
        }
    }

    /// The same server and database, with more command-line options for the session, which override others.
    #[must_use]
    pub fn with_options(&self, more: &str) -> Self {
        let mut dsn = self.clone();
        let options = self.get("options").map_or_else(|| more.to_owned(), |options| format!("{options} {more}"));
        dsn.parameters.insert("options".to_owned(), options);
        dsn
    }

    /// Whether the client's certificate and key are those of `~/.postgresql`.
    pub(crate) fn has_default_pair(&self) -> bool {
        let is_default = |&(key, file): &(&str, &str)| {
            self.get(key).is_some_and(|path| Path::new(path) == self.home.join(".postgresql").join(file))
        };
        FILES[1..].iter().all(is_default)
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
        self.get("hostaddr").or_else(|| self.get("host")).unwrap_or(SOCKETS[0])
    }

    /// One for each server of comma-separated lists, such as a primary and its standbys.
    pub(crate) fn servers(&self) -> Result<Vec<Self>, Error> {
        let list = |key: &str| self.get(key).map_or(Vec::new(), |list| list.split(',').collect::<Vec<_>>());
        let (hosts, addresses, ports) = (list("host"), list("hostaddr"), list("port"));
        let count = hosts.len().max(addresses.len()).max(1);
        for (key, list) in [("host", &hosts), ("hostaddr", &addresses)] {
            if !list.is_empty() && list.len() != count {
                return Err(Error::Dsn(format!("{key} has {} entries for {count} servers", list.len())));
            }
        }
        if ports.len() > 1 && ports.len() != count {
            return Err(Error::Dsn(format!("there are {} ports for {count} servers", ports.len())));
        }
        let of = |number: usize| {
            let mut server = self.clone();
            for (key, list) in [("host", &hosts), ("hostaddr", &addresses), ("port", &ports)] {
                if let Some(&own) = list.get(number).or(list.first()) {
                    server.parameters.insert(key.to_owned(), own.to_owned());
                }
            }
            server
        };
        Ok((0..count).map(of).collect())
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

    /// The mode for the connection to a server: as in libpq, none over a socket.
    pub(crate) fn sslmode(&self) -> Result<SslMode, Error> {
        Ok(match self.get("sslmode").filter(|_| !self.host().starts_with('/')) {
            None if self.host().starts_with('/') => SslMode::Disable,
            None | Some("prefer" | "allow") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some("require") => SslMode::Require,
            Some("verify-ca") => SslMode::VerifyCa,
            Some("verify-full") => SslMode::VerifyFull,
            Some(other) => return Err(Error::Dsn(format!("sslmode \"{other}\" is unknown"))),
        })
    }

    /// The driver's configuration for a connection to `database` of one server.
    pub(crate) fn config(&self, database: &str) -> Result<tokio_postgres::Config, Error> {
        let mut config = tokio_postgres::Config::new();
        let number = |key: &str, text: &str| {
            text.parse::<u16>().map_err(|_| Error::Dsn(format!("{key} \"{text}\" is no number")))
        };
        let port = number("port", self.get("port").unwrap_or("5432"))?;
        config.host(self.name()).port(port);
        self.set_keepalives(&mut config)?;
        config.dbname(database);
        if let Some(address) = self.get("hostaddr") {
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
            self.get("password").map(str::to_owned).or_else(|| self.stored_password(port, database, user))
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

    /// Sets TCP keepalives: a rebuild may be silent for hours, and firewalls drop idle connections. Unless parameters say otherwise, the
    /// first probe comes after a minute, and the connection counts as lost after two and a half. Data that the server's kernel does not
    /// acknowledge is given up after the same time, since `tcp_user_timeout` also limits the number of probes.
    fn set_keepalives(&self, config: &mut tokio_postgres::Config) -> Result<(), Error> {
        let number = |key: &str, usual: u32| match self.get(key) {
            None => Ok(usual),
            Some(text) => text.trim().parse().map_err(|_| Error::Dsn(format!("{key} \"{text}\" is no number"))),
        };
        let positive =
            |key: &str, usual: u32| Ok(Some(number(key, usual)?).filter(|&number| number > 0).unwrap_or(usual));
        let seconds = |key: &str, usual: u32| Ok(Duration::from_secs(positive(key, usual)?.into()));
        let (idle, interval) = (seconds("keepalives_idle", 60)?, seconds("keepalives_interval", 10)?);
        let count = positive("keepalives_count", 9)?;
        config.keepalives(number("keepalives", 1)? != 0);
        config.keepalives_idle(idle).keepalives_interval(interval).keepalives_retries(count);
        let usual = u32::try_from((idle + count.min(1000) * interval).as_millis()).unwrap_or(u32::MAX);
        config.tcp_user_timeout(Duration::from_millis(number("tcp_user_timeout", usual)?.into()));
        Ok(())
    }

    fn stored_password(&self, port: u16, database: &str, user: &str) -> Option<String> {
        let path = self.get("passfile").map_or_else(|| self.home.join(".pgpass"), PathBuf::from);
        let host = if SOCKETS.contains(&self.name()) { "localhost" } else { self.name() };
        password(&text(&path)?, [host, &port.to_string(), database, user])
    }
}

/// The text of a file, which need not be in UTF-8 as a whole.
fn text(path: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
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
        let Some(text) = text(&path) else { continue };
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
    // A password may contain a question mark.
    let (user, rest) = match rest.find(['@', '/']) {
        Some(at) if rest[at..].starts_with('@') => (&rest[..at], &rest[at + 1..]),
        _ => ("", rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
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
    let missing = || Error::Dsn("\"=\" is missing after a key".to_owned());
    let query = query.split('&').filter(|pair| !pair.is_empty());
    let query = query.map(|pair| pair.split_once('=').ok_or_else(missing)).collect::<Result<Vec<_>, Error>>()?;
    for (key, value) in parts.into_iter().chain(query) {
        if !value.is_empty() {
            found.insert(decoded(key)?, decoded(value)?);
        }
    }
    Ok(found)
}

/// Decodes percent-encoding.
fn decoded(text: &str) -> Result<String, Error> {
    let wrong = || Error::Dsn("a % is not followed by two hexadecimal digits".to_owned());
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

    use std::fs;

    use super::{Dsn, SslMode, Tls, password};

    fn read(text: &str) -> Dsn {
        Dsn::with(text, &|name| (name == "PGPORT").then(|| "6000".to_owned())).unwrap()
    }

    #[test]
    fn uris_and_key_value_pairs_give_the_same_parameters() {
        for text in [
            "host=db.example port=5433 dbname='my db' user=u password='it\\'s' sslmode=verify-full",
            "postgresql://u:it%27s@db.example:5433/my%20db?sslmode=verify-full",
        ] {
            let dsn = read(text);
            let found = ["host", "port", "dbname", "user", "password", "sslmode"].map(|key| dsn.get(key).unwrap());
            assert_eq!(found, ["db.example", "5433", "my db", "u", "it's", "verify-full"], "{text}");
        }
        let dsn = read("postgresql://u:a?b@db/x");
        assert_eq!((dsn.get("host"), dsn.get("password")), (Some("db"), Some("a?b")));
        let dsn = read("postgres://[::1]/x");
        assert_eq!((dsn.host(), dsn.get("port"), dsn.database()), ("::1", Some("6000"), Some("x")));
        assert_eq!((read("").place().as_str(), read("").database()), ("/var/run/postgresql:6000", None));
        assert_eq!(read("shop").database(), Some("shop"));
    }

    #[test]
    fn malformed_strings_are_rejected() {
        for (text, word) in [
            ("host='x", "quote"),
            ("postgresql://%4/x", "hexadecimal"),
            ("x=1 y", "missing"),
            ("postgresql://db/x?sslmode:verify-full", "missing"),
            ("gssencmode=require", "gssencmode \"require\" is not supported"),
            ("sslcertmode=disable", "sslcertmode \"disable\" is not supported"),
            ("sslcertmode=require", "sslcertmode \"require\" is not supported"),
            ("require_auth=scram-sha-256", "require_auth \"scram-sha-256\" is not supported"),
            ("postgresql://db/items?channel_binding=require", "channel_binding \"require\" is not supported"),
            ("ssl_min_protocol_version=TLSv1.3", "ssl_min_protocol_version \"TLSv1.3\" is not supported"),
            ("pasword=x", "\"pasword\" is unknown"),
        ] {
            let error = Dsn::with(text, &|_| None).expect_err(text);
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(Dsn::with("service=none", &|_| None).unwrap_err().to_string().contains("\"none\""));
        assert!(read("host=db sslmode=perhaps").sslmode().is_err());
        for wrong in
            ["port=x", "hostaddr=db.example", "target_session_attrs=both", "connect_timeout=soon", "keepalives=-1"]
        {
            assert!(read(wrong).config("x").is_err(), "{wrong}");
        }
    }

    #[test]
    fn refused_parameters_are_accepted_with_harmless_values() {
        read("channel_binding=prefer ssl_min_protocol_version=TLSv1.2 require_auth=''");
        let variable = |name: &str| (name == "PGREQUIREAUTH").then(|| "md5".to_owned());
        assert!(Dsn::with("dbname=items", &variable).unwrap_err().to_string().contains("require_auth \"md5\""));
    }

    #[test]
    fn keepalive_parameters_determine_the_tcp_user_timeout() {
        let found = |text: &str| {
            let config = read(text).servers().unwrap()[0].config("x").unwrap();
            let seconds = [config.get_keepalives_idle().as_secs(), config.get_keepalives_interval().unwrap().as_secs()];
            let lost = config.get_tcp_user_timeout().unwrap().as_millis();
            (config.get_keepalives(), seconds, config.get_keepalives_retries(), lost)
        };
        assert_eq!(found("keepalives_idle=0"), (true, [60, 10], Some(9), 150_000));
        assert_eq!(found("keepalives_idle=30 keepalives_interval=5 keepalives_count=2").3, 40_000);
        let own = "keepalives_idle=30 keepalives_interval=5 keepalives_count=2 tcp_user_timeout=40000";
        assert_eq!(found(own), (true, [30, 5], Some(2), 40_000));
        assert!(!found("keepalives=0").0);
    }

    #[test]
    fn each_host_of_a_list_has_its_own_port() {
        for text in [
            "host=a,b port=5433,5432 target_session_attrs=primary options='-c role=keeper'",
            "postgresql://a:5433,b/x?target_session_attrs=read-write&options=-c%20role%3Dkeeper",
        ] {
            let servers = read(text).servers().unwrap();
            assert_eq!(servers.len(), 2, "{text}");
            for (server, (host, port)) in servers.iter().zip([("a", 5433), ("b", 5432)]) {
                let config = server.config("x").unwrap();
                assert_eq!((config.get_hosts(), config.get_ports()), (&[Host::Tcp(host.to_owned())][..], &[port][..]));
                assert_eq!(config.get_options(), Some("-c role=keeper"));
                assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
                let config = server.with_options("-c jit=off").config("x").unwrap();
                assert_eq!(config.get_options(), Some("-c role=keeper -c jit=off"));
            }
        }
        assert_eq!(read("host=a,b port=7").servers().unwrap()[1].place(), "b:7");
        for wrong in ["host=a,b port=1,2,3", "host=a,b hostaddr=10.0.0.1"] {
            assert!(read(wrong).servers().is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_server_has_its_own_sslmode_password_and_default_files() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".postgresql")).unwrap();
        let root = home.path().join(".postgresql/root.crt");
        fs::write(&root, "").unwrap();
        let lines = b"# f\xfcr alle\n*:5433:*:u:first\n/elsewhere:*:*:u:third\n*:5432:*:u:second\n";
        fs::write(home.path().join(".pgpass"), lines).unwrap();
        let variable = |name: &str| (name == "HOME").then(|| home.path().to_str().unwrap().to_owned());
        let text = "host=/elsewhere,a,b port=1,5433,5432 user=u sslmode=require";
        let servers = Dsn::with(text, &variable).unwrap().servers().unwrap();
        let modes = [SslMode::Disable, SslMode::Require, SslMode::Require];
        for ((server, mode), password) in servers.iter().zip(modes).zip(["third", "first", "second"]) {
            assert_eq!(server.sslmode().unwrap(), mode);
            assert_eq!(server.config("x").unwrap().get_password().unwrap(), password.as_bytes());
            assert_eq!(server.get("sslrootcert"), root.to_str());
        }
        assert_eq!(Dsn::with("host=a", &variable).unwrap().get("sslrootcert"), None, "not verified by default");
        for name in ["postgresql.crt", "postgresql.key"] {
            let text = "host=a";
            assert_eq!(Dsn::with(text, &variable).unwrap().get("sslcert"), None, "one is of no use without the other");
            fs::write(home.path().join(".postgresql").join(name), "").unwrap();
        }
        let takes_pair = |text: &str| {
            let dsn = Dsn::with(text, &variable).unwrap();
            [dsn.get("sslcert"), dsn.get("sslkey")].map(|path| path.is_some())
        };
        assert_eq!([takes_pair("host=a"), takes_pair("host=a sslmode=disable")], [[true; 2], [false; 2]]);
        let given = Dsn::with("host=a sslcert=/own.crt", &variable).unwrap();
        assert_eq!((given.get("sslcert"), given.get("sslkey").is_some()), (Some("/own.crt"), true));
        // An unusable default pair does not prevent a connection that needs none.
        let loads = |text: &str| Tls::new(&Dsn::with(text, &variable).unwrap()).is_ok();
        assert_eq!([loads("host=a"), loads("host=a sslmode=require")], [true, false]);
        assert!(!loads("host=a sslcert=/own.crt"), "a file that a parameter names must be readable");
    }

    #[test]
    fn the_first_matching_line_of_a_password_file_has_the_password() {
        let file = "# host:port:db:user:pw\ndb:5432:*:u:a\\:b\n*:*:*:*:other";
        assert_eq!(password(file, ["db", "5432", "x", "u"]).unwrap(), "a:b");
        assert_eq!(password(file, ["db", "5433", "x", "u"]).unwrap(), "other");
        assert_eq!(password("db:1:2", ["db", "1", "2", "3"]), None);
    }
}
