use crate::plan::Step;
use crate::run::Outcome;

/// What is told of a step while a plan is carried out.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// It has begun.
    Begun,
    /// It goes on: what PostgreSQL does, and how far that is, from 0 to 1, if it says so.
    Goes(&'a str, Option<f64>),
    /// Something that a person should know.
    Note(&'a str),
    /// It is over, or was not begun.
    Ended(&'a Outcome),
}

/// Hears it.
pub(crate) type Say = dyn Fn(&Step, Told<'_>) + Send + Sync;
