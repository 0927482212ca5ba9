mod plot;

use std::fmt::Write as _;
use std::fs;
use std::io::{Write, stdout};
use std::path::Path;
use std::sync::Arc;

use advise::{AdviseError, Choice, Question, Values};
use anyhow::{Context, anyhow};
use hnsw::{Control, EngineKind, Pool};
use pgvector::ValueType;
use serde_json::json;

use crate::args::Advise;
use crate::failure::Failure;
use crate::vectors;

/// Tries on a file what could be built, and prints what is useful.
pub fn run(arguments: &Advise) -> Result<(), Failure> {
    let read = |path: &Path, most| {
        vectors::sample(path, most).with_context(|| path.display().to_string()).map_err(Failure::Usage)
    };
    let sample = read(&arguments.file, arguments.max_rows)?;
    let values = |values: &[u8]| {
        let mut all = Values::new(ValueType::Vector, sample.dims);
        all.extend(values, []);
        all
    };
    let queries = match &arguments.queries {
        None => values(&[]),
        Some(path) => {
            let queries = read(path, advise::MAX_QUERIES as u64)?;
            if queries.dims != sample.dims {
                let message = anyhow!("{} has {} dimensions, not {}", path.display(), queries.dims, sample.dims);
                return Err(Failure::Usage(message));
            }
            values(&queries.values)
        }
    };
    let question = Question {
        value_type: ValueType::Vector,
        metric: arguments.metric.into(),
        dims: sample.dims,
        rows: arguments.rows.unwrap_or(sample.rows),
        target: arguments.target_recall,
        k: arguments.k.into(),
        seed: 0,
    };
    let rows = values(&sample.values);
    drop(sample);
    let pool = Arc::new(Pool::new(arguments.threads.into()).context("cannot start threads")?);
    let advice = advise::advise(&question, rows, queries, EngineKind::Bulk, &pool, &Control::default());
    let advice = advice.map_err(|error| match error {
        AdviseError::Build(error) => Failure::Other(error.into()),
        other => Failure::usage(other),
    })?;
    if let Some(path) = &arguments.plot {
        fs::write(path, plot::svg(&question, &advice))
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Failure::Usage)?;
    }
    let text = if arguments.json {
        format!(
            "{:#}\n",
            json!({
                "rows": question.rows,
                "tried": advice.rows,
                "queries": advice.queries,
                "choices": advice.choices.iter().map(object).collect::<Vec<_>>(),
            })
        )
    } else {
        table(&question, &advice)
    };
    stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    Ok(())
}

fn object(choice: &Choice) -> serde_json::Value {
    json!({
        "type": choice.value_type.name(),
        "m": choice.m,
        "ef_construction": choice.ef_construction,
        "ef_search": choice.ef_search,
        "reranked": choice.reranked,
        "recall": choice.recall,
        "visited": choice.visited,
        "index_bytes": choice.index_bytes,
        "cached_bytes": choice.cached_bytes,
        "build_seconds": choice.build_seconds,
        "builder_memory_bytes": choice.builder_memory_bytes,
    })
}

fn table(question: &Question, advice: &advise::Advice) -> String {
    let mut text = format!(
        "{} rows of vector({}), by graphs of up to {} of them and {} queries; recall@{} {}\n\
         {:8} {:>3} {:>15} {:>9} {:>8} {:>6} {:>8} {:>10} {:>10} {:>8} {:>10}\n",
        question.rows,
        question.dims,
        advice.rows,
        advice.queries,
        question.k,
        question.target,
        "type",
        "m",
        "ef_construction",
        "ef_search",
        "reranked",
        "recall",
        "visited",
        "index MB",
        "cached MB",
        "build s",
        "memory MB",
    );
    for choice in &advice.choices {
        let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let _ = writeln!(
            text,
            "{:8} {:>3} {:>15} {:>9} {:>8} {:>6.3} {:>8.0} {:>10.1} {:>10.1} {:>8.1} {:>10.1}",
            choice.value_type.name(),
            choice.m,
            choice.ef_construction,
            choice.ef_search,
            choice.reranked,
            choice.recall,
            choice.visited,
            megabytes(choice.index_bytes),
            megabytes(choice.cached_bytes),
            choice.build_seconds,
            megabytes(choice.builder_memory_bytes),
        );
    }
    text
}
