//! The conversation with a builder about one index (`proto/README.md`).

use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use protocol::{
    Accept, BuilderMessage, ClientMessage, EndOfTuples, Frame, GREETING_VERSION, Greeting, Hello, MAGIC,
    PROTOCOL_VERSION, ProtocolError, ServerType, SessionState, StreamChecksum, TuplesWriter, Wait,
};

use crate::connection::Connection;
use crate::failure::{Failure, printable, tell};
use crate::settings::Settings;

/// The most time to wait for the greeting where no timeout is set.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Session {
    connection: Connection,
    state: SessionState,
    sent: StreamChecksum,
    pages: StreamChecksum,
    rows: u64,
    heartbeat: Instant,
}

impl Session {
    /// Connects to a builder.
    pub(crate) fn connect(settings: &Settings) -> Result<Self, Failure> {
        let mut connection = Connection::open(settings)?;
        let limit = settings.connect_timeout.unwrap_or(GREETING_TIMEOUT);
        let started = Instant::now();
        while connection.received().len() < 8 {
            connection.exchange()?;
            if connection.received().len() >= 8 {
                break;
            }
            if connection.is_closed() {
                return Err(connection.broken("the server closed the connection before its greeting"));
            }
            if started.elapsed() > limit {
                return Err(connection.broken("the server sent no greeting").hint(
                    "If the builder uses TLS, set hnsw.external_index_secure to on; otherwise check that it is a lantern-index builder.",
                ));
            }
            connection.wait();
        }
        let mut bytes = [0; 8];
        connection.received().copy_to_slice(&mut bytes);
        let greeting = Greeting::from_bytes(bytes);
        if greeting.version != GREETING_VERSION {
            return Err(Failure::protocol(format!(
                "The greeting has version {}, {GREETING_VERSION} expected.",
                greeting.version
            )));
        }
        if greeting.server_type != ServerType::Builder as u32 {
            let found = greeting.server_type;
            return Err(Failure::protocol(format!("The server is of type {found}, a builder (type 1) is expected.")));
        }
        let (state, heartbeat) = (SessionState::Opened, Instant::now());
        Ok(Self { connection, state, sent: StreamChecksum::new(), pages: StreamChecksum::new(), rows: 0, heartbeat })
    }

    /// Asks for a build and waits until the builder takes it.
    pub(crate) fn start(&mut self, hello: Hello) -> Result<Accept, Failure> {
        self.pass(|connection| connection.send(&MAGIC))?;
        self.say(&ClientMessage::Hello(hello))?;
        self.pass(Connection::flush)?;
        loop {
            match self.next()? {
                BuilderMessage::Accept(accept) if accept.protocol == PROTOCOL_VERSION => return Ok(accept),
                BuilderMessage::Accept(accept) => {
                    let found = accept.protocol;
                    return Err(Failure::protocol(format!(
                        "Version {found} accepted, {PROTOCOL_VERSION} was offered."
                    )));
                }
                BuilderMessage::Wait(wait) => tell(PgLogLevel::NOTICE, waiting(&wait)),
                other => return Err(Failure::protocol(format!("{} in place of Accept.", other.name()))),
            }
        }
    }

    /// Sends a batch of rows, and looks whether the builder has something to say.
    pub(crate) fn send(&mut self, batch: &mut TuplesWriter) -> Result<(), Failure> {
        let rows = u64::from(batch.rows());
        let sent = batch.take(|part| self.connection.send(part));
        match sent {
            Ok(crc) => {
                self.sent.add(crc);
                self.rows += rows;
            }
            Err(failure) => return Err(self.report_or(failure)),
        }
        self.heartbeat = Instant::now();
        self.listen_while_sending()
    }

    /// For the time between batches: tells the builder that we are alive, hears what it has to say, and notices if it is gone.
    /// Waits for nothing and calls nothing of PostgreSQL.
    pub(crate) fn beat(&mut self) -> Result<(), Failure> {
        self.pass(Connection::exchange)?;
        // While rows are on their way they say it.
        if self.heartbeat.elapsed() >= protocol::HEARTBEAT_INTERVAL && self.connection.has_room() {
            self.heartbeat = Instant::now();
            self.say(&ClientMessage::Heartbeat)?;
        }
        self.listen_while_sending()?;
        self.connection.check_silence()
    }

