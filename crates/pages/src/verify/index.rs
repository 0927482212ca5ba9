use crate::verify::Report;
use crate::{MetaPage, Tid};

/// An element, as far as it is needed after its page is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub tid: Tid,
    pub neighbor: Tid,
    pub level: u8,
    pub version: u8,
    /// Not marked as deleted.
    pub live: bool,
    /// Has a heap TID. VACUUM takes them long before it marks an element.
    pub rows: bool,
}

/// What a line pointer leads to, and its number among its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Element(u32),
    Neighbor(u32),
}

/// All tuples of an index.
pub(super) struct Index {
    pub meta: MetaPage,
    /// By block: the next page, for data pages that could be read.
    pub next: Vec<Option<u32>>,
    /// By block: where its line pointers begin in `slots`.
    starts: Vec<usize>,
    slots: Vec<Option<Slot>>,
    /// In the order of their TIDs.
    pub elements: Vec<Element>,
    /// By neighbor tuple: its place and the element it belongs to.
    pub neighbors: Vec<(Tid, Option<u32>)>,
}

impl Index {
    pub(super) fn new(meta: MetaPage) -> Self {
        let (next, starts, slots, elements, neighbors) = Default::default();
        Self { meta, next, starts, slots, elements, neighbors }
    }

    /// All that is added next is on this block; blocks may be left out, but come in order.
    pub(super) fn start_block(&mut self, block: u32) {
        self.starts.resize(block as usize + 1, self.slots.len());
        self.next.resize(block as usize + 1, None);
    }

    pub(super) fn add_element(&mut self, element: Element) {
        // 2^32 elements need a file of 344 GiB; the numbers of later ones are not kept.
        let number = u32::try_from(self.elements.len()).ok();
        self.slots.push(number.map(Slot::Element));
        if number.is_some() {
            self.elements.push(element);
        }
    }

    pub(super) fn add_neighbor(&mut self, tid: Tid) {
        let number = u32::try_from(self.neighbors.len()).ok();
        self.slots.push(number.map(Slot::Neighbor));
        if number.is_some() {
            self.neighbors.push((tid, None));
        }
    }

    pub(super) fn add_unreadable(&mut self) {
        self.slots.push(None);
    }

    /// What a TID leads to.
    pub(super) fn slot(&self, tid: Tid) -> Option<Slot> {
        let block = tid.block as usize;
        let start = *self.starts.get(block)?;
        let end = self.starts.get(block + 1).copied().unwrap_or(self.slots.len());
        let at = start.checked_add(usize::from(tid.offset).checked_sub(1)?).filter(|&at| at < end)?;
        self.slots[at]
    }

    pub(super) fn element(&self, tid: Tid) -> Option<(u32, &Element)> {
        match self.slot(tid)? {
            Slot::Element(number) => Some((number, &self.elements[number as usize])),
            Slot::Neighbor(_) => None,
        }
    }

    /// The entry point, if it is a live element on the level that the meta page says.
    pub(super) fn entry(&self) -> Option<(u32, &Element)> {
        let entry = self.element(self.meta.entry)?;
        (entry.1.live && i16::from(entry.1.level) == self.meta.entry_level).then_some(entry)
    }

    /// Gives every neighbor tuple its element: exactly one, on the same or a lower block.
    pub(super) fn assign_neighbors(&mut self, report: &mut Report) {
        for number in 0..self.elements.len() {
            let Element { tid, neighbor, .. } = self.elements[number];
            let Some(Slot::Neighbor(at)) = self.slot(neighbor) else {
                report.errors.push(format_args!("element {tid}: {neighbor} is not a neighbor tuple"));
                continue;
            };
            if neighbor.block < tid.block {
                // VACUUM locks the element's page, then the neighbors' page: against the order it can wait for ever.
                report.errors.push(format_args!("element {tid}: neighbor tuple {neighbor} is on a lower block"));
            }
            report.neighbors_elsewhere += u64::from(neighbor.block != tid.block);
            let owner = &mut self.neighbors[at as usize].1;
            if owner.is_some() {
                report.errors.push(format_args!("element {tid}: neighbor tuple {neighbor} belongs to another element"));
            }
            owner.get_or_insert(number as u32);
        }
        for (tid, owner) in &self.neighbors {
            report.errors.add(owner.is_none(), format_args!("neighbor tuple {tid}: belongs to no element"));
        }
    }
}
