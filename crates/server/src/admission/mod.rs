//! Who may build now. Memory is reserved before a row is sent and given back when the build's memory is free again.

mod limit;
mod need;
mod queue;
mod reservation;
mod size;

pub(crate) use limit::{default_limit, free, machine_for};
pub(crate) use need::Need;
pub(crate) use queue::{Admission, Never, NoPlace, Place};
pub(crate) use reservation::Reservation;
pub(crate) use size::Size;
