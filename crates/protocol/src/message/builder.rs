use bytes::BytesMut;

use crate::frame::put_frame;
use crate::{
    Accept, Advice, Done, ErrorReport, Findings, Frame, Layout, Pages, Pong, Progress, ProtocolError, Redirect, Refuse,
    Wait, kind,
};

/// What a builder sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuilderMessage {
    /// It takes the build.
    Accept(Accept),
    /// The build is queued.
    Wait(Wait),
    /// It does not take the build.
    Refuse(Refuse),
    /// How far it is.
    Progress(Progress),
    /// How large the index is.
    Layout(Layout),
    /// Pages of the index.
    Pages(Pages),
    /// All pages have been sent.
    Done(Done),
    /// It gives up.
    Error(ErrorReport),
    /// It is still here.
    Heartbeat,
    /// It is there, and this is what it has.
    Pong(Pong),
    /// Another takes the build.
    Redirect(Redirect),
    /// What it found in the index; Done follows.
    Findings(Findings),
    /// Which indexes could be made; Done follows.
    Advice(Advice),
}

impl BuilderMessage {
    /// Reads a frame's message. `None`: not known, but the sender says that it may be skipped.
    ///
    /// # Errors
    /// A kind that builders do not send, or a payload that is not such a message.
    pub fn from_frame(frame: &Frame) -> Result<Option<Self>, ProtocolError> {
        let payload = &frame.payload;
        Ok(Some(match frame.kind {
            kind::ACCEPT => Self::Accept(Accept::read(payload)?),
            kind::WAIT => Self::Wait(Wait::read(payload)?),
            kind::REFUSE => Self::Refuse(Refuse::read(payload)?),
            kind::PROGRESS => Self::Progress(Progress::read(payload)?),
            kind::LAYOUT => Self::Layout(Layout::read(payload)?),
            kind::PAGES => Self::Pages(Pages::read("Pages", payload)?),
            kind::DONE => Self::Done(Done::read(payload)?),
            kind::ERROR => Self::Error(ErrorReport::read(payload)?),
            kind::HEARTBEAT => Self::Heartbeat,
            kind::PONG => Self::Pong(Pong::read(payload)?),
            kind::REDIRECT => Self::Redirect(Redirect::read(payload)?),
            kind::FINDINGS => Self::Findings(Findings::read(payload)?),
            kind::ADVICE => Self::Advice(Advice::read(payload)?),
            _ if frame.is_optional() => return Ok(None),
            kind => return Err(ProtocolError::UnknownKind { kind }),
        }))
    }

    /// Appends the message's frame. For many pages [`encode_pages`](crate::encode_pages) is cheaper.
    pub fn encode(&self, out: &mut BytesMut) {
        put_frame(out, self.kind(), 0, |out| match self {
            Self::Accept(accept) => accept.write(out),
            Self::Wait(wait) => wait.write(out),
            Self::Refuse(refuse) => refuse.write(out),
            Self::Progress(progress) => progress.write(out),
            Self::Layout(layout) => layout.write(out),
            Self::Pages(pages) => pages.write(out),
            Self::Done(done) => done.write(out),
            Self::Error(error) => error.write(out),
            Self::Heartbeat => {}
            Self::Pong(pong) => pong.write(out),
            Self::Redirect(redirect) => redirect.write(out),
            Self::Findings(findings) => findings.write(out),
            Self::Advice(advice) => advice.write(out),
        });
    }

    /// The message's name, for logs and errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        kind::name(self.kind())
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Accept(_) => kind::ACCEPT,
            Self::Wait(_) => kind::WAIT,
            Self::Refuse(_) => kind::REFUSE,
            Self::Progress(_) => kind::PROGRESS,
            Self::Layout(_) => kind::LAYOUT,
            Self::Pages(_) => kind::PAGES,
            Self::Done(_) => kind::DONE,
            Self::Error(_) => kind::ERROR,
            Self::Heartbeat => kind::HEARTBEAT,
            Self::Pong(_) => kind::PONG,
            Self::Redirect(_) => kind::REDIRECT,
            Self::Findings(_) => kind::FINDINGS,
            Self::Advice(_) => kind::ADVICE,
        }
    }
}
