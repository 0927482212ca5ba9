//! Parallel work: sections of tasks, each of which any thread of the pool may run.
//!
//! All passes of the bulk engine run their tasks here, so that cancellation is checked before each task, and a [`Recorder`] can measure
//! each task: a benchmark derives from that how long a build takes with more threads than the machine has.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;
use rustix::time::{ClockId, clock_gettime};

use crate::{BuildError, Control};

/// Items per task if an item costs about a microsecond: large enough that scheduling costs little, small enough that many threads have
/// work.
fn grain(items: usize) -> usize {
    (items / 1024).clamp(64, 4096)
}

/// A section that has not run yet.
#[derive(Clone, Copy)]
pub(crate) struct Section<'a> {
    control: &'a Control,
    name: &'static str,
}

impl Control {
    /// A section of this name. It runs on the threads of the pool that it is called from.
    pub(crate) fn section(&self, name: &'static str) -> Section<'_> {
        Section { control: self, name }
    }

    /// Attributes the serial work since the last section to `name`.
    pub(crate) fn ran(&self, name: &'static str) {
        if let Some(recorder) = self.recorder() {
            recorder.ran(name);
        }
    }
}

impl Section<'_> {
    /// Fails if the build is cancelled; for tasks that take long.
    pub(crate) fn check(self) -> Result<(), BuildError> {
        self.control.check()
    }

    /// Runs a task for each item.
    pub(crate) fn for_each<T: Send>(
        self,
        items: impl IndexedParallelIterator<Item = T>,
        task: impl Fn(T) -> Result<(), BuildError> + Sync + Send,
    ) -> Result<(), BuildError> {
        self.for_each_init(items, |(): &mut (), item| task(item))
    }

    /// Runs a task for each item. A thread reuses scratch memory from task to task.
    pub(crate) fn for_each_init<T: Send, S: Default>(
        self,
        items: impl IndexedParallelIterator<Item = T>,
        task: impl Fn(&mut S, T) -> Result<(), BuildError> + Sync + Send,
    ) -> Result<(), BuildError> {
        self.record(|| items.try_for_each_init(S::default, |scratch, item| self.task(|| task(scratch, item))))
    }

    /// Runs a task for each item, and returns the results in the items' order.
    pub(crate) fn map<T: Send, R: Send>(
        self,
        items: impl IndexedParallelIterator<Item = T>,
        task: impl Fn(T) -> Result<R, BuildError> + Sync + Send,
    ) -> Result<Vec<R>, BuildError> {
        self.map_init(items, |(): &mut (), item| task(item))
    }

    /// [`Section::map`], with scratch memory that a thread reuses from task to task.
    pub(crate) fn map_init<T: Send, S: Default, R: Send>(
        self,
        items: impl IndexedParallelIterator<Item = T>,
        task: impl Fn(&mut S, T) -> Result<R, BuildError> + Sync + Send,
    ) -> Result<Vec<R>, BuildError> {
        self.record(|| items.map_init(S::default, |scratch, item| self.task(|| task(scratch, item))).collect())
    }

    /// A vector of length `len` with `item(at)` at each position.
    pub(crate) fn fill<T: Copy + Default + Send>(
        self,
        len: usize,
        item: impl Fn(usize) -> T + Sync + Send,
    ) -> Result<Vec<T>, BuildError> {
        let mut filled = vec![T::default(); len];
        let grain = grain(len);
        self.for_each(filled.par_chunks_mut(grain).enumerate(), |(chunk, filled)| {
            filled.iter_mut().zip(chunk * grain..).for_each(|(filled, at)| *filled = item(at));
            Ok(())
        })?;
        Ok(filled)
    }

    fn record<R>(self, work: impl FnOnce() -> R) -> R {
        let Some(recorder) = self.control.recorder() else { return work() };
        recorder.begin(self.name);
        let done = work();
        recorder.end();
        done
    }

    fn task<R>(self, work: impl FnOnce() -> Result<R, BuildError>) -> Result<R, BuildError> {
        self.control.check()?;
        let Some(recorder) = self.control.recorder().filter(|recorder| recorder.tasks) else { return work() };
        recorder.state().begin_task();
        let done = work();
        recorder.state().end_task();
        done
    }
}

/// Splits `0..len` into ranges for tasks.
pub(crate) fn ranges(len: usize) -> impl IndexedParallelIterator<Item = Range<usize>> {
    let grain = grain(len);
    (0..len.div_ceil(grain)).into_par_iter().map(move |at| at * grain..((at + 1) * grain).min(len))
}

/// A step of a recorded build.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Serial work: the section that it belongs to or prepares, and its seconds.
    Alone(&'static str, f64),
    /// Tasks that may run in parallel: the steps of each, in the order in which one thread ran them. [`Recorder::of_sections`] has one task.
    Section(Vec<Vec<Self>>),
}

/// Records a build; nothing else may run in this process.
#[derive(Debug)]
pub struct Recorder {
    /// Whether each task is recorded. Otherwise each outermost section is recorded as one task.
    tasks: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The clock of all recorded seconds.
    clock: ClockId,
    /// The clock when the last step ended.
    last: f64,
    /// Names of the open sections, the outermost first.
    names: Vec<&'static str>,
    /// For each open section that is recorded, its finished tasks.
    tasks: Vec<Vec<Vec<Step>>>,
    /// The steps of the build and, for each of these sections, of its running task.
    steps: Vec<Vec<Step>>,
}

