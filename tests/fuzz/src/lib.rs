//! What the fuzzers run: each function takes any bytes and panics if a promise is broken.
//!
//! Decoders must answer, never panic; what they accept must come out of an encoder again; what one side makes the other must take.

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

/// What a fuzzer runs.
pub type Target = fn(&[u8]);

/// Every target by its name, which is that of its corpus.
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
