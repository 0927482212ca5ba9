use crate::plan::Step;
use crate::run::Outcome;

/// What happens to a step while a plan is carried out.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The step has begun.
    Begun,
    /// PostgreSQL's phase, and how much of it is done, from 0 to 1, if PostgreSQL reports that.
    Progress(&'a str, Option<f64>),
    /// A message for a person.
    Note(&'a str),
    /// The step has ended, or was not begun.
    Ended(&'a Outcome),
}

/// Receives the events of all steps.
pub(crate) type Listener = dyn Fn(&Step, Event<'_>) + Send + Sync;
