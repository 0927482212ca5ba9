//! Bytes to and from the builder over a socket that never blocks, with TLS or without.
//!
//! It reads while it sends, so that neither side can deadlock with full buffers.

use std::io::{self, BufRead, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use pgrx::prelude::*;
use protocol::{GREETING_BYTES, Greeting};
use rustls::{ClientConnection, ProtocolVersion};

use crate::connect::connect;
use crate::failure::{Failure, sentence};
use crate::link::Link;
use crate::session::GREETING_TIMEOUT;
use crate::settings::Settings;
use crate::tls;
use crate::waiter::Waiter;

/// Bytes read at a time.
const READ_BYTES: usize = 128 << 10;
/// The most received bytes that may wait to be parsed; a builder that follows the protocol sends fewer.
const RECEIVED_BYTES: usize = 2 * protocol::MAX_DATA_PAYLOAD;
/// The most bytes that may wait to be sent.
const UNSENT_BYTES: usize = 512 << 10;

pub(crate) struct Connection {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Without TLS: bytes still to be sent.
    unsent: BytesMut,
    /// With TLS: ciphertext as it was read from the socket, decrypted at once.
    wire: BytesMut,
    received: BytesMut,
    closed: bool,
    last_read: Instant,
    peer: String,
    waiter: Waiter,
}

impl Connection {
    /// Connects, with a TLS handshake if it is on.
    pub(crate) fn open(settings: &Settings) -> Result<Self, Failure> {
        let peer = format!("{}:{}", settings.host, settings.port);
        let tls = settings.tls.as_ref().map(tls::client).transpose()?.map(Box::new);
        let socket = connect(settings, &peer)?;
        let [unsent, wire, received] = std::array::from_fn(|_| BytesMut::new());
        let (last_read, waiter) = (Instant::now(), Waiter::Backend);
        let mut connection = Self { socket, tls, unsent, wire, received, closed: false, last_read, peer, waiter };
        connection.shake_hands(settings)?;
        Ok(connection)
    }

    fn shake_hands(&mut self, settings: &Settings) -> Result<(), Failure> {
        let started = Instant::now();
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.exchange()?;
            if self.closed {
                return Err(self.broken("the connection was closed during the TLS handshake"));
            }
            match settings.connect_timeout {
                Some(limit) if started.elapsed() > limit => {
                    return Err(self.broken("the TLS handshake took longer than hnsw.external_index_connect_timeout"));
                }
                // The system's limits end when a peer has accepted the connection.
                None if started.elapsed() > GREETING_TIMEOUT => {
                    let text = format!("the TLS handshake took longer than {} s", GREETING_TIMEOUT.as_secs());
                    return Err(self.broken(&text));
                }
                _ => {}
            }
            if self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                self.wait()?;
            }
        }
        Ok(())
    }

    /// From now on a thread uses the connection.
    pub(crate) fn lend_to(&mut self, link: &Arc<Link>) {
        self.waiter = Waiter::Thread(Arc::clone(link));
    }

    /// The thread has ended.
    pub(crate) fn take_back(&mut self) {
        self.waiter = Waiter::Backend;
    }

    /// Received bytes that were not consumed yet.
    pub(crate) fn received(&mut self) -> &mut BytesMut {
        &mut self.received
    }

    /// The builder as the settings name it.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// The address of the builder that was reached.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    /// The version of TLS; `None` without it.
    pub(crate) fn tls_version(&self) -> Option<ProtocolVersion> {
        self.tls.as_ref()?.protocol_version()
    }

    /// Whether the builder has closed its side.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// How long the builder has been silent.
    pub(crate) fn silence(&self) -> Duration {
        self.last_read.elapsed()
    }

    /// Returns once all bytes are sent or buffered.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let taken = match &mut self.tls {
                Some(tls) => tls.writer().write(bytes).map_err(|error| self.io_error(error))?,
                None => {
                    // Try without a copy first. An error shows again when the rest is sent.
                    let written = if self.unsent.is_empty() { self.socket.write(bytes).unwrap_or(0) } else { 0 };
                    let rest = &bytes[written..];
                    let kept = rest.len().min(UNSENT_BYTES.saturating_sub(self.unsent.len()));
                    self.unsent.extend_from_slice(&rest[..kept]);
                    written + kept
                }
            };
            bytes = &bytes[taken..];
            self.exchange()?;
            if self.closed {
                return Err(self.broken("the builder closed the connection"));
            }
            // With nothing left to write, only a message from the builder would end the wait.
            if taken == 0 && self.wants_write() {
                self.check_silence()?;
                self.wait()?;
            }
        }
        Ok(())
    }

    /// Waits until all buffered bytes are sent, or the builder has closed the connection.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.exchange()?;
        while self.wants_write() && !self.closed {
            self.check_silence()?;
            self.wait()?;
            self.exchange()?;
        }
        Ok(())
    }

    /// Sends and receives as far as possible without waiting.
    pub(crate) fn exchange(&mut self) -> Result<(), Failure> {
        while self.wants_write() {
            let written = match &mut self.tls {
                Some(tls) => tls.write_tls(&mut self.socket),
                None => self.socket.write(&self.unsent).inspect(|&written| self.unsent.advance(written)),
            };
            match written {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The builder may have sent its reason before it closed: read first.
                Err(error) => {
                    let failure = self.io_error(error);
                    while self.read()? > 0 {}
                    return if self.received.is_empty() { Err(failure) } else { self.give_up_sending() };
                }
            }
        }
        self.read().map(|_| ())
    }

    fn give_up_sending(&mut self) -> Result<(), Failure> {
        self.closed = true;
        self.unsent.clear();
        Ok(())
    }

    /// Reads once, so that bytes are parsed before many have arrived. Returns their number; 0 also at the end of the stream.
    fn read(&mut self) -> Result<usize, Failure> {
        if self.closed {
            return Ok(0);
        }
        if self.received.len() > RECEIVED_BYTES {
            return Err(Failure::protocol("The builder has sent more than the protocol allows at a time."));
        }
        let read = match &mut self.tls {
            Some(tls) => read_tls(tls, &self.socket, &mut self.wire, &mut self.received),
            None => read_into(&self.socket, &mut self.received),
        };
        match read {
            Ok(0) => self.closed = true,
            Ok(_) => self.last_read = Instant::now(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(0),
            Err(error) => return Err(self.io_error(error)),
        }
        Ok(read.unwrap_or(0))
    }

    fn wants_write(&self) -> bool {
        match &self.tls {
            Some(tls) => tls.wants_write(),
            None => !self.unsent.is_empty(),
        }
    }

    /// Whether nothing is waiting to be sent, so that a short message will not block.
    pub(crate) fn has_room(&self) -> bool {
        !self.wants_write()
    }

    /// Waits briefly until the socket is ready. Fails if the statement was cancelled.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        self.wait_at_most(Duration::MAX)
    }

    /// Like [`wait`](Self::wait), but no longer than `at_most`.
    pub(crate) fn wait_at_most(&self, at_most: Duration) -> Result<(), Failure> {
        self.waiter.wait(&self.socket, self.wants_write(), at_most)
    }

    /// Fails if the statement was cancelled, without waiting.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.waiter.check()
    }

    /// Fails if the builder has been silent for too long.
    pub(crate) fn check_silence(&self) -> Result<(), Failure> {
        let limit = protocol::BUILDER_SILENCE_TIMEOUT;
        if self.silence() < limit {
            return Ok(());
        }
        Err(self.broken(&format!("the builder has been silent for {} seconds", limit.as_secs())))
    }

    /// A failure of the connection.
    pub(crate) fn broken(&self, detail: &str) -> Failure {
        Failure::new(
            PgSqlErrorCode::ERRCODE_CONNECTION_FAILURE,
            format!("lost connection to external indexing server on {}", self.peer),
        )
        .detail(sentence(detail))
        .hint("See the builder's log for the reason, then run the statement again.")
    }

    fn io_error(&self, error: io::Error) -> Failure {
        let handshaking = self.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(_) if handshaking && greets_plainly(&self.wire) => tls::disagreement(&self.peer)
                .detail("The server does not use TLS.")
                .hint("Set hnsw.external_index_secure to off, or start the builder with a certificate."),
            Some(error) if handshaking || tls::is_about_our_certificate(error) => tls::failure(&self.peer, error),
            _ => self.broken(&error.to_string()),
        }
    }
}

