//! Families whose structure is drawn at random, for data that no listed family covers.

use protocol::{Metric, ValueType};

use super::dense::World;
use super::{Draw, Family, Place};
use crate::Random;

/// A family whose distribution, type, metric and options follow from its number. `why` describes it. It is never freed:
/// programs make a few hundred at most.
pub fn drawn(number: u64) -> &'static Family {
    let mut random = Random::new(number ^ super::hash("drawn"));
    let random = &mut random;
    let kind = [
        ValueType::Vector,
        ValueType::Vector,
        ValueType::Vector,
        ValueType::HalfVec,
        ValueType::SparseVec,
        ValueType::Bit,
    ][random.below(6)];
    let metrics: &[Metric] = match kind {
        ValueType::Bit => &[Metric::Hamming, Metric::Jaccard],
        _ => &[
            Metric::L2,
            Metric::Cosine,
            Metric::InnerProduct,
            Metric::L2,
            Metric::Cosine,
            Metric::InnerProduct,
            Metric::L1,
        ],
    };
    let metric = metrics[random.below(metrics.len())];
    let fewest = if matches!(kind, ValueType::Bit | ValueType::SparseVec) { 40.0 } else { 1.0 };
    let dims = between(random, fewest, 1000.0) as usize;
    let m = if random.below(2) == 0 { 16 } else { between(random, 2.0, 64.0) as u16 };
    let ef_construction = if random.below(2) == 0 { 64 } else { between(random, 8.0, 400.0) as u16 }.max(2 * m);
    // A build by insertion takes some seconds.
    let most_rows = (300_000_000 / (dims + 32) / usize::from(ef_construction)).clamp(300, 20_000);
    let structure = Structure::drawn(random, dims);
    let why =
        format!("{} {metric:?} {dims} dims, m {m}, ef_construction {ef_construction}, {structure:?}", kind.name());
    let [name, why] = [format!("drawn-{number}"), why].map(|text| &*Box::leak(text.into_boxed_str()));
    let family = Family { name, why, metric, kind, dims, m, ef_construction, most_rows, draw: Draw::Drawn(structure) };
    Box::leak(Box::new(family))
}

/// A number between two others, uniform in its logarithm.
fn between(random: &mut Random, least: f32, most: f32) -> f32 {
    least * (most / least).powf(random.unit())
}

/// How a family's rows are distributed.
#[derive(Clone, Debug)]
pub(super) struct Structure {
    clusters: usize,
    /// Exponent of the power law of the clusters' sizes.
    uneven: f32,
    /// Standard deviation of the clusters' centers in each dimension.
    apart: f32,
    /// The least and the greatest standard deviation of a cluster.
    spread: (f32, f32),
    /// The number of directions in which the rows of a cluster vary.
    rank: usize,
    /// Whether all clusters vary in the same directions.
    same_directions: bool,
    /// Exponent of the spread by direction.
    spectrum: f32,
    tails: Tails,
    /// Length of a mean that all rows have in common, in each dimension.
    shift: f32,
    length: Length,
    shape: Shape,
    /// The share of rows that repeat an original, and the number of originals.
    repeated: (f32, usize),
    in_order: bool,
    queries: Queries,
}

#[derive(Clone, Copy, Debug)]
enum Tails {
    Normal,
    Uniform,
    /// Student's t distribution with two degrees of freedom.
    Student,
}

#[derive(Clone, Copy, Debug)]
enum Length {
    Own,
    Unit,
    Lognormal(f32),
    Pareto(f32),
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Plain,
    Absolute,
    Positive,
    Rounded(f32),
    /// This share of the dimensions is zero, drawn anew for each row.
    Zeros(f32),
}

#[derive(Clone, Copy, Debug)]
enum Queries {
    Alike,
    /// Each is a row of the distribution and a little noise.
    Beside(f32),
    /// Halves of two rows added.
    Between,
    /// Without clusters.
    Elsewhere,
}

impl Structure {
    fn drawn(random: &mut Random, dims: usize) -> Self {
        let least = between(random, 1e-6, 1.0);
        Self {
            clusters: if random.below(3) == 0 { 1 } else { between(random, 2.0, 4000.0) as usize },
            uneven: 1.3 * random.unit() * random.below(2) as f32,
            apart: between(random, 0.1, 30.0),
            spread: [(1.0, 1.0), (0.3, 1.0), (least, least), (least, 1.0)][random.below(4)],
            rank: if random.below(2) == 0 { dims } else { (between(random, 1.0, 60.0) as usize).min(dims) },
            same_directions: random.below(2) == 0,
            spectrum: 1.2 * random.unit() * random.below(2) as f32,
            tails: [Tails::Normal, Tails::Normal, Tails::Uniform, Tails::Student][random.below(4)],
            shift: [0.0, 0.0, 1.0, 10.0][random.below(4)],
            length: match random.below(5) {
                0 => Length::Unit,
                1 => Length::Lognormal(1.5 * random.unit()),
                2 => Length::Pareto(0.2 + 0.8 * random.unit()),
                _ => Length::Own,
            },
            shape: match random.below(8) {
                0 => Shape::Absolute,
                1 => Shape::Positive,
                2 => Shape::Rounded(between(random, 0.05, 2.0)),
                3 => Shape::Zeros(0.5 + 0.45 * random.unit()),
                _ => Shape::Plain,
            },
            repeated: match random.below(5) {
                0 => (random.unit(), between(random, 1.0, 3000.0) as usize),
                _ => (0.0, 1),
            },
            in_order: random.below(4) == 0,
            queries: match random.below(6) {
                0 => Queries::Beside(between(random, 1e-4, 0.5)),
                1 => Queries::Between,
                2 => Queries::Elsewhere,
                _ => Queries::Alike,
            },
        }
    }

