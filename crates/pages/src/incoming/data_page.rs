use std::collections::VecDeque;

use pgvector::{HEAP_TIDS_PER_ELEMENT, max_level};

use crate::format::{
    ELEMENT_DATUM, LINE_POINTER_LEN, PAGE_SPACE, SPECIAL, TUPLE_VERSION, element_len, is_zero, neighbor_count,
    neighbor_len,
};
use crate::incoming::{IncomingError, IncomingVerifier, outstanding::Owner};
use crate::{Datum, ElementTuple, Item, NO_BLOCK, NeighborTuple, Page, Tid, Tuple};

/// Neighbor tuples expected on the page of their elements: offset and owner.
type Inline = VecDeque<(u16, Owner)>;

fn require(holds: bool, tid: Tid, problem: &'static str) -> Result<(), IncomingError> {
    if holds { Ok(()) } else { Err(IncomingError::Tuple { tid, problem }) }
}

/// An entry that occurs twice, if any.
fn repeated(list: &mut [Tid]) -> Option<Tid> {
    // Fast path: a filter of 4,096 bits mostly shows that all entries differ.
    let mut seen = [0u64; 64];
    let mut bit = |tid: &Tid| {
        let at = tid.block as usize * 8 + usize::from(tid.offset);
        let word = &mut seen[at / 64 % 64];
        let before = *word;
        *word |= 1 << (at % 64);
        *word == before
    };
    if !list.iter().any(&mut bit) {
        return None;
    }
    list.sort_unstable();
    list.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

impl IncomingVerifier {
    pub(super) fn data_page(&mut self, page: &Page<'_>) -> Result<(), IncomingError> {
        let block = page.block();
        let frame = |holds, problem| if holds { Ok(()) } else { Err(IncomingError::Frame { block, problem }) };
        let header = page.header();
        let blank = header.lsn == 0 && header.checksum == 0 && header.flags == 0 && header.prune_xid == 0;
        frame(blank && page.unused() == 0, "header fields that must be 0")?;
        let next = if block == self.spec.blocks - 1 { NO_BLOCK } else { block + 1 };
        frame(page.next() == next, "the next block is not the one after it")?;
        frame(is_zero(page.hole()), "bytes between line pointers and tuples")?;
        frame(header.lower.is_multiple_of(LINE_POINTER_LEN as u16), "half a line pointer")?;
        frame(page.item_count() > 0 || self.spec.elements == 0, "no tuple")?;

        let mut inline = Inline::new();
        self.placed.clear();
        let mut elements = 0;
        let mut only_neighbors = false;
        let mut top = SPECIAL;
        let mut element_room = PAGE_SPACE;
        for item in page.items() {
            let item = item?;
            require(item.start + item.bytes.len() == top, item.tid, "gap between tuples")?;
            top = item.start;
            match Tuple::parse(&item)? {
                Tuple::Element(element) => {
                    require(!only_neighbors, item.tid, "element tuple behind a neighbor tuple")?;
                    self.element(&element, &item, &mut inline)?;
                    elements += 1;
                    element_room -= item.bytes.len() + LINE_POINTER_LEN;
                }
                Tuple::Neighbor(neighbor) => {
                    if !std::mem::replace(&mut only_neighbors, true) {
                        self.elements_end(block, elements, element_room)?;
                    }
                    self.neighbor(&neighbor, elements > 0, &mut inline)?;
                }
            }
        }
        if !only_neighbors {
            self.elements_end(block, elements, element_room)?;
        }
        frame(top == usize::from(header.upper), "gap above the tuples")?;
        frame(inline.is_empty(), "a neighbor tuple is missing")?;
        frame(self.entry.is_none_or(|(tid, _)| tid.block != block), "the entry point is not an element")?;
        self.room = if elements > 0 { element_room } else { page.hole().len() };
        Ok(())
    }

    /// Called when all elements of a page have been read: links to them can be checked now.
    fn elements_end(&mut self, block: u32, elements: u8, mut room: usize) -> Result<(), IncomingError> {
        let frame = |holds, problem| if holds { Ok(()) } else { Err(IncomingError::Frame { block, problem }) };
        // Free space must be used for neighbor tuples: otherwise a malicious builder could inflate the index.
        for &(Owner { tid, level }, inline) in &self.placed {
            let len = neighbor_len(neighbor_count(level, self.spec.meta.m)) + LINE_POINTER_LEN;
            require(inline || len > room, tid, "its page has room for its neighbor tuple")?;
            room = room.saturating_sub(if inline { len } else { 0 });
        }
        if elements > 0 || self.spec.elements == 0 {
            return self.targets.end_block(elements);
        }
        if !self.targets.closed() {
            frame(self.outstanding.first_block() == Some(block), "neighbor tuples begin on another block")?;
            // The page before has elements: its free space does not matter for neighbor tuples.
            self.room = 0;
        }
        self.targets.close()
    }

    fn element(&mut self, tuple: &ElementTuple<'_>, item: &Item<'_>, inline: &mut Inline) -> Result<(), IncomingError> {
        let (tid, level) = (tuple.tid(), tuple.level());
        require(self.elements < self.spec.elements, tid, "more elements than announced")?;
        self.elements += 1;
        require(!self.targets.closed(), tid, "element behind the element pages")?;
        self.require_full_page_before(tid, item.bytes.len())?;
        require(tuple.deleted() == 0, tid, "deleted")?;
        require(tuple.version() == TUPLE_VERSION, tid, "version is not 0")?;
        require(tuple.unused() == 0, tid, "unused field is not 0")?;
        require(level <= max_level(self.spec.meta.m), tid, "level is above the cap")?;
        require(level <= self.entry_level, tid, "level is above the entry point's")?;
        require(self.levels.take(level), tid, "more elements of its level than levels drawn at random give")?;
        if let Some((_, entry_level)) = self.entry.take_if(|(entry, _)| *entry == tid) {
            require(level == entry_level, tid, "level is not the entry point's")?;
        }

        let datum = Datum::parse(self.spec.meta.value_type, self.spec.meta.dims, tid, tuple.data())?;
        let len = element_len(datum.len);
        require(ELEMENT_DATUM + tuple.data().len() == len, tid, "longer than its value")?;
        require(is_zero(&tuple.data()[datum.len..]), tid, "padding is not 0")?;
        let heap_tids = tuple.heap_tids();
        let used = heap_tids.iter().position(|heap_tid| !heap_tid.is_valid()).unwrap_or(HEAP_TIDS_PER_ELEMENT);
        let (used, unused) = heap_tids.split_at(used);
        require(!used.is_empty(), tid, "no heap TID")?;
        let invalid = Tid::INVALID.to_bytes();
        require(unused.iter().all(|heap_tid| heap_tid.0 == invalid), tid, "slots behind the heap TIDs are not empty")?;
        let rows_left = self.spec.rows - self.digest.rows();
        require(used.len() as u64 <= rows_left, tid, "more rows than announced")?;
        used.iter().for_each(|&heap_tid| self.digest.add_parts(heap_tid, datum.value));

        let owner = Owner { tid, level };
        let neighbor = tuple.neighbor_tid();
        require(neighbor.is_valid() && neighbor.block < self.spec.blocks, tid, "neighbor tuple is nowhere")?;
        let is_inline = neighbor.block == tid.block;
        self.placed.push((owner, is_inline));
        if is_inline {
            inline.push_back((neighbor.offset, owner));
            return Ok(());
        }
        self.outstanding.announce(owner, neighbor)
    }

    /// Pages must be full before the next one begins: otherwise a malicious builder could inflate the index.
    fn require_full_page_before(&self, tid: Tid, len: usize) -> Result<(), IncomingError> {
        let fitted = tid.offset == 1 && len + LINE_POINTER_LEN <= self.room;
        require(!fitted, tid, "the page before has room for it")
    }

    fn neighbor(
        &mut self,
        tuple: &NeighborTuple<'_>,
        on_element_page: bool,
        inline: &mut Inline,
    ) -> Result<(), IncomingError> {
        let tid = tuple.tid();
        let owner = if on_element_page {
            let (offset, owner) =
                inline.pop_front().ok_or(IncomingError::Tuple { tid, problem: "belongs to no element" })?;
            require(offset == tid.offset, tid, "is not where its element says")?;
            owner
        } else {
            self.require_full_page_before(tid, tuple.bytes().len())?;
            self.outstanding.take(tid)?
        };
        let count = neighbor_count(owner.level, self.spec.meta.m);
        require(tuple.version() == TUPLE_VERSION, tid, "version is not 0")?;
        require(usize::from(tuple.count()) == count, tid, "count does not fit the level")?;
        require(tuple.bytes().len() == neighbor_len(count), tid, "longer than its slots")?;
        require(is_zero(tuple.padding()), tid, "padding is not 0")?;
        let m = self.spec.meta.m;
        (0..=owner.level).rev().try_for_each(|layer| self.list(owner.tid, layer, tuple.on_layer(layer, owner.level, m)))
    }

    fn list(&mut self, element: Tid, layer: u8, slots: impl Iterator<Item = Tid>) -> Result<(), IncomingError> {
        let refuse = |neighbor, problem| Err(IncomingError::Neighbor { element, layer, neighbor, problem });
        self.list.clear();
        let mut ended = false;
        for slot in slots {
            if slot == Tid::INVALID {
                ended = true;
            } else if ended {
                return refuse(slot, "comes after an unused slot");
            } else if slot == element {
                return refuse(slot, "is the element itself");
            } else if !slot.is_valid() || !self.targets.link(slot) {
                return refuse(slot, "is not an element");
            } else {
                self.list.push(slot);
            }
        }
        // VACUUM searches for new neighbors of every element whose layer-0 list is not full.
        if layer == 0 && ended && self.spec.elements > 2 * u64::from(self.spec.meta.m) {
            return refuse(Tid::INVALID, "leaves the list unfilled");
        }
        repeated(&mut self.list).map_or(Ok(()), |neighbor| refuse(neighbor, "is repeated"))
    }
}

#[cfg(test)]
mod tests {
    use pgvector::ValueType;

    use super::repeated;
    use crate::{IncomingSpec, IncomingVerifier, IndexMeta, Tid};

    #[test]
    fn a_page_is_full_when_the_next_tuple_has_no_room() {
        let meta = IndexMeta { value_type: ValueType::Vector, dims: 3, m: 16, ef_construction: 64 };
        let spec = IncomingSpec { meta, rows: 100, elements: 100, blocks: 3 };
        let mut verifier = IncomingVerifier::new(spec, [1, 2, 3, 4]).unwrap();
        // A tuple of 96 bytes, and its line pointer of four.
        for (room, is_full) in [(0, true), (96, true), (99, true), (100, false), (101, false), (384, false)] {
            verifier.room = room;
            assert_eq!(verifier.require_full_page_before(Tid::new(2, 1), 96).is_ok(), is_full, "{room}");
            assert!(verifier.require_full_page_before(Tid::new(2, 2), 96).is_ok(), "not the first of its page");
        }
    }

    #[test]
    fn repeats_are_found_among_those_that_share_a_bit() {
        // 512 blocks later, and eight offsets in place of a block, the bit is the same.
        let tids = [Tid::new(3, 1), Tid::new(515, 1), Tid::new(2, 9), Tid::new(3, 2)];
        assert_eq!(repeated(&mut tids.clone()), None);
        for tid in tids {
            let mut list = [tids.as_slice(), &[tid]].concat();
            assert_eq!(repeated(&mut list), Some(tid));
        }
    }
}