    fn listen_while_sending(&mut self) -> Result<(), Failure> {
        while let Some(message) = self.received()? {
            if !matches!(message, BuilderMessage::Progress(_)) {
                return Err(Failure::protocol(format!("{} while rows were being sent.", message.name())));
            }
        }
        if self.connection.is_closed() {
            return Err(self.connection.broken("the builder closed the connection"));
        }
        Ok(())
    }

    /// All rows were sent.
    pub(crate) fn end_of_tuples(&mut self) -> Result<(), Failure> {
        let end = EndOfTuples { rows: self.rows, checksum: self.sent.value() };
        self.say(&ClientMessage::EndOfTuples(end))?;
        self.pass(Connection::flush)
    }

    /// The checksum of all pages received.
    pub(crate) fn pages_checksum(&self) -> u32 {
        self.pages.value()
    }

    /// What it speaks over.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The number of rows sent.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Waits for the builder's next message. Errors it reports are failures, heartbeats are not worth a message.
    pub(crate) fn next(&mut self) -> Result<BuilderMessage, Failure> {
        loop {
            // A builder that never stops talking must not keep the backend from being cancelled.
            pgrx::check_for_interrupts!();
            if let Some(message) = self.received()? {
                return Ok(message);
            }
            if self.connection.is_closed() {
                return Err(self.connection.broken("the builder closed the connection"));
            }
            if self.heartbeat.elapsed() >= protocol::HEARTBEAT_INTERVAL {
                self.heartbeat = Instant::now();
                self.say(&ClientMessage::Heartbeat)?;
                // Which may have read something.
                continue;
            }
            let before = self.connection.received().len();
            self.pass(|connection| connection.exchange())?;
            if self.connection.received().len() == before && !self.connection.is_closed() {
                // Only now is the silence the builder's: what came while we were busy has been read.
                self.connection.check_silence()?;
                self.connection.wait();
            }
        }
    }

    /// A message that has arrived already.
    pub(crate) fn received(&mut self) -> Result<Option<BuilderMessage>, Failure> {
        loop {
            let Some(frame) = Frame::decode(self.connection.received()).map_err(malformed)? else { return Ok(None) };
            let Some(message) = BuilderMessage::from_frame(&frame).map_err(malformed)? else { continue };
            self.state = self.state.builder(&message).map_err(malformed)?;
            if let BuilderMessage::Pages(_) = message {
                self.pages.add(frame.crc);
            }
            return match message {
                BuilderMessage::Heartbeat => continue,
                BuilderMessage::Error(report) => {
                    Err(Failure::from_builder(report.sqlstate, &report.message, &report.detail, &report.hint))
                }
                BuilderMessage::Refuse(refuse) => {
                    Err(Failure::from_builder(refuse.sqlstate, &refuse.message, &refuse.detail, &refuse.hint))
                }
                message => Ok(Some(message)),
            };
        }
    }

    /// Moves bytes; if that fails, the builder may have said why.
    pub(crate) fn pass(&mut self, action: impl FnOnce(&mut Connection) -> Result<(), Failure>) -> Result<(), Failure> {
        action(&mut self.connection).map_err(|failure| self.report_or(failure))
    }

    /// What the builder reported before the connection failed, rather than that it failed.
    fn report_or(&mut self, failure: Failure) -> Failure {
        loop {
            match self.received() {
                Ok(Some(_)) => {}
                Ok(None) => return failure,
                Err(report) => return report,
            }
        }
    }

    pub(crate) fn say(&mut self, message: &ClientMessage) -> Result<(), Failure> {
        self.state = self.state.client(message).map_err(malformed)?;
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        self.pass(|connection| connection.send(&bytes))
    }
}

fn malformed(error: ProtocolError) -> Failure {
    let failure = Failure::protocol(format!("{error}."));
    match error {
        // Bytes changed on the way.
        ProtocolError::Checksum { .. } => failure.code(PgSqlErrorCode::ERRCODE_DATA_CORRUPTED),
        _ => failure,
    }
}

/// The build is queued.
fn waiting(wait: &Wait) -> ErrorReport {
    let position = match wait.position {
        0 => String::new(),
        position => format!(", position {position} in its queue"),
    };
    let message = format!("waiting for external indexing server{position}");
    let report = ErrorReport::new(PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message, "ambuild");
    if wait.reason.is_empty() { report } else { report.set_detail(printable(&wait.reason)) }
}
