//! The leaders of a split: random points, to whose nearest the others go.

use distance::{COLS, Nearest, ROWS, Tile};

use crate::codes::Codes;
use crate::group::{self, Group};
use crate::space::{Products, Query, Space};

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
        let packed = space.measure.products.and_then(|products| Packed::new(space, products, &elements));
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
                let mut query = Query::default();
                for (at, &element) in elements.iter().enumerate() {
                    space.ask(&mut query, element);
                    for (leader, &other) in self.elements.iter().enumerate() {
                        nearest.offer(at, space.distance_of(&query, other), leader as u32);
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

/// Of a sample of leaders: their positions, how far the nearest other one is from each, squared, and which that is.
fn gaps(space: Space<'_>, leaders: &[u32]) -> Vec<Gap> {
    const SAMPLE: usize = 32;
    let gap = |at: usize| {
        let others = leaders.iter().enumerate().filter(|&(other, _)| other != at);
        let squares = others.map(|(_, &other)| (space.squared_distance(leaders[at], other), other));
        let (squared, nearest) = squares.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f32::INFINITY, leaders[at]));
        Gap { at, squared, nearest }
    };
    (0..leaders.len()).step_by(leaders.len().div_ceil(SAMPLE).max(1)).map(gap).collect()
}

struct Gap {
    at: usize,
    squared: f32,
    nearest: u32,
}

impl<'a> Packed<'a> {
    /// Packs leaders by codes if those tell most from the nearest other one: by those of everything, or by those around their middle. None
    /// if neither do, as where clusters are far from each other: then they have to be compared one by one.
    fn new(space: Space<'a>, products: Products, leaders: &[u32]) -> Option<Self> {
        let gaps = gaps(space, leaders);
        let most = |told: &dyn Fn(&Gap) -> bool| gaps.iter().filter(|gap| told(gap)).count() * 4 >= gaps.len() * 3;
        let tell = |codes: &Codes, gap: &Gap| {
            let leader = leaders[gap.at];
            codes.can_tell(leader, gap.squared) && codes.have_their_share(space, leader, gap.nearest)
        };
        let kind = match space.codes.filter(|codes| most(&|gap| tell(codes, gap))) {
            Some(codes) => Kind::Codes(codes),
            None => Kind::From(group::center(space, products, leaders)),
        };
        let mut group = Group::default();
        kind.pack(&mut group, space, products, leaders);
        let told = matches!(kind, Kind::Codes(_)) || most(&|gap| group.can_tell(gap.at, gap.squared));
        told.then_some(Self { products, kind, group })
    }

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
                nearest.offer_rows(&tile, first_row, first_col);
            }
        }
    }
}
