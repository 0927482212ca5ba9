use crate::plan::Step;
use crate::run::Outcome;

/// What a caller hears of a step while a plan is carried out.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// It has begun.
    Begun,
    /// It goes on: what PostgreSQL does, and how far that is, from 0 to 1, if it says so.
    Progress(&'a str, Option<f64>),
    /// Something that a person should know.
    Note(&'a str),
    /// It is over, or was not begun.
    Ended(&'a Outcome),
}

/// Gets the events of all steps.
pub(crate) type Listener = dyn Fn(&Step, Event<'_>) + Send + Sync;
