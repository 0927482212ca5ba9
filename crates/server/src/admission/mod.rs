//! Admission: memory is reserved before a row is sent, and released when the build's memory is free again.

mod limit;
mod need;
mod queue;
mod reservation;
mod threads;

pub use limit::machine_for;
pub(crate) use limit::{default_limit, free};
pub(crate) use need::{FIXED, Need, SPARSE_VALUE};
pub(crate) use queue::{Admission, Full, Never, NoPlace, Place, Waits};
pub(crate) use reservation::Reservation;
