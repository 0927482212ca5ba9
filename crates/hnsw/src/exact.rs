//! Exact search for the nearest elements of some values.

use distance::{COLS, Candidate, Metric, Nearest, ROWS, Tile};
use rayon::prelude::*;

use crate::BuildError;
use crate::space::{Group, Inverted, Query, Space, Tiles};
use crate::tasks::Section;

/// Elements per block; a block is compared with all values.
pub(crate) const AT_ONCE: usize = 1024;
/// The elements are divided into at most this many parts, which have their own nearest lists, for parallel tasks.
const PARTS: usize = 512;
/// Tiles and inverted lists round, so the `k` nearest and this many more are measured again by the kernel, whose distances are those of a
/// search; and further ones if rounding errors may hide a nearer element ([`limits_of_hidden`]).
const MORE: usize = 6;

/// For each value, the `k` nearest of `points`, nearest first, with distances of the space's kernel. `section` is run twice.
pub(crate) fn nearest(
    space: Space<'_>,
    points: &[u32],
    values: &[Vec<u8>],
    k: usize,
    section: Section<'_>,
) -> Result<Vec<Vec<Candidate>>, BuildError> {
    let tiles = space.measure.tiles;
    // Differences from the mean lose less to cancellation.
    let differing = tiles.filter(|tiles| tiles.metric == Metric::L2);
    let center = differing.map(|tiles| tiles.trimmed_mean(values.iter().map(Vec::as_slice).collect()));
    let mut rows = Group::default();
    if let Some(tiles) = tiles {
        rows.pack_values(tiles, values.iter().map(Vec::as_slice), center.as_deref());
    }
    let mut inverted = Inverted::default();
    if space.measure.inverts() {
        inverted.fill_values(space.measure, values.iter().map(Vec::as_slice));
    }
    // Merges the results for one value.
    let nearest_of = |all: &mut Vec<Candidate>| {
        all.sort_unstable();
        all.truncate(k);
    };
    // The `k` nearest of a block for each value, in any order, and some more.
    let chunk = |points: &[u32]| {
        let (mut nearest, mut cols) = (Nearest::default(), Group::default());
        let mut query = Query::default();
        let width = (k + MORE).min(points.len());
        match tiles {
            None => {
                nearest.reset(values.len(), values.len(), width);
                let mut sums = Vec::new();
                for (col, &point) in (0..).zip(points) {
                    let distances = inverted.distances_of(space.value(point), 0.0, &mut sums);
                    distances.enumerate().for_each(|(at, distance)| nearest.offer(at, distance, col));
                }
            }
            Some(tiles) => {
                cols.pack_values(tiles, points.iter().map(|&point| space.value(point)), center.as_deref());
                rows.nearest(values.len(), &cols, tiles, width, (&mut nearest, &mut Tile::default()));
            }
        }
        let mut measured = |at: usize, cols: &[u32]| -> Vec<Candidate> {
            let value = &values[at];
            space.measure.prepare(&mut query, value);
            let measure = |&col: &u32| {
                let point = points[col as usize];
                Candidate::new(space.measure.distance_of(&query, value, space.value(point)), point)
            };
            cols.iter().map(measure).collect()
        };
        let list = |at| nearest.of(at).map(|near| near.element()).collect::<Vec<u32>>();
        let mut lists: Vec<Vec<Candidate>> = (0..values.len()).map(|at| measured(at, &list(at))).collect();
        if let Some(tiles) = tiles.filter(|_| width < points.len()) {
            for (row_block, lists) in lists.chunks_mut(ROWS).enumerate() {
                let limits = limits_of_hidden(&rows, &nearest, row_block, lists, k);
                for (at, mut hidden) in below(tiles, &rows, &cols, row_block, &limits) {
                    let listed = list(row_block * ROWS + at);
                    hidden.retain(|col| !listed.contains(col));
                    lists[at].extend(measured(row_block * ROWS + at, &hidden));
                    // Among near-identical elements half of the block may be hidden from each value.
                    nearest_of(&mut lists[at]);
                    lists[at].shrink_to_fit();
                }
            }
        }
        lists
    };
    let part = |points: &[u32]| {
        let mut all = vec![Vec::new(); values.len()];
        for points in points.chunks(AT_ONCE) {
            section.check()?;
            for (all, more) in all.iter_mut().zip(chunk(points)) {
                all.extend(more);
                nearest_of(all);
            }
        }
        // Among near-identical elements each list had room for a whole block, and the lists of all parts are kept until they are merged.
        all.iter_mut().for_each(Vec::shrink_to_fit);
        Ok(all)
    };
    let part_len = points.len().div_ceil(PARTS).max(1).next_multiple_of(AT_ONCE);
    let parts = section.map(points.par_chunks(part_len), part)?;
    section.map((0..values.len()).into_par_iter(), |at| {
        let mut all = parts.iter().flat_map(|part| &part[at]).copied().collect();
        nearest_of(&mut all);
        // It was allocated for the results of all parts.
        all.shrink_to_fit();
        Ok(all)
    })
}

