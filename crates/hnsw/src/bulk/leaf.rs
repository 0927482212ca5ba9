//! All pairs of a leaf.

use distance::{COLS, Candidate, Nearest, ROWS, Tile};

use crate::candidates::Candidates;
use crate::codes::Codes;
use crate::group::{self, Group};
use crate::space::{Products, Space};
use crate::{BuildError, Control};

/// Pairs of blocks beside the diagonal that come first.
const BAND: usize = 2;

/// What a thread reuses from leaf to leaf.
#[derive(Default)]
pub(crate) struct Scratch {
    group: Group,
    nearest: Nearest,
    tile: Tile,
}

/// Finds the `k` nearest of every point within the leaf. `leaf` has positions in `points`. Returns whether they are told apart; if not,
/// nothing was found where they `must` be.
pub(crate) fn all_pairs(
    space: Space<'_>,
    (points, leaf): (&[u32], &[u32]),
    k: usize,
    must: bool,
    found: &Candidates,
    control: &Control,
    scratch: &mut Scratch,
) -> Result<bool, BuildError> {
    if leaf.len() < 2 {
        return Ok(true);
    }
    let elements: Vec<u32> = leaf.iter().map(|&at| points[at as usize]).collect();
    let k = k.min(leaf.len() - 1);
    let Scratch { group, nearest, tile } = scratch;
    let rough = match space.measure.products {
        Some(products) => {
            let mut compare = |group: &Group, nearest: &mut Nearest| {
                nearest.reset(leaf.len(), group.padded(), k);
                by_products(products, group, nearest, tile, control)
            };
            let mut told = false;
            if let Some(codes) = space.codes {
                group.pack_codes(codes, &elements);
                compare(group, nearest)?;
                told = tells_apart(space, codes, &elements, nearest);
            }
            if !told {
                let center = group::center(space, products, &elements);
                group.pack_roughly(space, products, &elements, center.as_deref());
                compare(group, nearest)?;
                if must && !most_told(space, &elements, nearest, |at, squared| group.can_tell(at, squared)) {
                    return Ok(false);
                }
            }
            !told && products.are_rough()
        }
        None => {
            nearest.reset(leaf.len(), leaf.len(), k);
            one_by_one(space, &elements, nearest);
            false
        }
    };
    for (at, &point) in leaf.iter().enumerate() {
        let others = nearest.of(at).map(|near| {
            let other = elements[near.element() as usize];
            Candidate::new(if rough { space.distance(elements[at], other) } else { near.distance() }, other)
        });
        found.add(point as usize, others);
    }
    Ok(true)
}

/// Whether codes were fine enough for the lists that they gave.
fn tells_apart(space: Space<'_>, codes: &Codes, elements: &[u32], nearest: &Nearest) -> bool {
    most_told(space, elements, nearest, |at, squared| codes.can_tell(elements[at], squared))
        && have_their_share(space, codes, elements, nearest)
}

/// Whether distances as far as the last of a list, of which `can_tell` gets the square, are told for most points of a sample.
fn most_told(space: Space<'_>, elements: &[u32], nearest: &Nearest, can_tell: impl Fn(usize, f32) -> bool) -> bool {
    const SAMPLE: usize = 32;
    let told = |at: usize| {
        let last = nearest.of(at).last()?;
        Some(can_tell(at, space.squared(elements[at], elements[last.element() as usize], last.distance())))
    };
    let sample = (0..elements.len()).step_by(elements.len().div_ceil(SAMPLE)).filter_map(told);
    sample.filter(|told| !told).count() * 4 <= elements.len().min(SAMPLE)
}

/// Whether directions, if codes are of those, have their share of the distances to the nearest.
fn have_their_share(space: Space<'_>, codes: &Codes, elements: &[u32], nearest: &Nearest) -> bool {
    // Values are read for it, and may have to come from a file.
    const SAMPLE: usize = 8;
    let share = |at: usize| {
        let other = elements[nearest.of(at).next()?.element() as usize];
        Some(codes.have_their_share(space, elements[at], other))
    };
    let off = (0..elements.len()).step_by(elements.len().div_ceil(SAMPLE)).filter_map(share).filter(|share| !share);
    off.count() * 4 <= SAMPLE
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

/// Every pair once: the tiles on and above the diagonal. Those next to it first: there most of the nearest are.
fn by_products(
    products: Products,
    group: &Group,
    nearest: &mut Nearest,
    tile: &mut Tile,
    control: &Control,
) -> Result<(), BuildError> {
    let col_pairs = group.blocks() / 2;
    let near = |row_block: usize| (row_block / 2 + BAND).min(col_pairs);
    for row_block in 0..group.blocks() {
        row_of_tiles(products, group, row_block, row_block / 2..near(row_block), nearest, tile);
    }
    for row_block in 0..group.blocks() {
        control.check()?;
        row_of_tiles(products, group, row_block, near(row_block)..col_pairs, nearest, tile);
    }
    Ok(())
}

fn row_of_tiles(
    products: Products,
    group: &Group,
    row_block: usize,
    col_pairs: std::ops::Range<usize>,
    nearest: &mut Nearest,
    tile: &mut Tile,
) {
    let first_row = row_block * ROWS;
    for col_pair in col_pairs {
        let first_col = col_pair * COLS;
        let limits = (nearest.limits(first_row), nearest.limits(first_col));
        group.tile(row_block, group, col_pair, products, limits, tile);
        nearest.offer_pairs(tile, first_row, first_col);
    }
}
