//! Hard data: families of rows and queries that are difficult for graph builders. Each takes a few lines of code and a seed.
//!
//! [`FAMILIES`] lists them, [`drawn`] makes others; [`Family::make`] draws rows and queries. Both have the same centers and directions, but come
//! from different streams of random numbers.

mod dense;
mod discrete;
mod drawn;
mod values;

use protocol::Metric::{self, Cosine as COSINE, Hamming as HAMMING, InnerProduct as IP, Jaccard as JACCARD, L1, L2};
use protocol::ValueType;

use crate::Random;
pub use drawn::drawn;
pub use values::Values;

/// A family of data sets.
pub struct Family {
    /// A short name for reports: letters, digits and dashes.
    pub name: &'static str,
    /// Where such data occurs in practice.
    pub why: &'static str,
    /// The distance.
    pub metric: Metric,
    /// Type of the column.
    pub kind: ValueType,
    /// Dimensions of each value.
    pub dims: usize,
    /// The index option `m`.
    pub m: u16,
    /// The index option `ef_construction`.
    pub ef_construction: u16,
    /// The most rows to try; the build in the database would take too long for more.
    pub most_rows: usize,
    draw: Draw,
}

/// The function that makes the generator of rows.
enum Draw {
    /// Dense rows: a number for each dimension.
    Dense(fn(&mut Random, usize) -> dense::World),
    /// Sparse rows: `(dimension, number)`, ascending by dimension.
    Sparse(fn(&mut Random, usize) -> discrete::SparseWorld),
    /// Bit rows: a bool for each dimension.
    Bits(fn(&mut Random, usize) -> discrete::BitWorld),
    /// Rows of any type, by a structure drawn at random.
    Drawn(drawn::Structure),
}

/// The number of the row to draw, and the number of all rows.
#[derive(Clone, Copy)]
pub struct Place {
    at: usize,
    of: usize,
}

impl Family {
    /// Draws rows and queries; the same seed gives the same values.
    pub fn make(&self, seed: u64, rows: usize, queries: usize) -> (Values, Values) {
        let world = Random::new(seed ^ hash(self.name)).next();
        let stream = |number: u64| Random::new(world ^ number << 32);
        let places = |of: usize| (0..of).map(move |at| Place { at, of });
        let (kind, dims) = (self.kind, self.dims);
        let [mut of_world, mut of_rows, mut of_queries] = [1, 2, 3].map(stream);
        let mut dense = |mut world: dense::World| {
            let rows = Values::of_numbers(kind, dims, places(rows).map(|place| (world.row)(&mut of_rows, place)));
            let draw = world.query.as_mut().unwrap_or(&mut world.row);
            (rows, Values::of_numbers(kind, dims, places(queries).map(|place| draw(&mut of_queries, place))))
        };
        match &self.draw {
            Draw::Dense(world) => dense(world(&mut of_world, dims)),
            Draw::Drawn(structure) => dense(structure.world(&mut of_world, dims)),
            Draw::Sparse(world) => {
                let mut row = world(&mut of_world, dims);
                let rows = Values::sparse(dims, places(rows).map(|_| row(&mut of_rows)));
                (rows, Values::sparse(dims, places(queries).map(|_| row(&mut of_queries))))
            }
            Draw::Bits(world) => {
                let mut row = world(&mut of_world, dims);
                let rows = Values::bits(dims, places(rows).map(|_| row(&mut of_rows)));
                (rows, Values::bits(dims, places(queries).map(|_| row(&mut of_queries))))
            }
        }
    }

    /// The operator class, such as `vector_l2_ops`.
    pub fn opclass(&self) -> String {
        self.metric.operator_class(self.kind)
    }
}

/// FNV-1a hash.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

const fn vector(
    name: &'static str,
    metric: Metric,
    dims: usize,
    world: fn(&mut Random, usize) -> dense::World,
    why: &'static str,
) -> Family {
    let draw = Draw::Dense(world);
    Family { name, why, metric, kind: ValueType::Vector, dims, m: 16, ef_construction: 64, most_rows: usize::MAX, draw }
}

const fn halfvec(family: Family) -> Family {
    Family { kind: ValueType::HalfVec, ..family }
}

const fn with(m: u16, ef_construction: u16, most_rows: usize, family: Family) -> Family {
    Family { m, ef_construction, most_rows, ..family }
}

const fn sparse(
    name: &'static str,
    metric: Metric,
    dims: usize,
    world: fn(&mut Random, usize) -> discrete::SparseWorld,
    why: &'static str,
) -> Family {
    let draw = Draw::Sparse(world);
    Family { name, why, metric, kind: ValueType::SparseVec, dims, m: 16, ef_construction: 64, most_rows: 50_000, draw }
}

const fn bits(
    name: &'static str,
    metric: Metric,
    dims: usize,
    world: fn(&mut Random, usize) -> discrete::BitWorld,
    why: &'static str,
) -> Family {
    let draw = Draw::Bits(world);
    Family { name, why, metric, kind: ValueType::Bit, dims, m: 16, ef_construction: 64, most_rows: usize::MAX, draw }
}

