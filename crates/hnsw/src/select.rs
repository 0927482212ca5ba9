//! pgvector's choice of neighbors.

use distance::{COLS, ROWS, Tile, TileInput};

use crate::candidates::Candidate;
use crate::group::Group;
use crate::space::{Products, Space};

/// Chooses neighbors; keeps its memory from one element to the next.
#[derive(Default)]
pub(crate) struct Selector {
    elements: Vec<u32>,
    group: Group,
    center: Vec<f32>,
    tile: Tile,
    limits: Vec<f32>,
    /// For each candidate, a bit for each other one that it makes superfluous.
    masks: Vec<u32>,
    pruned: Vec<u32>,
}

impl Selector {
    /// The diversity rule with refill (algorithm 4 of the HNSW paper with `keepPrunedConnections`): of the candidates, nearest
    /// first, those that are nearer to the element than to any neighbor chosen before; what is then left of the list gets the
    /// nearest of the rest.
    ///
    /// `candidates` are in ascending order of distance to `element`; `list` is emptied first. Returns how many the rule chose: they
    /// come first.
    pub(crate) fn choose(
        &mut self,
        space: Space<'_>,
        element: u32,
        candidates: &[Candidate],
        wanted: usize,
        list: &mut Vec<u32>,
    ) -> usize {
        list.clear();
        if candidates.len() <= wanted {
            list.extend(candidates.iter().map(|&(_, candidate)| candidate));
            return list.len();
        }
        self.pruned.clear();
        match space.products {
            Some(products) => self.by_products(space, products, element, candidates, wanted, list),
            None => self.one_by_one(space, candidates, wanted, list),
        }
        let chosen = list.len();
        list.extend(self.pruned.iter().take(wanted - chosen));
        chosen
    }

    fn one_by_one(&mut self, space: Space<'_>, candidates: &[Candidate], wanted: usize, list: &mut Vec<u32>) {
        for &(distance, candidate) in candidates {
            if list.len() == wanted {
                return;
            }
            let keep = list.iter().all(|&chosen| space.distance(candidate, chosen) > distance);
            if keep { list.push(candidate) } else { self.pruned.push(candidate) }
        }
    }

    /// The same with all distances between candidates from tiles: more of them, but each costs much less.
    fn by_products(
        &mut self,
        space: Space<'_>,
        products: Products,
        element: u32,
        candidates: &[Candidate],
        wanted: usize,
        list: &mut Vec<u32>,
    ) {
        self.compare(space, products, element, candidates);
        let words = self.words();
        let mut superfluous = vec![0; words];
        for (at, &(_, candidate)) in candidates.iter().enumerate() {
            if list.len() == wanted {
                return;
            }
            if superfluous[at / 32] >> (at % 32) & 1 == 1 {
                self.pruned.push(candidate);
                continue;
            }
            list.push(candidate);
            let mask = &self.masks[at * words..(at + 1) * words];
            superfluous.iter_mut().zip(mask).for_each(|(word, mask)| *word |= mask);
        }
    }

    /// Words per mask: a bit for each column of the tiles.
    fn words(&self) -> usize {
        self.group.panel.blocks() / 2
    }

    fn compare(&mut self, space: Space<'_>, products: Products, element: u32, candidates: &[Candidate]) {
        self.elements.clear();
        self.elements.extend(candidates.iter().map(|&(_, candidate)| candidate));
        self.center.resize(products.dims, 0.0);
        distance::decode(products.elements, space.value(element), &mut self.center);
        self.group.pack(space, products, &self.elements, Some(&self.center));
        let words = self.words();
        // A tie makes superfluous, too.
        self.limits.clear();
        self.limits.extend(candidates.iter().map(|&(distance, _)| distance.next_up()));
        self.limits.resize(words * COLS, f32::NEG_INFINITY);
        self.masks.clear();
        self.masks.resize(self.group.panel.blocks() * ROWS * words, 0);
        for row_block in 0..self.group.panel.blocks() {
            let first_row = row_block * ROWS;
            for word in row_block / 2..words {
                let first_col = word * COLS;
                let input = TileInput {
                    scale: products.scale(),
                    row_terms: self.group.terms(first_row),
                    col_terms: self.group.terms(first_col),
                    row_limits: &[f32::NEG_INFINITY; ROWS],
                    col_limits: self.limits[first_col..].first_chunk().expect("padded to whole tiles"),
                };
                let cols = [self.group.panel.block(2 * word), self.group.panel.block(2 * word + 1)];
                (products.tile)(self.group.panel.block(row_block), cols, &input, &mut self.tile);
                for (row, &hits) in self.tile.hits.iter().enumerate() {
                    self.masks[(first_row + row) * words + word] = hits;
                }
            }
        }
    }
}
