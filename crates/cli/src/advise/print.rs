use std::fmt::Write;

use advise::{Advice, Choice, Question};
use pgvector::SqlColumn;
use serde_json::{Value, json};

pub(super) fn json(question: &Question, advice: &Advice, column: Option<&SqlColumn>) -> String {
    let choices = advice.choices.iter().map(|choice| object(question, choice, column));
    let object = json!({
        "rows": question.rows,
        "tried": advice.rows,
        "queries": advice.queries,
        "choices": choices.collect::<Vec<_>>(),
    });
    format!("{object:#}\n")
}

fn object(question: &Question, choice: &Choice, column: Option<&SqlColumn>) -> Value {
    let mut object = json!({
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
    });
    for (key, sql) in column.into_iter().flat_map(|column| statements(question, choice, column)) {
        object[key] = sql.into();
    }
    object
}

/// The SQL statements that build the index and search it. They need only pgvector.
fn statements(question: &Question, choice: &Choice, column: &SqlColumn) -> [(&'static str, String); 3] {
    let Choice { value_type, m, ef_construction, ef_search, reranked, .. } = *choice;
    let options = format!("m = {m}, ef_construction = {ef_construction}");
    [
        ("statement", column.index(value_type, &options)),
        ("settings", format!("SET hnsw.ef_search = {ef_search}")),
        ("query", column.query(value_type, question.k as u16, reranked)),
    ]
}

pub(super) fn table(question: &Question, advice: &Advice, column: Option<&SqlColumn>) -> String {
    let mut text = format!(
        "{} rows of {}({}), by graphs of up to {} of them and {} queries; recall@{} {}\n\
         {:9} {:>3} {:>15} {:>9} {:>8} {:>6} {:>8} {:>10} {:>10} {:>8} {:>10}\n",
        question.rows,
        question.value_type.name(),
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
            "{:9} {:>3} {:>15} {:>9} {:>8} {:>6.3} {:>8.0} {:>10.1} {:>10.1} {:>8.1} {:>10.1}",
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
    if let (Some(choice), Some(column)) = (advice.choices.first(), column) {
        text.push_str("\nThe first of them, and a query that uses it:\n");
        for (_, sql) in statements(question, choice, column) {
            let _ = writeln!(text, "{sql};");
        }
    }
    text
}
