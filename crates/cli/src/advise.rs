mod plot;
mod print;
mod sample;
mod table;

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use advise::{AdviseError, Question};
use anyhow::{Context, anyhow};
use hnsw::{Control, EngineKind, Pool};
use indicatif::{ProgressBar, ProgressStyle};
use pgvector::{Metric, ValueType};

use self::sample::Sample;
use crate::args::Advise;
use crate::failure::{Failure, note};

/// Interval of progress reports.
const LOOK: Duration = Duration::from_millis(100);

/// Tries candidate indexes on the vectors of a file or table, and prints the recommended ones.
pub fn run(arguments: &Advise) -> Result<(), Failure> {
    let Sample { value_type, metric, dims, rows, values, queries, own_type, column } = match &arguments.table {
        Some(table) => table::read(arguments, table)?,
        None => sample::of_file(arguments)?,
    };
    let question = Question {
        value_type,
        metric,
        dims,
        rows: arguments.rows.unwrap_or(rows),
        target: arguments.target_recall,
        k: arguments.k.into(),
        own_type,
        seed: 0,
    };
    let pool = Arc::new(Pool::new(arguments.threads.into()).context("cannot start threads")?);
    let control = Control::default();
    let advice = with_bar(&control, || advise::advise(&question, values, queries, EngineKind::Bulk, &pool, &control))?;
    let advice = advice.map_err(|error| match error {
        AdviseError::Build(error) => Failure::Other(error.into()),
        other => Failure::usage(other),
    })?;
    let print = if arguments.json { print::json } else { print::table };
    let text = print(&question, &advice, column.as_ref());
    crate::print(text)?;
    if let Some(path) = &arguments.plot {
        fs::write(path, plot::svg(&question, &advice))
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Failure::Usage)?;
    }
    // The tolerance is for curves that end exactly at the target.
    if !advice.choices.iter().any(|choice| choice.recall + 1e-6 >= question.target) {
        note(
            "no index is expected to reach the target recall; those that come nearest are shown, with the highest ef_search",
        );
    }
    Ok(())
}

/// Shows how much of `work` is done, where stderr is a terminal.
fn with_bar<T>(control: &Control, work: impl FnOnce() -> T) -> Result<T, Failure> {
    let style = ProgressStyle::with_template("  [{bar:40}] {pos} of {len} measurements, {elapsed}");
    let bar = ProgressBar::new(0).with_style(style.context("cannot draw")?.progress_chars("=> "));
    let (working, ended) = mpsc::channel::<()>();
    Ok(thread::scope(|scope| {
        scope.spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let (_, done, total) = control.progress().get();
                bar.set_length(total);
                bar.set_position(done);
            }
            bar.finish_and_clear();
        });
        let result = work();
        drop(working);
        result
    }))
}

/// The metric of the arguments, or the default; an error if the type does not support it.
fn metric_of(arguments: &Advise, value_type: ValueType) -> Result<Metric, Failure> {
    let metric = match arguments.metric {
        Some(metric) => metric,
        None if value_type == ValueType::Bit => Metric::Hamming,
        None => Metric::Cosine,
    };
    if value_type.supports(metric) {
        return Ok(metric);
    }
    let (metric, value_type) = (metric.name(), value_type.name());
    Err(Failure::Usage(anyhow!("hnsw indexes of type {value_type} do not support --metric {metric}")))
}
