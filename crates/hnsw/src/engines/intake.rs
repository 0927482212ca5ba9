//! Takes the rows of a build: the first step of every engine.

use std::ops::Range;
use std::sync::Arc;

use crate::input::{Rows, TakenRows, ValueStore};
use crate::space::{Measure, Space};
use crate::{BuildError, BuildSpec, Control, Phase, Pool, RowBatch};

/// Parameters and shared resources of a build.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) spec: BuildSpec,
    /// The metric by which the graph will be searched.
    pub(crate) measure: Measure,
    pub(crate) pool: Arc<Pool>,
    pub(crate) control: Control,
    pub(crate) store: Arc<ValueStore>,
}

impl Setup {
    /// Exact distances of the metric by which the graph will be searched.
    pub(crate) fn searched(&self) -> Space<'_> {
        Space::exact(self.measure, &self.store)
    }
}

pub(crate) struct Intake {
    pub(crate) setup: Setup,
    rows: Rows,
    /// Whether a batch has failed: then rows are missing, and all later calls fail.
    failed: bool,
}

impl Intake {
    pub(crate) fn new(setup: Setup) -> Self {
        setup.control.progress().enter(Phase::Rows, setup.spec.expected_rows);
        let rows = Rows::new(&setup.spec, setup.store.clone(), setup.pool.clone(), setup.control.clone());
        Self { setup, rows, failed: false }
    }

    /// Takes batches. Calls `ready` with the element numbers of each chunk of values that has become readable.
    pub(crate) fn add(
        &mut self,
        batches: &[RowBatch<'_>],
        ready: impl FnMut(&Rows, Range<u32>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        self.check()?;
        let taken = self.rows.take(batches, ready);
        self.failed = taken.is_err();
        taken?;
        self.setup.control.progress().add(batches.iter().map(|batch| batch.tids.len() as u64).sum());
        Ok(())
    }

    /// Ends the intake after the last row. The returned range has the elements that `add` has not passed to `ready`.
    pub(crate) fn finish(mut self) -> Result<(Setup, TakenRows, Range<u32>), BuildError> {
        self.check()?;
        // The engines enter this phase again with its number of steps. Until then they read all values, but no more rows arrive.
        self.setup.control.progress().enter(Phase::Graph, 0);
        let (taken, last) = self.rows.finish();
        Ok((self.setup, taken, last))
    }

    fn check(&self) -> Result<(), BuildError> {
        self.setup.control.check()?;
        match self.failed {
            true => Err(BuildError::Internal("an earlier batch has failed".to_owned())),
            false => Ok(()),
        }
    }
}
