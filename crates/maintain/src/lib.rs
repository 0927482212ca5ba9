//! Looks after the hnsw indexes of PostgreSQL databases: which need what, and does it.
//!
//! | module | question it answers |
//! |---|---|
//! | [`dsn`] | what is connected to, as libpq would understand it? |
//! | [`tls`], [`connect`] | how? |
//! | [`survey`] | which hnsw indexes are there, and what does `lantern_index.indexes` say of them? |
//! | [`plan`] | what is to be done, in which order? |
//! | [`guard`] | may the next step begin now? |
//! | [`run`] | in which databases, and what came of it? |
//! | [`worker`] | how is a step taken? |
//! | [`event`] | what does a caller hear of it meanwhile? |
//! | [`window`], [`metrics`] | the hours in which it may, and the numbers for node_exporter |

mod connect;
pub mod dsn;
mod error;
mod event;
mod guard;
pub mod metrics;
pub mod plan;
mod run;
mod survey;
mod tls;
mod window;
mod worker;

pub use dsn::Dsn;
pub use error::Error;
pub use event::Event;
pub use plan::{Action, Plan, Step};
pub use run::{Outcome, Settings, Stepped, look, work};
pub use survey::Index;
pub use window::Window;
