//! Values that vary in few directions: most comparisons use codes of principal components.

mod support;

use distance::Elements;
use hnsw::{BuildSpec, EngineKind, Metric, Pass};
use support::{Numbers, all, build, build_on, build_without, check, recall, recall_of, spec};

/// Enough rows for principal components to be computed.
const ROWS: usize = 17_000;
const DIMS: usize = 192;

/// Values that vary in 40 directions, in clusters, and a little in all others.
fn of_few_directions() -> Vec<Vec<f32>> {
    let mut numbers = Numbers(21);
    let directions: Vec<Vec<f32>> = (0..40).map(|_| numbers.vector(DIMS)).collect();
    let middles: Vec<Vec<f32>> = (0..60).map(|_| numbers.vector(40)).collect();
    let mut row = |at: usize| {
        let along = numbers.vector(40).into_iter().zip(&middles[at % 60]).map(|(own, middle)| own + middle);
        let along: Vec<f32> = along.collect();
        let mut row = numbers.vector(DIMS);
        row.iter_mut().for_each(|x| *x *= 0.05);
        for (along, direction) in along.iter().zip(&directions) {
            row.iter_mut().zip(direction).for_each(|(x, direction)| *x += along * direction);
        }
        row
    };
    (0..ROWS).map(&mut row).collect()
}

#[test]
fn components_keep_recall_by_every_metric() {
    let rows = of_few_directions();
    let unit = |row: &Vec<f32>| {
        let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        row.iter().map(|x| x / length).collect()
    };
    let of_unit_length: Vec<Vec<f32>> = rows.iter().map(unit).collect();
    for (metric, rows) in
        [(Metric::L2, &rows), (Metric::Cosine, &of_unit_length), (Metric::InnerProduct, &of_unit_length)]
    {
        let spec = BuildSpec { metric, ..spec(DIMS as u32, 16) };
        let finished = build(EngineKind::Bulk, &spec, rows).unwrap();
        check(&finished, ROWS);
        let recall = recall(&finished, Elements::F32, metric);
        assert!(recall >= 0.97, "{metric:?}: {recall}");
        // Processors without kernels for codes have no use for components.
        let by_dimensions = build_without(Pass::Components, &spec, rows);
        let same = all(&finished) == all(&by_dimensions);
        assert_eq!(same, distance::code_kernels().is_none(), "{metric:?}: whether components make no difference");
    }
}

#[test]
fn the_same_graph_whatever_the_threads() {
    let rows = of_few_directions();
    let spec = spec(DIMS as u32, 16);
    let [one, three] = [1, 3].map(|threads| build_on(threads, EngineKind::Bulk, &spec, &rows).unwrap());
    assert_eq!(one.order, three.order);
    for element in one.graph.elements() {
        assert_eq!(one.graph.neighbors(element, 0), three.graph.neighbors(element, 0));
    }
}

/// A few near rows differ only along directions that the principal components leave out.
#[test]
fn rows_that_components_do_not_represent_are_found() {
    const FEW: usize = 350;
    let mut rows = of_few_directions();
    let mut numbers = Numbers(22);
    let like = rows[0].clone();
    // Spread evenly over all rows.
    for row in rows.iter_mut().step_by(ROWS / FEW) {
        row.iter_mut().zip(&like).for_each(|(x, like)| *x = like + 0.3 * numbers.next());
    }
    let finished = build(EngineKind::Bulk, &spec(DIMS as u32, 16), &rows).unwrap();
    check(&finished, ROWS);
    let few = (0..ROWS as u32).step_by(ROWS / FEW);
    let recall = recall_of(&finished, Elements::F32, Metric::L2, few.step_by(4), 30);
    assert!(recall >= 0.995, "{recall}");
}
