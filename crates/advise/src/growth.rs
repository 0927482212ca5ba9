//! How the needed `ef_search` and the visits grow with the rows, from graphs of several sizes.

use crate::Question;
use crate::curve::Curve;

/// How searches slow down with the rows. For the same recall, `ef_search` grows as a power of the rows; at the same `ef_search`, visits
/// grow with the logarithm of the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// The exponent of `ef_search`.
    exponent: f64,
    /// The visits added when the rows are multiplied by e, as a share of those of the largest graph.
    visits: f64,
}

/// The exponent if the sample has too few misses to show one.
const USUAL: f64 = 0.35;
/// The largest exponent that is accepted.
const MOST: f64 = 1.0;
/// Misses at which curves are compared, as multiples of the misses that the target allows, with weights.
const LEVELS: [(f64, f64); 6] = [(0.5, 1.0), (0.7, 2.0), (1.0, 3.0), (1.5, 2.0), (2.5, 1.0), (4.0, 0.5)];

impl Growth {
    /// Fits the growth to the curves for [`Question::wide`] neighbors, which have the smaller error. Recall of few neighbors may fall faster
    /// with the rows: then the exponent is at least that of their own curves.
    pub(crate) fn of_search(question: &Question, own: &[(usize, Curve)], wide: &[(usize, Curve)]) -> Self {
        let growth = Self::of(wide, question.target);
        if question.is_of_few() { growth.at_least(own, question.target) } else { growth }
    }

    /// Fits the growth to curves of graphs of ascending sizes.
    pub(crate) fn of(curves: &[(usize, Curve)], target: f64) -> Self {
        let mut visits = Mean::default();
        for (level, weight) in LEVELS {
            let misses = level * (1.0 - target);
            let Some(ef) = curves.last().and_then(|(_, curve)| curve.crossing(misses)) else { continue };
            let visited: Vec<(f64, f64)> =
                curves.iter().map(|(rows, curve)| ((*rows as f64).ln(), curve.visited_at(ef))).collect();
            if let (Some(slope), Some(&(_, last))) = (slope(&visited), visited.last()) {
                visits.add(slope / last, weight);
            }
        }
        Self {
            exponent: exponent(curves, target).unwrap_or(USUAL).clamp(0.0, MOST),
            visits: visits.value().unwrap_or(0.1).max(0.0),
        }
    }

    /// This growth, with the exponent of other curves of the same graphs if that is larger.
    fn at_least(self, curves: &[(usize, Curve)], target: f64) -> Self {
        let exponent = exponent(curves, target).unwrap_or_default().clamp(self.exponent, MOST);
        Self { exponent, ..self }
    }

    /// The factor for `ef_search` from a graph of `from` rows to one of `to` rows.
    pub(crate) fn ef_search(self, from: usize, to: u64) -> f64 {
        (to as f64 / from as f64).max(1.0).powf(self.exponent)
    }

    /// The factor for the visits at the same `ef_search`.
    pub(crate) fn visits(self, from: usize, to: u64) -> f64 {
        1.0 + self.visits * (to as f64 / from as f64).max(1.0).ln()
    }
}

/// The exponent of `ef_search`; `None` if the curves have too few misses to show one.
fn exponent(curves: &[(usize, Curve)], target: f64) -> Option<f64> {
    let mut exponents = Mean::default();
    for (level, weight) in LEVELS {
        let misses = level * (1.0 - target);
        let crossings: Vec<(f64, f64)> = curves
            .iter()
            .filter_map(|(rows, curve)| Some(((*rows as f64).ln(), curve.crossing(misses)?.ln())))
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

    use super::Growth;
    use crate::Question;
    use crate::curve::{Curve, Point};

    fn curve(rows: usize) -> (usize, Curve) {
        growing(rows, 0.3)
    }

    fn growing(rows: usize, exponent: f64) -> (usize, Curve) {
        let n = rows as f64;
        let recall = |ef: usize| 1.0 - 0.2 * n.powf(exponent) / ef as f64;
        let point = |ef: usize| Point { ef, recall: recall(ef), visited: ef as f64 * n.ln() };
        (rows, Curve::new(&[10, 20, 40, 80, 160].map(point), 1e-4))
    }

    #[test]
    fn the_larger_exponent_counts() {
        let sizes = [2500, 5000, 10_000];
        let growth = Growth::of(&sizes.map(curve), 0.95);
        assert_eq!(growth.at_least(&sizes.map(|rows| growing(rows, 0.2)), 0.95), growth);
        assert_eq!(growth.at_least(&[], 0.95), growth);
        let larger = growth.at_least(&sizes.map(|rows| growing(rows, 0.4)), 0.95);
        assert!((larger.ef_search(10_000, 1_000_000) - 100f64.powf(0.4)).abs() < 0.05, "{larger:?}");
    }

    #[test]
    fn few_neighbors_may_be_lost_faster_than_many() {
        let (value_type, metric) = (ValueType::Vector, Metric::L2);
        let question = |k| Question { value_type, metric, dims: 8, rows: 0, target: 0.95, k, own_type: false, seed: 0 };
        let exponents =
            |own, wide| [own, wide].map(|exponent| [2500, 5000, 10_000].map(|rows| growing(rows, exponent)));
        let factor = |k, own, wide| {
            let [own, wide] = exponents(own, wide);
            Growth::of_search(&question(k), &own, &wide).ef_search(10_000, 1_000_000)
        };
        assert!((factor(1, 0.4, 0.2) - 100f64.powf(0.4)).abs() < 0.05, "their own curves are steeper");
        assert!((factor(1, 0.2, 0.4) - 100f64.powf(0.4)).abs() < 0.05, "the others are");
        assert!((factor(100, 0.4, 0.2) - 100f64.powf(0.2)).abs() < 0.05, "many neighbors have a small error");
    }

    #[test]
    fn growth_is_found_again() {
        let growth = Growth::of(&[2500, 5000, 10_000].map(curve), 0.95);
        assert!((growth.ef_search(10_000, 1_000_000) - 100f64.powf(0.3)).abs() < 0.02, "{growth:?}");
        let visits = 1e6f64.ln() / 1e4f64.ln();
        assert!((growth.visits(10_000, 1_000_000) - visits).abs() < 1e-6, "{growth:?}");
        assert!((growth.ef_search(10_000, 500) - 1.0).abs() < 1e-9, "a table is not smaller than its sample");
    }

    #[test]
    fn without_misses_the_usual_growth_is_expected() {
        let perfect = |rows: usize| (rows, Curve::new(&[Point { ef: 10, recall: 1.0, visited: 100.0 }], 1e-4));
        let growth = Growth::of(&[perfect(1000), perfect(4000)], 0.95);
        assert!((growth.ef_search(1000, 2000) - 2f64.powf(0.35)).abs() < 1e-9);
    }
}
