//! Recall and visits of a graph's searches, by `ef_search`.

/// The means over all queries at one `ef_search`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) ef: usize,
    pub(crate) recall: f64,
    /// Elements that a search compares with the query, on average.
    pub(crate) visited: f64,
}

/// Points by ascending `ef_search`, interpolated and extrapolated linearly: log of misses (1 - recall) and log of visits over log of
/// `ef_search`. Beyond the last point, misses are constant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    efs: Vec<f64>,
    misses: Vec<f64>,
    visited: Vec<f64>,
    floor: f64,
}

/// How far below the first point of a curve its misses are extrapolated, as a factor of `ef_search`.
const FURTHEST: f64 = 2.0;

impl Curve {
    /// `floor` replaces zero misses: half of the smallest share that the queries can show. `points` must not be empty.
    pub(crate) fn new(points: &[Point], floor: f64) -> Self {
        let mut least = 1.0f64;
        let misses = points.iter().map(|point| {
            // A larger `ef_search` misses more only by chance.
            least = least.min((1.0 - point.recall).max(floor));
            least.ln()
        });
        Self {
            misses: misses.collect(),
            efs: points.iter().map(|point| (point.ef as f64).ln()).collect(),
            visited: points.iter().map(|point| point.visited.max(1.0).ln()).collect(),
            floor,
        }
    }

    /// The least `ef_search` with at most this share of misses; `None` if no point reaches it, or if it lies further below the first point
    /// than [`FURTHEST`].
    pub(crate) fn crossing(&self, misses: f64) -> Option<f64> {
        let misses = misses.ln();
        let at = self.misses.iter().position(|&found| found <= misses)?;
        // A point without misses does not show from which smaller `ef_search` on there are none.
        if self.misses[at] <= self.floor.ln() {
            return None;
        }
        let Some(before) = at.checked_sub(1) else {
            // Below the first point, misses are taken to be in inverse proportion to `ef_search`. Between the points they change faster, but
            // more slowly the smaller `ef_search` is.
            let below = misses - self.misses[0];
            return (below <= FURTHEST.ln()).then(|| (self.efs[0] - below).exp());
        };
        let share = (misses - self.misses[before]) / (self.misses[at] - self.misses[before]);
        Some((self.efs[before] + share * (self.efs[at] - self.efs[before])).exp())
    }

    /// The share of misses at an `ef_search`.
    pub(crate) fn misses_at(&self, ef: f64) -> f64 {
        // Beyond the last point there may be nothing left to gain.
        let ef = ef.ln().min(self.last());
        let before = self.efs.first().map_or(0.0, |first| first - ef);
        if before > 0.0 {
            return (self.misses[0] + before * self.first_slope()).exp().min(1.0);
        }
        line(&self.efs, &self.misses, ef).exp()
    }

    /// By how much the log of misses grows below the first point, per log of `ef_search`: as between the first two points, and at least in
    /// inverse proportion to `ef_search`, even if the points show none.
    fn first_slope(&self) -> f64 {
        match (&self.misses[..], &self.efs[..]) {
            ([y0, y1, ..], [x0, x1, ..]) => ((y0 - y1) / (x1 - x0)).max(1.0),
            _ => 1.0,
        }
    }

    /// The visits at an `ef_search`.
    pub(crate) fn visited_at(&self, ef: f64) -> f64 {
        line(&self.efs, &self.visited, ef.ln()).exp()
    }

    /// The `ef_search` of each point.
    pub(crate) fn efs(&self) -> impl Iterator<Item = f64> {
        self.efs.iter().map(|ef| ef.exp())
    }

    fn last(&self) -> f64 {
        self.efs.last().copied().unwrap_or_default()
    }
}

/// Interpolates between the points on both sides of `x`, or extrapolates from the nearest two.
fn line(xs: &[f64], ys: &[f64], x: f64) -> f64 {
    let after = xs.partition_point(|&other| other < x).clamp(1, xs.len().max(2) - 1);
    match (xs.get(after), ys.get(after)) {
        (Some(&x1), Some(&y1)) => {
            let (x0, y0) = (xs[after - 1], ys[after - 1]);
            y0 + (x - x0) / (x1 - x0) * (y1 - y0)
        }
        _ => ys.first().copied().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Curve, Point};

    #[test]
    fn misses_and_visits_are_interpolated_and_extrapolated() {
        let points = [(10, 0.8, 100.0), (20, 0.9, 180.0), (40, 0.895, 300.0), (80, 0.99, 500.0), (90, 1.0, 540.0)];
        let points = points.map(|(ef, recall, visited)| Point { ef, recall, visited });
        let curve = Curve::new(&points, 0.001);
        let between = curve.crossing(0.15).unwrap();
        assert!((between - 10.0 * 0.2 / 0.15).abs() < 1e-9, "{between}");
        assert!((curve.misses_at(between) - 0.15).abs() < 1e-9);
        assert!((curve.misses_at(40.0) - 0.1).abs() < 1e-9, "never more than with fewer candidates");
        assert!((curve.misses_at(5.0) - 0.4).abs() < 1e-9, "as from 20 to 10");
        assert!((curve.misses_at(900.0) - 0.001).abs() < 1e-9);
        assert!((curve.visited_at(40.0) - 300.0).abs() < 1e-9);
        assert!(curve.visited_at(180.0) > 540.0 && curve.visited_at(5.0) < 100.0);
        assert!((curve.crossing(0.3).unwrap() - 10.0 * 0.2 / 0.3).abs() < 1e-9);
        assert_eq!((curve.crossing(0.5), curve.crossing(1e-4), curve.crossing(0.005)), (None, None, None));
        let one = Curve::new(&points[..1], 0.001);
        assert!((one.misses_at(5.0) - 0.4).abs() < 1e-9, "one point shows no slope");
        assert!((one.misses_at(40.0) - 0.2).abs() < 1e-9 && (one.visited_at(40.0) - 100.0).abs() < 1e-9);
    }
}
