use crate::{BuilderMessage, ClientMessage, ProtocolError};

/// What a session is doing, and so which messages may come.
///
/// Each side keeps one and passes every message through it, sent or received. The sides see messages that cross on the
/// wire in different orders; the rules allow for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// The client has chosen this protocol and is to say what it wants.
    #[default]
    Opened,
    /// The builder is to accept or refuse; the build may be queued.
    Admission,
    /// The client sends rows.
    Rows,
    /// The builder completes the graph.
    Building,
    /// The builder sends pages.
    Pages,
    /// Nothing more is to come.
    Ended,
}

impl SessionState {
    /// The state after a message of the client.
    ///
    /// # Errors
    /// [`ProtocolError::Unexpected`]
    pub fn client(self, message: &ClientMessage) -> Result<Self, ProtocolError> {
        use ClientMessage::{Cancel, EndOfTuples, Heartbeat, Hello, Ping, Ticket, Tuples};
        match (self, message) {
            (Self::Opened, Hello(_)) => Ok(Self::Admission),
            (Self::Opened, Ping(_) | Ticket(_)) => Ok(self),
            (Self::Opened, _) => Err(self.unexpected(message.name())),
            (Self::Rows, Tuples(_)) => Ok(Self::Rows),
            (Self::Rows, EndOfTuples(_)) => Ok(Self::Building),
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
        use BuilderMessage::{Accept, Done, Error, Heartbeat, Layout, Pages, Pong, Progress, Redirect, Refuse, Wait};
        match (self, message) {
            (Self::Ended, _) => Err(self.unexpected(message.name())),
            // Before Hello too: a builder that is full, or that cannot read the Hello.
            (_, Error(_)) | (Self::Opened | Self::Admission, Refuse(_)) => Ok(Self::Ended),
            (Self::Opened, Pong(_)) => Ok(self),
            (Self::Admission, Redirect(_)) => Ok(Self::Ended),
            (Self::Admission, Accept(_)) => Ok(Self::Rows),
            (Self::Admission, Wait(_) | Heartbeat) => Ok(self),
            (Self::Rows | Self::Building | Self::Pages, Progress(_) | Heartbeat) => Ok(self),
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
            Self::Admission => "waiting for admission",
            Self::Rows => "sending rows",
            Self::Building => "building the graph",
            Self::Pages => "sending pages",
            Self::Ended => "the session has ended",
        }
    }

    fn unexpected(self, message: &'static str) -> ProtocolError {
        ProtocolError::Unexpected { message, state: self.name() }
    }
}
