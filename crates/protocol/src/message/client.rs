use bytes::BytesMut;

use crate::frame::{FLAG_OPTIONAL, put_frame};
use crate::{EndOfIndex, EndOfTuples, Frame, Hello, Pages, Ping, ProtocolError, Ticket, Tuples, kind};

/// A message from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// The first message of a build, a check or a request for advice.
    Hello(Hello),
    /// Rows.
    Tuples(Tuples),
    /// The end of the rows, with totals.
    EndOfTuples(EndOfTuples),
    /// Cancels the build.
    Cancel,
    /// Heartbeat: the client is alive.
    Heartbeat,
    /// Health check, answered by Pong.
    Ping(Ping),
    /// A router's ticket, for admission.
    Ticket(Ticket),
    /// Pages of the index to be checked.
    IndexPages(Pages),
    /// The end of those pages, with totals.
    EndOfIndex(EndOfIndex),
}

impl ClientMessage {
    /// Decodes a frame. `None` for an unknown kind whose frame is marked optional.
    ///
    /// # Errors
    /// If the kind is not a client's and not optional, or the payload is malformed.
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

    /// Appends the message as a frame. For many rows [`TuplesWriter`](crate::TuplesWriter) is cheaper.
    pub fn encode(&self, out: &mut BytesMut) {
        let flags = match self {
            Self::Tuples(tuples) => tuples.flags(),
            // Older builders do not know tickets and skip them.
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
