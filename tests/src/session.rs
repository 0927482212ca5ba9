use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::str::FromStr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::SqlError;
use crate::wire::{self, Notice};

/// The rows of a statement, as text; `None` is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

/// A session that runs a statement in the background.
pub type Building = JoinHandle<(Session, Result<(), SqlError>)>;

/// A session of the superuser, over the cluster's socket.
pub struct Session {
    stream: BufReader<UnixStream>,
    pid: u32,
    notices: Vec<Notice>,
}

impl Session {
    /// Connects to `database`; `socket` is the cluster's socket file.
    pub(crate) fn connect(socket: &Path, database: &str) -> Result<Self, SqlError> {
        let stream = UnixStream::connect(socket)?;
        // Longer than any statement of a test, so that a test that hangs fails with the statement that hangs.
        stream.set_read_timeout(Some(Duration::from_secs(900)))?;
        let mut session = Self { stream: BufReader::new(stream), pid: 0, notices: Vec::new() };
        wire::send_startup(session.stream.get_mut(), "postgres", database)?;
        session.answer(None)?;
        Ok(session)
    }

    /// The backend's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Runs one or more statements and returns the rows of all.
    pub fn query(&mut self, sql: &str) -> Result<Rows, SqlError> {
        self.send_query(sql)?;
        self.answer(None)
    }

    /// Runs statements and discards their rows.
    pub fn execute(&mut self, sql: &str) -> Result<(), SqlError> {
        self.query(sql).map(drop)
    }

    /// Publishes the session's statistics now: PostgreSQL 15 and later may wait for ten idle seconds.
    pub fn flush_statistics(&mut self) -> Result<(), SqlError> {
        self.execute(
            "DO $$ BEGIN IF current_setting('server_version_num')::int >= 150000 THEN PERFORM pg_stat_force_next_flush(); \
             ELSE PERFORM pg_sleep(1); END IF; END $$",
        )
    }

    /// Runs statements in the background.
    pub fn start(mut self, sql: &str) -> Building {
        let sql = sql.to_owned();
        thread::spawn(move || {
            let result = self.execute(&sql);
            (self, result)
        })
    }

    /// Runs a statement that returns one row with one column.
    pub fn value<T: FromStr>(&mut self, sql: &str) -> Result<T> {
        let rows = self.query(sql).with_context(|| sql.to_owned())?;
        let value = rows.first().and_then(|row| row.first()?.as_ref()).with_context(|| format!("{sql}: no value"))?;
        value.parse().ok().with_context(|| format!("{sql}: {value:?} is of another type"))
    }

    /// The plan of a statement, with schemas' names and without costs, one step a line.
    pub fn plan(&mut self, sql: &str) -> Result<String, SqlError> {
        let lines: Vec<String> =
            self.query(&format!("EXPLAIN (VERBOSE, COSTS OFF) {sql}"))?.into_iter().flatten().flatten().collect();
        Ok(lines.join("\n"))
    }

    /// Checks that the plan of a statement has a scan of the index. With few rows the planner prefers to read the table; `enable_seqscan`
    /// and `enable_sort` make it use the index.
    pub fn expect_index_scan(&mut self, index: &str, sql: &str) -> Result<()> {
        let plan = self.plan(sql)?;
        ensure!(plan.contains(&format!("Index Scan using {index} on ")), "no scan of {index} in\n{plan}");
        Ok(())
    }

    /// Runs `COPY … FROM STDIN` with `data`.
    pub fn copy(&mut self, sql: &str, data: &[u8]) -> Result<(), SqlError> {
        self.send_query(sql)?;
        self.answer(Some(data)).map(drop)
    }

    /// Messages of the server since the last call, including INFO lines.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    fn send_query(&mut self, sql: &str) -> io::Result<()> {
        let mut body = sql.as_bytes().to_vec();
        body.push(0);
        wire::send(self.stream.get_mut(), b'Q', &body)
    }

    /// Reads messages until the server is ready for the next statement.
    fn answer(&mut self, copy: Option<&[u8]>) -> Result<Rows, SqlError> {
        let mut rows = Vec::new();
        let mut error = None;
        loop {
            let (kind, body) = match wire::receive(&mut self.stream) {
                Ok(message) => message,
                // After a FATAL error the session ends.
                Err(lost) => return Err(error.unwrap_or(SqlError::Connection(lost))),
            };
            match kind {
                b'D' => rows.push(wire::fields(&body).ok_or_else(|| io::Error::other("a broken row"))?),
                b'E' => error = Some(SqlError::Server(Box::new(Notice::parse(&body)))),
                b'N' => self.notices.push(Notice::parse(&body)),
                b'K' => self.pid = body.first_chunk().map_or(0, |pid| u32::from_be_bytes(*pid)),
                b'R' if body != [0; 4] => return Err(io::Error::other("a password is asked for").into()),
                b'G' => self.send_copy(copy.unwrap_or_default())?,
                b'Z' => return error.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    fn send_copy(&mut self, data: &[u8]) -> io::Result<()> {
        let stream = self.stream.get_mut();
        for chunk in data.chunks(1 << 20) {
            wire::send(stream, b'd', chunk)?;
        }
        wire::send(stream, b'c', &[])
    }
}
