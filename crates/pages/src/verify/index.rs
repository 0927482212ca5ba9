use std::ops::Range;

use crate::format::TID_LEN;
use crate::verify::memory::{Bits, Memory, TooLarge};
use crate::verify::{PAUSE, Report};
use crate::{MetaPage, PageSource, Tid};

/// What is kept of an element after its page was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    /// As six bytes each: a [`Tid`] takes eight.
    pub tid: [u8; TID_LEN],
    pub neighbor: [u8; TID_LEN],
    pub level: u8,
    pub version: u8,
    /// Has a heap TID. VACUUM removes heap TIDs long before it marks an element as deleted.
    pub rows: bool,
}

impl Element {
    pub(super) fn tid(&self) -> Tid {
        Tid::from_bytes(self.tid)
    }

    pub(super) fn neighbor(&self) -> Tid {
        Tid::from_bytes(self.neighbor)
    }
}

/// What a line pointer refers to: the number of an element, or of a neighbor tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Element(u32),
    Neighbor(u32),
}

/// A bit of `slots`: the rest is the number of a neighbor tuple, not of an element.
const NEIGHBOR: u32 = 1 << 31;
/// Stands for a slot whose tuple could not be read, a neighbor tuple without an element, or a block without a page.
const NONE: u32 = u32::MAX;

/// All tuples of an index. Takes 27 bytes and two bits for an element and its neighbor tuple, and 12 bytes for a block.
pub(super) struct Index {
    pub meta: MetaPage,
    /// By block: the next block of the chain, and whether the block has a page at all.
    next: Vec<(u32, bool)>,
    /// By block: the start of its line pointers in `slots`.
    starts: Vec<u32>,
    slots: Vec<u32>,
    /// In the order of TIDs.
    pub elements: Vec<Element>,
    /// By place in `slots`: whether a live element is there, one not marked as deleted. One bit each, so that they fit
    /// into the processor's cache: lists name elements in any order.
    live: Bits,
    /// By neighbor tuple: the element it belongs to.
    owners: Vec<u32>,
}

impl Index {
    pub(super) fn new(meta: MetaPage) -> Self {
        let (next, starts, slots, elements, owners) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { meta, next, starts, slots, elements, live: Bits::default(), owners }
    }

    /// Begins a block: what is added until the next call is on it. `next` is the block after it in the chain. Blocks
    /// come in order, but some may be missing.
    pub(super) fn start_block(&mut self, block: u32, next: u32, memory: &mut Memory) -> Result<(), TooLarge> {
        while self.next.len() <= block as usize {
            memory.push(&mut self.next, (NONE, false))?;
            memory.push(&mut self.starts, self.slots.len() as u32)?;
        }
        self.next[block as usize] = (next, true);
        Ok(())
    }

    pub(super) fn add_element(&mut self, element: Element, live: bool, memory: &mut Memory) -> Result<(), TooLarge> {
        // 2^31 elements need a file of at least 200 GiB; later ones are not kept.
        let number = self.elements.len() as u32;
        if number >= NEIGHBOR {
            return self.add_unreadable(memory);
        }
        self.add_slot(number, live, memory)?;
        memory.push(&mut self.elements, element)
    }

    pub(super) fn add_neighbor(&mut self, memory: &mut Memory) -> Result<(), TooLarge> {
        let number = self.owners.len() as u32;
        if number >= NEIGHBOR - 1 {
            return self.add_unreadable(memory);
        }
        self.add_slot(NEIGHBOR | number, false, memory)?;
        memory.push(&mut self.owners, NONE)
    }

    pub(super) fn add_unreadable(&mut self, memory: &mut Memory) -> Result<(), TooLarge> {
        self.add_slot(NONE, false, memory)
    }

    fn add_slot(&mut self, slot: u32, live: bool, memory: &mut Memory) -> Result<(), TooLarge> {
        memory.push_bit(&mut self.live, self.slots.len(), live)?;
        memory.push(&mut self.slots, slot)
    }

    /// The number of blocks up to the last that has a page.
    pub(super) fn blocks(&self) -> usize {
        self.next.len()
    }

    /// The block that follows a data page in the chain; `None` if there is no such page.
    pub(super) fn next(&self, block: u32) -> Option<u32> {
        self.next.get(block as usize).and_then(|&(next, is_page)| is_page.then_some(next))
    }

