//! Probes, the queries of the guard: rows, and queries that equal no row, as real queries need not. The latter are values between rows, and
//! rows whose own elements are hidden: they are distributed as the rows are.

use distance::{Elements, Metric};
use graph::{ElementValues, ValueType};

use crate::BuildSpec;
use crate::input::ValueStore;
use crate::random::Random;

/// The fewest and the most probes.
const FEWEST: usize = 100;
const MOST: usize = 1000;
/// With more than `FEWEST` probes, there are at least this many rows for each: then the searches take about a fiftieth of a build.
const ROWS: usize = 120;
/// The number of probes is this, divided by the dimensions plus `BESIDES`: to compare each probe with every row then costs a thirtieth of a
/// build.
const BUDGET: usize = 25_000;
const BESIDES: usize = 16;
/// A large sample has this many times as many probes.
const MORE: usize = 3;
/// Rows drawn for a probe in a sparse region; the one farthest from its nearest neighbor is used.
const LONELIEST: usize = 3;

/// The number of probes: small at a negligible cost, large if the small sample shows a loss.
#[derive(Clone, Copy)]
pub(crate) enum Sample {
    Small,
    Large,
}

/// How a probe is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is a row.
    Row,
    /// It is the row of this element, which searches do not see.
    Hidden(u32),
    /// It lies between two rows.
    Between,
}

impl Kind {
    pub(crate) const COUNT: usize = 3;

    pub(crate) fn number(self) -> usize {
        match self {
            Self::Row => 0,
            Self::Hidden(_) => 1,
            Self::Between => 2,
        }
    }

    /// The element that searches do not see.
    pub(crate) fn hidden(self) -> Option<u32> {
        match self {
            Self::Hidden(element) => Some(element),
            Self::Row | Self::Between => None,
        }
    }
}

/// Draws probes, in the type's encoding: a third are rows, a third are rows with hidden elements, a third are values between two random
/// rows (of `sparsevec`, more rows with hidden elements). Every other row is random; the others are in sparse regions, where `gap`, the
/// distance to a row's nearest neighbor, is large.
pub(crate) fn draw(
    spec: &BuildSpec,
    store: &ValueStore,
    points: &[u32],
    metric: Metric,
    sample: Sample,
    gap: impl Fn(u32) -> f32,
) -> (Vec<Vec<u8>>, Vec<Kind>) {
    let affordable = BUDGET / (BESIDES + spec.dims as usize);
    let count = affordable.min(points.len() / ROWS).clamp(FEWEST, MOST);
    let count = match sample {
        Sample::Small => count,
        Sample::Large => MORE * count,
    };
    let count = count.min(points.len());
    let mut random = Random::new(spec.seed).fork(u64::MAX);
    let (mut values, mut kinds) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for (number, at) in random.shuffled_sample(count, points.len()).into_iter().enumerate() {
        let any: [u32; LONELIEST] =
            std::array::from_fn(|draw| points[if draw == 0 { at as usize } else { random.below(points.len()) }]);
        let lonely = |a: &&u32, b: &&u32| gap(**a).total_cmp(&gap(**b));
        let element = match number % 2 {
            1 => any.iter().max_by(lonely).copied().unwrap_or(any[0]),
            _ => any[0],
        };
        let kind = match number % 6 {
            0 | 1 => Kind::Row,
            // A sparse value with the entries of two could exceed the limit on entries.
            2 | 3 if spec.value_type != ValueType::SparseVec => Kind::Between,
            _ => Kind::Hidden(element),
        };
        let row = store.value(element);
        let other = store.value(points[random.below(points.len())]);
        values.push(if kind == Kind::Between { between(spec, metric, row, other, &mut random) } else { row.to_vec() });
        kinds.push(kind);
    }
    (values, kinds)
}

/// A value between two others, nearer to the first.
fn between(spec: &BuildSpec, metric: Metric, row: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    const SHARE: f32 = 0.25;
    match spec.value_type {
        ValueType::Vector | ValueType::HalfVec => {
            let decode = |value: &[u8]| {
                let mut numbers = vec![0f32; spec.dims as usize];
                distance::decode(Elements::of(spec.value_type), value, &mut numbers);
                numbers
            };
            let mixed = decode(row).into_iter().zip(decode(other)).map(|(a, b)| a + SHARE * (b - a));
            let mixed: Vec<f32> = mixed.collect();
            let norm = match metric {
                Metric::Cosine => mixed.iter().map(|x| x * x).sum::<f32>().sqrt(),
                _ => 1.0,
            };
            let scaled = mixed.into_iter().map(|x| if norm > 0.0 { x / norm } else { x });
            match spec.value_type {
                ValueType::Vector => scaled.flat_map(f32::to_le_bytes).collect(),
                _ => scaled.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
            }
        }
        // A quarter of the bits are those of `other`.
        ValueType::Bit => row
            .iter()
            .zip(other)
            .map(|(&a, &b)| {
                let mask = (random.next() & random.next()) as u8;
                a & !mask | b & mask
            })
            .collect(),
        // Not drawn.
        ValueType::SparseVec => row.to_vec(),
    }
}
