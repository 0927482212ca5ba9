//! Refinement: compares each point with the candidates of nearby points.
//!
//! The points of a cell, which have the same nearest pivot, are compared with all candidates of the cell. A near element that shares no
//! leaf with a point is mostly a candidate of another point of the cell; finding it here costs much less than more or larger leaves. A cell
//! changes only the lists of its own points, so that the order of the cells does not matter.
//!
//! Hubs, which are candidates of very many points already, are left out: if all points linked to the same hubs, the other elements would be
//! unreachable.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::candidates::Candidates;
use crate::space::representation::{self, most};
use crate::space::{Group, Representation, Space, Tiles};
use crate::tasks::ranges;
use crate::{BuildError, Control};
use distance::{COLS, Candidate, ROWS, Tile};

/// Points of a cell at most: a thread holds the lists of all of them.
pub(super) const CELL: usize = 256;
/// Candidates packed at a time: they fit into a core's cache.
pub(super) const PACKED: usize = 512;
/// A list that has grown to this many times its final length is cut to its nearest entries.
const FULL: usize = 4;
/// Points of a cell whose distances are checked against the quantisation error.
const SAMPLE: usize = 16;

/// A candidate of more than this many times its fair share of points is a hub.
const HUB_FACTOR: usize = 4;

/// The hubs among candidates.
pub(crate) struct Hubs {
    /// For each element, the number of points whose candidate it is.
    counts: Vec<AtomicU32>,
    /// An element with a higher count is a hub.
    most: u32,
}

impl Hubs {
    /// Counts the candidates of `points`, which are in ascending order. `order` has their positions, near points adjacent: they share
    /// candidates, whose counts are then in the cache. Runs on the threads of the pool it is called from.
    pub(crate) fn count(
        points: &[u32],
        order: &[u32],
        found: &Candidates,
        control: &Control,
    ) -> Result<Self, BuildError> {
        let elements = points.last().map_or(0, |&last| last as usize + 1);
        let counts: Vec<AtomicU32> = (0..elements).map(|_| AtomicU32::new(0)).collect();
        control.section("hubs among candidates").for_each_init(ranges(order.len()), |own: &mut Vec<_>, range| {
            for &at in &order[range] {
                own.clear();
                found.of(at as usize, own);
                own.iter()
                    .for_each(|near: &Candidate| _ = counts[near.element() as usize].fetch_add(1, Ordering::Relaxed));
            }
            Ok(())
        })?;
        Ok(Self { counts, most: (HUB_FACTOR * found.keep()) as u32 })
    }

    fn has(&self, element: u32) -> bool {
        self.counts[element as usize].load(Ordering::Relaxed) > self.most
    }
}

/// Divides the points with the same nearest pivot into cells of about equal size.
pub(crate) fn even_cells(points: &[u32]) -> std::slice::Chunks<'_, u32> {
    points.chunks(points.len().div_ceil(points.len().div_ceil(CELL).max(1)).max(1))
}

/// Memory that a thread reuses from cell to cell.
#[derive(Default)]
pub(crate) struct Scratch {
    cell: Vec<u32>,
    others: Vec<u32>,
    /// For each element, a bit: whether it is in `others`.
    seen: Vec<u64>,
    rows: Group,
    cols: Group,
    tile: Tile,
    own: Vec<Candidate>,
    lists: Vec<Vec<Candidate>>,
    /// For each list, the distance that a new entry must be below.
    limits: Vec<f32>,
    /// The number of candidates that each point had before.
    had: Vec<usize>,
    /// The distance of the farthest of these candidates.
    reaches: Vec<f32>,
}

/// Compares each point of a cell with the candidates of all its points, and keeps its nearest. `cell` has positions in `points`.
pub(crate) fn refine_cell(
    space: Space<'_>,
    tiles: Tiles,
    points: &[u32],
    cell: &[u32],
    (found, hubs): (&Candidates, &Hubs),
    scratch: &mut Scratch,
) {
    let keep = found.keep();
    scratch.gather(points, cell, found, hubs);
    let cell_points = std::mem::take(&mut scratch.cell);
    let representation = Representation::of(space, tiles, &cell_points).find(|representation| {
        representation.pack(space, tiles, &cell_points, &mut scratch.rows);
        let near = representation::near_pairs(cell_points.iter().copied());
        representation.represents_most(space, near) && scratch.resolves_most(space, &cell_points)
    });
    scratch.cell = cell_points;
    let Some(representation) = representation else { return };
    let Scratch { cell: elements, others, rows, cols, tile, lists, limits, had, .. } = scratch;
    limits.resize(rows.padded(), f32::NEG_INFINITY);
    for others in others.chunks(PACKED) {
        representation.pack(space, tiles, others, cols);
        for row_block in 0..rows.blocks() {
            let first_row = row_block * ROWS;
            for col_pair in 0..cols.blocks() / 2 {
                let row_limits = limits[first_row..].first_chunk().expect("padded to whole tiles");
                rows.tile(row_block, cols, col_pair, tiles, (row_limits, &[f32::NEG_INFINITY; COLS]), tile);
                tile.for_each_hit(|row, col, distance| {
                    let (row, other) = (first_row + row, others[col_pair * COLS + col]);
                    if other == elements[row] {
                        return;
                    }
                    lists[row].push(Candidate::new(distance, other));
                    if lists[row].len() == FULL * keep {
                        let (_, &mut last, _) = lists[row].select_nth_unstable(keep - 1);
                        lists[row].truncate(keep);
                        limits[row] = last.distance().next_up();
                    }
                });
            }
        }
    }
    for ((&at, list), &had) in cell.iter().zip(lists).zip(&*had) {
        // If the leaves' representation underestimated distances, `limits` rejected too many candidates: then the old list stays.
        if list.len() >= had {
            found.replace(at as usize, list);
        }
    }
}

