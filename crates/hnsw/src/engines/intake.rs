use std::ops::Range;
use std::sync::Arc;

use crate::input::{Rows, TakenRows, ValueStore};
use crate::space::{Measure, Space};
use crate::{BuildError, BuildSpec, Control, Pass, Phase, Pool, RowBatch};

/// The constants of a build.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) spec: BuildSpec,
    /// The metric by which the graph will be searched.
    pub(crate) measure: Measure,
    pub(crate) pool: Arc<Pool>,
    pub(crate) control: Control,
    pub(crate) store: Arc<ValueStore>,
    /// A pass that a benchmark leaves out.
    pub(crate) left_out: Option<Pass>,
}

impl Setup {
    /// Whether the build has a pass.
    pub(crate) fn runs(&self, pass: Pass) -> bool {
        pass.runs(self.left_out)
    }

    /// Exact distances of the metric by which the graph will be searched.
    pub(crate) fn searched(&self) -> Space<'_> {
        Space::exact(self.measure, &self.store)
    }
}

/// Takes the rows of a build; what every engine begins with.
pub(crate) struct Intake {
    pub(crate) setup: Setup,
    rows: Rows,
}

impl Intake {
    pub(crate) fn new(setup: Setup) -> Self {
        setup.control.progress().enter(Phase::Rows, setup.spec.expected_rows);
        Self { rows: Rows::new(&setup.spec, setup.store.clone()), setup }
    }

    /// Takes a batch. `ready` gets the numbers of the elements of every chunk of values that became readable.
    pub(crate) fn add(
        &mut self,
        batch: RowBatch<'_>,
        ready: impl FnMut(&Rows, Range<u32>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        self.setup.control.check()?;
        self.rows.take(&self.setup.spec, batch, ready)?;
        self.setup.control.progress().add(batch.tids.len() as u64);
        Ok(())
    }

    /// Called after the last row. The range has the elements that `add` has not passed to `ready`.
    pub(crate) fn finish(mut self) -> (Setup, TakenRows, Range<u32>) {
        let (taken, last) = self.rows.finish();
        (self.setup, taken, last)
    }
}
