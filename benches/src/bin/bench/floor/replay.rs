//! A builder that replays a recorded answer: a real builder serves the first client; from then on the same rows are read as fast as they
//! come, and the same pages are sent, so that only the database has work to do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use protocol::{
    BuilderMessage, EndOfTuples, ErrorReport, Frame, HEADER_BYTES, Layout, MAGIC, SqlState, StreamChecksum, kind,
};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The name of the thread that serves the client.
pub const THREAD: &str = "replay";
const BUFFER: usize = 256 << 10;
const GREETING: usize = 8;

/// The recorded answer of a builder.
pub struct Recording {
    greeting: Vec<u8>,
    accept: BytesMut,
    /// The frames Layout, pages and Done.
    answer: BytesMut,
    pub layout: Layout,
}

impl Recording {
    /// Relays a build to the builder at `upstream`, without TLS, and records its answer. `build` gets the port to connect to.
    pub fn make(upstream: SocketAddr, build: impl FnOnce(u16) -> Result<()>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let relay = thread::spawn(move || relay(&listener, upstream));
        build(port)?;
        // This connection ends the relay if the build did not connect.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
        let bytes = relay.join().ok().context("the relay has failed")??;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let (greeting, rest) = bytes.split_at_checked(GREETING).context("no greeting")?;
        let (mut accept, mut answer, mut layout) = (BytesMut::new(), BytesMut::new(), None);
        let mut rest = BytesMut::from(rest);
        let mut is_done = false;
        while let Some(frame) = Frame::decode(&mut rest)? {
            match frame.kind {
                kind::ACCEPT => frame.encode(&mut accept),
                kind::LAYOUT | kind::PAGES | kind::DONE => frame.encode(&mut answer),
                kind::PROGRESS | kind::HEARTBEAT | kind::WAIT => {}
                other => bail!("the builder has answered with {}", kind::name(other)),
            }
            if let Some(BuilderMessage::Layout(found)) = BuilderMessage::from_frame(&frame)? {
                layout = Some(found);
            }
            is_done = frame.kind == kind::DONE;
        }
        let layout = layout.filter(|_| is_done).context("the builder has not finished")?;
        Ok(Self { greeting: greeting.to_vec(), accept, answer, layout })
    }

    /// Serves one build from the recording.
    fn serve(&self, stream: &mut (impl BufRead + Write)) -> io::Result<()> {
        stream.write_all(&self.greeting)?;
        stream.flush()?;
        let mut magic = [0; MAGIC.len()];
        stream.read_exact(&mut magic)?;
        while skip_frame(stream)?.kind != kind::HELLO {}
        stream.write_all(&self.accept)?;
        stream.flush()?;
        let end = take_rows(stream)?;
        if end.is_some_and(|end| end.rows == self.layout.rows) {
            stream.write_all(&self.answer)?;
        } else {
            let mut refusal = BytesMut::new();
            let message = "these are not the rows of the recording";
            BuilderMessage::Error(ErrorReport::new(SqlState::PROTOCOL_VIOLATION, message)).encode(&mut refusal);
            stream.write_all(&refusal)?;
        }
        stream.flush()
    }
}

/// Relays the bytes of both sides. Returns those of the builder.
fn relay(listener: &TcpListener, upstream: SocketAddr) -> io::Result<Vec<u8>> {
    let (client, _) = listener.accept()?;
    let mut builder = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    builder.set_nodelay(true)?;
    let (mut from_client, mut to_builder) = (client.try_clone()?, builder.try_clone()?);
    let there = thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_builder);
        let _ = to_builder.shutdown(Shutdown::Write);
    });
    let (mut said, mut buffer) = (Vec::new(), vec![0; BUFFER]);
    loop {
        let read = builder.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        said.extend_from_slice(&buffer[..read]);
        (&client).write_all(&buffer[..read])?;
    }
    let _ = client.shutdown(Shutdown::Write);
    let _ = there.join();
    Ok(said)
}

/// The header of a frame, and the first bytes of its payload.
struct Skipped {
    kind: u8,
    crc: u32,
    head: Vec<u8>,
}

/// Reads a frame without copying it or computing its checksum.
fn skip_frame(stream: &mut impl BufRead) -> io::Result<Skipped> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let length = number(4) as usize;
    let mut head = vec![0; length.min(HEADER_BYTES)];
    stream.read_exact(&mut head)?;
    let mut left = length - head.len();
    while left > 0 {
        let there = stream.fill_buf()?.len().min(left);
        if there == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        stream.consume(there);
        left -= there;
    }
    Ok(Skipped { kind: header[0], crc: number(8), head })
}

/// Reads all rows. `None` if their number or checksum is not the announced one.
fn take_rows(stream: &mut impl BufRead) -> io::Result<Option<EndOfTuples>> {
    let (mut rows, mut checksum) = (0, StreamChecksum::new());
    loop {
        let Skipped { kind, crc, head } = skip_frame(stream)?;
        match kind {
            kind::TUPLES => {
                checksum.add(crc);
                rows += head.first_chunk().map_or(0, |count| u64::from(u32::from_le_bytes(*count)));
            }
            kind::HEARTBEAT => {}
            kind::END_OF_TUPLES => {
                let found = EndOfTuples { rows, checksum: checksum.value() };
                let said = [&found.rows.to_le_bytes()[..], &found.checksum.to_le_bytes()].concat();
                return Ok((head == said).then_some(found));
            }
            _ => return Ok(None),
        }
    }
}