/// All families.
pub static FAMILIES: &[Family] = &[
    vector(
        "boilerplate-cosine",
        COSINE,
        128,
        dense::boilerplate,
        "chunks of documents with the same boilerplate among loose ones",
    ),
    vector("boilerplate-l2", L2, 128, dense::boilerplate, "the same, not normalised"),
    vector("islands-cosine", COSINE, 128, dense::islands, "boilerplate chunks, and queries like them"),
    vector("islands-l2", L2, 128, dense::islands, "the same, not normalised"),
    vector(
        "boilerplate-fine-cosine",
        COSINE,
        96,
        dense::boilerplate_fine,
        "the same text embedded again: groups of spread 1e-5",
    ),
    vector("groups-cosine", COSINE, 96, dense::groups, "near-duplicates of every size and spread, 1e-7 to 1e-1"),
    vector("groups-l2", L2, 96, dense::groups, "the same, not normalised"),
    vector(
        "crowd-cosine",
        COSINE,
        64,
        dense::crowd,
        "nine rows of ten are nearly the same: a default text, an empty image",
    ),
    vector("crowd-l2", L2, 64, dense::crowd, "the same, not normalised"),
    vector("tight-and-far-cosine", COSINE, 16, dense::tight_and_far, "one topic, and a few rows about anything else"),
    vector("tight-and-far-l2", L2, 16, dense::tight_and_far, "the same, by distance: sensor readings with outliers"),
    vector(
        "far-clusters-l2",
        L2,
        16,
        dense::far_clusters,
        "few clusters far from each other: customers of several shops",
    ),
    vector("far-clusters-cosine", COSINE, 48, dense::far_clusters, "the same by angle"),
    vector("many-clusters-l2", L2, 24, dense::many_clusters, "a thousand small clusters: products and their variants"),
    vector("clusters-in-order-l2", L2, 24, dense::clusters_in_order, "a table that is loaded tenant by tenant"),
    vector("subspaces-l2", L2, 384, dense::subspaces, "topics of their own vocabulary, each of many rows"),
    vector("subspaces-cosine", COSINE, 384, dense::subspaces, "the same by angle"),
    vector("shifted-ip", IP, 64, dense::shifted, "embeddings with a common direction, not centered"),
    vector("shifted-cosine", COSINE, 64, dense::shifted, "the same by angle"),
    vector("shifted-far-ip", IP, 64, dense::shifted_far, "a mean ten times the spread"),
    vector("shifted-far-l2", L2, 64, dense::shifted_far, "a mean ten times the spread: cancellation"),
    vector("positive-ip", IP, 32, dense::positive, "outputs of a ReLU, topic weights"),
    vector("positive-cosine", COSINE, 32, dense::positive, "the same by angle"),
    vector(
        "positive-lognormal-ip",
        IP,
        32,
        dense::positive_lognormal,
        "the same with lengths over some orders of magnitude",
    ),
    vector("lognormal-ip", IP, 32, dense::lognormal, "matrix factorisation: popularity is length"),
    vector("pareto-ip", IP, 32, dense::pareto, "lengths without a typical size"),
    vector("unit-ip", IP, 64, dense::unit, "normalised embeddings under inner product"),
    vector("products-3-ip", IP, 3, dense::products, "three positive numbers (pgvector's own tests)"),
    vector("uniform-1-ip", IP, 1, dense::uniform, "one number under inner product"),
    vector("uniform-1-l2", L2, 1, dense::uniform, "one number: a price, a time"),
    vector("uniform-2-l2", L2, 2, dense::uniform, "points of a map"),
    vector("uniform-3-cosine", COSINE, 3, dense::uniform, "directions"),
    vector("sorted-1-l2", L2, 1, dense::sorted, "a time series, loaded in order"),
    vector("spiral-2-l2", L2, 2, dense::spiral, "tracks of vehicles: a thin curve"),
    vector("grid-2-l2", L2, 2, dense::grid, "points of a raster: ties everywhere"),
    vector("integers-l2", L2, 8, dense::integers, "ratings of 0 to 5: many ties and duplicates"),
    vector("integers-l1", L1, 8, dense::integers, "the same by sums of differences"),
    vector("tags-l2", L2, 400, dense::tags, "two of many tags: a one for each, and hundreds of ties"),
    vector("tags-cosine", COSINE, 400, dense::tags, "the same by angle"),
    vector("tags-blurred-l2", L2, 400, dense::blurred_tags, "tags as a model gives them: almost 0 or 1"),
    vector("answers-l2", L2, 96, dense::answers, "answers of yes or no as numbers"),
    vector("structureless-l2", L2, 256, dense::normal, "no structure at all: noise, hashes"),
    vector("structureless-64-l2", L2, 64, dense::normal, "the same in fewer dimensions"),
    vector("structureless-cosine", COSINE, 128, dense::normal, "the same by angle"),
    vector("normal-l1", L1, 32, dense::normal, "noise by sums of differences"),
    vector("heavy-tails-l2", L2, 32, dense::heavy_tails, "numbers with rare huge values: amounts of money"),
    vector(
        "outlier-dimensions-cosine",
        COSINE,
        128,
        dense::outlier_dimensions,
        "transformers, in which a few dimensions dominate",
    ),
    vector("outlier-dimensions-l2", L2, 128, dense::outlier_dimensions, "the same by distance"),
    vector("hubs-l2", L2, 128, dense::hubs, "points near the middle that are near everybody"),
    vector("text-to-image-ip", IP, 96, dense::text_to_image, "queries of another distribution than the rows"),
    vector("text-to-image-cosine", COSINE, 96, dense::text_to_image, "the same by angle"),
    vector("two-models-cosine", COSINE, 96, dense::two_models, "rows embedded by two models in one column"),
    vector("drift-l2", L2, 48, dense::drift, "rows that drift in time: sensors, news"),
    vector(
        "embeddings-like-cosine",
        COSINE,
        192,
        dense::embeddings,
        "clusters with spectra of their own, as sentence embeddings",
    ),
    vector("low-rank-cosine", COSINE, 768, dense::low_rank, "many dimensions that vary in few directions"),
    vector("high-cosine", COSINE, 1024, dense::embeddings, "many dimensions"),
    halfvec(vector("half-large-l2", L2, 24, dense::large, "half precision near the end of its range")),
    halfvec(vector("half-tiny-ip", IP, 24, dense::tiny, "half precision near its smallest numbers")),
    halfvec(vector("half-groups-cosine", COSINE, 96, dense::groups, "near-duplicates in half precision")),
    with(2, 16, usize::MAX, vector("m-2-l2", L2, 64, dense::embeddings, "the smallest lists")),
    with(4, 40, usize::MAX, vector("m-4-cosine", COSINE, 32, dense::embeddings, "small lists")),
    with(5, 10, usize::MAX, vector("ef-construction-10-l2", L2, 32, dense::embeddings, "a quick build")),
    with(48, 400, 20_000, vector("m-48-l2", L2, 64, dense::embeddings, "long lists")),
    with(100, 200, 2_500, vector("m-100-l2", L2, 2000, dense::normal, "the longest lists, many dimensions")),
    with(
        16,
        1000,
        20_000,
        vector("ef-construction-1000-cosine", COSINE, 64, dense::embeddings, "the greatest ef_construction"),
    ),
    sparse("bm25-like-ip", IP, 20_000, discrete::bm25, "lexical weights of power-law words by inner product"),
    sparse("power-law-l2", L2, 20_000, discrete::bm25, "the same by distance"),
    sparse("power-law-cosine", COSINE, 20_000, discrete::bm25, "the same by angle"),
    sparse("splade-like-ip", IP, 30_522, discrete::splade, "learned sparse vectors: topics, expanded words"),
    sparse("splade-like-cosine", COSINE, 30_522, discrete::splade, "the same by angle"),
    sparse("wide-cosine", COSINE, 1_000_000, discrete::wide, "hashed features: a million dimensions, few shared"),
    sparse("sparse-l1", L1, 5_000, discrete::splade, "the same by sums of differences"),
    bits(
        "few-directions-hamming",
        HAMMING,
        512,
        discrete::few_directions,
        "binary codes of embeddings of 24 directions",
    ),
    bits("many-directions-hamming", HAMMING, 768, discrete::many_directions, "binary codes of embeddings"),
    bits("few-directions-jaccard", JACCARD, 512, discrete::few_directions, "the same by shared bits"),
    bits("fingerprints-jaccard", JACCARD, 1024, discrete::fingerprints, "molecules: few bits set, by families"),
    bits(
        "repeated-hamming",
        HAMMING,
        64,
        discrete::repeated,
        "perceptual hashes: many repeats, distances of a few bits",
    ),
];

