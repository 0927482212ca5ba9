use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::BytesMut;
use pages::{PAGE_SIZE, PageBytes};
use protocol::{
    Accept, BuilderMessage, ClientMessage, Done, EndOfTuples, ErrorReport, Frame, Greeting, Hello, Layout, MAGIC,
    Refuse, StreamChecksum, TuplesWriter,
};

use super::Rows;

/// A connection that does not wait for an answer for ever.
pub fn connect(address: impl ToSocketAddrs) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

pub trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

pub struct Client<S: Stream> {
    pub stream: S,
    received: BytesMut,
    crc: u32,
    sent: StreamChecksum,
}

/// The result of a successful build.
pub struct Built {
    pub layout: Layout,
    pub pages: Vec<PageBytes>,
    pub done: Done,
    /// The phases that progress was reported in, each once, in order.
    pub phases: Vec<u8>,
}

impl<S: Stream> Client<S> {
    pub fn greeted(mut stream: S) -> Self {
        let mut greeting = [0; 8];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(Greeting::from_bytes(greeting), Greeting::builder());
        Self { stream, received: BytesMut::new(), crc: 0, sent: StreamChecksum::new() }
    }

    /// A client that has been greeted and has chosen protocol version 2.
    pub fn opened(stream: S) -> Self {
        let mut client = Self::greeted(stream);
        client.raw(&MAGIC);
        client
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    pub fn send(&mut self, message: &ClientMessage) {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        self.raw(&bytes);
    }

    /// Sends Hello and expects Accept at once.
    pub fn hello(&mut self, hello: Hello) -> Accept {
        self.send(&ClientMessage::Hello(hello));
        match self.next() {
            Some(BuilderMessage::Accept(accept)) => {
                assert_eq!(accept.protocol, 2);
                accept
            }
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// Sends Hello and waits for Accept; returns the reserved memory in bytes.
    pub fn admitted(&mut self, hello: Hello) -> u64 {
        self.send(&ClientMessage::Hello(hello));
        self.accepted()
    }

    /// Waits for Accept; returns the reserved memory in bytes.
    pub fn accepted(&mut self) -> u64 {
        loop {
            match self.next() {
                Some(BuilderMessage::Accept(accept)) => return accept.memory_reserved,
                Some(BuilderMessage::Wait(_) | BuilderMessage::Heartbeat) => {}
                other => panic!("not accepted: {other:?}"),
            }
        }
    }

    /// Sends rows in frames of at most `batch` rows.
    pub fn rows(&mut self, rows: &Rows, batch: usize) {
        rows.batches(batch).for_each(|mut writer| self.batch(&mut writer));
    }

    /// Sends the rows of a batch.
    pub fn batch(&mut self, writer: &mut TuplesWriter) {
        let crc = writer.take(|part| self.stream.write_all(part)).unwrap();
        self.sent.add(crc);
        self.stream.flush().unwrap();
    }

    pub fn end_of_rows(&mut self, rows: u64) {
        let checksum = self.sent.value();
        self.send(&ClientMessage::EndOfTuples(EndOfTuples { rows, checksum }));
    }

    fn receive(&mut self) -> io::Result<Option<BuilderMessage>> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.received).unwrap() {
                self.crc = frame.crc;
                return Ok(Some(BuilderMessage::from_frame(&frame).unwrap().unwrap()));
            }
            let mut bytes = [0; 1 << 16];
            match self.stream.read(&mut bytes)? {
                0 => return Ok(None),
                read => self.received.extend_from_slice(&bytes[..read]),
            }
        }
    }

    /// The next message; `None` when the builder has closed the connection.
    pub fn next(&mut self) -> Option<BuilderMessage> {
        match self.receive() {
            Ok(message) => message,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next message, if it comes before the read timeout.
    pub fn try_next(&mut self) -> Option<BuilderMessage> {
        match self.receive() {
            Ok(None) => panic!("the builder closed the connection"),
            Ok(message) => message,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next message, other than heartbeats and progress.
    pub fn news(&mut self) -> Option<BuilderMessage> {
        loop {
            match self.next() {
                Some(BuilderMessage::Progress(_) | BuilderMessage::Heartbeat) => {}
                other => return other,
            }
        }
    }

    /// Expects an error, perhaps after pages, and then the end of the connection.
    pub fn error(&mut self) -> ErrorReport {
        loop {
            match self.news() {
                Some(BuilderMessage::Error(error)) => {
                    assert_eq!(self.next(), None, "the error is the last word");
                    return error;
                }
                Some(BuilderMessage::Layout(_) | BuilderMessage::Pages(_)) => {}
                other => panic!("no error but {other:?}"),
            }
        }
    }

    /// Sends Hello and expects a refusal.
    pub fn refused(&mut self, hello: Hello) -> Refuse {
        self.send(&ClientMessage::Hello(hello));
        match self.next() {
            Some(BuilderMessage::Refuse(refuse)) => refuse,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Sends rows in frames of at most `batch` rows, and receives their index.
    pub fn index_of(&mut self, rows: &Rows, batch: usize) -> Built {
        self.rows(rows, batch);
        self.end_of_rows(rows.len() as u64);
        let built = self.pages();
        assert_eq!(built.done.rows, rows.len() as u64);
        built
    }

    /// Receives the pages up to Done and checks the totals.
    pub fn pages(&mut self) -> Built {
        let mut built = Built {
            layout: Layout { blocks: 0, elements: 0, rows: 0 },
            pages: Vec::new(),
            done: Done::default(),
            phases: Vec::new(),
        };
        let mut checksum = StreamChecksum::new();
        loop {
            match self.next().expect("the builder closed early") {
                BuilderMessage::Progress(progress) => {
                    if built.phases.last() != Some(&progress.phase) {
                        built.phases.push(progress.phase);
                    }
                }
                BuilderMessage::Heartbeat => {}
                BuilderMessage::Layout(layout) => built.layout = layout,
                BuilderMessage::Pages(pages) => {
                    assert_eq!(pages.first_block as usize, built.pages.len());
                    checksum.add(self.crc);
                    built.pages.extend(pages.pages.as_chunks::<PAGE_SIZE>().0);
                }
                BuilderMessage::Done(done) => {
                    built.done = done;
                    assert_eq!(done.checksum, checksum.value());
                    assert_eq!((done.blocks, done.rows), (built.layout.blocks, built.layout.rows));
                    assert_eq!(done.blocks as usize, built.pages.len());
                    return built;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}

impl Client<TcpStream> {
    /// Closes the sending side; still reads.
    pub fn half_close(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
}
