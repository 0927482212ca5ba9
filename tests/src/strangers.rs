//! Clients that want no index: each kind occupies a resource of a daemon.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::BytesMut;
use protocol::{
    ClientMessage, EndOfTuples, HEADER_BYTES, Hello, MAGIC, MAX_DATA_PAYLOAD, Metric, PAGE_SIZE, PROTOCOL_VERSION,
    Ping, StreamChecksum, TuplesWriter, ValueType, kind,
};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::Random;

/// How soon a stranger notices that it is to go.
const ATTENTION: Duration = Duration::from_millis(100);
/// A token that no daemon has.
const UNKNOWN: &str = "unknown-0123456789abcdef";
/// Dimensions of a value that nearly fills a page, so that few rows make many pages.
const DIMS: usize = 1900;
/// Rows of [`Stranger::Deaf`]: 11 MB of rows and 12 MB of pages, more than the buffers of a connection hold.
const ROWS: u32 = 1500;

/// What a stranger does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stranger {
    /// Connects and says nothing.
    Silent,
    /// Sends half of the first message of TLS.
    HalfHandshake,
    /// Sends random bytes.
    Garbage,
    /// Announces a frame of 4 GiB.
    HugeFrame,
    /// Says what it wants built, without a token that is known, and sends all of a frame of 2 MiB but the last byte.
    Unfinished,
    /// Shows a token that is not the daemon's.
    WrongToken,
    /// Pings for ever.
    Pinger,
    /// Pings for ever, and never reads an answer.
    SlowReader,
    /// Knows the token, sends the rows of a build, and never reads a page.
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

    /// Whether it sends nothing that a daemon with TLS would accept, so that it fits any daemon.
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
        // Whatever the daemon says, until it has had enough.
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

/// Strangers that stay, and come back when they are sent away, until this is dropped. Dropping it panics if one of them did.
pub struct Strangers {
    stop: Arc<AtomicBool>,
    connected: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Strangers {
    /// Sends `count` of them to a daemon, the kinds in turn. Only [`Stranger::Deaf`] shows `token`.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn send(address: SocketAddr, kinds: &[Stranger], count: usize, token: &str) -> io::Result<Self> {
        let (stop, connected) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let threads = kinds.iter().cycle().take(count).map(|&kind| {
            let (stop, connected, token) = (Arc::clone(&stop), Arc::clone(&connected), token.to_owned());
            thread::Builder::new().stack_size(256 << 10).spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = connect(address) {
                        connected.fetch_add(1, Ordering::Relaxed);
                        let _ = kind.visit(&mut stream, &token, &stop);
                    }
                    thread::sleep(ATTENTION);
                }
            })
        });
        let threads = threads.collect::<io::Result<_>>()?;
        Ok(Self { stop, connected, threads })
    }

    /// How many connections there have been so far.
    pub fn connections(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.threads.drain(..).filter_map(|thread| thread.join().err()).count();
        // A stranger that cannot connect tests nothing.
        assert!(failed == 0 || thread::panicking(), "{failed} strangers failed");
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ATTENTION * 10)?;
    // What is not read must not all fit into the system's buffers.
    set_socket_recv_buffer_size(&stream, 64 << 10)?;
    stream.set_read_timeout(Some(ATTENTION))?;
    stream.set_write_timeout(Some(ATTENTION))?;
    Ok(stream)
}

/// Writes all of it, however long the daemon does not read; an interrupt when it is time to go.
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

/// The choice of the protocol and a Hello.
fn opening(token: &str) -> Vec<u8> {
    let hello = Hello {
        protocol_min: PROTOCOL_VERSION,
        protocol_max: PROTOCOL_VERSION,
        capabilities: 0,
        value_type: ValueType::Vector,
        metric: Metric::L2,
        dims: DIMS as u32,
        m: 4,
        ef_construction: 16,
        estimated_rows: ROWS.into(),
        page_size: PAGE_SIZE as u32,
        client_version: "stranger".to_owned(),
        server_version: "none".to_owned(),
        label: "strange".to_owned(),
        token: token.to_owned(),
        build_id: String::new(),
        check: None,
        ask: None,
    };
    [MAGIC.to_vec(), encoded(&ClientMessage::Hello(hello))].concat()
}

/// All rows of a build, and their end.
fn rows() -> Vec<u8> {
    let (mut random, mut writer, mut checksum) = (Random::new(1), TuplesWriter::new(false), StreamChecksum::new());
    let mut bytes = Vec::new();
    for row in 0..ROWS {
        let block = row.to_le_bytes();
        // A block and offset 1, as PostgreSQL stores them.
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
