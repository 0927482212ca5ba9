//! Graphs without one of the engine's passes: complete, and different from the whole engine's where the pass has an effect.

mod support;

use hnsw::{BuildSpec, Finished, Metric, Pass, Searcher};
use support::{Numbers, all, build, build_without, check, spec};

const ROWS: usize = 3000;
const DIMS: usize = 16;

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
            Pass::Refinement,
            Pass::MorePartitions,
            Pass::LinksOut,
            Pass::MissedElements,
        ];
        let differ = finished.iter().zip(&whole).any(|(finished, whole)| all(finished) != all(whole));
        assert!(idle.contains(&pass) || differ, "{} makes no difference", pass.name());
    }
}

#[test]
fn searches_with_a_small_ef_miss_fewer_elements_of_small_groups() {
    const GROUP: usize = 40;
    let mut numbers = Numbers(21);
    let centers: Vec<_> = (0..ROWS / GROUP).map(|_| numbers.vector(DIMS)).collect();
    let values: Vec<Vec<f32>> =
        (0..ROWS).map(|row| centers[row % centers.len()].iter().map(|x| x + 0.02 * numbers.next()).collect()).collect();
    let spec = spec(DIMS as u32, 4);
    let kernel = distance::kernel(distance::Elements::F32, Metric::L2).unwrap();
    let missed = |finished: &Finished| {
        let found = |&element: &u32| {
            let value = finished.values.value(element);
            let distance = |other| kernel(value, finished.values.value(other));
            let found = Searcher::default().search(&finished.graph, distance, |_| {}, 10);
            found.iter().any(|near| near.element() == element)
        };
        finished.graph.elements().filter(|element| !found(element)).count()
    };
    let without = missed(&build_without(Pass::MissedElements, &spec, &values));
    let with = missed(&build(hnsw::EngineKind::Bulk, &spec, &values).unwrap());
    assert!(with * 2 < without, "{with} missed with the pass, {without} without");
}
