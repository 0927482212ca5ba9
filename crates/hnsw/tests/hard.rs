//! Sets on which a graph of nearest neighbors alone leads nowhere. The bounds are what insertion one by one reaches.

mod support;

use distance::Elements;
use hnsw::{BuildSpec, EngineKind, Metric};
use support::{Numbers, build, check, recall, spec};

const ROWS: usize = 2000;
/// So many that they are split twice where codes are compared.
const MANY: usize = 110_000;

/// Builds a set and compares the recall of searches for its own values with a bound.
fn expect(rows: &[Vec<f32>], metric: Metric, least: f64) {
    let spec = BuildSpec { metric, ..spec(rows[0].len() as u32, 16) };
    let finished = build(EngineKind::Bulk, &spec, rows).unwrap();
    check(&finished, rows.len());
    let recall = recall(&finished, Elements::F32, metric);
    assert!(recall >= least, "{metric:?}: {recall}");
}

/// About normal, by the sum of even ones.
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
fn lengths_over_some_orders_of_magnitude() {
    expect(&of_lengths(1.0, 16), Metric::L2, 0.98);
    expect(&of_lengths(0.7, 64), Metric::L2, 0.85);
    expect(&of_lengths(0.5, 32), Metric::InnerProduct, 0.98);
}

#[test]
fn a_long_thin_curve() {
    let row = |i: usize| (1..=32).map(|j| (i as f32 * 0.01 * j as f32).sin()).collect();
    expect(&(0..ROWS).map(row).collect::<Vec<_>>(), Metric::L2, 0.98);
}

#[test]
fn clusters_far_apart_one_after_the_other() {
    let mut numbers = Numbers(12);
    let mut centers = Vec::new();
    centers.resize_with(50, || numbers.vector(24));
    let mut row = |i: usize| centers[i * 50 / ROWS].iter().map(|c| 16.0 * c + normal(&mut numbers)).collect();
    expect(&(0..ROWS).map(&mut row).collect::<Vec<_>>(), Metric::L2, 0.98);
}

#[test]
fn positive_numbers_of_three_dimensions_by_inner_product() {
    let mut numbers = Numbers(13);
    let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| numbers.vector(3).iter().map(|x| x.abs()).collect()).collect();
    expect(&rows, Metric::InnerProduct, 0.99);
}

#[test]
fn very_many_in_the_order_of_their_clusters() {
    let mut numbers = Numbers(14);
    let mut centers = Vec::new();
    centers.resize_with(400, || numbers.vector(16));
    let mut row = |i: usize| centers[i * 400 / MANY].iter().map(|c| 4.0 * c + normal(&mut numbers)).collect();
    let rows: Vec<Vec<f32>> = (0..MANY).map(&mut row).collect();
    expect(&rows, Metric::L2, 0.95);
}
