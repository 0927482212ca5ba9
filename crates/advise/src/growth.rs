//! How the needed `ef_search` and the visits grow with the rows, from graphs of several sizes.

use crate::Question;
use crate::curve::Curve;

/// How searches slow down with the rows. For the same recall, `ef_search` grows as a power of the rows; at the same `ef_search`, visits
/// grow with the logarithm of the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// The exponent of `ef_search` between the graphs that were measured.
    exponent: f64,
    /// By how much the exponent is expected to be larger beyond them.
    acceleration: f64,
    /// The visits added when the rows are multiplied by e, as a share of those of the largest graph.
    visits: f64,
}

/// The searches of one graph.
#[derive(Clone, Copy)]
pub(crate) struct Searched<'a> {
    /// Rows of the graph.
    pub(crate) rows: usize,
    /// For `k` neighbors.
    pub(crate) own: &'a Curve,
    /// For [`Question::wide`] neighbors, with a smaller error.
    pub(crate) wide: &'a Curve,
}

/// The exponent if the sample has too few misses to show one.
const USUAL: f64 = 0.35;
/// The largest exponent that is accepted.
const MOST: f64 = 1.0;
/// Misses at which curves are compared, as multiples of the misses that the target allows, with weights.
const LEVELS: [(f64, f64); 6] = [(0.5, 1.0), (0.7, 2.0), (1.0, 3.0), (1.5, 2.0), (2.5, 1.0), (4.0, 0.5)];

impl Growth {
    /// Fits the growth to graphs of ascending sizes, each about twice as large as the one before. If the exponent is larger between the
    /// last two than between the two before, it is expected to rise once more by as much.
    pub(crate) fn of(question: &Question, graphs: &[Searched<'_>]) -> Self {
        let mut visits = Mean::default();
        for (level, weight) in LEVELS {
            let misses = level * (1.0 - question.target);
            let Some(ef) = graphs.last().and_then(|graph| graph.wide.crossing(misses)) else { continue };
            let visited: Vec<(f64, f64)> =
                graphs.iter().map(|graph| ((graph.rows as f64).ln(), graph.wide.visited_at(ef))).collect();
            if let (Some(slope), Some(&(_, last))) = (slope(&visited), visited.last()) {
                visits.add(slope / last, weight);
            }
        }
        let steps: Vec<f64> = graphs.windows(2).filter_map(|pair| exponent(question, pair)).collect();
        let acceleration = match steps[..] {
            [.., before, last] => last - before,
            _ => 0.0,
        };
        Self {
            exponent: exponent(question, graphs).unwrap_or(USUAL),
            acceleration: acceleration.max(0.0),
            visits: visits.value().unwrap_or(0.1).max(0.0),
        }
    }

    /// This growth, with the exponent of other graphs if that is larger.
    pub(crate) fn at_least(self, question: &Question, graphs: &[Searched<'_>]) -> Self {
        let exponent = exponent(question, graphs).unwrap_or_default().max(self.exponent);
        Self { exponent, ..self }
    }

    /// The factor for `ef_search` from a graph of `from` rows to one of `to` rows.
    pub(crate) fn ef_search(self, from: usize, to: u64) -> f64 {
        (to as f64 / from as f64).max(1.0).powf((self.exponent + self.acceleration).min(MOST))
    }

    /// The factor for the visits at the same `ef_search`.
    pub(crate) fn visits(self, from: usize, to: u64) -> f64 {
        1.0 + self.visits * (to as f64 / from as f64).max(1.0).ln()
    }
}

/// The exponent of `ef_search`, at least 0; `None` if the curves have too few misses to show one. Recall of few neighbors may fall faster
/// with the rows than that of many: the larger exponent counts.
fn exponent(question: &Question, graphs: &[Searched<'_>]) -> Option<f64> {
    let wide = exponent_of(question.target, graphs.iter().map(|graph| (graph.rows, graph.wide)));
    let few = || exponent_of(question.target, graphs.iter().map(|graph| (graph.rows, graph.own)));
    let own = if question.is_of_few() { few() } else { None };
    wide.into_iter().chain(own).reduce(f64::max).map(|exponent| exponent.max(0.0))
}

fn exponent_of<'a>(target: f64, curves: impl Iterator<Item = (usize, &'a Curve)> + Clone) -> Option<f64> {
    let mut exponents = Mean::default();
    for (level, weight) in LEVELS {
        let misses = level * (1.0 - target);
        let crossings: Vec<(f64, f64)> = curves
            .clone()
            .filter_map(|(rows, curve)| Some(((rows as f64).ln(), curve.crossing(misses)?.ln())))
            .collect();
        if let Some(slope) = slope(&crossings) {
            exponents.add(slope, weight * (crossings.len() - 1) as f64);
        }
    }
    exponents.value()
}

#[derive(Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// The slope of the least-squares line; `None` for fewer than two points.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let (x, y) = (points.iter().map(|at| at.0).sum::<f64>() / count, points.iter().map(|at| at.1).sum::<f64>() / count);
    let spread: f64 = points.iter().map(|at| (at.0 - x).powi(2)).sum();
    let both: f64 = points.iter().map(|at| (at.0 - x) * (at.1 - y)).sum();
    (spread > 0.0).then(|| both / spread)
}

