mod plot;
mod print;
mod sample;
mod table;

use std::fs;
use std::io::{Write, stdout};
use std::sync::Arc;

use advise::{AdviseError, Question};
use anyhow::{Context, anyhow};
use hnsw::{Control, EngineKind, Pool};
use pgvector::{Metric, ValueType};

use self::sample::Sample;
use crate::args::Advise;
use crate::failure::Failure;

/// Tries on a file or table what could be built, and prints what is useful.
pub fn run(arguments: &Advise) -> Result<(), Failure> {
    let Sample { value_type, metric, dims, rows, values, queries, column } = match &arguments.table {
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
        seed: 0,
    };
    let pool = Arc::new(Pool::new(arguments.threads.into()).context("cannot start threads")?);
    let advice = advise::advise(&question, values, queries, EngineKind::Bulk, &pool, &Control::default());
    let advice = advice.map_err(|error| match error {
        AdviseError::Build(error) => Failure::Other(error.into()),
        other => Failure::usage(other),
    })?;
    if let Some(path) = &arguments.plot {
        fs::write(path, plot::svg(&question, &advice))
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Failure::Usage)?;
    }
    let print = if arguments.json { print::json } else { print::table };
    let text = print(&question, &advice, column.as_ref());
    stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    // Some curves end exactly at the target.
    if !advice.choices.iter().any(|choice| choice.recall + 1e-6 >= question.target) {
        eprintln!(
            "lantern-index: no index is expected to reach the target recall; those that come nearest are shown, with the highest ef_search"
        );
    }
    Ok(())
}

/// The metric that is asked for, if the type has it.
fn metric_of(arguments: &Advise, value_type: ValueType) -> Result<Metric, Failure> {
    let metric = match arguments.metric {
        Some(name) => Metric::from(name),
        None if value_type == ValueType::Bit => Metric::Hamming,
        None => Metric::Cosine,
    };
    if value_type.supports(metric) {
        return Ok(metric);
    }
    let (metric, value_type) = (metric.name(), value_type.name());
    Err(Failure::Usage(anyhow!("--metric {metric} is none for hnsw indexes of type {value_type}")))
}
