//! One file per message: its fields, how they are written and how they are read.

mod accept;
mod builder;
mod client;
mod done;
mod end_of_tuples;
mod error_report;
mod hello;
pub mod kind;
mod layout;
mod pages;
mod pong;
mod progress;
mod redirect;
mod refuse;
mod ticket;
mod tuples;
mod tuples_writer;
mod wait;

pub use accept::Accept;
pub use builder::BuilderMessage;
pub use client::ClientMessage;
pub use done::Done;
pub use end_of_tuples::EndOfTuples;
pub use error_report::ErrorReport;
pub use hello::Hello;
pub use layout::Layout;
pub use pages::{Pages, encode_pages};
pub use pong::Pong;
pub use progress::{Phase, Progress};
pub use redirect::Redirect;
pub use refuse::Refuse;
pub use ticket::Ticket;
pub use tuples::Tuples;
pub use tuples_writer::TuplesWriter;
pub use wait::Wait;