#[cfg(test)]
mod tests {
    use pgvector::{Metric, ValueType};

    use super::{Growth, Searched};
    use crate::Question;
    use crate::curve::{Curve, Point};

    const SIZES: [usize; 3] = [2500, 5000, 10_000];

    /// Curves of graphs of these sizes for which `ef_search` must grow by this factor.
    fn growing<const N: usize>(factors: [f64; N]) -> [Curve; N] {
        let ln_rows = |at: usize| (SIZES[at] as f64).ln();
        let curve = |at: usize| {
            let point =
                |ef: usize| Point { ef, recall: 1.0 - 2.0 * factors[at] / ef as f64, visited: ef as f64 * ln_rows(at) };
            Curve::new(&[10, 20, 40, 80, 160].map(point), 1e-4)
        };
        std::array::from_fn(curve)
    }

    fn by_exponent(exponent: f64) -> [Curve; 3] {
        growing(SIZES.map(|rows| (rows as f64 / SIZES[0] as f64).powf(exponent)))
    }

    fn searched<'a>(own: &'a [Curve], wide: &'a [Curve]) -> Vec<Searched<'a>> {
        SIZES.into_iter().zip(own).zip(wide).map(|((rows, own), wide)| Searched { rows, own, wide }).collect()
    }

    fn question(k: usize) -> Question {
        let (value_type, metric) = (ValueType::Vector, Metric::L2);
        Question { value_type, metric, dims: 8, rows: 0, target: 0.95, k, own_type: false, seed: 0 }
    }

    fn of(curves: &[Curve]) -> Growth {
        Growth::of(&question(10), &searched(curves, curves))
    }

    fn hundredfold(growth: Growth) -> f64 {
        growth.ef_search(10_000, 1_000_000).log(100.0)
    }

    #[test]
    fn at_least_takes_the_larger_exponent() {
        let growth = of(&by_exponent(0.3));
        let at_least = |curves: &[Curve]| growth.at_least(&question(10), &searched(curves, curves));
        assert_eq!(at_least(&by_exponent(0.2)), growth);
        assert_eq!(at_least(&[]), growth);
        let larger = hundredfold(at_least(&by_exponent(0.4)));
        assert!((larger - 0.4).abs() < 1e-3, "{larger}");
    }

    #[test]
    fn few_neighbors_may_be_lost_faster_than_many() {
        let exponent = |k, own, wide| {
            let growth = Growth::of(&question(k), &searched(&by_exponent(own), &by_exponent(wide)));
            hundredfold(growth)
        };
        assert!((exponent(1, 0.4, 0.2) - 0.4).abs() < 1e-3, "their own curves are steeper");
        assert!((exponent(1, 0.2, 0.4) - 0.4).abs() < 1e-3, "the wide curves are steeper");
        assert!((exponent(100, 0.4, 0.2) - 0.2).abs() < 1e-3, "many neighbors have a small error");
    }

    #[test]
    fn a_rising_exponent_is_expected_to_rise_once_more() {
        let faster = hundredfold(of(&growing([1.0, 2f64.powf(0.1), 2f64.powf(0.4)])));
        assert!((faster - 0.4).abs() < 0.01, "the mean of .1 and .3, and their difference: {faster}");
        let slower = hundredfold(of(&growing([1.0, 2f64.powf(0.3), 2f64.powf(0.4)])));
        assert!((slower - 0.2).abs() < 0.01, "the mean of .3 and .1: {slower}");
    }

    #[test]
    fn exponent_and_visits_of_synthetic_curves_are_recovered() {
        let growth = of(&by_exponent(0.3));
        assert!((hundredfold(growth) - 0.3).abs() < 1e-3, "{growth:?}");
        let visits = 1e6f64.ln() / 1e4f64.ln();
        assert!((growth.visits(10_000, 1_000_000) - visits).abs() < 1e-6, "{growth:?}");
        assert!((growth.ef_search(10_000, 500) - 1.0).abs() < 1e-9, "a table is not smaller than its sample");
    }

    #[test]
    fn curves_without_misses_get_the_usual_exponent() {
        let perfect = [10, 20].map(|ef| Curve::new(&[Point { ef, recall: 1.0, visited: 100.0 }], 1e-4));
        let growth = of(&perfect);
        assert!((growth.ef_search(1000, 2000) - 2f64.powf(0.35)).abs() < 1e-9);
    }
}
