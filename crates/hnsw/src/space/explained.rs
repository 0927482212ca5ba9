//! The fraction of squared distances that principal components explain.

use rayon::prelude::*;

use super::components::STEP;
use super::matrix::{Matrix, dot};
use crate::{BuildError, Control};

/// Values measured, and the number of nearest neighbors for each.
const VALUES: usize = 128;
const NEAREST: usize = 16;
/// How much the explained fraction may vary among the nearest neighbors of a value: standard deviation divided by mean. At four times this,
/// recall falls by .005.
const MAX_DEVIATION: f32 = 0.0065;
/// Above this multiple of the allowed deviation, more components do not help.
const HOPELESS: f32 = 3.0;
/// A squared distance below this fraction of the squared length is mostly rounding.
const TOO_NEAR: f32 = 1e-4;

/// Sum, and sum of squares, of the fractions that components explain of a value's squared distances to its neighbors.
#[derive(Clone, Copy, Default)]
struct Explained {
    sum: f32,
    squares: f32,
}

pub(crate) enum Found {
    /// The first `count` components explain the same fraction of all distances between near values.
    Few { count: usize, fraction: f32 },
    /// All these components together do not, but more might.
    MaybeMore,
    /// More components would not help.
    Nothing,
}

/// Measures components; `along` has the coordinates of `sample` along them.
pub(crate) fn measure(sample: &Matrix, along: &Matrix, control: &Control) -> Result<Found, BuildError> {
    let between = sample.products(&sample.evenly_spaced(VALUES), control)?;
    let squares: Vec<f32> = (0..sample.rows()).map(|at| dot(sample.row(at), sample.row(at))).collect();
    let of = |at: usize| {
        let own = at * (sample.rows() / VALUES);
        let square = |other: usize| squares[own] + squares[other] - 2.0 * between.row(other)[at];
        let far = |&(square, other): &(f32, usize)| square > TOO_NEAR * squares[other].max(squares[own]);
        let mut others: Vec<_> = (0..sample.rows()).map(|other| (square(other), other)).filter(far).collect();
        if others.len() < NEAREST {
            return None;
        }
        others.select_nth_unstable_by(NEAREST - 1, |a, b| a.0.total_cmp(&b.0));
        Some(explained(along, own, &others[..NEAREST]))
    };
    let all = control.section("components").map((0..VALUES).into_par_iter(), |at| Ok(of(at)))?;
    let all: Vec<Vec<Explained>> = all.into_iter().flatten().collect();
    if all.len() < VALUES / 2 {
        return Ok(Found::Nothing);
    }
    let mean = |of: &dyn Fn(&Vec<Explained>) -> f32| all.iter().map(of).sum::<f32>() / all.len() as f32;
    let mut deviation = f32::INFINITY;
    for at in 0..along.width / STEP {
        let fraction = mean(&|explained| explained[at].mean());
        deviation = mean(&|explained| explained[at].deviation());
        if deviation <= MAX_DEVIATION && fraction > 0.0 {
            return Ok(Found::Few { count: (at + 1) * STEP, fraction });
        }
    }
    Ok(if deviation <= HOPELESS * MAX_DEVIATION { Found::MaybeMore } else { Found::Nothing })
}

/// For each number of components, in steps of [`STEP`], the fractions that they explain of the squared distances of `own` to `others`.
fn explained(along: &Matrix, own: usize, others: &[(f32, usize)]) -> Vec<Explained> {
    let mut explained = vec![Explained::default(); along.width / STEP];
    for &(square, other) in others {
        let mut sum = 0.0;
        let both = along.row(own).chunks_exact(STEP).zip(along.row(other).chunks_exact(STEP));
        for ((a, b), of_some) in both.zip(&mut explained) {
            sum += a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
            of_some.sum += sum / square;
            of_some.squares += (sum / square) * (sum / square);
        }
    }
    explained
}

impl Explained {
    fn mean(self) -> f32 {
        self.sum / NEAREST as f32
    }

    fn deviation(self) -> f32 {
        let variance = self.squares / NEAREST as f32 - self.mean() * self.mean();
        variance.max(0.0).sqrt() / self.mean()
    }
}
