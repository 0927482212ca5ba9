//! Sessions of clients with a builder, over real connections. One program, since each would compile the server again.

mod admission;
mod advice;
mod builds;
mod check;
mod endings;
mod load;
mod pings;
mod spool;
#[path = "../support/mod.rs"]
mod support;
mod tickets;
mod tls;
mod violations;
