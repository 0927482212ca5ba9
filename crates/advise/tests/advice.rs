//! Compares the advice from a sample with graphs of all rows.

use std::sync::Arc;

use advise::{Advice, AdviseError, Question, Values, advise};
use graph::HeapTid;
use harness::{Vectors, exact_neighbors, synthetic};
use hnsw::{BuildError, BuildSpec, Control, EngineKind, Metric, Pool, RowBatch, Searcher};
use pgvector::ValueType;

const K: usize = 10;

fn encoded(vectors: &Vectors, rows: usize) -> Values {
    let mut values = Values::new(ValueType::Vector, vectors.dims() as u32);
    (0..rows).for_each(|row| values.extend(&bytes(vectors.row(row)), []));
    values
}

fn bytes(value: &[f32]) -> Vec<u8> {
    value.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn question(vectors: &Vectors, rows: usize, target: f64) -> Question {
    let (value_type, dims) = (ValueType::Vector, vectors.dims() as u32);
    Question { value_type, metric: Metric::L2, dims, rows: rows as u64, target, k: K, own_type: false, seed: 0 }
}

fn ask(question: &Question, rows: Values, control: &Control) -> Result<Advice, AdviseError> {
    ask_for(question, rows, Values::new(question.value_type, question.dims), control)
}

fn ask_for(question: &Question, rows: Values, queries: Values, control: &Control) -> Result<Advice, AdviseError> {
    advise(question, rows, queries, EngineKind::Bulk, &Arc::new(Pool::new(0).unwrap()), control)
}

/// Recall and visits of a graph of all rows.
fn searched(base: &Vectors, queries: &Vectors, m: u16, ef_construction: u16, ef: usize) -> (f64, f64) {
    let spec = BuildSpec::new(ValueType::Vector, Metric::L2, base.dims() as u32, m, ef_construction);
    let spec = BuildSpec { expected_rows: base.rows() as u64, seed: 1, ..spec };
    let pool = Arc::new(Pool::new(0).unwrap());
    let mut engine = hnsw::start(EngineKind::Bulk, spec, pool, Control::default()).unwrap();
    for row in 0..base.rows() {
        let tids = [HeapTid::new(row as u32, 1)];
        engine.add(RowBatch { tids: &tids, values: &bytes(base.row(row)), lengths: &[] }).unwrap();
    }
    let finished = engine.finish().unwrap();
    let kernel = distance::kernel(distance::Elements::F32, Metric::L2).unwrap();
    let exact = exact_neighbors(base, queries, harness::Metric::L2, K);
    let (mut searcher, mut visited, mut hits) = (Searcher::default(), 0, 0);
    for (query, exact) in exact.iter().enumerate() {
        let query = bytes(queries.row(query));
        let distance = |element| {
            visited += 1;
            kernel(&query, finished.values.value(element))
        };
        let found = searcher.search(&finished.graph, distance, |_| {}, ef);
        let rows = found.iter().take(K).map(|near| finished.graph.heap_tids().of(near.element())[0].block());
        hits += rows.filter(|row| exact.contains(row)).count();
    }
    let count = queries.rows() as f64;
    (hits as f64 / (count * K as f64), f64::from(visited) / count)
}

#[test]
fn advice_from_a_quarter_holds_for_all_rows() {
    let (base, queries) = synthetic(24_000, 300, 32, 11);
    let advice = ask(&question(&base, base.rows(), 0.9), encoded(&base, 6000), &Control::default()).unwrap();
    let choice = advice.choices.iter().find(|choice| choice.value_type == ValueType::Vector).unwrap();
    let (recall, visited) = searched(&base, &queries, choice.m, choice.ef_construction, choice.ef_search.into());
    println!("{choice:?}: recall {recall}, visited {visited}");
    assert!((0.87..0.96).contains(&recall), "{choice:?}: {recall}");
    assert!((choice.visited / visited - 1.0).abs() < 0.15, "{choice:?}: {visited}");
}

#[test]
fn a_higher_target_costs_more_visits() {
    let (base, _) = synthetic(4000, 1, 32, 5);
    let first = |target| {
        let advice = ask(&question(&base, 100_000, target), encoded(&base, 4000), &Control::default()).unwrap();
        *advice
            .choices
            .iter()
            .find(|choice| choice.value_type == ValueType::Vector && choice.m == 16)
            .unwrap_or(&advice.choices[0])
    };
    let (low, high) = (first(0.8), first(0.97));
    assert!(high.visited > low.visited && high.recall > low.recall, "{low:?} {high:?}");
}

#[test]
fn too_few_rows_and_cancelled_builds_give_no_advice() {
    let (base, _) = synthetic(1000, 1, 8, 5);
    let few = ask(&question(&base, 1000, 0.9), encoded(&base, 999), &Control::default());
    assert!(matches!(few, Err(AdviseError::TooFew { rows: 999, least: 1000 })), "{few:?}");
    // Cosine cannot compare vectors of norm zero.
    let zeros = Vectors::new(8, vec![0.0; 8 * 2000]);
    let question = Question { metric: Metric::Cosine, ..question(&base, 2000, 0.9) };
    let none = ask(&question, encoded(&zeros, 2000), &Control::default());
    assert!(matches!(none, Err(AdviseError::TooFew { rows: 0, .. })), "{none:?}");
    let control = Control::default();
    control.cancel();
    let cancelled = ask(&question, encoded(&base, 1000), &control);
    assert!(matches!(cancelled, Err(AdviseError::Build(BuildError::Cancelled))), "{cancelled:?}");
}

#[test]
fn too_few_queries_to_show_the_target_give_no_advice() {
    let (base, queries) = synthetic(2000, 40, 8, 5);
    let question = Question { k: 1, ..question(&base, 2000, 0.99) };
    let given = ask_for(&question, encoded(&base, 2000), encoded(&queries, 40), &Control::default());
    assert!(matches!(given, Err(AdviseError::TooFewQueries { queries: 40, least: 50, .. })), "{given:?}");
    let held_out = ask(&Question { target: 0.999, ..question }, encoded(&base, 2000), &Control::default());
    assert!(matches!(held_out, Err(AdviseError::TooFewQueries { queries: 200, least: 500, .. })), "{held_out:?}");
}

#[test]
fn halfvec_is_not_advised_for_queries_that_it_cannot_hold() {
    let (base, _) = synthetic(1500, 1, 8, 5);
    let question = Question { metric: Metric::Cosine, ..question(&base, 1500, 0.9) };
    let has_halfvec = |query: f32| {
        let queries = Vectors::new(8, [vec![query; 8], vec![0.5; 8 * 9]].concat());
        let advice = ask_for(&question, encoded(&base, 1500), encoded(&queries, 10), &Control::default()).unwrap();
        advice.tried.iter().any(|tried| tried.value_type == ValueType::HalfVec)
    };
    assert!(has_halfvec(1.0) && !has_halfvec(1e6));
}

#[test]
fn values_of_norm_zero_do_not_count_for_the_size_of_a_cosine_index() {
    let (base, _) = synthetic(3000, 1, 8, 5);
    let size = |rows: u64, values: Values| {
        let question = Question { metric: Metric::Cosine, ..question(&base, 0, 0.9) };
        let advice = ask(&Question { rows, ..question }, values, &Control::default()).unwrap();
        advice.tried.iter().find(|tried| tried.value_type == ValueType::Vector && tried.m == 16).unwrap().index_bytes
    };
    let mut half = encoded(&base, 1500);
    half.extend(&[0; 1500 * 8 * 4], []);
    assert_eq!(size(60_000, half), size(30_000, encoded(&base, 1500)));
}

#[test]
fn progress_reaches_its_total_with_and_without_halfvec() {
    let (base, _) = synthetic(1400, 1, 8, 5);
    for other in [1.0, 1e6] {
        let mut values = encoded(&base, 1400);
        // Halfvec cannot hold a million.
        values.extend(&bytes(&[other; 8]), []);
        let control = Control::default();
        ask(&question(&base, 1401, 0.9), values, &control).unwrap();
        let (_, done, total) = control.progress().get();
        assert_eq!(done, total, "{other}");
    }
}

#[test]
fn a_duplicate_of_a_held_out_row_makes_no_query_easy() {
    let (base, queries) = synthetic(1500, 400, 16, 5);
    let twice = {
        let mut values = encoded(&base, base.rows());
        (0..base.rows()).for_each(|row| values.extend(&bytes(base.row(row)), []));
        values
    };
    let question = Question { k: 1, ..question(&base, 3000, 0.95) };
    let misses = |queries: Values| {
        let advice = ask_for(&question, twice.clone(), queries, &Control::default()).unwrap();
        let tried = advice.tried.iter().find(|tried| tried.value_type == ValueType::Vector && tried.m == 16).unwrap();
        println!("{} of {} queries: {:?}", tried.m, advice.queries, tried.points);
        1.0 - tried.points[0].recall
    };
    let (held_out, given) = (misses(Values::new(ValueType::Vector, 16)), misses(encoded(&queries, queries.rows())));
    assert!((held_out / given - 1.0).abs() < 0.25, "{held_out} of held-out rows, {given} of other vectors");
}

#[test]
fn choices_for_equal_rows_have_a_high_recall() {
    let one = Vectors::new(8, (0..3000 * 8).map(|at| (at % 8) as f32).collect());
    let advice = ask(&question(&one, 3000, 0.95), encoded(&one, 3000), &Control::default()).unwrap();
    assert!(!advice.choices.is_empty() && advice.choices.iter().all(|choice| choice.recall > 0.94), "{advice:?}");
}
