//! Whole builds: every graph is valid, complete and has a good recall.

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use distance::Elements;
use graph::ValueType;
use half::f16;
use hnsw::{
    BuildError, BuildSpec, Control, Engine, EngineKind, Finished, Metric, Phase, Pool, Recorder, RowBatch, Searcher,
    Step, start,
};
use support::{ENGINES, Numbers, build, build_on, check, recall, recall_for, recall_of, spec, tid};

/// Checks that searches for a sample of rows find these rows.
fn finds_itself(kind: EngineKind, finished: &Finished) {
    // usearch's graphs differ from build to build.
    let least = if kind == EngineKind::Usearch { 0.95 } else { 0.99 };
    assert!(finished.report.self_recall >= least, "{}: {}", kind.name(), finished.report.self_recall);
}

/// A vector's encoding.
fn encoded(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn lists_are_full_from_no_row_to_many_for_each_m() {
    for kind in ENGINES {
        let mut numbers = Numbers(1);
        for m in [2, 3, 16, 100] {
            for rows in [0, 1, 2, 3, 5, 33, 201, 700, 3000] {
                let values: Vec<_> = (0..rows).map(|_| numbers.vector(8)).collect();
                let finished = build(kind, &spec(8, m), &values).unwrap();
                check(&finished, rows);
                let full = rows > 2 * usize::from(m);
                for element in finished.graph.elements() {
                    let expected = if full { 2 * usize::from(m) } else { rows - 1 };
                    assert_eq!(finished.graph.neighbors(element, 0).len(), expected, "m {m}, {rows} rows");
                }
            }
        }
    }
}

#[test]
fn elements_of_a_frequent_value_are_reachable() {
    for kind in ENGINES {
        let mut numbers = Numbers(2);
        // 1000 rows of one value among 500 others: pgvector strands hundreds of elements here.
        let mut values: Vec<_> = (0..500).map(|_| numbers.vector(8)).collect();
        values.extend(vec![vec![0.5; 8]; 1000]);
        let finished = build(kind, &spec(8, 16), &values).unwrap();
        check(&finished, 1500);
        assert_eq!(finished.graph.len(), 600);
        finds_itself(kind, &finished);
    }
}

/// The number of distinct values is just above that of a list's slots, and one of them has just over half as many elements.
#[test]
fn lists_of_duplicates_are_full() {
    for kind in ENGINES {
        for m in [2, 3, 16] {
            for (others, elements) in (2 * m..2 * m + 4).flat_map(|others| (m..m + 5).map(move |more| (others, more))) {
                let mut numbers = Numbers(3);
                let mut values: Vec<_> = (0..others).map(|_| numbers.vector(8)).collect();
                values.extend(vec![vec![0.5; 8]; 10 * usize::from(elements)]);
                let finished = build(kind, &spec(8, m), &values);
                let finished =
                    finished.unwrap_or_else(|error| panic!("{kind:?}, m = {m}, {others}, {elements}: {error}"));
                check(&finished, values.len());
                assert_eq!(finished.graph.len(), usize::from(others + elements));
            }
        }
    }
}

/// The elements of one value fill all results of a search, which must still leave them.
#[test]
fn values_with_many_rows_do_not_trap_searches() {
    const VALUES: usize = 1000;
    let mut numbers = Numbers(9);
    let distinct: Vec<_> = (0..VALUES).map(|_| numbers.vector(24)).collect();
    let rows: Vec<_> = (0..VALUES * 200).map(|row| distinct[row % VALUES].clone()).collect();
    let finished = build(EngineKind::Bulk, &spec(24, 16), &rows).unwrap();
    check(&finished, rows.len());
    let kernel = distance::kernel(Elements::F32, Metric::L2).unwrap();
    let mut found = 0;
    for _ in 0..500 {
        let query = encoded(&numbers.vector(24));
        let nearest = distinct.iter().map(|value| kernel(&query, &encoded(value))).min_by(f32::total_cmp).unwrap();
        let distance = |element| kernel(&query, finished.values.value(element));
        let near = Searcher::default().search(&finished.graph, distance, |_| {}, 40);
        found += usize::from(near[0].distance() <= nearest);
    }
    assert!(found >= 475, "{found} of 500");
}

#[test]
fn one_row_per_element_keeps_equal_rows_apart() {
    for kind in ENGINES {
        let mut numbers = Numbers(3);
        let mut values: Vec<_> = (0..500).map(|_| numbers.vector(8)).collect();
        values.extend(vec![vec![0.5; 8]; 300]);
        let finished = build(kind, &BuildSpec { rows_per_element: 1, ..spec(8, 16) }, &values).unwrap();
        check(&finished, 800);
        assert_eq!(finished.graph.len(), 800);
        finds_itself(kind, &finished);
    }
}

#[test]
fn equal_rows_share_elements_of_ten_that_are_reachable() {
    for kind in ENGINES {
        for rows in [2, 10, 11, 25, 400, 5000] {
            let finished = build(kind, &spec(3, 16), &vec![vec![1.0, 2.0, 3.0]; rows]).unwrap();
            check(&finished, rows);
            assert_eq!(finished.graph.len(), rows.div_ceil(10));
        }
    }
}

#[test]
fn elements_of_few_values_are_reachable() {
    for kind in ENGINES {
        let values: Vec<_> = (0..2000).map(|row| vec![(row % 3) as f32]).collect();
        check(&build(kind, &spec(1, 16), &values).unwrap(), 2000);
    }
}

#[test]
fn rows_of_clusters_far_apart_find_themselves() {
    for (kind, each) in ENGINES.into_iter().flat_map(|kind| [300, 600, 1000, 1200].map(|each| (kind, each))) {
        let mut numbers = Numbers(3);
        let values: Vec<_> = (0..2 * each)
            .map(|row| numbers.vector(16).into_iter().map(|v| v + if row < each { 1e6 } else { -1e6 }).collect())
            .collect();
        // With several threads, usearch may leave islands: they do not see each other's first elements of the second cluster.
        let threads = if kind == EngineKind::Usearch { 1 } else { 2 };
        let finished = build_on(threads, kind, &spec(16, 8), &values).unwrap();
        check(&finished, 2 * each);
        assert!(finished.report.self_recall > 0.97, "{kind:?}, {each}: {}", finished.report.self_recall);
    }
}

#[test]
fn rows_that_f32_hardly_separates_are_reachable() {
    for kind in ENGINES {
        for rows in [2, 3, 10, 100, 500] {
            // Nearly parallel, with differences of one step of f32.
            let values: Vec<_> =
                (0..rows).map(|row| vec![1e6 + (row % 9) as f32 / 16.0, -1e6, (row / 9) as f32 / 16.0]).collect();
            for metric in [Metric::L2, Metric::Cosine] {
                check(&build(kind, &BuildSpec { metric, ..spec(3, 16) }, &values).unwrap(), rows);
            }
        }
    }
}

#[test]
fn distances_that_overflow_leave_no_row_unreachable() {
    for kind in ENGINES {
        let mut numbers = Numbers(4);
        let values: Vec<_> = (0..1000)
            .map(|row| numbers.vector(4).iter().map(|v| v * if row % 2 == 0 { 3e38 } else { 1e-44 }).collect())
            .collect();
        for metric in [Metric::L2, Metric::InnerProduct, Metric::L1] {
            check(&build(kind, &BuildSpec { metric, ..spec(4, 16) }, &values).unwrap(), 1000);
        }
    }
}

#[test]
fn bad_values_name_the_row() {
    for kind in ENGINES {
        let mut values = vec![vec![0.0, 1.0]; 700];
        values[650][1] = f32::NAN;
        assert_eq!(
            build(kind, &spec(2, 16), &values).err(),
            Some(BuildError::Value { row: 650, problem: "not a number" })
        );
    }
}

#[test]
fn parameters_are_checked() {
    let pool = Arc::new(Pool::new(1).unwrap());
    let error = |spec| start(EngineKind::Usearch, spec, pool.clone(), Control::default()).err().map(|e| e.to_string());
    assert_eq!(error(spec(2, 1)).as_deref(), Some("m is 1, must be between 2 and 100"));
    let low = BuildSpec { ef_construction: 31, ..spec(2, 16) };
    assert_eq!(error(low).as_deref(), Some("ef_construction is 31, must be between 32 and 1000"));
    let wrong = BuildSpec { metric: Metric::Hamming, ..spec(2, 16) };
    assert_eq!(error(wrong).as_deref(), Some("vector with hamming is not supported by the usearch engine"));
}

#[test]
fn a_cancelled_build_takes_no_rows_and_makes_no_graph() {
    for kind in [EngineKind::Bulk, EngineKind::Insertion, EngineKind::Usearch] {
        let pool = Arc::new(Pool::new(1).unwrap());
        let control = Control::default();
        let mut engine = start(kind, spec(1, 16), pool, control.clone()).unwrap();
        engine.add(RowBatch { tids: &[tid(0)], values: &1f32.to_le_bytes(), lengths: &[] }).unwrap();
        control.cancel();
        let again = engine.add(RowBatch { tids: &[tid(1)], values: &2f32.to_le_bytes(), lengths: &[] });
        assert_eq!(again.err(), Some(BuildError::Cancelled), "{kind:?}");
        assert_eq!(engine.finish().err(), Some(BuildError::Cancelled), "{kind:?}");
    }
}

#[test]
fn a_batch_that_fails_ends_the_build() {
    for kind in [EngineKind::Bulk, EngineKind::Insertion, EngineKind::Usearch] {
        let mut engine = start(kind, spec(1, 16), Arc::new(Pool::new(1).unwrap()), Control::default()).unwrap();
        let add = |engine: &mut dyn Engine, value: f32| {
            engine.add(RowBatch { tids: &[tid(0)], values: &value.to_le_bytes(), lengths: &[] })
        };
        add(&mut *engine, 1.0).unwrap();
        assert!(matches!(add(&mut *engine, f32::NAN), Err(BuildError::Value { row: 1, .. })), "{kind:?}");
        assert!(matches!(add(&mut *engine, 2.0), Err(BuildError::Internal(_))), "{kind:?}");
        assert!(matches!(engine.finish(), Err(BuildError::Internal(_))), "{kind:?}");
    }
}

#[test]
fn a_build_can_be_cancelled_while_its_graph_is_made() {
    const ROWS: usize = 8000;
    let mut numbers = Numbers(8);
    let values: Vec<u8> = (0..ROWS).flat_map(|_| numbers.vector(32)).flat_map(f32::to_le_bytes).collect();
    let tids: Vec<_> = (0..ROWS).map(tid).collect();
    for kind in [EngineKind::Bulk, EngineKind::Insertion] {
        for phase in [Phase::Graph, Phase::Repair] {
            let is_cancelled = || {
                let control = Control::default();
                let spec = BuildSpec { ef_construction: 400, ..spec(32, 48) };
                let mut engine = start(kind, spec, Arc::new(Pool::new(1).unwrap()), control.clone()).unwrap();
                engine.add(RowBatch { tids: &tids, values: &values, lengths: &[] }).unwrap();
                let building = thread::spawn(move || engine.finish());
                while control.progress().get().0 < phase && !building.is_finished() {
                    thread::sleep(Duration::from_micros(200));
                }
                control.cancel();
                building.join().unwrap().err() == Some(BuildError::Cancelled)
            };
            // This thread may be paused until the build ends.
            assert!((0..5).any(|_| is_cancelled()), "{kind:?} in {phase:?}");
        }
    }
}

#[test]
fn builds_pass_through_all_phases_whoever_makes_the_graph() {
    // A trial on the data chooses between bulk and insertion where the metric alone does not.
    for (kind, metric, dims) in [
        (EngineKind::Bulk, Metric::L2, 16),
        (EngineKind::Bulk, Metric::InnerProduct, 16),
        (EngineKind::Bulk, Metric::L1, 2),
        (EngineKind::Insertion, Metric::L2, 16),
        (EngineKind::Usearch, Metric::L2, 16),
    ] {
        let (mut numbers, control) = (Numbers(8), Control::default());
        let spec = BuildSpec { metric, ..spec(dims, 8) };
        let mut engine = start(kind, spec, Arc::new(Pool::new(2).unwrap()), control.clone()).unwrap();
        let values: Vec<u8> = (0..4000 * dims).flat_map(|_| numbers.next().abs().to_le_bytes()).collect();
        let tids: Vec<_> = (0..4000).map(tid).collect();
        engine.add(RowBatch { tids: &tids, values: &values, lengths: &[] }).unwrap();
        check(&engine.finish().unwrap(), 4000);
        let spent = control.progress().spent();
        assert!(spent.iter().all(|spent| !spent.is_zero()), "{} {metric:?}: {spent:?}", kind.name());
    }
}

#[test]
fn clustered_vectors_are_found() {
    for kind in ENGINES {
        let mut numbers = Numbers(5);
        let centers: Vec<_> = (0..50).map(|_| numbers.vector(32)).collect();
        let mut draw = |rows: usize| -> Vec<Vec<f32>> {
            (0..rows).map(|row| centers[row % 50].iter().map(|c| c + 0.4 * numbers.next()).collect()).collect()
        };
        let (values, queries) = (draw(5000), draw(50));
        let finished = build(kind, &spec(32, 16), &values).unwrap();
        check(&finished, 5000);
        finds_itself(kind, &finished);
        let of_tids: HashMap<_, _> = values.iter().enumerate().map(|(row, value)| (tid(row), encoded(value))).collect();
        for element in finished.graph.elements() {
            for row in finished.graph.heap_tids().of(element) {
                assert_eq!(of_tids[row], finished.values.value(element), "{kind:?}: the value of {row:?}");
            }
        }
        let recall = recall_for(&finished, Elements::F32, Metric::L2, queries.iter().map(|query| encoded(query)), 40);
        assert!(recall >= 0.96, "{recall}");
    }
}

/// As with chunks of documents, a hundred similar rows follow one another. Insertion must not have them in one batch.
#[test]
fn insertion_finds_similar_rows_that_follow_one_another() {
    let mut numbers = Numbers(8);
    let mut rows = Vec::new();
    while rows.len() < 20_000 {
        let center = numbers.vector(24);
        rows.extend((0..100).map(|_| center.iter().map(|c| c + 0.3 * numbers.next()).collect::<Vec<f32>>()));
    }
    let spec = BuildSpec { metric: Metric::L1, ..spec(24, 16) };
    let finished = build(EngineKind::Insertion, &spec, &rows).unwrap();
    check(&finished, rows.len());
    let queries = finished.graph.elements().step_by(100);
    let recall = recall_of(&finished, Elements::F32, Metric::L1, queries, 40);
    let relinked = finished.report.relinked;
    assert!(recall > 0.97 && relinked < 20, "recall {recall}, {relinked} elements relinked");
}

#[test]
fn types_and_metrics_are_searched_well() {
    let mut numbers = Numbers(6);
    let centers: Vec<_> = (0..40).map(|_| numbers.vector(48)).collect();
    let rows: Vec<Vec<f32>> =
        (0..4000).map(|row| centers[row % 40].iter().map(|c| c + 0.5 * numbers.next()).collect()).collect();
    let tids: Vec<_> = (0..rows.len()).map(tid).collect();
    let combinations = ValueType::ALL.into_iter().flat_map(|value_type| Metric::ALL.map(|metric| (value_type, metric)));
    for (value_type, metric) in combinations.filter(|(value_type, metric)| value_type.supports(*metric)) {
        let values: Vec<_> = rows.iter().map(|row| encode(value_type, metric, row)).collect();
        // Only values whose type and dimensions do not imply their length have one in the batch.
        let of_values = if value_type.value_len(48).is_none() { &values[..] } else { &[] };
        let lengths: Vec<_> = of_values.iter().map(|value| value.len() as u32).collect();
        let spec = BuildSpec { value_type, metric, ..spec(48, 16) };
        let pool = Arc::new(Pool::new(2).unwrap());
        let mut engine = start(EngineKind::Bulk, spec, pool, Control::default()).unwrap();
        engine.add(RowBatch { tids: &tids, values: &values.concat(), lengths: &lengths }).unwrap();
        let finished = engine.finish().unwrap();
        check(&finished, rows.len());
        let recall = recall(&finished, Elements::of(value_type), metric);
        assert!(recall > 0.97, "{value_type:?} {metric:?}: {recall}");
    }
}

/// A row as a value: of length 1 for cosine, of signs as bits, of the largest entries as a sparsevec.
fn encode(value_type: ValueType, metric: Metric, row: &[f32]) -> Vec<u8> {
    let least = if value_type == ValueType::SparseVec { 0.8 } else { 0.0 };
    let mut row: Vec<f32> = row.iter().map(|&x| if x.abs() > least { x } else { 0.0 }).collect();
    if metric == Metric::Cosine {
        let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        row.iter_mut().for_each(|x| *x /= length);
    }
    match value_type {
        ValueType::Vector => row.into_iter().flat_map(f32::to_le_bytes).collect(),
        ValueType::HalfVec => row.into_iter().flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
        ValueType::Bit => {
            row.chunks(8).map(|byte| byte.iter().fold(0, |bits, x| bits << 1 | u8::from(*x > 0.0))).collect()
        }
        ValueType::SparseVec => {
            let (indices, entries): (Vec<u32>, Vec<f32>) = (0..).zip(row).filter(|(_, x)| *x != 0.0).unzip();
            let count = indices.len() as u32;
            let words = indices.into_iter().chain(entries.into_iter().map(f32::to_bits));
            std::iter::once(count).chain(words).flat_map(u32::to_le_bytes).collect()
        }
    }
}

#[test]
fn a_pivot_in_the_middle_does_not_spoil_the_groups() {
    let mut numbers = Numbers(7);
    // In many dimensions, points near the center are nearer to all others than these are to each other.
    let rows: Vec<Vec<f32>> = (0..4000)
        .map(|row| numbers.vector(64).into_iter().map(|x| if row % 50 == 0 { 0.1 * x } else { 1.0 * x }).collect())
        .collect();
    let finished = build(EngineKind::Bulk, &spec(64, 16), &rows).unwrap();
    check(&finished, rows.len());
    let recall = recall(&finished, Elements::F32, Metric::L2);
    assert!(recall > 0.97, "{recall}");
}

#[test]
fn the_same_seed_gives_the_same_graph_whatever_the_threads_and_recorded() {
    let mut numbers = Numbers(8);
    let rows: Vec<Vec<f32>> = (0..5000).map(|_| numbers.vector(24)).collect();
    let values: Vec<u8> = rows.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
    let tids: Vec<_> = (0..rows.len()).map(tid).collect();
    let build = |threads, control| {
        let pool = Arc::new(Pool::new(threads).unwrap());
        let mut engine = start(EngineKind::Bulk, spec(24, 16), pool, control).unwrap();
        engine.add(RowBatch { tids: &tids, values: &values, lengths: &[] }).unwrap();
        engine.finish().unwrap()
    };
    let one = build(1, Control::default());
    let recorder = Arc::new(Recorder::of_tasks());
    for other in [build(3, Control::default()), build(1, Control::recorded(recorder.clone()))] {
        assert_eq!(one.order, other.order);
        for element in one.graph.elements() {
            assert_eq!(one.graph.level(element), other.graph.level(element));
            for layer in 0..=one.graph.level(element) {
                assert_eq!(one.graph.neighbors(element, layer), other.graph.neighbors(element, layer));
            }
        }
    }
    let steps = recorder.take();
    assert!(steps.iter().any(|step| matches!(step, Step::Section(tasks) if tasks.len() > 50)));
}