impl Recorder {
    /// For the tasks of a build on a pool of one thread, where they run one by one. It reads the process's CPU clock, which other processes
    /// do not disturb.
    #[must_use]
    pub fn of_tasks() -> Self {
        Self::new(true, ClockId::ProcessCPUTime)
    }

    /// For the outermost sections of a build on a pool of any size, by wall time.
    #[must_use]
    pub fn of_sections() -> Self {
        Self::new(false, ClockId::Monotonic)
    }

    fn new(tasks: bool, clock: ClockId) -> Self {
        let state =
            State { clock, last: seconds(clock), names: Vec::new(), tasks: Vec::new(), steps: vec![Vec::new()] };
        Self { tasks, state: Mutex::new(state) }
    }

    /// Takes the recorded steps; called after the build.
    #[must_use]
    pub fn take(&self) -> Vec<Step> {
        let mut state = self.state();
        state.lap("the end");
        state.steps.first_mut().map(std::mem::take).unwrap_or_default()
    }

    fn ran(&self, name: &'static str) {
        let mut state = self.state();
        if self.tasks || state.names.is_empty() {
            state.lap(name);
        }
    }

    fn begin(&self, name: &'static str) {
        let mut state = self.state();
        if self.tasks {
            state.begin(name);
        } else if state.names.is_empty() {
            state.begin(name);
            state.begin_task();
        } else {
            state.names.push(name);
        }
    }

    fn end(&self) {
        let mut state = self.state();
        if self.tasks {
            state.end();
        } else if state.names.len() == 1 {
            state.end_task();
            state.end();
        } else {
            // Of sections that run at the same time, it may be another's name; the outermost stays.
            state.names.pop();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere ends the build anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ends a serial step.
    fn lap(&mut self, name: &'static str) {
        let now = seconds(self.clock);
        let seconds = now - std::mem::replace(&mut self.last, now);
        if let Some(steps) = self.steps.last_mut() {
            steps.push(Step::Alone(name, seconds));
        }
    }

    fn begin(&mut self, name: &'static str) {
        // Work of a task before a nested section belongs to the task's section.
        self.lap(self.names.last().copied().unwrap_or(name));
        self.names.push(name);
        self.tasks.push(Vec::new());
    }

    fn begin_task(&mut self) {
        self.steps.push(Vec::new());
    }

    fn end_task(&mut self) {
        self.lap(self.names.last().copied().unwrap_or_default());
        let done = self.steps.pop().unwrap_or_default();
        if let Some(tasks) = self.tasks.last_mut() {
            tasks.push(done);
        }
    }

    fn end(&mut self) {
        self.names.pop();
        let tasks = self.tasks.pop().unwrap_or_default();
        if let Some(steps) = self.steps.last_mut() {
            steps.push(Step::Section(tasks));
        }
    }
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Recorder, Step, ranges};
    use crate::testing::pool;
    use crate::{BuildError, Control, Pool};

    /// The recorded tasks of a section that sums the numbers below `count`, a range per task, and runs `inside` in each task.
    fn tasks_of_sums(
        recorder: Recorder,
        pool: &Pool,
        count: usize,
        inside: impl Fn(&Control, usize) -> Result<(), BuildError> + Sync + Send,
    ) -> Vec<Vec<Step>> {
        let recorder = Arc::new(recorder);
        let control = Control::recorded(recorder.clone());
        let sums = pool.run(|| {
            control.section("sums").map(ranges(count), |range| {
                inside(&control, range.len())?;
                Ok(range.sum::<usize>())
            })
        });
        control.ran("last");
        assert_eq!(sums.unwrap().iter().sum::<usize>(), (count - 1) * count / 2);
        let steps = recorder.take();
        let [Step::Alone("sums", _), Step::Section(tasks), Step::Alone("last", _), Step::Alone("the end", _)] =
            &steps[..]
        else {
            panic!("{steps:?}")
        };
        tasks.clone()
    }

    #[test]
    fn tasks_and_what_runs_between_them_are_noted() {
        let tasks = tasks_of_sums(Recorder::of_tasks(), &pool(), 150, |control, _| {
            control.section("squares").for_each(ranges(1), |_| Ok(()))
        });
        assert_eq!(tasks.len(), 3);
        for task in tasks {
            let [Step::Alone("sums", _), Step::Section(inner), Step::Alone("sums", _)] = &task[..] else {
                panic!("{task:?}")
            };
            assert!(matches!(&inner[..], [task] if matches!(task[..], [Step::Alone("squares", _)])), "{inner:?}");
        }
    }

    #[test]
    fn outermost_sections_are_noted_while_their_tasks_run_on_several_threads() {
        let tasks = tasks_of_sums(Recorder::of_sections(), &Pool::new(4).unwrap(), 1500, |control, len| {
            control.section("squares").for_each(ranges(len), |_| Ok(()))?;
            control.ran("inside");
            Ok(())
        });
        assert!(matches!(&tasks[..], [task] if matches!(task[..], [Step::Alone("sums", _)])), "{tasks:?}");
    }

    #[test]
    fn a_cancelled_build_runs_no_more_tasks() {
        let control = Control::default();
        let first = |range: std::ops::Range<usize>| {
            assert_eq!(range.start, 0, "one thread takes tasks in order");
            control.cancel();
            Ok(())
        };
        let done = pool().run(|| control.section("some").for_each(ranges(1 << 16), first));
        assert!(matches!(done, Err(BuildError::Cancelled)));
    }
}