/// Replays a recording to one client after another, until dropped.
pub struct Replay {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Replay {
    /// Starts replaying, with TLS if `tls` is given.
    pub fn start(recording: Arc<Recording>, tls: Option<Arc<ServerConfig>>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let serve = move || {
            for stream in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) = replay(&recording, stream, tls.as_ref()) {
                    println!("the replaying builder has lost its client: {error}");
                }
            }
        };
        let thread = Some(thread::Builder::new().name(THREAD.into()).spawn(serve)?);
        Ok(Self { address, over, thread })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // This connection ends the wait for a client.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn replay(recording: &Recording, socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    match tls {
        None => {
            let mut stream = Plain { reader: BufReader::with_capacity(BUFFER, &socket), writer: &socket };
            recording.serve(&mut stream)?;
            socket.shutdown(Shutdown::Write)?;
            io::copy(&mut stream.reader, &mut io::sink())?;
        }
        Some(config) => {
            let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(connection, socket);
            recording.serve(&mut stream)?;
            stream.conn.send_close_notify();
            stream.flush()?;
            // A client that has its index may close without a TLS closure alert.
            let _ = io::copy(&mut stream, &mut io::sink());
        }
    }
    Ok(())
}

/// Both directions of a connection without TLS.
struct Plain<'a> {
    reader: BufReader<&'a TcpStream>,
    writer: &'a TcpStream,
}

impl Read for Plain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl BufRead for Plain<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader.consume(amount);
    }
}

impl Write for Plain<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Accept, ClientMessage, Done, Greeting, PAGE_SIZE, PROTOCOL_VERSION, TuplesBatch, encode_pages};

    use super::*;

    /// A builder's messages for an index of one row.
    fn said() -> Vec<u8> {
        let mut bytes = BytesMut::from(&Greeting::builder().to_bytes()[..]);
        let accept = Accept {
            protocol: PROTOCOL_VERSION,
            session: 1,
            threads: 1,
            builder_version: "test".into(),
            ..Accept::default()
        };
        BuilderMessage::Accept(accept).encode(&mut bytes);
        BuilderMessage::Heartbeat.encode(&mut bytes);
        BuilderMessage::Layout(Layout { blocks: 2, elements: 1, rows: 1 }).encode(&mut bytes);
        let (head, pages, crc) = encode_pages(0, vec![7; 2 * PAGE_SIZE]);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&pages);
        let mut checksum = StreamChecksum::new();
        checksum.add(crc);
        let checksum = checksum.value();
        let done = Done { rows: 1, elements: 1, build_ms: 1, blocks: 2, checksum, ..Done::default() };
        BuilderMessage::Done(done).encode(&mut bytes);
        bytes.to_vec()
    }

    /// Sends a row `count` times and returns the builder's bytes.
    fn client(port: u16, count: u64) -> Vec<u8> {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let mut bytes = BytesMut::from(&MAGIC[..]);
        Frame { kind: kind::HELLO, flags: 0, crc: 0, payload: vec![1; 100].into() }.encode(&mut bytes);
        let mut checksum = StreamChecksum::new();
        for _ in 0..count {
            let batch = TuplesBatch { tids: &[1; 6], lengths: None, values: &[2; 40] };
            let emitted = batch.emit(|part| {
                bytes.extend_from_slice(part);
                Ok::<(), ()>(())
            });
            checksum.add(emitted.unwrap());
        }
        ClientMessage::EndOfTuples(EndOfTuples { rows: count, checksum: checksum.value() }).encode(&mut bytes);
        socket.write_all(&bytes).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).unwrap();
        heard
    }

    #[test]
    fn the_recording_is_what_later_clients_get() {
        let builder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = builder.local_addr().unwrap();
        let building = thread::spawn(move || {
            let (mut socket, _) = builder.accept().unwrap();
            socket.write_all(&said()).unwrap();
            io::copy(&mut socket, &mut io::sink()).unwrap();
        });
        let recording = Recording::make(address, |port| {
            assert_eq!(client(port, 1), said());
            Ok(())
        });
        building.join().unwrap();
        let recording = Arc::new(recording.unwrap());
        assert_eq!(recording.layout, Layout { blocks: 2, elements: 1, rows: 1 });

        let replay = Replay::start(recording, None).unwrap();
        let mut heartbeat = BytesMut::new();
        BuilderMessage::Heartbeat.encode(&mut heartbeat);
        for _ in 0..2 {
            let heard = client(replay.port(), 1);
            assert_eq!(heard.len() + heartbeat.len(), said().len());
            assert!(said().ends_with(&heard[heard.len() - 2 * PAGE_SIZE..]));
        }
        assert!(client(replay.port(), 2).len() < 1000, "other rows are refused");
    }

    #[test]
    fn half_a_build_is_no_recording() {
        let whole = said();
        assert!(Recording::parse(&whole).is_ok());
        assert!(Recording::parse(&whole[..whole.len() - 1]).is_err());
        assert!(Recording::parse(&whole[..GREETING + 5]).is_err());
    }
}
