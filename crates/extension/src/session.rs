//! The conversation with a builder about one index (`proto/README.md`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use pgrx::prelude::*;
use protocol::{
    BuilderMessage, ClientMessage, EndOfTuples, Frame, GREETING_BYTES, GREETING_VERSION, Greeting, ProtocolError,
    Refuse, ServerType, SessionState, StreamChecksum, TuplesBatch,
};

use crate::connect;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::link::Link;
use crate::settings::Settings;
use crate::tls;

/// The time limit for the greeting if no timeout is set.
pub(crate) const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a builder may take for its greeting before it is probed for TLS.
const QUIET: Duration = Duration::from_millis(500);

const NO_BUILDER: &str =
    "Check that hnsw.external_index_host and hnsw.external_index_port name a lantern-index builder.";

pub(crate) struct Session {
    connection: Connection,
    is_router: bool,
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
        let mut probed = settings.tls.is_some();
        while connection.received().len() < GREETING_BYTES {
            connection.exchange()?;
            if connection.received().len() >= GREETING_BYTES {
                break;
            }
            if connection.is_closed() {
                let hint = match settings.tls {
                    None => format!("{NO_BUILDER} If it uses TLS, set hnsw.external_index_secure to on."),
                    Some(_) => NO_BUILDER.to_owned(),
                };
                return Err(connection.broken("the server closed the connection before its greeting").hint(hint));
            }
            if started.elapsed() > limit {
                return Err(connection.broken("the server sent no greeting").hint(NO_BUILDER));
            }
            // A builder without TLS greets at once; a TLS server waits for the client.
            if !probed && started.elapsed() > QUIET {
                probed = true;
                if connection.address().is_some_and(connect::speaks_tls) {
                    return Err(tls::disagreement(connection.peer())
                        .detail("The server uses TLS.")
                        .hint("Set hnsw.external_index_secure to on."));
                }
            }
            connection.wait()?;
        }
        let mut bytes = [0; GREETING_BYTES];
        connection.received().copy_to_slice(&mut bytes);
        let greeting = Greeting::from_bytes(bytes);
        if greeting.version != GREETING_VERSION {
            return Err(Failure::protocol(format!(
                "The greeting has version {}, {GREETING_VERSION} expected.",
                greeting.version
            )));
        }
        let found = greeting.server_type;
        let is_router = found == ServerType::Router as u32;
        if !is_router && found != ServerType::Builder as u32 {
            let detail = format!("The server is of type {found}, a builder (1) or a router (2) is expected.");
            return Err(Failure::protocol(detail));
        }
        let (state, heartbeat) = (SessionState::Opened, Instant::now());
        let (sent, pages) = (StreamChecksum::new(), StreamChecksum::new());
        Ok(Self { connection, is_router, state, sent, pages, rows: 0, heartbeat })
    }

    /// Lets a thread use the session.
    pub(crate) fn lend_to<T>(&mut self, link: &Arc<Link>, in_thread: impl FnOnce(&mut Self) -> T) -> T {
        self.connection.lend_to(link);
        let result = in_thread(self);
        self.connection.take_back();
        result
    }

    /// Sends a batch of rows, and handles messages that have arrived.
    pub(crate) fn send(&mut self, batch: &TuplesBatch<'_>) -> Result<(), Failure> {
        let rows = batch.rows() as u64;
        let sent = batch.emit(|part| self.connection.send(part));
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

    /// Whether the builder has accepted a check, and waits for pages of the index.
    pub(crate) fn takes_index(&self) -> bool {
        self.state == SessionState::IndexPages
    }

    /// Whether the builder has accepted a request for advice, and waits for a sample of rows.
    pub(crate) fn takes_sample(&self) -> bool {
        self.state == SessionState::Sample
    }

    /// Sends a frame with pages of an index to check, and handles messages that have arrived.
    pub(crate) fn send_index(&mut self, head: &[u8], pages: &[u8], crc: u32) -> Result<(), Failure> {
        for part in [head, pages] {
            self.with_connection(|connection| connection.send(part))?;
        }
        self.sent.add(crc);
        self.heartbeat = Instant::now();
        self.listen_while_sending()
    }

    /// The checksum of all rows or index pages sent.
    pub(crate) fn sent_checksum(&self) -> u32 {
        self.sent.value()
    }

    /// Between batches: sends heartbeats, handles the builder's messages, and detects a lost connection. Waits briefly.
    pub(crate) fn idle(&mut self) -> Result<(), Failure> {
        self.idle_at_most(Duration::MAX)
    }

    /// Pauses between batches, with heartbeats as in [`idle`](Self::idle).
    pub(crate) fn pause(&mut self, pause: Duration) -> Result<(), Failure> {
        let started = Instant::now();
        while let Some(left) = pause.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
            self.idle_at_most(left)?;
        }
        Ok(())
    }

    fn idle_at_most(&mut self, at_most: Duration) -> Result<(), Failure> {
        self.with_connection(Connection::exchange)?;
        // Rows count as heartbeats. Sent only if this does not block: nothing before the last line may wait (`Link::wait`).
        if self.heartbeat.elapsed() >= protocol::HEARTBEAT_INTERVAL && self.connection.has_room() {
            self.heartbeat = Instant::now();
            self.send_message(&ClientMessage::Heartbeat)?;
        }
        self.listen_while_sending()?;
        self.connection.check_silence()?;
        self.connection.wait_at_most(at_most)
    }

    fn listen_while_sending(&mut self) -> Result<(), Failure> {
        while let Some(message) = self.received()? {
            if !matches!(message, BuilderMessage::Progress(_)) {
                return Err(Failure::protocol(format!("{} while rows or pages were being sent.", message.name())));
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
        self.send_message(&ClientMessage::EndOfTuples(end))?;
        self.with_connection(Connection::flush)
    }

    /// The checksum of all pages received.
    pub(crate) fn pages_checksum(&self) -> u32 {
        self.pages.value()
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Whether the peer is a router, which may redirect.
    pub(crate) fn is_router(&self) -> bool {
        self.is_router
    }

    /// The number of rows sent.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Waits for the builder's next message. An Error becomes a failure; heartbeats are skipped.
    pub(crate) fn next(&mut self) -> Result<BuilderMessage, Failure> {
        loop {
            if let Some(message) = self.next_within(Duration::MAX)? {
                return Ok(message);
            }
        }
    }

    /// Like [`next`](Self::next); `None` if no message has arrived within about `limit`.
    pub(crate) fn next_within(&mut self, limit: Duration) -> Result<Option<BuilderMessage>, Failure> {
        let started = Instant::now();
        // Both sides send heartbeats from Hello on; a Ping comes before it.
        let has_heartbeats = self.state != SessionState::Opened;
        loop {
            // A builder that sends without pause must not prevent a cancel.
            self.connection.check()?;
            if let Some(message) = self.received()? {
                return Ok(Some(message));
            }
            if started.elapsed() >= limit {
                return Ok(None);
            }
            if self.connection.is_closed() {
                return Err(self.connection.broken("the builder closed the connection"));
            }
            if has_heartbeats && self.heartbeat.elapsed() >= protocol::HEARTBEAT_INTERVAL {
                self.heartbeat = Instant::now();
                self.send_message(&ClientMessage::Heartbeat)?;
                // Flushing may have received a message.
                continue;
            }
            let before = self.connection.received().len();
            self.with_connection(|connection| connection.exchange())?;
            if self.connection.received().len() == before && !self.connection.is_closed() {
                // Checked only after everything that arrived while we were busy has been read.
                if has_heartbeats {
                    self.connection.check_silence()?;
                }
                self.connection.wait()?;
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
                BuilderMessage::Refuse(refuse) => Err(refused(&refuse)),
                message => Ok(Some(message)),
            };
        }
    }

    /// Uses the connection. If that fails, returns the error that the builder has sent, if there is one.
    pub(crate) fn with_connection(
        &mut self,
        action: impl FnOnce(&mut Connection) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        action(&mut self.connection).map_err(|failure| self.report_or(failure))
    }

    /// Prefers an error that the builder has sent to the failure of the connection.
    fn report_or(&mut self, failure: Failure) -> Failure {
        loop {
            match self.received() {
                Ok(Some(_)) => {}
                Ok(None) => return failure,
                Err(report) => return report,
            }
        }
    }

    pub(crate) fn send_message(&mut self, message: &ClientMessage) -> Result<(), Failure> {
        self.state = self.state.client(message).map_err(malformed)?;
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        self.with_connection(|connection| connection.send(&bytes))
    }
}

/// The builder refuses the build, at least for now.
fn refused(Refuse { retry_after_ms, report }: &Refuse) -> Failure {
    let hint = match retry_after_ms.div_ceil(1000) {
        0 => report.hint.clone(),
        1 => format!("{} Try again in a second.", report.hint),
        seconds => format!("{} Try again in {seconds} seconds.", report.hint),
    };
    Failure::from_builder(report.sqlstate, &report.message, &report.detail, hint.trim())
}

fn malformed(error: ProtocolError) -> Failure {
    let failure = Failure::protocol(format!("{error}."));
    match error {
        // Bytes changed in transit.
        ProtocolError::Checksum { .. } => failure.code(PgSqlErrorCode::ERRCODE_DATA_CORRUPTED),
        _ => failure,
    }
}