/// For each value of a block, the distance by tiles below which an element that is not in its list may be among its `k` nearest, because of
/// rounding errors; negative infinity if there is no such element. `lists` have the exact distances of the elements in `nearest`.
fn limits_of_hidden(
    rows: &Group,
    nearest: &Nearest,
    row_block: usize,
    lists: &mut [Vec<Candidate>],
    k: usize,
) -> [f32; ROWS] {
    let first_row = row_block * ROWS;
    let last_listed: &[f32; ROWS] = nearest.limits(first_row);
    let mut limits = [f32::NEG_INFINITY; ROWS];
    for (at, list) in lists.iter_mut().enumerate() {
        list.sort_unstable();
        let Some(kth) = list.get(k - 1).map(|near| near.distance()) else { continue };
        let limit = kth + rows.rounding_error(first_row + at, kth);
        if limit > last_listed[at] {
            limits[at] = limit;
        }
    }
    limits
}

/// The columns whose distances by tiles to a row of a block are below the row's limit, for each row that has one.
fn below(
    tiles: Tiles,
    rows: &Group,
    cols: &Group,
    row_block: usize,
    limits: &[f32; ROWS],
) -> impl Iterator<Item = (usize, Vec<u32>)> {
    let mut found = [const { Vec::new() }; ROWS];
    if limits.iter().any(|&limit| limit > f32::NEG_INFINITY) {
        let mut tile = Tile::default();
        for col_pair in 0..cols.blocks() / 2 {
            rows.tile(row_block, cols, col_pair, tiles, (limits, &[f32::NEG_INFINITY; COLS]), &mut tile);
            tile.for_each_hit(|row, col, _| found[row].push((col_pair * COLS + col) as u32));
        }
    }
    found.into_iter().enumerate().filter(|(_, cols)| !cols.is_empty())
}

#[cfg(test)]
mod tests {
    use distance::{Candidate, Elements, Metric};
    use graph::ElementValues;

    use super::nearest;
    use crate::Control;
    use crate::space::{Measure, Space};
    use crate::testing::{cube, pool, store};

    /// Points in groups of 150, which are interleaved, and whose points differ by `spread` times a random value per dimension.
    fn groups(spread: f32) -> Vec<[f32; 32]> {
        let (centers, mut points) = (cube::<32>(10, 1), cube::<32>(1500, 2));
        for (at, point) in points.iter_mut().enumerate() {
            point.iter_mut().zip(centers[at % 10]).for_each(|(x, center)| *x = center + spread * *x);
        }
        points
    }

    const K: usize = 10;

    /// The exact distances of the `K` nearest points, by tiles, and by the kernel.
    fn both(space: Space<'_>, values: &[Vec<u8>], points: usize) -> [Vec<Vec<f32>>; 2] {
        let all: Vec<u32> = (0..points as u32).collect();
        let found = pool().run(|| nearest(space, &all, values, K, Control::default().section("test"))).unwrap();
        let distances = |list: &[Candidate]| list.iter().map(|near| near.distance()).collect::<Vec<_>>();
        let expected = values.iter().map(|value| {
            let measure = |&point| Candidate::new((space.measure.kernel)(value, space.value(point)), point);
            let mut expected: Vec<Candidate> = all.iter().map(measure).collect();
            expected.sort_unstable();
            distances(&expected[..K])
        });
        [found.iter().map(|found| distances(found)).collect(), expected.collect()]
    }

    #[test]
    fn a_huge_value_hides_no_neighbors() {
        let mut points = groups(1.0);
        points.iter_mut().step_by(100).flatten().for_each(|x| *x = 1e30);
        let store = store(&points);
        let space = Space::exact(Measure::new(Elements::F32, Metric::L2, 32).unwrap(), &store);
        let values: Vec<Vec<u8>> = (0..40).map(|at| store.value(at * 37).to_vec()).collect();
        let [found, expected] = both(space, &values, points.len());
        // The first value is a huge one.
        assert_eq!(found[1..], expected[1..]);
    }

    #[test]
    fn neighbors_nearer_than_tiles_resolve_are_found() {
        for metric in [Metric::L2, Metric::Cosine, Metric::L1] {
            for spread in [1e-2, 1e-3, 1e-4, 1e-5] {
                let mut points = groups(spread);
                if metric == Metric::Cosine {
                    for point in &mut points {
                        let length = point.iter().map(|x| x * x).sum::<f32>().sqrt();
                        point.iter_mut().for_each(|x| *x /= length);
                    }
                }
                let store = store(&points);
                let space = Space::exact(Measure::new(Elements::F32, metric, 32).unwrap(), &store);
                let values: Vec<Vec<u8>> = (0..40).map(|at| store.value(at * 37).to_vec()).collect();
                let [found, expected] = both(space, &values, points.len());
                assert_eq!(found, expected, "{metric:?} {spread}");
            }
        }
    }
}
