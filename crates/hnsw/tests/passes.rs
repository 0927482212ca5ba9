//! Graphs without one of the engine's passes: complete, and different from the whole engine's where the pass has an effect.

mod support;

use std::sync::Arc;

use hnsw::{BuildSpec, Control, Finished, Metric, Pass, Pool, RowBatch, start_without};
use support::{Numbers, build, check, spec, tid};

const ROWS: usize = 3000;
const DIMS: usize = 16;

fn build_without(pass: Pass, spec: &BuildSpec, values: &[Vec<f32>]) -> Finished {
    let mut engine = start_without(pass, spec.clone(), Arc::new(Pool::new(2).unwrap()), Control::default()).unwrap();
    let tids: Vec<_> = (0..values.len()).map(tid).collect();
    let values: Vec<u8> = values.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    engine.add(RowBatch { tids: &tids, values: &values, lengths: &[] }).unwrap();
    engine.finish().unwrap()
}

/// All lists and the order of the elements.
fn all(finished: &Finished) -> (Vec<u32>, &[u32]) {
    let graph = &finished.graph;
    let lists = |element| (0..=graph.level(element)).flat_map(move |layer| graph.neighbors(element, layer));
    (graph.elements().flat_map(lists).copied().collect(), &finished.order)
}

#[test]
fn a_pass_that_is_left_out_leaves_a_complete_graph() {
    let mut numbers = Numbers(7);
    // Of different lengths, for inner product.
    let values: Vec<_> =
        (0..ROWS).map(|row| numbers.vector(DIMS).iter().map(|x| x * (1 + row % 3) as f32).collect()).collect();
    let specs = [Metric::InnerProduct, Metric::L2].map(|metric| BuildSpec { metric, ..spec(DIMS as u32, 8) });
    let whole = specs.each_ref().map(|spec| build(hnsw::EngineKind::Bulk, spec, &values).unwrap());
    for pass in Pass::ALL {
        let finished = specs.each_ref().map(|spec| build_without(pass, spec, &values));
        // Unreachable elements stay unreachable.
        if pass != Pass::Reach {
            finished.iter().for_each(|finished| check(finished, ROWS));
        }
        // These have no effect on this set, or only on processors with kernels for codes.
        let idle = [
            Pass::Components,
            Pass::HubRemoval,
            Pass::Remedies,
            Pass::Reach,
            Pass::Codes,
            Pass::SecondLook,
            Pass::LinksOut,
            Pass::MissedElements,
        ];
        let differ = finished.iter().zip(&whole).any(|(finished, whole)| all(finished) != all(whole));
        assert!(idle.contains(&pass) || differ, "{} makes no difference", pass.name());
    }
}
