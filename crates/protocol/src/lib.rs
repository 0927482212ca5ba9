//! The wire protocol between a PostgreSQL backend and a builder: bytes to messages and back.
//!
//! Sans-IO: no sockets, clocks or tasks. `proto/README.md` specifies the protocol for authors of other clients and builders.

pub mod capability;
mod checksum;
mod error;
mod frame;
mod greeting;
mod limits;
mod message;
mod order;
mod sqlstate;
pub mod v1;
mod value;
mod wire;

pub use checksum::StreamChecksum;
pub use error::ProtocolError;
pub use frame::{FLAG_LENGTHS, FLAG_OPTIONAL, Frame, HEADER_BYTES};
pub use greeting::{
    DEFAULT_PORT, DEFAULT_STATUS_PORT, GREETING_BYTES, GREETING_VERSION, Greeting, LANTERN_V1_MAGIC,
    LANTERN_V1_RELAYED, MAGIC, PROTOCOL_VERSION, ServerType,
};
pub use limits::{
    BUILDER_SILENCE_TIMEOUT, CLIENT_SILENCE_TIMEOUT, HEAP_TID_BYTES, HEARTBEAT_INTERVAL, MAX_ADVICE_QUERIES,
    MAX_CONTROL_PAYLOAD, MAX_DATA_PAYLOAD, MAX_PAGES_PER_FRAME, MAX_PINGS, MAX_TEXT_BYTES, MAX_VALUE_BYTES,
    TUPLES_BATCH_BYTES, max_payload,
};
pub use message::{
    Accept, Advice, Ask, BuilderMessage, Check, Choice, ClientMessage, Done, EndOfIndex, EndOfTuples, ErrorReport,
    Findings, Hello, LENGTH_BYTES, Layout, Pages, Phase, Ping, Pong, Progress, Redirect, Refuse, Ticket, Tuples,
    TuplesBatch, TuplesWriter, Wait, encode_index_pages, encode_pages, kind,
};
pub use order::SessionState;
pub use pgvector::{Metric, PAGE_SIZE, ValueType};
pub use sqlstate::SqlState;
