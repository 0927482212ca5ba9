use crate::{BuilderMessage, ClientMessage, ProtocolError, capability};

/// The state of a session, which determines the messages that may come next.
///
/// Each side keeps its own and passes every message through it, sent or received. Messages cross on the wire, so the two sides
/// see them in different orders; the rules allow for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// The client has chosen this protocol; its Hello is expected.
    #[default]
    Opened,
    /// A check waits for Accept or Refuse; it may be queued.
    CheckAdmission,
    /// A request for advice waits for Accept or Refuse; it may be queued.
    AdviceAdmission,
    /// A build waits for Accept or Refuse; it may be queued.
    Admission,
    /// The client sends rows.
    Rows,
    /// The builder builds the graph.
    Building,
    /// The builder sends pages.
    Pages,
    /// The client sends the pages of an index to be checked.
    IndexPages,
    /// The builder checks the pages.
    Checking,
    /// The client sends a sample of rows.
    Sample,
    /// The builder measures possible indexes.
    Advising,
    /// The builder has sent Findings or Advice; Done is expected.
    Found,
    /// The session has ended.
    Ended,
}

impl SessionState {
    /// The state after a message of the client.
    ///
    /// # Errors
    /// [`ProtocolError::Unexpected`] if the message is not allowed in this state.
    pub fn client(self, message: &ClientMessage) -> Result<Self, ProtocolError> {
        use ClientMessage::{Cancel, EndOfIndex, EndOfTuples, Heartbeat, Hello, IndexPages, Ping, Ticket, Tuples};
        match (self, message) {
            (Self::Opened, Hello(hello)) if hello.check.is_some() => Ok(Self::CheckAdmission),
            (Self::Opened, Hello(hello)) if hello.ask.is_some() => Ok(Self::AdviceAdmission),
            (Self::Opened, Hello(_)) => Ok(Self::Admission),
            (Self::Opened, Ping(_) | Ticket(_)) => Ok(self),
            (Self::Opened, _) => Err(self.unexpected(message.name())),
            (Self::Rows, Tuples(_)) => Ok(Self::Rows),
            (Self::Rows, EndOfTuples(_)) => Ok(Self::Building),
            (Self::Sample, Tuples(_)) => Ok(Self::Sample),
            (Self::Sample, EndOfTuples(_)) => Ok(Self::Advising),
            (Self::IndexPages, IndexPages(_)) => Ok(Self::IndexPages),
            (Self::IndexPages, EndOfIndex(_)) => Ok(Self::Checking),
            // Even in the last state: these messages may cross the builder's last one.
            (_, Heartbeat | Cancel) => Ok(self),
            _ => Err(self.unexpected(message.name())),
        }
    }

    /// The state after a message of the builder.
    ///
    /// # Errors
    /// [`ProtocolError::Unexpected`] if the message is not allowed in this state.
    pub fn builder(self, message: &BuilderMessage) -> Result<Self, ProtocolError> {
        use BuilderMessage::{
            Accept, Advice, Done, Error, Findings, Heartbeat, Layout, Pages, Pong, Progress, Redirect, Refuse, Wait,
        };
        match (self, message) {
            (Self::Ended, _) => Err(self.unexpected(message.name())),
            // Even before Hello: the builder may have too many connections, or be unable to read the Hello.
            (_, Error(_)) => Ok(Self::Ended),
            (Self::Opened | Self::CheckAdmission | Self::AdviceAdmission | Self::Admission, Refuse(_)) => {
                Ok(Self::Ended)
            }
            (Self::Opened, Pong(_)) => Ok(self),
            (Self::CheckAdmission | Self::AdviceAdmission | Self::Admission, Redirect(_)) => Ok(Self::Ended),
            (Self::CheckAdmission, Accept(accept)) if accept.capabilities & capability::CHECK != 0 => {
                Ok(Self::IndexPages)
            }
            (Self::AdviceAdmission, Accept(accept)) if accept.capabilities & capability::ADVISE != 0 => {
                Ok(Self::Sample)
            }
            // A builder that does not know checks or advice takes the Hello for a build.
            (Self::CheckAdmission | Self::AdviceAdmission | Self::Admission, Accept(_)) => Ok(Self::Rows),
            (Self::CheckAdmission | Self::AdviceAdmission | Self::Admission, Wait(_) | Heartbeat) => Ok(self),
            (
                Self::Rows
                | Self::Building
                | Self::Pages
                | Self::IndexPages
                | Self::Checking
                | Self::Sample
                | Self::Advising
                | Self::Found,
                Progress(_) | Heartbeat,
            ) => Ok(self),
            (Self::Checking, Findings(_)) | (Self::Advising, Advice(_)) => Ok(Self::Found),
            (Self::Found, Done(_)) => Ok(Self::Ended),
            (Self::Building, Layout(_)) => Ok(Self::Pages),
            (Self::Pages, Pages(_)) => Ok(Self::Pages),
            (Self::Pages, Done(_)) => Ok(Self::Ended),
            _ => Err(self.unexpected(message.name())),
        }
    }

    /// The state in words, to follow "while".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Opened => "opening the session",
            Self::CheckAdmission | Self::AdviceAdmission | Self::Admission => "waiting for admission",
            Self::Rows | Self::Sample => "sending rows",
            Self::Building => "building the graph",
            Self::Pages => "sending pages",
            Self::IndexPages => "sending the index",
            Self::Checking => "checking the index",
            Self::Advising => "measuring possible indexes",
            Self::Found => "sending the result",
            Self::Ended => "the session has ended",
        }
    }

    fn unexpected(self, message: &'static str) -> ProtocolError {
        ProtocolError::Unexpected { message, state: self.name() }
    }
}
