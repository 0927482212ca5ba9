//! The share of squared distances that principal components account for.

use rayon::prelude::*;

use super::components::STEP;
use super::matrix::{Matrix, dot};
use crate::{BuildError, Control};

/// Values of the sample, and for each the number of its nearest others.
const VALUES: usize = 128;
const NEAREST: usize = 16;
/// How much the share may vary among the others that are nearest to a value: its standard deviation in terms of its mean. By four times as
/// much, recall falls by half a hundredth.
const VARIES: f32 = 0.0065;
/// With more than this many times the allowed variation, more components are not enough.
const HOPELESS: f32 = 3.0;
/// Of two values' squares: a distance below that is mostly rounding.
const TOO_NEAR: f32 = 1e-4;

/// The share of squared distances: a sum over some others, and the sum of squares.
#[derive(Clone, Copy, Default)]
struct Share {
    sum: f32,
    squares: f32,
}

pub(crate) enum Found {
    /// The first `count` components have the same share of all distances between near values.
    Few {
        count: usize,
        share: f32,
    },
    /// Not even all have, but more might.
    MaybeMore,
    Nothing,
}

/// Measures components; `along` has the coordinates of `sample` along them.
pub(crate) fn look(sample: &Matrix, along: &Matrix, control: &Control) -> Result<Found, BuildError> {
    let between = sample.products(&sample.some(VALUES), control)?;
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
        Some(shares(along, own, &others[..NEAREST]))
    };
    let shares: Vec<Vec<Share>> = (0..VALUES).into_par_iter().filter_map(of).collect();
    if shares.len() < VALUES / 2 {
        return Ok(Found::Nothing);
    }
    let mean = |of: &dyn Fn(&Vec<Share>) -> f32| shares.iter().map(of).sum::<f32>() / shares.len() as f32;
    let mut varies = f32::INFINITY;
    for at in 0..along.width / STEP {
        let share = mean(&|shares| shares[at].mean());
        varies = mean(&|shares| shares[at].varies());
        if varies <= VARIES && share > 0.0 {
            return Ok(Found::Few { count: (at + 1) * STEP, share });
        }
    }
    Ok(if varies <= HOPELESS * VARIES { Found::MaybeMore } else { Found::Nothing })
}

/// For each number of components: their share of the squared distances of `own` to `others`.
fn shares(along: &Matrix, own: usize, others: &[(f32, usize)]) -> Vec<Share> {
    let mut shares = vec![Share::default(); along.width / STEP];
    for &(square, other) in others {
        let mut sum = 0.0;
        let both = along.row(own).chunks_exact(STEP).zip(along.row(other).chunks_exact(STEP));
        for ((a, b), share) in both.zip(&mut shares) {
            sum += a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
            share.sum += sum / square;
            share.squares += (sum / square) * (sum / square);
        }
    }
    shares
}

impl Share {
    fn mean(self) -> f32 {
        self.sum / NEAREST as f32
    }

    fn varies(self) -> f32 {
        let variance = self.squares / NEAREST as f32 - self.mean() * self.mean();
        variance.max(0.0).sqrt() / self.mean()
    }
}
