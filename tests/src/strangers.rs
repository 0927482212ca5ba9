//! Strangers: hostile or unauthenticated clients. Each kind occupies another resource of a daemon.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::BytesMut;
use protocol::{
    ClientMessage, EndOfTuples, HEADER_BYTES, Hello, MAGIC, MAX_DATA_PAYLOAD, Metric, Ping, StreamChecksum,
    TuplesWriter, ValueType, kind,
};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::Random;

/// The interval at which a stranger checks whether it must stop.
const ATTENTION: Duration = Duration::from_millis(100);
/// A token that no daemon accepts.
const UNKNOWN: &str = "unknown-0123456789abcdef";
/// Dimensions of a value that nearly fills a page, so that few rows make many pages.
const DIMS: usize = 1900;
/// Rows of [`Stranger::Deaf`]: 11 MB of rows and 12 MB of pages, more than the buffers of a connection hold.
const ROWS: u32 = 1500;

/// The behavior of a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stranger {
    /// Connects and sends nothing.
    Silent,
    /// Sends half of a TLS ClientHello.
    HalfHandshake,
    /// Sends random bytes.
    Garbage,
    /// Sends the header of a frame of 4 GiB.
    HugeFrame,
    /// Sends a Hello without a valid token, then all but the last byte of a frame of 2 MiB.
    Unfinished,
    /// Presents an invalid token.
    WrongToken,
    /// Pings without end.
    Pinger,
    /// Pings without end, and reads no answer.
    SlowReader,
    /// Presents a valid token, sends the rows of a build, and reads no pages.
    Deaf,
}

impl Stranger {
    /// The kinds that need no token.
    pub const UNKNOWN: [Self; 8] = [
        Self::Silent,
        Self::HalfHandshake,
        Self::Garbage,
        Self::HugeFrame,
        Self::Unfinished,
        Self::WrongToken,
        Self::Pinger,
        Self::SlowReader,
    ];

    /// Whether it sends nothing that a TLS daemon would accept, so that it can be used against daemons with and without TLS.
    pub fn is_before_tls(self) -> bool {
        matches!(self, Self::Silent | Self::HalfHandshake | Self::Garbage)
    }

