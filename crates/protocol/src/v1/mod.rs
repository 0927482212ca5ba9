//! Lantern's protocol version 1, spoken by the pgvector forks `0.7.4-lanterncloud` and `0.8.0-lanterncloud`.
//!
//! After the [`Greeting`](crate::Greeting), which both protocols share, a client sends [`Init`], then rows without
//! framing ([`RowDecoder`]), then [`END`]. The server answers [`ACK`] to Init and, after the rows, [`result_head`] and
//! the file of the index; in place of either it may send an [`error_frame`]. [`Answers`] tracks these answers. A router
//! answers [`GIVE_ME_A_SERVER`] with a [`ServerAddress`], or relays and first sends [`relayed`] to the builder.

mod answer;
mod answers;
mod error;
mod init;
mod router;
mod rows;

pub use answer::{ACK, MAX_ERROR_TEXT, error_frame, result_head};
pub use answers::{Answers, Ending};
pub use error::V1Error;
pub use init::{BuildOrder, INIT_BYTES, Init};
pub use router::{GIVE_ME_A_SERVER, MAX_ADDRESS_BYTES, MAX_TICKET_BYTES, ServerAddress, relayed};
pub use rows::{END, LABEL_BYTES, RowDecoder, Step};

/// The four bytes with which an error begins: `0x37333337`. No other answer may begin with them.
pub const ERROR_MAGIC: [u8; 4] = 0x3733_3337_u32.to_le_bytes();
