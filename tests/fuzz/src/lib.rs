//! The fuzz targets: each function accepts arbitrary bytes and panics if a guarantee is broken.
//!
//! Decoders must return, never panic; an encoder must reproduce what a decoder accepts; each side must accept what the other produces.

mod built;
mod graphs;
mod input;
mod messages;
mod stored;
mod v1;

pub use graphs::graphs;
pub use messages::{builder_messages, client_messages, frames, session, tuples};
pub use stored::{datums, incoming_pages, verify_pages};
pub use v1::version_1;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets by name; corpora have the same names.
pub const TARGETS: [(&str, Target); 10] = [
    ("frames", frames),
    ("client_messages", client_messages),
    ("builder_messages", builder_messages),
    ("session", session),
    ("tuples", tuples),
    ("datums", datums),
    ("graphs", graphs),
    ("verify_pages", verify_pages),
    ("incoming_pages", incoming_pages),
    ("version_1", version_1),
];
