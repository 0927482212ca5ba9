use std::thread;

use protocol::Metric;

use crate::{Vectors, cores};

/// The `k` rows of `base` nearest to each query, nearest first. Under cosine, zero vectors are skipped.
pub fn exact_neighbors(base: &Vectors, queries: &Vectors, metric: Metric, k: usize) -> Vec<Vec<u32>> {
    assert_eq!(base.dims(), queries.dims());
    let numbers: Vec<usize> = (0..queries.rows()).collect();
    let threads = cores();
    let share = numbers.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts: Vec<_> = numbers
            .chunks(share)
            .map(|part| {
                let nearest = move |&query| nearest(base, queries.row(query), metric, k);
                scope.spawn(move || part.iter().map(nearest).collect::<Vec<_>>())
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("no panic")).collect()
    })
}

fn nearest(base: &Vectors, query: &[f32], metric: Metric, k: usize) -> Vec<u32> {
    let mut all: Vec<(f32, u32)> = (0..base.rows())
        .map(|row| (distance(metric, query, base.row(row)), row as u32))
        .filter(|(distance, _)| !distance.is_nan())
        .collect();
    let order = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    if k < all.len() {
        all.select_nth_unstable_by(k, order);
        all.truncate(k);
    }
    all.sort_unstable_by(order);
    all.into_iter().map(|(_, row)| row).collect()
}

/// A number that orders the `b` for a given `a` as the distance does.
fn distance(metric: Metric, a: &[f32], b: &[f32]) -> f32 {
    match metric {
        Metric::L2 => sum(a, b, |x, y| (x - y) * (x - y)),
        Metric::InnerProduct => -sum(a, b, |x, y| x * y),
        Metric::Cosine => -sum(a, b, |x, y| x * y) / sum(b, b, |x, y| x * y).sqrt(),
        Metric::L1 => sum(a, b, |x, y| (x - y).abs()),
        Metric::Hamming | Metric::Jaccard => panic!("{} is a distance of bits", metric.name()),
    }
}

/// Eight accumulators, since a single one would wait for the latency of each addition.
fn sum(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let mut total: f32 = a.remainder().iter().zip(b.remainder()).map(|(&x, &y)| term(x, y)).sum();
    let mut sums = [0.0f32; 8];
    for (a, b) in a.zip(b) {
        for lane in 0..8 {
            sums[lane] += term(a[lane], b[lane]);
        }
    }
    total += sums.iter().sum::<f32>();
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_has_its_own_nearest_rows() {
        let base = Vectors::new(2, vec![0.0, 0.0, 1.0, 0.1, 5.0, 5.0, 0.0, 1.0]);
        let query = Vectors::new(2, vec![1.0, 0.0]);
        assert_eq!(exact_neighbors(&base, &query, Metric::L2, 2), [[1, 0]]);
        assert_eq!(exact_neighbors(&base, &query, Metric::InnerProduct, 2), [[2, 1]]);
        assert_eq!(exact_neighbors(&base, &query, Metric::Cosine, 9), [[1, 2, 3]]);
    }
}
