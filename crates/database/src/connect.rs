use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::Severity;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row};

use crate::dsn::Dsn;
use crate::error::{Error, describe, message};
use crate::tls::Tls;

/// The class of SQLSTATEs with which a server refuses a login.
const LOGIN: &str = "28";
/// `cannot_connect_now`: the server starts, ends or recovers.
const NOT_NOW: &str = "57P03";
/// Rows per fetch from a cursor.
const FETCH: u32 = 200;

/// A session with one database.
pub struct Database {
    /// The name of the database.
    pub name: String,
    /// Host and port of its server, as in the connection string.
    pub server: String,
    /// The process id of the server's backend.
    pub pid: i32,
    client: Client,
    tls: Tls,
    warnings: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Database {
    /// Connects to the database `name` of the first server that takes the connection; `program` is what `pg_stat_activity` shows. As in
    /// libpq, a server's refusal is final, unless it says that it cannot take connections now.
    ///
    /// # Errors
    /// The connection string is invalid, or all connections fail.
    pub async fn open(dsn: &Dsn, name: &str, program: &str) -> Result<Self, Error> {
        let (mut places, mut reasons) = (Vec::new(), Vec::new());
        for server in dsn.servers()? {
            match Self::open_one(&server, name, program).await? {
                Ok(database) => return Ok(database),
                Err(failure) => {
                    places.push(format!("{}/{name}", server.place()));
                    reasons.push(failure.reason);
                    if failure.is_final {
                        break;
                    }
                }
            }
        }
        Err(Error::Connect { place: places.join(", "), reason: reasons.join("; ") })
    }

    /// Tries each address of a server.
    async fn open_one(dsn: &Dsn, name: &str, program: &str) -> Result<Result<Self, Failure>, Error> {
        let tls = Tls::new(dsn)?;
        let mut config = dsn.config(name)?;
        config.application_name(program);
        let found = match addresses(config).await {
            Ok(found) => found,
            Err(error) => return Ok(Err(Failure::transient(error.to_string()))),
        };
        let mut reasons: Vec<String> = Vec::new();
        for config in found {
            // As in libpq, the limit is per address and includes the login. The driver limits only the TCP connection.
            let limit = config.get_connect_timeout().copied().unwrap_or(Duration::MAX);
            let tried = timeout(limit, Self::session(config, &tls, name)).await;
            let failure = match tried.unwrap_or_else(|_| Err(Failure::transient("timeout expired".to_owned()))) {
                Ok(mut database) => {
                    database.server = dsn.place();
                    return Ok(Ok(database));
                }
                Err(failure) => failure,
            };
            if failure.is_final {
                return Ok(Err(failure));
            }
            if !reasons.contains(&failure.reason) {
                reasons.push(failure.reason);
            }
        }
        if reasons.is_empty() {
            reasons.push("the host name has no address".to_owned());
        }
        Ok(Err(Failure::transient(reasons.join("; "))))
    }

    /// As in libpq, `prefer` connects again without TLS if the handshake fails, or if the server refuses the login over TLS.
    async fn session(mut config: Config, tls: &Tls, name: &str) -> Result<Self, Failure> {
        let error = match Self::login(&config, tls, name).await {
            Ok(database) => return Ok(database),
            Err(error) => error,
        };
        let prefers = tls.take_begun() && config.get_ssl_mode() == SslMode::Prefer;
        let is_refused = error.code().is_some_and(|code| code.code().starts_with(LOGIN));
        if !(prefers && (is_refused || Tls::is_failure(&error))) {
            return Err(Failure::of(&error));
        }
        config.ssl_mode(SslMode::Disable);
        Self::login(&config, tls, name).await.map_err(|second| {
            let Failure { reason, is_final } = Failure::of(&second);
            Failure { reason: format!("{}; without TLS: {reason}", describe(&error)), is_final }
        })
    }

    async fn login(config: &Config, tls: &Tls, name: &str) -> Result<Self, tokio_postgres::Error> {
        let (client, mut connection) = config.connect(tls.clone()).await?;
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&warnings);
        // The task ends when the client is dropped or the connection fails, of which the current statement returns the error.
        let task = tokio::spawn(async move {
            while let Some(Ok(received)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notice(notice) = received
                    && notice.parsed_severity() == Some(Severity::Warning)
                {
                    let warning = format!("WARNING: {}", message(&notice));
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
                }
            }
        });
        let mut database =
            Self { name: name.to_owned(), server: String::new(), pid: 0, client, tls: tls.clone(), warnings, task };
        database.pid = database.client.query_one("SELECT pg_catalog.pg_backend_pid()", &[]).await?.try_get(0)?;
        // Warnings at login, for instance about a collation's version, belong to no statement.
        drop(database.take_warnings());
        Ok(database)
    }

    /// The server's WARNINGs since the last call, with detail and hint.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the connection is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs one or more statements.
    ///
    /// # Errors
    /// One of them fails.
    pub async fn run(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await.map_err(|error| Error::statement(&self.name, &error))
    }

    /// The rows of a statement.
    ///
    /// # Errors
    /// It fails.
    pub async fn rows(&self, sql: &str) -> Result<Vec<Row>, Error> {
        self.rows_with(sql, &[]).await
    }

    /// The rows of a statement with parameters.
    ///
    /// # Errors
    /// It fails.
    pub async fn rows_with(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        self.client.query(sql, parameters).await.map_err(|error| Error::statement(&self.name, &error))
    }

