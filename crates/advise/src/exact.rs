//! The true neighbors, by an exact search.

use distance::{Kernel, Least, kernel};
use hnsw::Control;
use rayon::prelude::*;

use crate::values::Values;
use crate::{AdviseError, Question};

/// Rows per block: all queries are compared with one block while it is in the processor's cache.
const CHUNK: usize = 128;

/// The distance kernel of the question's metric.
pub(crate) fn kernel_of(question: &Question, values: &Values) -> Result<Kernel, AdviseError> {
    let Question { value_type, dims, metric, .. } = *question;
    kernel(values.elements(), metric).ok_or(AdviseError::Unsupported { value_type, dims, metric })
}

/// The distances within which a query's true neighbors lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// The distance of the `k`th neighbor.
    pub(crate) own: f32,
    /// The distance of the `Question::wide`th neighbor, for the comparison of graphs of different sizes.
    pub(crate) wide: f32,
}

/// For each of the ascending `sizes`, the limits of each query among the first rows of `order`.
pub(crate) fn limits(
    values: &Values,
    order: &[u32],
    queries: &Values,
    kernel: Kernel,
    question: &Question,
    sizes: &[usize],
    control: &Control,
) -> Result<Vec<Vec<Limit>>, AdviseError> {
    let k = question.wide();
    let mut nearest = vec![Least::default(); queries.len()];
    let mut from = 0;
    let mut limits = Vec::new();
    for &size in sizes {
        let among = nearest_of(values, &order[from..size], queries, kernel, k, control)?;
        nearest.iter_mut().zip(among).for_each(|(nearest, among)| nearest.merge(among, k));
        limits.push(nearest.iter().map(|nearest| limit(nearest.distances(), question)).collect());
        from = size;
    }
    Ok(limits)
}

fn nearest_of(
    values: &Values,
    rows: &[u32],
    queries: &Values,
    kernel: Kernel,
    k: usize,
    control: &Control,
) -> Result<Vec<Least>, AdviseError> {
    let none = || vec![Least::default(); queries.len()];
    let chunk = |mut nearest: Vec<Least>, rows: &[u32]| {
        control.check()?;
        for (number, nearest) in nearest.iter_mut().enumerate() {
            let query = queries.get(number);
            rows.iter().for_each(|&row| nearest.offer(kernel(query, values.get(row as usize)), k));
        }
        Ok::<_, AdviseError>(nearest)
    };
    let merge = |mut one: Vec<Least>, other: Vec<Least>| {
        one.iter_mut().zip(other).for_each(|(one, other)| one.merge(other, k));
        Ok(one)
    };
    rows.par_chunks(CHUNK).try_fold(none, chunk).try_reduce(none, merge)
}

fn limit(nearest: &[f32], question: &Question) -> Limit {
    let at = |k: usize| nearest.get(k - 1).or(nearest.last()).copied().unwrap_or(f32::NEG_INFINITY);
    Limit { own: at(question.k), wide: at(question.wide()) }
}