    /// The number of line pointers of all blocks.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The line pointers of a block, as places in `slots`.
    fn slots_of(&self, block: usize) -> Option<Range<usize>> {
        let start = *self.starts.get(block)? as usize;
        let end = self.starts.get(block + 1).map_or(self.slots.len(), |&end| end as usize);
        Some(start..end)
    }

    /// The place of a TID in `slots`.
    pub(super) fn place(&self, tid: Tid) -> Option<usize> {
        let slots = self.slots_of(tid.block as usize)?;
        let place = slots.start + usize::from(tid.offset).checked_sub(1)?;
        slots.contains(&place).then_some(place)
    }

    /// What a TID refers to.
    fn slot(&self, tid: Tid) -> Option<Slot> {
        match self.slots[self.place(tid)?] {
            NONE => None,
            slot if slot & NEIGHBOR == 0 => Some(Slot::Element(slot)),
            slot => Some(Slot::Neighbor(slot & !NEIGHBOR)),
        }
    }

    /// The number of an element.
    pub(super) fn number(&self, tid: Tid) -> Option<u32> {
        match self.slot(tid)? {
            Slot::Element(number) => Some(number),
            Slot::Neighbor(_) => None,
        }
    }

    /// Whether a live element of a level of at least `layer` is at this place in `slots`.
    pub(super) fn place_is_on(&self, place: usize, layer: u8) -> bool {
        // Only elements are live.
        self.live.is_set(place) && (layer == 0 || self.elements[self.slots[place] as usize].level >= layer)
    }

    /// Whether a TID is that of a live element of a level of at least `layer`.
    pub(super) fn is_on(&self, tid: Tid, layer: u8) -> bool {
        self.place(tid).is_some_and(|place| self.place_is_on(place, layer))
    }

    pub(super) fn is_live(&self, element: &Element) -> bool {
        self.is_on(element.tid(), 0)
    }

    /// The element that a neighbor tuple belongs to.
    pub(super) fn owner(&self, neighbor: Tid) -> Option<(u32, &Element)> {
        let Some(Slot::Neighbor(number)) = self.slot(neighbor) else { return None };
        let owner = self.owners[number as usize];
        self.elements.get(owner as usize).map(|element| (owner, element))
    }

    /// The entry point, if it is a live element of the level that the meta page gives.
    pub(super) fn entry(&self) -> Option<&Element> {
        let element = &self.elements[self.number(self.meta.entry)? as usize];
        (self.is_live(element) && i16::from(element.level) == self.meta.entry_level).then_some(element)
    }

    /// Assigns every neighbor tuple to its element: exactly one, on the same or a lower block.
    pub(super) fn assign_neighbors(&mut self, source: &mut dyn PageSource, report: &mut Report) {
        for number in 0..self.elements.len() {
            if number.is_multiple_of(PAUSE) {
                source.pause();
            }
            let (tid, neighbor) = (self.elements[number].tid(), self.elements[number].neighbor());
            let Some(Slot::Neighbor(at)) = self.slot(neighbor) else {
                report.errors.push(format_args!("element {tid}: {neighbor} is not a neighbor tuple"));
                continue;
            };
            if neighbor.block < tid.block {
                // VACUUM locks the element's page, then the neighbors' page: the opposite order can deadlock.
                report.errors.push(format_args!("element {tid}: neighbor tuple {neighbor} is on a lower block"));
            }
            report.neighbors_elsewhere += u64::from(neighbor.block != tid.block);
            let owner = &mut self.owners[at as usize];
            if *owner == NONE {
                *owner = number as u32;
            } else {
                report.errors.push(format_args!("element {tid}: neighbor tuple {neighbor} belongs to another element"));
            }
        }
        for block in 0..self.blocks() {
            if block.is_multiple_of(PAUSE) {
                source.pause();
            }
            let slots = self.slots_of(block).unwrap_or_default();
            for (offset, &slot) in (1..).zip(&self.slots[slots]) {
                if slot != NONE && slot & NEIGHBOR != 0 && self.owners[(slot & !NEIGHBOR) as usize] == NONE {
                    let tid = Tid::new(block as u32, offset);
                    report.errors.push(format_args!("neighbor tuple {tid}: belongs to no element"));
                }
            }
        }
    }
}
