//! The kind of a message: the first byte of its frame. Bit 7 is set in what a builder sends.

/// [`Hello`](crate::Hello)
pub const HELLO: u8 = 0x01;
/// [`Tuples`](crate::Tuples)
pub const TUPLES: u8 = 0x02;
/// [`EndOfTuples`](crate::EndOfTuples)
pub const END_OF_TUPLES: u8 = 0x03;
/// The client cancels the build.
pub const CANCEL: u8 = 0x04;
/// Either side is alive; prevents a timeout.
pub const HEARTBEAT: u8 = 0x05;
/// A health check.
pub const PING: u8 = 0x06;
/// [`Ticket`](crate::Ticket)
pub const TICKET: u8 = 0x07;
/// [`Pages`](crate::Pages) of an index to be checked.
pub const INDEX_PAGES: u8 = 0x08;
/// [`EndOfIndex`](crate::EndOfIndex)
pub const END_OF_INDEX: u8 = 0x09;
/// [`Accept`](crate::Accept)
pub const ACCEPT: u8 = 0x81;
/// [`Wait`](crate::Wait)
pub const WAIT: u8 = 0x82;
/// [`Refuse`](crate::Refuse)
pub const REFUSE: u8 = 0x83;
/// [`Progress`](crate::Progress)
pub const PROGRESS: u8 = 0x84;
/// [`Layout`](crate::Layout)
pub const LAYOUT: u8 = 0x85;
/// [`Pages`](crate::Pages)
pub const PAGES: u8 = 0x86;
/// [`Done`](crate::Done)
pub const DONE: u8 = 0x87;
/// [`ErrorReport`](crate::ErrorReport)
pub const ERROR: u8 = 0x88;
/// [`Pong`](crate::Pong)
pub const PONG: u8 = 0x89;
/// [`Redirect`](crate::Redirect)
pub const REDIRECT: u8 = 0x8a;
/// [`Findings`](crate::Findings)
pub const FINDINGS: u8 = 0x8b;
/// [`Advice`](crate::Advice)
pub const ADVICE: u8 = 0x8c;

/// The name of the message; `unknown` for an unknown kind.
#[must_use]
pub fn name(kind: u8) -> &'static str {
    match kind {
        HELLO => "Hello",
        TUPLES => "Tuples",
        END_OF_TUPLES => "EndOfTuples",
        CANCEL => "Cancel",
        HEARTBEAT => "Heartbeat",
        PING => "Ping",
        TICKET => "Ticket",
        INDEX_PAGES => "IndexPages",
        END_OF_INDEX => "EndOfIndex",
        ACCEPT => "Accept",
        WAIT => "Wait",
        REFUSE => "Refuse",
        PROGRESS => "Progress",
        LAYOUT => "Layout",
        PAGES => "Pages",
        DONE => "Done",
        ERROR => "Error",
        PONG => "Pong",
        REDIRECT => "Redirect",
        FINDINGS => "Findings",
        ADVICE => "Advice",
        _ => "unknown",
    }
}
