//! Which index, and which `ef_search`? Builds graphs of a sample, searches them as pgvector does, and extrapolates to all rows.
//!
//! ```text
//!   Values (a sample, in random order)    queries (given, or held out of it)
//!      │                                     │
//!      ├──────────────► exact ◄──────────────┤      the true neighbors
//!      ▼                                     ▼
//!    trial    one graph of each candidate, searched with ascending ef_search ─► curve
//!      │
//!      ▼
//!    growth   how misses and visits grow, from graphs of a quarter, half and all of the sample
//!      │
//!      ▼
//!    choice   the ef_search for the target, sizes, seconds; rank orders what is useful
//! ```

mod choice;
mod curve;
mod error;
mod exact;
mod growth;
mod held_out;
mod plan;
mod question;
mod rank;
mod run;
mod trial;
mod values;

pub use choice::{Choice, Expected, Tried};
pub use error::AdviseError;
pub use plan::{least_rows, memory_bytes};
pub use question::{MAX_QUERIES, Question, most_queries};
pub use run::{Advice, advise};
pub use values::Values;
