//! Maintains the hnsw indexes of PostgreSQL databases: finds what each one needs, and does it.
//!
//! | module | question it answers |
//! |---|---|
//! | [`connect`] | how does a session begin? |
//! | [`survey`] | which hnsw indexes are there, and what does `lantern_index.indexes` say of them? |
//! | [`plan`] | what is to be done, in which order? |
//! | [`guard`] | may the next step begin now? |
//! | [`run`] | in which databases are steps carried out, and with which outcome? |
//! | [`worker`] | how is a step carried out? |
//! | [`event`] | which events of a step does the caller get? |
//! | [`window`], [`metrics`] | in which hours may steps begin, and what does node_exporter get? |

mod connect;
mod event;
mod guard;
pub mod metrics;
pub mod plan;
mod run;
mod survey;
mod window;
mod worker;

pub use event::Event;
pub use plan::{Action, Plan, Step};
pub use run::{Outcome, Settings, Stepped, look, work};
pub use survey::Index;
pub use window::Window;
