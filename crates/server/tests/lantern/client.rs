use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use protocol::v1::Init;

use crate::index::{Index, Window};

pub const ERROR_MAGIC: [u8; 4] = [0x37, 0x33, 0x33, 0x37];
pub const END: [u8; 4] = [0x37, 0x33, 0x33, 0x31];

/// A client as careless as the genuine one: it reads each field once, without retry, and nothing while it sends rows.
pub struct Client<S> {
    pub stream: S,
    init: Init,
}

/// How a client ends without an index.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server's error text, as the client shows it.
    Reported(String),
    /// The connection broke: an error for the client.
    Broken,
    /// The connection ended where the client does not notice: it continues with the old content of its memory.
    Fooled(&'static str),
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

impl<S: Read + Write> Client<S> {
    /// Reads the greeting and sends the order.
    pub fn open(mut stream: S, init: Init) -> Self {
        for expected in [1, 1] {
            let mut word = [0; 4];
            assert_eq!(stream.read(&mut word).unwrap(), 4, "a short read is not noticed");
            assert_eq!(u32::from_le_bytes(word), expected);
        }
        stream.write_all(&init.to_bytes()).unwrap();
        Self { stream, init }
    }

    /// Waits for the answer.
    pub fn acknowledged(&mut self) -> Result<(), Failure> {
        let mut answer = [0; 1024];
        let bytes = self.read(&mut answer)?;
        error_of(&answer[..bytes])?;
        match bytes {
            0 => Err(Failure::Fooled("no answer")),
            1 => Ok(()),
            _ => panic!("{bytes} bytes at once: the next field would be lost"),
        }
    }

    /// Sends a row.
    pub fn row(&mut self, tid: [u8; 6], value: &[u8]) -> Result<(), Failure> {
        let row = [&tid[..], &[0, 0], value].concat();
        self.stream.write_all(&row).map_err(|_| Failure::Broken)
    }

    /// Ends the rows and takes the index.
    pub fn finish(mut self) -> Result<Index, Failure> {
        self.stream.write_all(&END).map_err(|_| Failure::Broken)?;
        let (nodes, file_bytes) = (self.number("count")?, self.number("size")?);
        let mut head = vec![0; 136];
        let read = self.read_all(&mut head)?;
        if read < 136 {
            return Err(Failure::Fooled("head"));
        }
        let mut window = Window::new(file_bytes, self.init);
        window.fill(|room| self.read_all(room))?;
        let index = window.parse(nodes, &head, |room| self.read_all(room))?;
        // The client would not read on; the server must have ended the stream.
        let mut rest = [0; 1];
        assert_eq!(self.stream.read(&mut rest).unwrap(), 0, "more bytes than announced");
        Ok(index)
    }

    fn number(&mut self, what: &'static str) -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        match self.read(&mut bytes)? {
            0 => Err(Failure::Fooled(what)),
            8 if bytes.starts_with(&ERROR_MAGIC) => {
                let mut text = vec![0; u32::from_le_bytes(bytes[4..].try_into().unwrap()) as usize];
                self.stream.read_exact(&mut text).unwrap();
                Err(Failure::Reported(shown(&text)))
            }
            8 => Ok(u64::from_le_bytes(bytes)),
            bytes => panic!("{what} came in pieces, {bytes} bytes first: the client would not notice"),
        }
    }

    fn read(&mut self, room: &mut [u8]) -> Result<usize, Failure> {
        match self.stream.read(room) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Failure::Broken),
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads until `room` is full or the stream ends. After each read the client looks for an error, but only at the beginning.
    fn read_all(&mut self, room: &mut [u8]) -> Result<usize, Failure> {
        let mut total = 0;
        while total < room.len() {
            let bytes = self.read(&mut room[total..])?;
            assert!(bytes < 4 || !room.starts_with(&ERROR_MAGIC), "the client would take values for an error");
            if bytes == 0 {
                break;
            }
            total += bytes;
        }
        Ok(total)
    }
}

/// Fails if the bytes are an error, which must be complete: a client that waits for more of it may wait forever.
fn error_of(bytes: &[u8]) -> Result<(), Failure> {
    let Some(frame) = bytes.strip_prefix(&ERROR_MAGIC) else { return Ok(()) };
    let (length, text) = frame.split_first_chunk().expect("a length");
    assert_eq!(u32::from_le_bytes(*length) as usize, text.len());
    Err(Failure::Reported(shown(text)))
}

/// The client copies the text into 1024 bytes of its stack and prints up to the NUL.
fn shown(text: &[u8]) -> String {
    assert!(text.len() < 1000, "{} bytes of text", text.len());
    assert_eq!(text.iter().position(|&byte| byte == 0), Some(text.len() - 1), "ends with NUL");
    String::from_utf8(text[..text.len() - 1].to_vec()).unwrap()
}
