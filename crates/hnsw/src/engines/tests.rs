//! Deliberate defects, whose effects on a graph the guard must notice.

use std::sync::Arc;

use distance::{Elements, Metric};
use graph::HeapTid;

use super::{BulkEngine, Setup};
use crate::input::ValueStore;
use crate::partition::plan::Defect;
use crate::random::Random;
use crate::space::Measure;
use crate::{Control, Engine, Finished, Pool, Remedy, RowBatch, Searcher, Storage, testing};

const ROWS: usize = 12_000;
const DIMS: usize = 24;
/// Recall below which the statement gives a WARNING.
const POOR: f32 = 0.8;

/// Points around centers.
fn values() -> Vec<f32> {
    let mut random = Random::new(3);
    let mut number = || random.unit() as f32 - 0.5;
    let centers: Vec<f32> = (0..60 * DIMS).map(|_| number()).collect();
    (0..ROWS * DIMS).map(|at| centers[at / DIMS % 60 * DIMS + at % DIMS] + 0.8 * (number() + number())).collect()
}

fn build(values: &[f32], defect: Defect) -> Finished {
    let spec = testing::spec(DIMS);
    let measure = Measure::new(Elements::F32, Metric::L2, DIMS as u32).unwrap();
    let store = Arc::new(ValueStore::new(Storage::default()));
    let pool = Arc::new(Pool::new(2).unwrap());
    let mut engine = BulkEngine::start(Setup { spec, measure, pool, control: Control::default(), store });
    engine.defect = defect;
    let tids: Vec<_> = (0..ROWS as u32).map(|row| HeapTid::new(row, 1)).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    engine.add(RowBatch { tids: &tids, values: &bytes, lengths: &[] }).unwrap();
    Box::new(engine).finish().unwrap()
}

/// The share of the ten nearest that searches for rows find.
fn recall(finished: &Finished) -> f32 {
    let kernel = distance::kernel(Elements::F32, Metric::L2).unwrap();
    let (mut hits, mut queries) = (0, 0);
    for query in (0..ROWS as u32).step_by(40) {
        let distance = |other| kernel(finished.values.value(query), finished.values.value(other));
        let mut exact: Vec<f32> = finished.graph.elements().map(distance).collect();
        let furthest = *exact.select_nth_unstable_by(9, f32::total_cmp).1;
        let found = Searcher::default().search(&finished.graph, distance, |_| {}, 40);
        hits += found.iter().take(10).filter(|near| near.distance() <= furthest).count();
        queries += 1;
    }
    hits as f32 / (10 * queries) as f32
}

#[test]
fn defects_are_repaired_or_reported() {
    let values = values();
    let sound = build(&values, Defect::None);
    assert_eq!(sound.report.remedy, Remedy::None, "{:?}", sound.report);
    let expected = recall(&sound);
    for defect in [Defect::LeavesDropped, Defect::GroupLost, Defect::CodesHalved] {
        let finished = build(&values, defect);
        let (found, report) = (recall(&finished), finished.report);
        let lists = |finished: &Finished| {
            finished.graph.elements().flat_map(|e| finished.graph.neighbors(e, 0)).copied().collect::<Vec<u32>>()
        };
        assert_ne!(lists(&finished), lists(&sound), "{defect:?} does nothing");
        assert!(found >= expected - 0.01 || report.recall < POOR, "{defect:?}: {found} of {expected}, {report:?}");
    }
}

#[test]
fn rows_of_a_lost_group_are_found() {
    let values = values();
    let kernel = distance::kernel(Elements::F32, Metric::L2).unwrap();
    let missed = |defect| {
        let finished = build(&values, defect);
        let distance = |a, b| kernel(finished.values.value(a), finished.values.value(b));
        let mut searcher = Searcher::default();
        let mut nearest = |row| searcher.search(&finished.graph, |other| distance(row, other), |_| {}, 40)[0].element();
        (0..ROWS as u32).filter(|&row| nearest(row) != row).count()
    };
    let expected = missed(Defect::None);
    let missed = missed(Defect::GroupLost);
    assert!(missed <= expected + ROWS / 1000, "{missed} rows are not found, {expected} without the defect");
}