impl Scratch {
    /// Collects the candidates of all points of a cell, and for each list the distance below which new ones enter it. Hubs stay in the
    /// lists that have them.
    fn gather(&mut self, points: &[u32], cell: &[u32], found: &Candidates, hubs: &Hubs) {
        let Self { cell: elements, others, seen, own, lists, limits, had, reaches, .. } = self;
        others.drain(..).for_each(|other| seen[other as usize / 64] = 0);
        seen.resize(hubs.counts.len().div_ceil(64), 0);
        let mut take = |other: u32| {
            let (word, bit) = (&mut seen[other as usize / 64], 1 << (other % 64));
            if *word & bit == 0 && !hubs.has(other) {
                *word |= bit;
                others.push(other);
            }
        };
        elements.clear();
        elements.extend(cell.iter().map(|&at| points[at as usize]));
        elements.iter().for_each(|&element| take(element));
        limits.clear();
        had.clear();
        reaches.clear();
        lists.resize_with(lists.len().max(cell.len()), Vec::new);
        for (&at, list) in cell.iter().zip(lists) {
            own.clear();
            found.of(at as usize, own);
            limits.push(own.get(found.keep() - 1).map_or(f32::INFINITY, |last| last.distance().next_up()));
            had.push(own.len());
            reaches.push(own.last().map_or(f32::INFINITY, |last| last.distance()));
            list.clear();
            list.extend(own.iter().filter(|candidate| hubs.has(candidate.element())));
            own.iter().for_each(|candidate| take(candidate.element()));
        }
    }

    /// Whether the packed cell resolves the distance of the farthest candidate, for most points of a sample.
    fn resolves_most(&self, space: Space<'_>, cell: &[u32]) -> bool {
        let resolved = |row: usize| self.rows.resolves(row, space.squared(cell[row], cell[row], self.reaches[row]));
        let sample = (0..cell.len()).step_by(cell.len().div_ceil(SAMPLE).max(1));
        most(sample.filter(|&row| self.reaches[row].is_finite()).map(resolved))
    }
}

#[cfg(test)]
mod tests {
    use distance::Candidate;

    use super::{Hubs, Scratch, refine_cell};
    use crate::Control;
    use crate::candidates::Candidates;
    use crate::space::{Codes, Space};
    use crate::testing::{cube, euclidean, store};

    const COUNT: u32 = 64;
    const KEEP: usize = 4;

    /// Refines the first half of some points. Each point's only candidate is the next point, near or not. Returns the share of the nearest
    /// points within the half that are found, 0 to 1.
    fn found(values: &[[f32; 16]]) -> f32 {
        let store = store(values);
        let exact = euclidean::<16>(&store);
        let tiles = exact.measure.tiles.unwrap();
        let Some(kernels) = tiles.codes else { return 1.0 };
        let codes = Codes::new(exact, (tiles, kernels), true, COUNT as usize, &Control::default()).unwrap();
        let space = Space { codes: Some(&codes), ..exact };
        let points: Vec<u32> = (0..COUNT).collect();
        let cell: Vec<u32> = (0..COUNT / 2).collect();
        let found = Candidates::new(points.len(), KEEP);
        for &point in &points {
            found.add(point as usize, std::iter::once(exact.candidate(point, (point + 1) % COUNT)));
        }
        let hubs = Hubs::count(&points, &points, &found, &Control::default()).unwrap();
        refine_cell(space, tiles, &points, &cell, (&found, &hubs), &mut Scratch::default());
        let mut hits = 0;
        for &point in &cell {
            // The points of the cell, and the candidate of its last point.
            let others = (0..=COUNT / 2).filter(|&other| other != point);
            let mut nearest: Vec<Candidate> = others.map(|other| exact.candidate(point, other)).collect();
            nearest.sort_unstable();
            let mut list = Vec::new();
            found.of(point as usize, &mut list);
            assert_eq!(list.len(), KEEP);
            hits += nearest[..KEEP].iter().filter(|near| list.iter().any(|it| it.element() == near.element())).count();
        }
        let mut outside = Vec::new();
        found.of(COUNT as usize - 1, &mut outside);
        assert_eq!(outside.len(), 1, "other cells stay as they were");
        hits as f32 / (cell.len() * KEEP) as f32
    }

    /// The memory estimate of `pages` has the lists of a cell for each thread.
    #[test]
    fn a_cell_has_the_size_of_the_memory_estimate() {
        assert_eq!((super::CELL as u64, super::FULL as u64), (pages::sizes::CELL, pages::sizes::FULL));
    }

    #[test]
    fn a_cell_shares_its_candidates() {
        let found = found(&cube::<16>(COUNT as usize, 3));
        assert!(found >= 0.9, "{found}");
    }

    #[test]
    fn a_cell_of_near_identical_points_is_not_compared_by_codes() {
        // The codes of the build do not resolve the distances of the first half. Its lists are not full.
        let mut values = cube::<16>(COUNT as usize, 3);
        values[..COUNT as usize / 2].iter_mut().flatten().for_each(|x| *x = 0.5 + 0.001 * *x);
        let found = found(&values);
        assert!(found >= 0.9, "{found}");
    }
}
