//! Families of sparse vectors and bit strings.

use crate::Random;

/// Draws a row as `(dimension, number)`, ascending.
pub(super) type SparseWorld = Box<dyn FnMut(&mut Random) -> Vec<(u32, f32)>>;
/// Draws a row.
pub(super) type BitWorld = Box<dyn FnMut(&mut Random) -> Vec<bool>>;

/// Sorts a row and keeps the first entry of each dimension.
fn ordered(mut row: Vec<(u32, f32)>) -> Vec<(u32, f32)> {
    row.sort_by_key(|&(dim, _)| dim);
    row.dedup_by_key(|&mut (dim, _)| dim);
    row
}

/// About fifty words of a document, with power-law frequencies; rare words have larger weights (BM25).
pub(super) fn bm25(_: &mut Random, dims: usize) -> SparseWorld {
    Box::new(move |random| {
        let words = 20 + random.below(60);
        ordered(
            (0..words)
                .map(|_| {
                    let word = random.power_law(dims, 1.05);
                    let rarity = ((dims as f32) / (word as f32 + 1.0)).ln().recip().min(1.0) + 0.2;
                    (word as u32, rarity * (0.5 + random.unit()))
                })
                .collect(),
        )
    })
}

/// Words of a few topics, and related words that a model adds (SPLADE).
pub(super) fn splade(random: &mut Random, dims: usize) -> SparseWorld {
    let topics: Vec<Vec<(u32, f32)>> = (0..200)
        .map(|_| (0..120).map(|_| (random.power_law(dims, 0.8) as u32, (1.0 + 3.0 * random.unit()).ln())).collect())
        .collect();
    Box::new(move |random| {
        let mut row = Vec::new();
        for _ in 0..1 + random.below(3) {
            let topic = &topics[random.power_law(topics.len(), 0.7)];
            let share = 0.2 + 0.5 * random.unit();
            row.extend(topic.iter().filter(|_| random.unit() < share).map(|&(word, weight)| (word, weight)));
        }
        row.iter_mut().for_each(|(_, weight)| *weight *= 0.5 + random.unit());
        row.extend((0..15).map(|_| (random.power_law(dims, 0.9) as u32, 0.1 + random.unit())));
        ordered(row)
    })
}

/// Hashed features: those of one of many prototypes, and random others.
pub(super) fn wide(random: &mut Random, dims: usize) -> SparseWorld {
    let prototypes: Vec<Vec<u32>> = (0..3000).map(|_| (0..40).map(|_| random.below(dims) as u32).collect()).collect();
    Box::new(move |random| {
        let prototype = &prototypes[random.below(prototypes.len())];
        let kept = prototype.iter().filter(|_| random.unit() < 0.6).map(|&dim| (dim, 1.0)).collect::<Vec<_>>();
        let others = (0..20).map(|_| (random.below(dims) as u32, 1.0)).collect::<Vec<_>>();
        ordered([kept, others].concat())
    })
}

/// The signs of random projections of a point.
fn signs(point: &[f32], planes: &[Vec<f32>]) -> Vec<bool> {
    planes.iter().map(|plane| plane.iter().zip(point).map(|(a, b)| a * b).sum::<f32>() > 0.0).collect()
}

fn codes(random: &mut Random, dims: usize, directions: usize, clusters: usize) -> BitWorld {
    let planes: Vec<Vec<f32>> = (0..dims).map(|_| random.normals(directions)).collect();
    let centers: Vec<Vec<f32>> = (0..clusters).map(|_| random.normals(directions)).collect();
    Box::new(move |random| {
        let center = &centers[random.below(centers.len())];
        let point: Vec<f32> = center.iter().map(|c| c + 0.7 * random.normal()).collect();
        signs(&point, &planes)
    })
}

/// Sign bits of points that vary in few directions.
pub(super) fn few_directions(random: &mut Random, dims: usize) -> BitWorld {
    codes(random, dims, 24, 100)
}

/// Sign bits of points that vary in many directions.
pub(super) fn many_directions(random: &mut Random, dims: usize) -> BitWorld {
    codes(random, dims, 200, 300)
}

/// A tenth of the bits of one of many families, and a few random bits.
pub(super) fn fingerprints(random: &mut Random, dims: usize) -> BitWorld {
    let families: Vec<Vec<usize>> =
        (0..400).map(|_| (0..dims / 12).map(|_| random.power_law(dims, 0.5)).collect()).collect();
    Box::new(move |random| {
        let family = &families[random.below(families.len())];
        let mut row = vec![false; dims];
        family.iter().filter(|_| random.unit() < 0.75).for_each(|&bit| row[bit] = true);
        (0..dims / 40).for_each(|_| row[random.power_law(dims, 0.5)] = true);
        row
    })
}

/// One of some thousand values with a few bits flipped, often none.
pub(super) fn repeated(random: &mut Random, dims: usize) -> BitWorld {
    let originals: Vec<Vec<bool>> = (0..4000).map(|_| (0..dims).map(|_| random.unit() < 0.5).collect()).collect();
    Box::new(move |random| {
        let mut row = originals[random.power_law(originals.len(), 0.8)].clone();
        for _ in 0..random.below(4) {
            let bit = random.below(dims);
            row[bit] = !row[bit];
        }
        row
    })
}