    /// Calls `visit` with each value of the first column of a query's result, in binary form; NULL is skipped. Fetches in batches from a
    /// cursor, so it needs a transaction.
    ///
    /// # Errors
    /// The query fails.
    pub async fn for_each(&self, sql: &str, mut visit: impl FnMut(&[u8])) -> Result<(), Error> {
        self.rows(&format!("DECLARE lantern_index NO SCROLL CURSOR FOR {sql}")).await?;
        let fetch = format!("FETCH {FETCH} FROM lantern_index");
        loop {
            let rows = self.rows(&fetch).await?;
            for row in &rows {
                let value: Option<Binary<'_>> = row.try_get(0).map_err(|error| Error::statement(&self.name, &error))?;
                value.into_iter().for_each(|Binary(value)| visit(value));
            }
            if rows.is_empty() {
                return self.run("CLOSE lantern_index").await;
            }
        }
    }

    /// The value of a statement that returns one row with one column.
    ///
    /// # Errors
    /// The statement fails, returns no row or several, or its value has another type.
    pub async fn value<T>(&self, sql: &str) -> Result<T, Error>
    where
        T: for<'a> FromSql<'a>,
    {
        let row = self.client.query_one(sql, &[]).await.map_err(|error| Error::statement(&self.name, &error))?;
        row.try_get(0).map_err(|error| Error::statement(&self.name, &error))
    }

    /// Cancels the current statement, if there is one.
    pub async fn cancel(&self) {
        // If the cancel request fails, the statement continues, and the caller waits for it.
        _ = self.client.cancel_token().cancel_query(self.tls.clone()).await;
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why a connection failed.
struct Failure {
    reason: String,
    /// Other addresses and servers are not tried.
    is_final: bool,
}

impl Failure {
    fn transient(reason: String) -> Self {
        Self { reason, is_final: false }
    }

    fn of(error: &tokio_postgres::Error) -> Self {
        let reason = describe(error);
        if reason.contains("password missing") {
            let reason = "the server asks for a password: PGPASSWORD, a password file (~/.pgpass, PGPASSFILE) or the \
                          connection string must have it";
            return Self { reason: reason.to_owned(), is_final: true };
        }
        Self { reason, is_final: error.code().is_some_and(|code| code.code() != NOT_NOW) }
    }
}

/// The configuration for each address of a server, in the order in which they are tried.
async fn addresses(config: Config) -> io::Result<Vec<Config>> {
    let ([Host::Tcp(host)], [], [port]) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports()) else {
        return Ok(vec![config]);
    };
    let found = lookup_host((host.as_str(), *port)).await?;
    let of = |address: SocketAddr| config.clone().hostaddr(address.ip()).clone();
    Ok(found.map(of).collect())
}

/// A value of any type, as its `send` function encodes it.
struct Binary<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Binary<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::Database;
    use crate::{Dsn, Error};

    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

    /// The places that a connection string names, and why none of them can be connected to.
    fn refused(text: &str) -> (String, String) {
        let dsn = Dsn::parse(text).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opened = runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(60), Database::open(&dsn, "x", "test")).await.unwrap()
        });
        let Err(Error::Connect { place, reason }) = opened else { panic!() };
        (place, reason)
    }

    #[test]
    fn a_server_that_never_answers_is_given_up_for_the_next() {
        // The kernel establishes connections without `accept`.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let (_, reason) = refused(&format!("host=127.0.0.1,/nowhere port={port},5432 user=u connect_timeout=1"));
        assert!(reason.starts_with("timeout expired; "), "{reason}");
    }

    #[test]
    fn prefer_tries_again_without_tls() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let mut first = listener.accept().unwrap().0;
            let mut request = [0; 8];
            first.read_exact(&mut request).unwrap();
            assert_eq!(request, SSL_REQUEST);
            first.write_all(b"S and no handshake").unwrap();
            listener.accept().unwrap().0.read_exact(&mut request).unwrap();
            assert_eq!(request[4..], [0, 3, 0, 0], "a startup message of protocol 3.0");
        });
        let (_, reason) = refused(&format!("host=127.0.0.1 port={port} user=u sslmode=prefer"));
        server.join().unwrap();
        assert!(reason.contains("; without TLS: "), "{reason}");
    }

    /// The reason reported if the first of two servers answers the startup message with this SQLSTATE; the second does not exist.
    fn refused_by_first(code: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let fields = format!("SFATAL\0VFATAL\0C{code}\0Mgo away\0\0");
        let server = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            _ = stream.read(&mut [0; 1000]).unwrap();
            let length = u32::try_from(fields.len() + 4).unwrap();
            stream.write_all(&[b"E", &length.to_be_bytes()[..], fields.as_bytes()].concat()).unwrap();
        });
        let (_, reason) = refused(&format!("host=127.0.0.1,/nowhere port={port},5432 user=u sslmode=disable"));
        server.join().unwrap();
        reason
    }

    #[test]
    fn only_cannot_connect_now_moves_on_to_the_next_server() {
        assert_eq!(refused_by_first("28P01"), "go away");
        assert!(refused_by_first("57P03").starts_with("go away; "));
    }

    #[test]
    fn a_socket_in_the_list_does_not_turn_off_tls_elsewhere() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let first = thread::spawn(move || {
            let mut first = [0; 8];
            listener.accept().unwrap().0.read_exact(&mut first).map(|()| first)
        });
        let (place, reason) = refused(&format!("host=/nowhere,127.0.0.1 port=5432,{port} user=u sslmode=require"));
        assert_eq!(first.join().unwrap().unwrap(), SSL_REQUEST);
        assert!(
            place.contains("/nowhere") && place.contains(&port.to_string()) && reason.contains("; "),
            "{place}: {reason}"
        );
    }
}