    /// Draws centers and directions.
    pub(super) fn world(&self, random: &mut Random, dims: usize) -> World {
        let all = self.rank == dims;
        // Directions of many clusters are taken from a common pool.
        let pool = if all {
            0
        } else if self.same_directions {
            self.rank
        } else {
            (self.rank * self.clusters).min(2000)
        };
        let parts = Parts {
            structure: self.clone(),
            centers: (0..self.clusters).map(|_| random.normals(dims)).collect(),
            spreads: (0..self.clusters).map(|_| between(random, self.spread.0, self.spread.1)).collect(),
            directions: (0..pool).map(|_| random.normals(dims)).collect(),
            mean: random.normals(dims),
            seed: random.next(),
        };
        let of_queries = parts.clone();
        let row = move |random: &mut Random, place: Place| parts.row(random, Some(place));
        let query = move |random: &mut Random, _: Place| of_queries.query(random);
        World { row: Box::new(row), query: Some(Box::new(query)) }
    }
}

#[derive(Clone)]
struct Parts {
    structure: Structure,
    centers: Vec<Vec<f32>>,
    spreads: Vec<f32>,
    directions: Vec<Vec<f32>>,
    mean: Vec<f32>,
    /// The seed of the originals that rows repeat.
    seed: u64,
}

impl Parts {
    /// A row, or a repeated original. `place` is the row's place in the table; queries have none.
    fn row(&self, random: &mut Random, place: Option<Place>) -> Vec<f32> {
        let (share, originals) = self.structure.repeated;
        if share > 0.0 && random.unit() < share {
            let original = random.below(originals) as u64;
            let mut random = Random::new(self.seed ^ original);
            return self.in_cluster(&mut random, None);
        }
        self.in_cluster(random, place)
    }

    fn in_cluster(&self, random: &mut Random, place: Option<Place>) -> Vec<f32> {
        let clusters = self.centers.len();
        let cluster = match place {
            Some(Place { at, of }) if self.structure.in_order => at * clusters / of,
            _ => random.power_law(clusters, self.structure.uneven.max(1e-3)),
        };
        let offset = self.offset(random, cluster);
        let center = self.centers[cluster].iter().map(|c| self.structure.apart * c);
        let row = center.zip(offset).map(|(center, offset)| center + self.spreads[cluster] * offset).collect();
        self.shaped(random, row)
    }

    /// Where a row lies around the center of its cluster.
    fn offset(&self, random: &mut Random, cluster: usize) -> Vec<f32> {
        let Structure { rank, spectrum, tails, .. } = self.structure;
        let mut number = |at: usize| {
            let number = match tails {
                Tails::Normal => random.normal(),
                Tails::Uniform => 2.0 * random.unit() - 1.0,
                Tails::Student => random.normal() / random.unit().sqrt().max(1e-3),
            };
            number * (1.0 + at as f32).powf(-spectrum)
        };
        if self.directions.is_empty() {
            return (0..self.mean.len()).map(number).collect();
        }
        let mut row = vec![0.0; self.mean.len()];
        for at in 0..rank {
            let (number, direction) = (number(at), &self.directions[(cluster * rank + at) % self.directions.len()]);
            row.iter_mut().zip(direction).for_each(|(x, direction)| *x += number * direction / (rank as f32).sqrt());
        }
        row
    }

    fn shaped(&self, random: &mut Random, mut row: Vec<f32>) -> Vec<f32> {
        let Structure { shift, length, shape, .. } = self.structure;
        row.iter_mut().zip(&self.mean).for_each(|(x, mean)| *x += shift * mean);
        for x in &mut row {
            *x = match shape {
                Shape::Plain => *x,
                Shape::Absolute => x.abs(),
                Shape::Positive => x.max(0.0),
                Shape::Rounded(step) => step * (*x / step).round(),
                Shape::Zeros(share) if random.unit() < share => 0.0,
                Shape::Zeros(_) => *x,
            };
        }
        let own = row.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-9);
        let factor = match length {
            Length::Own => 1.0,
            Length::Unit => own.recip(),
            Length::Lognormal(sigma) => (sigma * random.normal()).exp() / own,
            Length::Pareto(exponent) => random.unit().powf(-exponent) / own,
        };
        row.into_iter().map(|x| x * factor).collect()
    }

    fn query(&self, random: &mut Random) -> Vec<f32> {
        let mut row = self.row(random, None);
        match self.structure.queries {
            Queries::Alike => row,
            Queries::Beside(share) => {
                let size = share * (row.iter().map(|x| x * x).sum::<f32>() / row.len() as f32).sqrt();
                row.iter_mut().for_each(|x| *x += size * random.normal());
                row
            }
            Queries::Between => {
                let other = self.row(random, None);
                row.iter().zip(other).map(|(a, b)| 0.5 * (a + b)).collect()
            }
            Queries::Elsewhere => {
                let size = self.structure.apart.max(self.structure.spread.1);
                let row = random.normals(row.len()).into_iter().map(|x| size * x).collect();
                self.shaped(random, row)
            }
        }
    }
}
