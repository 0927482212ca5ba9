//! Exact search for the nearest elements of some values.

use distance::{COLS, Candidate, Nearest, ROWS, Tile};
use graph::ElementValues;
use rayon::prelude::*;

use crate::space::{Group, Inverted, Products, Query, Space};
use crate::{BuildError, Control};

/// Elements compared with all values at a time.
const AT_ONCE: usize = 1024;
/// Parts of the elements at most, each with its own nearest ones.
const PARTS: usize = 512;
/// Tiles and inverted lists differ from the distances of a search by rounding: these are measured for this number of elements more than are
/// wanted.
const MORE: usize = 6;

/// The `k` nearest of `points` to each value, nearest first, by the space's kernel. Runs on the threads of the pool it is called from.
pub(super) fn nearest(
    space: Space<'_>,
    points: &[u32],
    values: &[Vec<u8>],
    k: usize,
    control: &Control,
) -> Result<Vec<Vec<Candidate>>, BuildError> {
    let products = space.measure.products;
    // Differences from the mean lose less to cancellation.
    let center = products.map(|products| mean(products, values));
    let mut rows = Group::default();
    if let Some(products) = products {
        rows.pack_values(products, values.iter().map(Vec::as_slice), center.as_deref());
    }
    let mut inverted = Inverted::default();
    let inverts = space.measure.inverts();
    if inverts {
        inverted.fill_values(space.measure, values.iter().map(Vec::as_slice));
    }
    let chunk = |points: &[u32]| {
        let mut nearest = Nearest::default();
        let mut query = Query::default();
        match products {
            None if inverts => {
                nearest.reset(values.len(), values.len(), (k + MORE).min(points.len()));
                let mut sums = Vec::new();
                for (col, &point) in (0..).zip(points) {
                    let distances = inverted.distances_of(space.store.value(point), 0.0, &mut sums);
                    distances.enumerate().for_each(|(at, distance)| nearest.offer(at, distance, col));
                }
            }
            Some(products) => {
                let mut cols = Group::default();
                cols.pack_values(products, points.iter().map(|&point| space.store.value(point)), center.as_deref());
                by_products(products, &rows, &cols, (k + MORE).min(points.len()), &mut nearest);
            }
            None => {
                nearest.reset(values.len(), values.len(), k);
                for (at, value) in values.iter().enumerate() {
                    space.measure.ask(&mut query, value);
                    for (col, &point) in (0..).zip(points) {
                        let distance = space.measure.distance_of(&query, value, space.store.value(point));
                        nearest.offer(at, distance, col);
                    }
                }
            }
        }
        let mut measured = |(at, value): (usize, &Vec<u8>)| {
            space.measure.ask(&mut query, value);
            let measure = |near: Candidate| {
                let point = points[near.element() as usize];
                Candidate::new(space.measure.distance_of(&query, value, space.store.value(point)), point)
            };
            nearest.of(at).map(measure).collect()
        };
        values.iter().enumerate().map(&mut measured).collect::<Vec<Vec<Candidate>>>()
    };
    // Of each value, by any of the parts.
    let nearest_of = |all: &mut Vec<Candidate>| {
        all.sort_unstable();
        all.truncate(k);
    };
    let part = |points: &[u32]| {
        let mut all = vec![Vec::new(); values.len()];
        for points in points.chunks(AT_ONCE) {
            control.check()?;
            for (all, more) in all.iter_mut().zip(chunk(points)) {
                all.extend(more);
                nearest_of(all);
            }
        }
        Ok(all)
    };
    let section = control.section("probes' neighbors");
    let part_len = points.len().div_ceil(PARTS).max(1).next_multiple_of(AT_ONCE);
    let parts = section.map(points.par_chunks(part_len), part)?;
    section.map((0..values.len()).into_par_iter(), |at| {
        let mut all = parts.iter().flat_map(|part| &part[at]).copied().collect();
        nearest_of(&mut all);
        // It had room for those of all parts.
        all.shrink_to_fit();
        Ok(all)
    })
}

fn mean(products: Products, values: &[Vec<u8>]) -> Vec<f32> {
    let (mut sum, mut value) = (vec![0f32; products.dims], vec![0f32; products.dims]);
    for bytes in values {
        distance::decode(products.elements, bytes, &mut value);
        sum.iter_mut().zip(&value).for_each(|(sum, x)| *sum += x / values.len() as f32);
    }
    if sum.iter().all(|x| x.is_finite()) { sum } else { vec![0.0; products.dims] }
}

/// For each of `rows`, the `k` nearest of `cols`, by position.
fn by_products(products: Products, rows: &Group, cols: &Group, k: usize, nearest: &mut Nearest) {
    let mut tile = Tile::new();
    nearest.reset(rows.padded(), rows.padded(), k);
    for row_block in 0..rows.blocks() {
        let first_row = row_block * ROWS;
        for col_pair in 0..cols.blocks() / 2 {
            let limits = (nearest.limits(first_row), &[f32::NEG_INFINITY; COLS]);
            rows.tile(row_block, cols, col_pair, products, limits, &mut tile);
            nearest.offer_rows(&tile, first_row, col_pair * COLS);
        }
    }
}
