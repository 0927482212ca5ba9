use bytes::BytesMut;

use crate::frame::put_frame;
use crate::{
    Accept, Advice, Done, ErrorReport, Findings, Frame, Layout, Pages, Pong, Progress, ProtocolError, Redirect, Refuse,
    Wait, kind,
};

/// A message from a builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuilderMessage {
    /// The build is accepted.
    Accept(Accept),
    /// The build is queued.
    Wait(Wait),
    /// The build is refused.
    Refuse(Refuse),
    /// The progress of the build.
    Progress(Progress),
    /// The size of the index.
    Layout(Layout),
    /// Pages of the index.
    Pages(Pages),
    /// The end of the pages, with totals.
    Done(Done),
    /// The build has failed.
    Error(ErrorReport),
    /// Heartbeat: the builder is alive.
    Heartbeat,
    /// The answer to a Ping.
    Pong(Pong),
    /// Another builder takes the build.
    Redirect(Redirect),
    /// The result of a check; Done follows.
    Findings(Findings),
    /// The result of a request for advice; Done follows.
    Advice(Advice),
}

impl BuilderMessage {
    /// Decodes a frame. `None` for an unknown kind whose frame is marked optional.
    ///
    /// # Errors
    /// If the kind is not a builder's and not optional, or the payload is malformed.
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

    /// Appends the message as a frame. For many pages [`encode_pages`](crate::encode_pages) is cheaper.
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