    fn visit(self, stream: &mut TcpStream, token: &str, stop: &AtomicBool) -> io::Result<()> {
        match self {
            Self::Silent => {}
            Self::HalfHandshake => stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 7, 7, 7])?,
            Self::Garbage => {
                let mut random = Random::new(stream.local_addr()?.port().into());
                while !stop.load(Ordering::Relaxed) {
                    let bytes: Vec<u8> = (0..512).flat_map(|_| random.next().to_le_bytes()).collect();
                    write_until(stream, &bytes, stop)?;
                    thread::sleep(ATTENTION);
                }
            }
            Self::HugeFrame => {
                let mut bytes = MAGIC.to_vec();
                bytes.extend_from_slice(&[kind::HELLO, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
                stream.write_all(&bytes)?;
            }
            Self::Unfinished => {
                let mut bytes = opening(UNKNOWN);
                bytes.extend_from_slice(&[kind::TUPLES, 0, 0, 0]);
                bytes.extend_from_slice(&(MAX_DATA_PAYLOAD as u32).to_le_bytes());
                bytes.resize(bytes.len() + HEADER_BYTES - 8 + MAX_DATA_PAYLOAD - 1, 1);
                write_until(stream, &bytes, stop)?;
            }
            Self::WrongToken => stream.write_all(&opening(UNKNOWN))?,
            Self::Pinger => {
                stream.write_all(&MAGIC)?;
                while !stop.load(Ordering::Relaxed) {
                    write_until(stream, &encoded(&ClientMessage::Ping(Ping::default())), stop)?;
                    match stream.read(&mut [0; 4096]) {
                        Ok(0) => return Ok(()),
                        Err(error) if !is_patience(&error) => return Err(error),
                        _ => thread::sleep(ATTENTION / 4),
                    }
                }
            }
            Self::SlowReader => {
                stream.write_all(&MAGIC)?;
                let pings = encoded(&ClientMessage::Ping(Ping::default())).repeat(1000);
                while !stop.load(Ordering::Relaxed) {
                    write_until(stream, &pings, stop)?;
                }
            }
            Self::Deaf => {
                write_until(stream, &opening(token), stop)?;
                write_until(stream, &rows(), stop)?;
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(ATTENTION * 10);
                    write_until(stream, &encoded(&ClientMessage::Heartbeat), stop)?;
                }
            }
        }
        // Discard whatever the daemon sends.
        while !stop.load(Ordering::Relaxed) {
            match stream.read(&mut [0; 4096]) {
                Ok(0) => return Ok(()),
                Err(error) if !is_patience(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Strangers that stay, and reconnect when they are disconnected, until this is dropped. Dropping it panics if one of them has failed.
pub struct Strangers {
    stop: Arc<AtomicBool>,
    connected: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Strangers {
    /// Connects `count` strangers to a daemon, the kinds in turn. Only [`Stranger::Deaf`] presents `token`.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn send(address: SocketAddr, kinds: &[Stranger], count: usize, token: &str) -> io::Result<Self> {
        let (stop, connected) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let threads = kinds.iter().cycle().take(count).map(|&kind| {
            let (stop, connected, token) = (Arc::clone(&stop), Arc::clone(&connected), token.to_owned());
            thread::Builder::new().stack_size(256 << 10).spawn(move || {
                let mut one = 1;
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = connect(address) {
                        connected.fetch_add(mem::take(&mut one), Ordering::Relaxed);
                        let _ = kind.visit(&mut stream, &token, &stop);
                    }
                    thread::sleep(ATTENTION);
                }
            })
        });
        let threads = threads.collect::<io::Result<_>>()?;
        Ok(Self { stop, connected, threads })
    }

    /// The number of strangers that have connected.
    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.threads.drain(..).filter_map(|thread| thread.join().err()).count();
        assert!(failed == 0 || thread::panicking(), "{failed} strangers failed");
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ATTENTION * 10)?;
    // A small buffer, so that the unread bytes do not all fit into it.
    set_socket_recv_buffer_size(&stream, 64 << 10)?;
    stream.set_read_timeout(Some(ATTENTION))?;
    stream.set_write_timeout(Some(ATTENTION))?;
    Ok(stream)
}

/// Writes all bytes, even if the daemon does not read for long; fails with `Interrupted` when `stop` is set.
fn write_until(stream: &mut TcpStream, mut bytes: &[u8], stop: &AtomicBool) -> io::Result<()> {
    while !bytes.is_empty() {
        if stop.load(Ordering::Relaxed) {
            return Err(ErrorKind::Interrupted.into());
        }
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if is_patience(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn encoded(message: &ClientMessage) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes);
    bytes.to_vec()
}

/// The choice of the protocol, and a Hello.
fn opening(token: &str) -> Vec<u8> {
    let hello = Hello {
        m: 4,
        ef_construction: 16,
        estimated_rows: ROWS.into(),
        client_version: "stranger".to_owned(),
        server_version: "none".to_owned(),
        label: "strange".to_owned(),
        token: token.to_owned(),
        ..Hello::new(ValueType::Vector, Metric::L2, DIMS as u32)
    };
    [MAGIC.to_vec(), encoded(&ClientMessage::Hello(hello))].concat()
}

/// All rows of a build, and the end of the rows.
fn rows() -> Vec<u8> {
    let (mut random, mut writer, mut checksum) = (Random::new(1), TuplesWriter::new(false), StreamChecksum::new());
    let mut bytes = Vec::new();
    for row in 0..ROWS {
        let block = row.to_le_bytes();
        // Block number, as PostgreSQL stores it, and offset 1.
        let tid = [block[2], block[3], block[0], block[1], 1, 0];
        let value: Vec<u8> = random.normals(DIMS).iter().flat_map(|x| x.to_le_bytes()).collect();
        writer.push(tid, &value);
        if writer.is_full() || row + 1 == ROWS {
            let emitted = writer.take::<ErrorKind>(|part| {
                bytes.extend_from_slice(part);
                Ok(())
            });
            checksum.add(emitted.expect("memory takes everything"));
        }
    }
    let end = EndOfTuples { rows: ROWS.into(), checksum: checksum.value() };
    bytes.extend_from_slice(&encoded(&ClientMessage::EndOfTuples(end)));
    bytes
}
