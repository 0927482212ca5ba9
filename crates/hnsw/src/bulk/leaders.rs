//! The leaders of a split: random points, to whose nearest the others go.

use distance::{COLS, ROWS, Tile};

use super::nearest::Nearest;
use crate::codes::Codes;
use crate::group::{self, Group};
use crate::space::{Products, Space};

pub(crate) struct Leaders<'a> {
    elements: Vec<u32>,
    packed: Option<Packed<'a>>,
}

struct Packed<'a> {
    products: Products,
    kind: Kind<'a>,
    group: Group,
}

/// How points are packed to be compared.
enum Kind<'a> {
    /// By the codes of all values.
    Codes(&'a Codes),
    /// As they are, or by differences from this one.
    From(Option<Vec<f32>>),
}

impl<'a> Leaders<'a> {
    pub(crate) fn new(space: Space<'a>, elements: Vec<u32>) -> Self {
        let packed = space.measure.products.map(|products| {
            let kind = match space.codes {
                Some(codes) if told_apart(space, codes, &elements) => Kind::Codes(codes),
                _ => Kind::From(group::center(space, products, &elements)),
            };
            let mut group = Group::default();
            kind.pack(&mut group, space, products, &elements);
            Packed { products, kind, group }
        });
        Self { elements, packed }
    }

    /// The `fan` nearest leaders of each element, nearest first, by position; `u32::MAX` where there are fewer.
    pub(crate) fn nearest(&self, space: Space<'_>, elements: &[u32], fan: usize) -> Vec<u32> {
        let mut nearest = Nearest::default();
        let k = fan.min(self.elements.len());
        match &self.packed {
            Some(packed) => packed.compare(space, elements, k, &mut nearest),
            None => {
                nearest.reset(elements.len(), elements.len(), k);
                for (at, &element) in elements.iter().enumerate() {
                    for (leader, &other) in self.elements.iter().enumerate() {
                        nearest.offer(at, space.distance(element, other), leader as u32);
                    }
                }
            }
        }
        let mut assigned = vec![u32::MAX; elements.len() * fan];
        for (at, assigned) in assigned.chunks_exact_mut(fan).enumerate() {
            for (slot, leader) in assigned.iter_mut().zip(nearest.of(at)) {
                *slot = leader.element();
            }
        }
        assigned
    }
}

impl Kind<'_> {
    fn pack(&self, group: &mut Group, space: Space<'_>, products: Products, points: &[u32]) {
        match self {
            Self::Codes(codes) => group.pack_codes(codes, points),
            Self::From(center) => group.pack_roughly(space, products, points, center.as_deref()),
        }
    }
}

/// Whether codes tell most leaders apart.
fn told_apart(space: Space<'_>, codes: &Codes, leaders: &[u32]) -> bool {
    let told = |pair: &&[u32]| codes.can_tell(pair[0], space.squared_distance(pair[0], pair[1]));
    let told = leaders.windows(2).filter(told).count();
    told * 4 >= (leaders.len() - 1) * 3
}

impl Packed<'_> {
    fn compare(&self, space: Space<'_>, elements: &[u32], k: usize, nearest: &mut Nearest) {
        let (mut group, mut tile) = (Group::default(), Tile::new());
        self.kind.pack(&mut group, space, self.products, elements);
        nearest.reset(elements.len(), group.padded(), k);
        for row_block in 0..group.blocks() {
            let first_row = row_block * ROWS;
            for col_pair in 0..self.group.blocks() / 2 {
                let first_col = col_pair * COLS;
                let limits = (nearest.limits(first_row), &[f32::NEG_INFINITY; COLS]);
                group.tile(row_block, &self.group, col_pair, self.products, limits, &mut tile);
                tile.for_each_hit(|row, col, distance| {
                    nearest.offer(first_row + row, distance, (first_col + col) as u32);
                });
            }
        }
    }
}
