use bytes::BytesMut;

use crate::frame::{FLAG_OPTIONAL, put_frame};
use crate::{EndOfIndex, EndOfTuples, Frame, Hello, Pages, Ping, ProtocolError, Ticket, Tuples, kind};

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// What it wants built.
    Hello(Hello),
    /// Rows.
    Tuples(Tuples),
    /// All rows have been sent.
    EndOfTuples(EndOfTuples),
    /// It gives the build up.
    Cancel,
    /// It is still here.
    Heartbeat,
    /// It asks whether the builder is there.
    Ping(Ping),
    /// Why the builder should let it in.
    Ticket(Ticket),
    /// Pages of the index that is to be checked.
    IndexPages(Pages),
    /// All of its pages have been sent.
    EndOfIndex(EndOfIndex),
}

impl ClientMessage {
    /// Reads a frame's message. `None`: not known, but the sender says that it may be skipped.
    ///
    /// # Errors
    /// A kind that clients do not send, or a payload that is not such a message.
    pub fn from_frame(frame: &Frame) -> Result<Option<Self>, ProtocolError> {
        Ok(Some(match frame.kind {
            kind::HELLO => Self::Hello(Hello::read(&frame.payload)?),
            kind::TUPLES => Self::Tuples(Tuples::read(frame)?),
            kind::END_OF_TUPLES => Self::EndOfTuples(EndOfTuples::read(&frame.payload)?),
            kind::CANCEL => Self::Cancel,
            kind::HEARTBEAT => Self::Heartbeat,
            kind::PING => Self::Ping(Ping::read(&frame.payload)?),
            kind::TICKET => Self::Ticket(Ticket::read(&frame.payload)?),
            kind::INDEX_PAGES => Self::IndexPages(Pages::read("IndexPages", &frame.payload)?),
            kind::END_OF_INDEX => Self::EndOfIndex(EndOfIndex::read(&frame.payload)?),
            _ if frame.is_optional() => return Ok(None),
            kind => return Err(ProtocolError::UnknownKind { kind }),
        }))
    }

    /// Appends the message's frame. For many rows [`TuplesWriter`](crate::TuplesWriter) is cheaper.
    pub fn encode(&self, out: &mut BytesMut) {
        let flags = match self {
            Self::Tuples(tuples) => tuples.flags(),
            // Older builders ask for no ticket.
            Self::Ticket(_) => FLAG_OPTIONAL,
            _ => 0,
        };
        put_frame(out, self.kind(), flags, |out| match self {
            Self::Hello(hello) => hello.write(out),
            Self::Tuples(tuples) => tuples.write(out),
            Self::EndOfTuples(end) => end.write(out),
            Self::Ticket(ticket) => ticket.write(out),
            Self::Ping(ping) => ping.write(out),
            Self::IndexPages(pages) => pages.write(out),
            Self::EndOfIndex(end) => end.write(out),
            Self::Cancel | Self::Heartbeat => {}
        });
    }

    /// The message's name, for logs and errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        kind::name(self.kind())
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => kind::HELLO,
            Self::Tuples(_) => kind::TUPLES,
            Self::EndOfTuples(_) => kind::END_OF_TUPLES,
            Self::Cancel => kind::CANCEL,
            Self::Heartbeat => kind::HEARTBEAT,
            Self::Ping(_) => kind::PING,
            Self::Ticket(_) => kind::TICKET,
            Self::IndexPages(_) => kind::INDEX_PAGES,
            Self::EndOfIndex(_) => kind::END_OF_INDEX,
        }
    }
}
