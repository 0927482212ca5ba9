//! All pairs of a leaf.

use distance::{COLS, ROWS, Tile};

use super::nearest::Nearest;
use crate::candidates::Candidates;
use crate::group::{self, Group};
use crate::space::{Products, Space};

/// What a thread reuses from leaf to leaf.
#[derive(Default)]
pub(crate) struct Scratch {
    group: Group,
    nearest: Nearest,
    tile: Tile,
}

/// Finds the `k` nearest of every point within the leaf. `leaf` has positions in `points`.
pub(crate) fn all_pairs(
    space: Space<'_>,
    points: &[u32],
    leaf: &[u32],
    k: usize,
    found: &Candidates,
    scratch: &mut Scratch,
) {
    if leaf.len() < 2 {
        return;
    }
    let elements: Vec<u32> = leaf.iter().map(|&at| points[at as usize]).collect();
    let k = k.min(leaf.len() - 1);
    let Scratch { group, nearest, tile } = scratch;
    let rough = match space.measure.products {
        Some(products) => {
            let center = group::center(space, products, &elements);
            group.pack_roughly(space, products, &elements, center.as_deref());
            nearest.reset(leaf.len(), group.padded(), k);
            by_products(products, group, nearest, tile);
            products.are_rough()
        }
        None => {
            nearest.reset(leaf.len(), leaf.len(), k);
            one_by_one(space, &elements, nearest);
            false
        }
    };
    for (at, &point) in leaf.iter().enumerate() {
        let exact = |(distance, other): (f32, u32)| {
            let other = elements[other as usize];
            (if rough { space.distance(elements[at], other) } else { distance }, other)
        };
        found.add(point as usize, nearest.of(at).map(exact));
    }
}

/// Every pair once, for metrics that products do not give.
fn one_by_one(space: Space<'_>, elements: &[u32], nearest: &mut Nearest) {
    for (a, &element) in elements.iter().enumerate() {
        for (b, &other) in elements.iter().enumerate().skip(a + 1) {
            let distance = space.distance(element, other);
            nearest.offer(a, distance, b as u32);
            nearest.offer(b, distance, a as u32);
        }
    }
}

/// Every pair once: the tiles on and above the diagonal.
fn by_products(products: Products, group: &Group, nearest: &mut Nearest, tile: &mut Tile) {
    for row_block in 0..group.blocks() {
        let first_row = row_block * ROWS;
        for col_pair in row_block / 2..group.blocks() / 2 {
            let first_col = col_pair * COLS;
            let limits = (nearest.limits(first_row), nearest.limits(first_col));
            group.tile(row_block, group, col_pair, products, limits, tile);
            tile.for_each_hit(|row, col, distance| {
                let (a, b) = (first_row + row, first_col + col);
                if a < b {
                    nearest.offer(a, distance, b as u32);
                    nearest.offer(b, distance, a as u32);
                }
            });
        }
    }
}
