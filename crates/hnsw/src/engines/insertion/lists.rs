//! The neighbor lists of a graph into which elements are inserted.

use std::sync::atomic::{AtomicU64, Ordering};

use distance::Candidate;

const WORD: usize = u64::BITS as usize;

/// Lists of all points and layers, each nearest first. A list is read by many threads and changed by one at a time.
pub(super) struct Lists {
    m: usize,
    levels: Vec<u8>,
    /// For each point, the index of its first list in `above`, counted in lists.
    upper: Vec<u32>,
    layer0: Vec<AtomicU64>,
    above: Vec<AtomicU64>,
    /// For each list, a bit per slot: whether the diversity rule chose the neighbor. Then a bit that says whether these bits are valid.
    chosen0: Vec<AtomicU64>,
    chosen_above: Vec<AtomicU64>,
}

/// A copy of a list, to be changed.
#[derive(Default)]
pub(super) struct List {
    pub(super) neighbors: Vec<Candidate>,
    /// Which neighbors the diversity rule chose; `None` if that is not known.
    pub(super) chosen: Option<Vec<bool>>,
}

impl Lists {
    pub(super) fn new(m: usize, levels: Vec<u8>) -> Self {
        let mut lists = 0;
        let upper: Vec<u32> = levels
            .iter()
            .map(|&level| {
                let start = lists;
                lists += u32::from(level);
                start
            })
            .collect();
        let empty = |count: usize| (0..count).map(|_| AtomicU64::new(Candidate::NONE.to_bits())).collect();
        let words = |lists: usize, width: usize| (0..lists * words(width)).map(|_| AtomicU64::new(0)).collect();
        Self {
            m,
            upper,
            layer0: empty(levels.len() * 2 * m),
            above: empty(lists as usize * m),
            chosen0: words(levels.len(), 2 * m),
            chosen_above: words(lists as usize, m),
            levels,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.levels.len()
    }

    pub(super) fn level(&self, point: u32) -> u8 {
        self.levels[point as usize]
    }

    /// Slots of a list.
    pub(super) fn width(&self, layer: u8) -> usize {
        if layer == 0 { 2 * self.m } else { self.m }
    }

    fn slots(&self, point: u32, layer: u8) -> &[AtomicU64] {
        let width = self.width(layer);
        match layer {
            0 => &self.layer0[point as usize * width..][..width],
            _ => &self.above[(self.upper[point as usize] as usize + usize::from(layer - 1)) * width..][..width],
        }
    }

    fn words(&self, point: u32, layer: u8) -> &[AtomicU64] {
        let words = words(self.width(layer));
        match layer {
            0 => &self.chosen0[point as usize * words..][..words],
            _ => &self.chosen_above[(self.upper[point as usize] as usize + usize::from(layer - 1)) * words..][..words],
        }
    }

    /// The neighbors of a point, nearest first.
    pub(super) fn of(&self, point: u32, layer: u8) -> impl Iterator<Item = Candidate> {
        let slots = self.slots(point, layer).iter();
        slots.map(|slot| Candidate::from_bits(slot.load(Ordering::Relaxed))).take_while(|&near| near != Candidate::NONE)
    }

    /// Copies a list into `list`.
    pub(super) fn take(&self, point: u32, layer: u8, list: &mut List) {
        list.neighbors.clear();
        list.neighbors.extend(self.of(point, layer));
        let (words, width) = (self.words(point, layer), self.width(layer));
        let bit = |at: usize| words[at / WORD].load(Ordering::Relaxed) >> (at % WORD) & 1 == 1;
        list.chosen = bit(width).then(|| (0..list.neighbors.len()).map(bit).collect());
    }

    /// Replaces a list by `list`, whose neighbors are sorted.
    pub(super) fn put(&self, point: u32, layer: u8, list: &List) {
        let rest = std::iter::repeat(&Candidate::NONE);
        for (slot, near) in self.slots(point, layer).iter().zip(list.neighbors.iter().chain(rest)) {
            slot.store(near.to_bits(), Ordering::Relaxed);
        }
        let words = self.words(point, layer);
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let Some(chosen) = &list.chosen else { return };
        let known = (self.width(layer), &true);
        for (at, _) in chosen.iter().enumerate().filter(|&(_, &chosen)| chosen).chain([known]) {
            words[at / WORD].fetch_or(1 << (at % WORD), Ordering::Relaxed);
        }
    }
}

/// Words for a list's bits: one bit per slot, and one more.
fn words(width: usize) -> usize {
    (width + 1).div_ceil(WORD)
}