#[cfg(test)]
mod tests {
    use super::{FAMILIES, drawn};

    #[test]
    fn names_are_unique_and_seeds_repeatable() {
        let mut names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAMILIES.len());
        for family in FAMILIES {
            let (rows, queries) = family.make(1, 20, 5);
            assert_eq!((rows.len(), queries.len()), (20, 5), "{}", family.name);
            assert!(rows.value(3) == family.make(1, 20, 0).0.value(3), "{}", family.name);
            // In families with few distinct values, two seeds may give some equal values, so look for any difference.
            let (other, others) = family.make(2, 20, 5);
            let differ = |(a, b): (&super::Values, &super::Values)| (0..a.len()).any(|at| a.value(at) != b.value(at));
            assert!([(&rows, &other), (&queries, &others)].into_iter().any(differ), "{}", family.name);
        }
    }

    #[test]
    fn drawn_families_are_repeatable_and_differ() {
        for number in 1..=60 {
            let family = drawn(number);
            let (rows, queries) = family.make(1, 20, 5);
            assert_eq!((rows.len(), queries.len()), (20, 5), "{}", family.why);
            assert!(rows.value(3) == drawn(number).make(1, 20, 0).0.value(3), "{}", family.why);
            assert_ne!(family.why, drawn(number + 1).why);
        }
    }
}
