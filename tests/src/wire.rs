//! PostgreSQL's wire protocol, as far as simple queries and COPY need it.

use std::fmt;
use std::io::{self, Read, Write};

/// A message of the server besides the result: INFO, NOTICE, WARNING, or an error.
#[derive(Clone, Debug, Default)]
pub struct Notice {
    /// Such as `INFO`.
    pub severity: String,
    /// Such as `57014`.
    pub sqlstate: String,
    /// The primary message.
    pub message: String,
    /// The detail; may be empty.
    pub detail: String,
    /// The hint; may be empty.
    pub hint: String,
}

impl Notice {
    /// Reads the fields of a NoticeResponse or ErrorResponse.
    pub(crate) fn parse(body: &[u8]) -> Self {
        let mut notice = Self::default();
        for field in body.split(|&byte| byte == 0).filter(|field| !field.is_empty()) {
            let text = String::from_utf8_lossy(&field[1..]).into_owned();
            match field[0] {
                b'V' => notice.severity = text,
                b'C' => notice.sqlstate = text,
                b'M' => notice.message = text,
                b'D' => notice.detail = text,
                b'H' => notice.hint = text,
                _ => {}
            }
        }
        notice
    }

    /// The first line of what `psql` shows.
    pub fn headline(&self) -> String {
        format!("{}:  {}", self.severity, self.message)
    }
}

/// As `psql` shows it.
impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        if !self.detail.is_empty() {
            write!(f, "\nDETAIL:  {}", self.detail)?;
        }
        if !self.hint.is_empty() {
            write!(f, "\nHINT:  {}", self.hint)?;
        }
        Ok(())
    }
}

/// A statement that failed.
#[derive(Debug)]
pub enum SqlError {
    /// The server reported an error.
    Server(Box<Notice>),
    /// The session is lost.
    Connection(io::Error),
}

impl SqlError {
    /// The server's error.
    ///
    /// # Panics
    /// The session was lost instead.
    pub fn server(&self) -> &Notice {
        match self {
            Self::Server(notice) => notice,
            Self::Connection(error) => panic!("the session was lost: {error}"),
        }
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(notice) => write!(f, "{notice} ({})", notice.sqlstate),
            Self::Connection(error) => write!(f, "the session was lost: {error}"),
        }
    }
}

impl std::error::Error for SqlError {}

impl From<io::Error> for SqlError {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

/// Sends one message.
pub(crate) fn send(stream: &mut impl Write, kind: u8, body: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(body.len() + 5);
    message.push(kind);
    message.extend_from_slice(&length(body.len())?);
    message.extend_from_slice(body);
    stream.write_all(&message)
}

/// Sends the startup message, which has no kind byte.
pub(crate) fn send_startup(stream: &mut impl Write, user: &str, database: &str) -> io::Result<()> {
    let parameters = format!("user\0{user}\0database\0{database}\0application_name\0lantern_index_tests\0\0");
    let mut message = length(parameters.len() + 4)?.to_vec();
    message.extend_from_slice(&196_608u32.to_be_bytes());
    message.extend_from_slice(parameters.as_bytes());
    stream.write_all(&message)
}

/// Receives one message: its kind and body.
pub(crate) fn receive(stream: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut header = [0; 5];
    stream.read_exact(&mut header)?;
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    if !(4..=1 << 28).contains(&length) {
        return Err(io::Error::other(format!("a message of {length} bytes")));
    }
    let mut body = vec![0; length - 4];
    stream.read_exact(&mut body)?;
    Ok((header[0], body))
}

/// The fields of a DataRow; None is NULL.
pub(crate) fn fields(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        row.push(match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (value, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(String::from_utf8_lossy(value).into_owned())
            }
            Err(_) => None,
        });
    }
    Some(row)
}

fn length(body: usize) -> io::Result<[u8; 4]> {
    u32::try_from(body + 4).map(u32::to_be_bytes).map_err(io::Error::other)
}
