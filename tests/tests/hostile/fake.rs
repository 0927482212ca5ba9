//! A simulated builder that runs a script for one connection, without encryption.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use graph::HeapTid;
use harness::wait_for;
use protocol::{
    Accept, BuilderMessage, ClientMessage, Frame, Greeting, Hello, MAGIC, PAGE_SIZE, PROTOCOL_VERSION, Progress,
    StreamChecksum,
};
use rustix::net::sockopt::set_socket_recv_buffer_size;

/// How long a script waits for PostgreSQL before it fails; no test takes as long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a simulated builder does with one client.
pub type Script = Box<dyn FnOnce(&mut Peer) -> io::Result<()> + Send>;

/// A received row.
#[derive(Clone, Debug)]
pub struct Row {
    pub tid: HeapTid,
    pub value: Vec<u8>,
}

pub struct FakeBuilder {
    port: u16,
    reached: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl FakeBuilder {
    /// Listens, and runs `script` with the first client. The script may fail: most end when PostgreSQL closes the connection.
    pub fn play(script: impl FnOnce(&mut Peer) -> io::Result<()> + Send + 'static) -> Self {
        Self::play_in_turn(vec![Box::new(script)])
    }

    /// Runs the scripts with one client after another.
    pub fn play_in_turn(scripts: Vec<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // A small buffer, so that unread rows do not all fit into it.
        set_socket_recv_buffer_size(&listener, 64 << 10).unwrap();
        Self::listen(listener, scripts)
    }

    /// Like [`Self::play`], with the system's default buffers: they accept many bytes before the script reads them.
    pub fn play_with_buffers(script: impl FnOnce(&mut Peer) -> io::Result<()> + Send + 'static) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), vec![Box::new(script)])
    }

    fn listen(listener: TcpListener, scripts: Vec<Script>) -> Self {
        let port = listener.local_addr().unwrap().port();
        let reached = Arc::new(AtomicBool::new(false));
        let reaching = Arc::clone(&reached);
        let thread = thread::spawn(move || {
            for script in scripts {
                let (stream, _) = listener.accept().unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                let reached = Arc::clone(&reaching);
                let mut peer = Peer { stream, buffer: BytesMut::new(), reached, abrupt: false };
                let _ = script(&mut peer);
                peer.leave();
            }
        });
        Self { port, reached, thread }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until the script calls [`Peer::reached`].
    pub fn wait_until_reached(&self) {
        let reached = || Ok(self.reached.load(Ordering::Relaxed).then_some(()));
        wait_for("the script to get there", PATIENCE, reached).unwrap();
    }

    /// Checks that the client closes the connection while its session goes on: a failed statement must not keep its socket.
    pub fn expect_left(self) {
        let left = || Ok(self.thread.is_finished().then_some(()));
        wait_for("PostgreSQL to close the connection", PATIENCE, left).unwrap();
        self.thread.join().expect("PostgreSQL keeps to the protocol");
    }
}

/// The connection to PostgreSQL, for a script.
pub struct Peer {
    stream: TcpStream,
    buffer: BytesMut,
    reached: Arc<AtomicBool>,
    abrupt: bool,
}

impl Peer {
    pub fn greet(&mut self) -> io::Result<()> {
        self.send(&Greeting::builder().to_bytes())
    }

    /// Sends the greeting and reads the Hello.
    pub fn hello(&mut self) -> io::Result<Hello> {
        self.greet()?;
        match self.choice()? {
            ClientMessage::Hello(hello) => Ok(hello),
            other => panic!("{} in place of Hello", other.name()),
        }
    }

    /// Reads the choice of the protocol and the first message.
    pub fn choice(&mut self) -> io::Result<ClientMessage> {
        while self.buffer.len() < MAGIC.len() {
            self.read()?;
        }
        assert_eq!(self.buffer.split_to(MAGIC.len()), &MAGIC[..]);
        self.message()
    }

    /// Like [`Self::hello`], and accepts the build.
    pub fn accept(&mut self) -> io::Result<Hello> {
        let hello = self.hello()?;
        self.say(&accept(PROTOCOL_VERSION))?;
        Ok(hello)
    }

    /// Reads all rows.
    pub fn rows(&mut self) -> io::Result<Vec<Row>> {
        let mut rows = Vec::new();
        let mut checksum = StreamChecksum::new();
        loop {
            let (message, crc) = self.frame()?;
            match message {
                ClientMessage::Tuples(tuples) => {
                    checksum.add(crc);
                    rows.extend(tuples.rows().map(|(tid, value)| Row { tid: HeapTid(tid), value: value.to_vec() }));
                }
                ClientMessage::EndOfTuples(end) => {
                    assert_eq!((end.rows, end.checksum), (rows.len() as u64, checksum.value()));
                    return Ok(rows);
                }
                ClientMessage::Heartbeat => {}
                other => panic!("{} among the rows", other.name()),
            }
        }
    }

    /// Reads the pages of an index. Returns their number, and how often nothing arrived for `pause`.
    pub fn index(&mut self, pause: Duration) -> io::Result<(usize, usize)> {
        let (mut pages, mut pauses) = (0, 0);
        self.stream.set_read_timeout(Some(pause))?;
        loop {
            match self.message() {
                Ok(ClientMessage::IndexPages(more)) => pages += more.pages.len() / PAGE_SIZE,
                Ok(ClientMessage::EndOfIndex(_)) => return Ok((pages, pauses)),
                Ok(other) => panic!("{} among the pages", other.name()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => pauses += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The next message.
    pub fn message(&mut self) -> io::Result<ClientMessage> {
        self.frame().map(|(message, _)| message)
    }

    fn frame(&mut self) -> io::Result<(ClientMessage, u32)> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.buffer).expect("a frame") {
                let message = ClientMessage::from_frame(&frame).expect("a message");
                return Ok((message.expect("nothing optional"), frame.crc));
            }
            self.read()?;
        }
    }

    pub fn say(&mut self, message: &BuilderMessage) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        self.send(&bytes)
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends the same bytes until PostgreSQL closes the connection.
    pub fn flood(&mut self, bytes: &[u8]) -> io::Result<()> {
        let many = bytes.repeat((64 << 10) / bytes.len() + 1);
        loop {
            self.send(&many)?;
        }
    }

    /// Signals to the test that the step to be tested begins.
    pub fn reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }

    /// Closes at once, even with unread bytes.
    pub fn hang_up(&mut self) {
        self.abrupt = true;
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            read => {
                self.buffer.put_slice(&bytes[..read]);
                Ok(())
            }
        }
    }

    /// Closes as the protocol requires: reads until the client has closed.
    fn leave(mut self) {
        if self.abrupt {
            return;
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        while self.read().is_ok() {
            self.buffer.clear();
        }
    }
}

pub fn accept(protocol: u16) -> BuilderMessage {
    acceptance(protocol, 0)
}

/// An Accept with these capabilities.
pub fn accept_of(capabilities: u64) -> BuilderMessage {
    acceptance(PROTOCOL_VERSION, capabilities)
}

fn acceptance(protocol: u16, capabilities: u64) -> BuilderMessage {
    BuilderMessage::Accept(Accept {
        protocol,
        capabilities,
        session: 1,
        threads: 1,
        builder_version: "script".into(),
        ..Accept::default()
    })
}

pub fn progress() -> BuilderMessage {
    BuilderMessage::Progress(Progress { phase: 2, done: 1, total: 2 })
}

/// The bytes of a message's frame.
pub fn encoded(message: &BuilderMessage) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes);
    bytes.to_vec()
}

/// A frame with arbitrary content and a correct checksum.
pub fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, flags, 0, 0];
    bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), payload);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}