/// Whether `first`, in which rustls found no TLS, begins the plain greeting of a builder or router.
fn greets_plainly(first: &[u8]) -> bool {
    [Greeting::builder(), Greeting::router()].iter().any(|greeting| {
        let greeting = greeting.to_bytes();
        let shorter = first.len().min(greeting.len());
        shorter > 0 && first[..shorter] == greeting[..shorter]
    })
}

fn read_into(socket: &TcpStream, received: &mut BytesMut) -> io::Result<usize> {
    received.reserve(READ_BYTES);
    let before = received.len();
    let (read, _) = rustix::io::read(socket, &mut received.spare_capacity_mut()[..READ_BYTES])?;
    let read = read.len();
    // SAFETY: `read` has initialised the first `read` bytes of the spare capacity, which begins at `before`.
    unsafe { received.set_len(before + read) };
    Ok(read)
}

/// Reads ciphertext into `wire`, and decrypts it into `received`. Returns the bytes read; 0 if the peer has ended the stream.
fn read_tls(
    tls: &mut ClientConnection,
    socket: &TcpStream,
    wire: &mut BytesMut,
    received: &mut BytesMut,
) -> io::Result<usize> {
    let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
    if tls.process_new_packets().map_err(invalid)?.peer_has_closed() {
        return Ok(0);
    }
    // A greeting may arrive in pieces: `greets_plainly` needs all of them.
    if wire.len() >= GREETING_BYTES {
        wire.clear();
    }
    let earlier = wire.len();
    // rustls alone would make a system call for each 4 KiB.
    let read = read_into(socket, wire)?;
    let mut rest = &wire[earlier..];
    while !rest.is_empty() && tls.read_tls(&mut rest)? > 0 {
        let mut left = tls.process_new_packets().map_err(invalid)?.plaintext_bytes_to_read();
        received.reserve(left);
        while left > 0 {
            let mut reader = tls.reader();
            let chunk = reader.fill_buf()?;
            received.extend_from_slice(chunk);
            let taken = chunk.len();
            reader.consume(taken);
            left = if taken > 0 { left.saturating_sub(taken) } else { 0 };
        }
    }
    Ok(read)
}
