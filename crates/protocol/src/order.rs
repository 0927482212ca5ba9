use crate::{BuilderMessage, ClientMessage, ProtocolError, capability};

/// What a session is doing, and so which messages may come.
///
/// Each side keeps one and passes every message through it, sent or received. The sides see messages that cross on the
/// wire in different orders; the rules allow for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// The client has chosen this protocol and is to say what it wants.
    #[default]
    Opened,
    /// The builder is to accept or refuse a check; it may be queued.
    CheckAdmission,
    /// The builder is to accept or refuse to advise; it may be queued.
    AdviceAdmission,
    /// The builder is to accept or refuse a build; it may be queued.
    Admission,
    /// The client sends rows.
    Rows,
    /// The builder completes the graph.
    Building,
    /// The builder sends pages.
    Pages,
    /// The client sends the pages of an index that is to be checked.
    IndexPages,
    /// The builder checks them.
    Checking,
    /// The client sends a sample of rows.
    Sample,
    /// The builder tries what could be built.
    Advising,
    /// The builder has told what it found.
    Found,
    /// Nothing more is to come.
    Ended,
}

impl SessionState {
    /// The state after a message of the client.
    ///
    /// # Errors
    /// [`ProtocolError::Unexpected`]
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
            // Also at the end: they cross the builder's last message.
            (_, Heartbeat | Cancel) => Ok(self),
            _ => Err(self.unexpected(message.name())),
        }
    }

    /// The state after a message of the builder.
    ///
    /// # Errors
    /// [`ProtocolError::Unexpected`]
    pub fn builder(self, message: &BuilderMessage) -> Result<Self, ProtocolError> {
        use BuilderMessage::{
            Accept, Advice, Done, Error, Findings, Heartbeat, Layout, Pages, Pong, Progress, Redirect, Refuse, Wait,
        };
        match (self, message) {
            (Self::Ended, _) => Err(self.unexpected(message.name())),
            // Before Hello too: a builder that is full, or that cannot read the Hello.
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
            // A builder that does not know what is asked takes it for a build.
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

    /// The state in words, after "while".
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
            Self::Advising => "trying what could be built",
            Self::Found => "telling what was found",
            Self::Ended => "the session has ended",
        }
    }

    fn unexpected(self, message: &'static str) -> ProtocolError {
        ProtocolError::Unexpected { message, state: self.name() }
    }
}
