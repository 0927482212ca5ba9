//! Sets on which a graph of nearest neighbors alone has islands. [`expect`]'s bounds are the recall of pgvector's insertion.

mod support;

use distance::Elements;
use hnsw::{BuildSpec, EngineKind, Metric, Pass, Remedy};
use support::{Numbers, build, build_without, check, recall, recall_for, recall_of, spec};

const ROWS: usize = 2000;
/// Enough points for two splits where codes are compared.
const MANY: usize = 110_000;

/// Builds a set and compares the recall of searches for its own values with a bound.
fn expect(rows: &[Vec<f32>], metric: Metric, least: f64) {
    let spec = BuildSpec { metric, ..spec(rows[0].len() as u32, 16) };
    let finished = build(EngineKind::Bulk, &spec, rows).unwrap();
    check(&finished, rows.len());
    let recall = recall(&finished, Elements::F32, metric);
    assert!(recall >= least, "{metric:?}: {recall}");
}

/// Approximately normal, as a sum of uniform numbers.
fn normal(numbers: &mut Numbers) -> f32 {
    (0..6).map(|_| numbers.next()).sum::<f32>() / 2f32.sqrt()
}

fn of_lengths(spread: f32, dims: usize) -> Vec<Vec<f32>> {
    let mut numbers = Numbers(11);
    let mut row = || {
        let length = (spread * normal(&mut numbers)).exp();
        (0..dims).map(|_| length * normal(&mut numbers)).collect()
    };
    (0..ROWS).map(|_| row()).collect()
}

#[test]
fn vectors_of_very_different_lengths_are_found() {
    expect(&of_lengths(1.0, 16), Metric::L2, 0.98);
    expect(&of_lengths(0.7, 64), Metric::L2, 0.85);
    expect(&of_lengths(0.5, 32), Metric::InnerProduct, 0.98);
}

#[test]
fn points_of_a_long_thin_curve_are_found() {
    let row = |i: usize| (1..=32).map(|j| (i as f32 * 0.01 * j as f32).sin()).collect();
    expect(&(0..ROWS).map(row).collect::<Vec<_>>(), Metric::L2, 0.98);
}

/// Consecutive clusters with centers `apart` from each other.
fn in_clusters(seed: u64, rows: usize, clusters: usize, dims: usize, apart: f32) -> Vec<Vec<f32>> {
    let mut numbers = Numbers(seed);
    let mut centers = Vec::new();
    centers.resize_with(clusters, || numbers.vector(dims));
    let mut row = |i: usize| centers[i * clusters / rows].iter().map(|c| apart * c + normal(&mut numbers)).collect();
    (0..rows).map(&mut row).collect()
}

#[test]
fn clusters_far_apart_are_found() {
    expect(&in_clusters(12, ROWS, 50, 24, 16.0), Metric::L2, 0.98);
}

#[test]
fn small_clusters_far_apart_need_a_remedy() {
    let rows = in_clusters(17, 40_000, 1000, 24, 17.0);
    let finished = build(EngineKind::Bulk, &BuildSpec { metric: Metric::L2, ..spec(24, 16) }, &rows).unwrap();
    assert_ne!(finished.report.remedy, Remedy::None, "{:?}", finished.report);
}

#[test]
fn lists_that_are_too_short_for_the_data_are_not_navigated() {
    // Searches lose a tenth of the neighbors: lists of four links do not lead far.
    let mut numbers = Numbers(18);
    let rows: Vec<Vec<f32>> = (0..6000).map(|_| (0..16).map(|_| normal(&mut numbers)).collect()).collect();
    let finished = build(EngineKind::Bulk, &spec(16, 2), &rows).unwrap();
    assert!(finished.report.lost > 0.1 && finished.report.remedy != Remedy::Navigation, "{:?}", finished.report);
}

#[test]
fn many_rows_in_the_order_of_their_clusters_are_found() {
    expect(&in_clusters(14, MANY, 400, 16, 4.0), Metric::L2, 0.95);
}

#[test]
fn positive_vectors_of_three_dimensions_are_found_by_inner_product() {
    let mut numbers = Numbers(13);
    let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| numbers.vector(3).iter().map(|x| x.abs()).collect()).collect();
    expect(&rows, Metric::InnerProduct, 0.99);
}

/// Squared lengths overflow f32: all distances are infinite.
#[test]
fn lengths_whose_squares_overflow_leave_a_whole_graph() {
    let mut numbers = Numbers(16);
    for length in [1e20, 3e38] {
        let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| numbers.vector(8).iter().map(|x| length * x).collect()).collect();
        let finished = build(EngineKind::Bulk, &spec(8, 16), &rows).unwrap();
        check(&finished, rows.len());
    }
}

/// Rows of unit length. Of each ten, the first lies anywhere, nine in a crowd, whose distances by cosine are rounding errors.
fn crowd_and_others() -> impl FnMut(usize) -> Vec<f32> {
    let mut numbers = Numbers(15);
    let center: Vec<f32> = (0..64).map(|_| normal(&mut numbers)).collect();
    move |at| {
        let (around, spread) = if at.is_multiple_of(10) { (0.0, 1.0) } else { (1.0, 1e-4) };
        let row: Vec<f32> = center.iter().map(|x| around * x + spread * normal(&mut numbers)).collect();
        let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        row.iter().map(|x| x / length).collect()
    }
}

#[test]
fn a_crowd_whose_distances_are_rounding_errors_is_built_by_insertion() {
    let rows: Vec<Vec<f32>> = (0..20_000).map(crowd_and_others()).collect();
    let spec = BuildSpec { metric: Metric::Cosine, ..spec(64, 16) };
    let finished = build(EngineKind::Bulk, &spec, &rows).unwrap();
    check(&finished, rows.len());
    assert_eq!(finished.report.remedy, Remedy::Insertion);
    let queries = finished.graph.elements().step_by(67);
    let recall = recall_of(&finished, Elements::F32, Metric::Cosine, queries, 40);
    assert!(recall > 0.9, "{recall}");
}

#[test]
fn a_crowd_of_near_identical_rows_is_reachable_by_the_rule() {
    let mut row = crowd_and_others();
    let rows: Vec<Vec<f32>> = (0..20_000).map(&mut row).collect();
    let spec = BuildSpec { metric: Metric::Cosine, ..spec(64, 16) };
    let finished = build_without(Pass::Remedies, &spec, &rows);
    check(&finished, rows.len());
    // A link to an unreachable element replaces a link that the rule chose.
    assert!(finished.report.relinked < 200, "{}", finished.report.relinked);
    // Searches for rows elsewhere that arrive in the crowd find a way out of it.
    let queries = (0..200).map(|at| row(10 * at));
    let queries = queries.map(|row| row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    let recall = recall_for(&finished, Elements::F32, Metric::Cosine, queries, 10);
    assert!(recall > 0.6, "{recall}");
}
