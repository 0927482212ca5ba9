use std::ops::Range;
use std::thread;

use crate::{Random, Vectors, cores};

/// Latent dimensions of the vectors.
const LATENT: usize = 192;
/// Width of the hidden layer.
const HIDDEN: usize = 320;
/// Vectors per stream of random numbers, so that the result does not depend on the number of threads.
const AT_ONCE: usize = 1000;

/// Vectors of unit length that resemble embeddings: a hierarchy of clusters of uneven sizes in latent dimensions of uneven spread, mapped
/// by a nonlinear function, with noise and a common direction. With 384 dimensions, an HNSW index with common settings has about the recall
/// and the number of distances that it has with sentence embeddings. The same seed gives the same vectors, whatever their number. Queries
/// are another sample of the same distribution.
///
/// Independent random numbers would not do: in hundreds of dimensions they are all about equally far apart.
pub fn synthetic(rows: usize, queries: usize, dims: usize, seed: u64) -> (Vectors, Vectors) {
    let world = World::new(dims, seed);
    (world.draw(0..rows, 1), world.draw(0..queries, 2))
}

/// The rows of [`synthetic`] with these numbers, for sets that do not fit into memory twice. The first is a multiple of 1,000.
pub fn synthetic_part(rows: Range<usize>, dims: usize, seed: u64) -> Vectors {
    World::new(dims, seed).draw(rows, 1)
}

/// The distribution.
struct World {
    dims: usize,
    seed: u64,
    centers: Vec<[f32; LATENT]>,
    /// Cumulative fractions of rows by cluster.
    shares: Vec<f32>,
    inner: Vec<f32>,
    inner_bias: [f32; HIDDEN],
    outer: Vec<f32>,
    direction: Vec<f32>,
}

const CLUSTERS: usize = 300;
const FAMILIES: usize = 18;

impl World {
    fn new(dims: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let families: Vec<[f32; LATENT]> = (0..FAMILIES).map(|_| latent(&mut random)).collect();
        let centers = (0..CLUSTERS)
            .map(|_| {
                let (family, own) = (families[random.below(FAMILIES)], latent(&mut random));
                std::array::from_fn(|at| 0.25 * family[at] + 0.3 * own[at])
            })
            .collect();
        let mut sum = 0.0;
        let shares = (1..=CLUSTERS).map(|rank| {
            sum += (rank as f32).powf(-0.7);
            sum
        });
        Self {
            dims,
            seed,
            centers,
            shares: shares.collect(),
            inner: (0..LATENT * HIDDEN).map(|_| random.normal() / (LATENT as f32).sqrt()).collect(),
            inner_bias: std::array::from_fn(|_| 0.3 * random.normal()),
            outer: (0..HIDDEN * dims).map(|_| random.normal() / (HIDDEN as f32).sqrt()).collect(),
            direction: (0..dims).map(|_| random.normal()).collect(),
        }
    }

    fn draw(&self, rows: Range<usize>, stream: u64) -> Vectors {
        assert_eq!(rows.start % AT_ONCE, 0);
        let first = rows.start / AT_ONCE;
        let mut values = vec![0f32; rows.len() * self.dims];
        let threads = cores();
        let blocks = rows.len().div_ceil(AT_ONCE);
        let share = blocks.div_ceil(threads).max(1);
        thread::scope(|scope| {
            for (at, part) in values.chunks_mut((share * AT_ONCE * self.dims).max(1)).enumerate() {
                scope.spawn(move || {
                    for (block, rows) in part.chunks_mut(AT_ONCE * self.dims).enumerate() {
                        let number = (first + at * share + block) as u64;
                        let mut random = Random::new(self.seed ^ stream << 56 ^ number.wrapping_mul(0x9e37_79b9));
                        rows.chunks_exact_mut(self.dims).for_each(|row| self.vector(&mut random, row));
                    }
                });
            }
        });
        Vectors::new(self.dims, values)
    }

    fn vector(&self, random: &mut Random, row: &mut [f32]) {
        let total = self.shares.last().copied().unwrap_or_default();
        let share = random.unit() * total;
        let cluster = self.shares.partition_point(|&sum| sum < share).min(CLUSTERS - 1);
        let own = latent(random);
        // Latent directions differ in their spread, and differently in each cluster.
        let spread = |at: usize| 1.2 * (1.0 + ((at + 7 * cluster) % LATENT) as f32).powf(-0.2);
        let latent: [f32; LATENT] = std::array::from_fn(|at| self.centers[cluster][at] + spread(at) * own[at]);
        let mut hidden = self.inner_bias;
        for (value, weights) in latent.iter().zip(self.inner.chunks_exact(HIDDEN)) {
            hidden.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += value * weight);
        }
        row.iter_mut().zip(&self.direction).for_each(|(x, direction)| *x = 0.35 * direction);
        for (value, weights) in hidden.iter().zip(self.outer.chunks_exact(self.dims)) {
            let bent = value.tanh();
            row.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += bent * weight);
        }
        row.iter_mut().for_each(|x| *x += 0.1 * random.normal());
        let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        row.iter_mut().for_each(|x| *x /= norm);
    }
}

fn latent(random: &mut Random) -> [f32; LATENT] {
    std::array::from_fn(|_| random.normal())
}

#[cfg(test)]
mod tests {
    use super::{synthetic, synthetic_part};
    use crate::{Metric, exact_neighbors};

    #[test]
    fn the_same_seed_gives_the_same_vectors_and_some_are_near() {
        let (few, queries) = synthetic(1500, 20, 96, 7);
        let (more, _) = synthetic(3100, 1, 96, 7);
        assert!((0..few.rows()).all(|row| few.row(row) == more.row(row)));
        let part = synthetic_part(2000..3100, 96, 7);
        assert!((0..part.rows()).all(|row| part.row(row) == more.row(2000 + row)));
        assert!(synthetic(1, 1, 96, 8).0.row(0) != few.row(0));
        let nearest = exact_neighbors(&few, &queries, Metric::Cosine, few.rows());
        let cosine = |query: usize, row: u32| -> f32 {
            few.row(row as usize).iter().zip(queries.row(query)).map(|(a, b)| a * b).sum()
        };
        for (query, rows) in nearest.iter().enumerate() {
            let (first, middle) = (cosine(query, rows[0]), cosine(query, rows[rows.len() / 2]));
            assert!(first - middle > 0.1, "{first} {middle}");
        }
    }
}
