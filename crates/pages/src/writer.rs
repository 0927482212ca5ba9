use graph::{ElementValues, Graph};
use pgvector::HEAP_TIDS_PER_ELEMENT;

use crate::compose::Composer;
use crate::datum::{datum_len, write_datum};
use crate::format::{
    ELEMENT_DATUM, ELEMENT_HEAP_TIDS, ELEMENT_NEIGHBOR_TID, ELEMENT_TYPE, NEIGHBOR_TIDS, NEIGHBOR_TYPE, TID_LEN,
    TUPLE_VERSION, element_len, neighbor_count, neighbor_len, put,
};
use crate::{Layout, MetaPage, NO_BLOCK, PageBytes, Tid};

/// Writes the pages of an index, in any order and from any number of threads.
#[derive(Clone, Copy)]
pub struct PageWriter<'a> {
    graph: &'a Graph,
    values: &'a dyn ElementValues,
    layout: &'a Layout,
}

impl<'a> PageWriter<'a> {
    /// A writer for a graph with its values and its layout.
    #[must_use]
    pub fn new(graph: &'a Graph, values: &'a dyn ElementValues, layout: &'a Layout) -> Self {
        Self { graph, values, layout }
    }

    /// The number of blocks, including the meta page.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.layout.blocks()
    }

    /// Writes a block into `page`, with LSN and checksum 0.
    ///
    /// # Panics
    /// If the index has no such block, or the layout was made from another graph or other values.
    pub fn write_page(&self, block: u32, page: &mut PageBytes) {
        assert!(block < self.blocks(), "block {block} of {}", self.blocks());
        if block == 0 {
            return self.meta_page().write(page);
        }
        let mut composer = Composer::new(page);
        for &element in self.layout.elements_on(block) {
            self.put_element(element, &mut composer);
        }
        for element in self.layout.neighbors_on(block) {
            self.put_neighbors(element, &mut composer);
        }
        composer.finish(if block + 1 == self.blocks() { NO_BLOCK } else { block + 1 });
    }

    fn meta_page(&self) -> MetaPage {
        let entry = self.graph.entry().map(|entry| (self.layout.element(entry), self.graph.level(entry)));
        // Inserts walk the chain from the insert page on; all pages before the last are full.
        MetaPage::new(self.layout.meta(), entry, self.blocks() - 1)
    }

    fn put_element(&self, element: u32, composer: &mut Composer<'_>) {
        let value = self.values.value(element);
        let meta = self.layout.meta();
        let out = composer.add(element_len(datum_len(meta.value_type, value.len())));
        put(out, 0, &[ELEMENT_TYPE, self.graph.level(element), 0, TUPLE_VERSION]);
        let heap_tids = self.graph.heap_tids().of(element);
        for slot in 0..HEAP_TIDS_PER_ELEMENT {
            let tid = heap_tids.get(slot).map_or(Tid::INVALID.to_bytes(), |tid| tid.0);
            put(out, ELEMENT_HEAP_TIDS + TID_LEN * slot, &tid);
        }
        put(out, ELEMENT_NEIGHBOR_TID, &self.layout.neighbor(element).to_bytes());
        write_datum(meta, value, &mut out[ELEMENT_DATUM..]);
    }

    fn put_neighbors(&self, element: u32, composer: &mut Composer<'_>) {
        let level = self.graph.level(element);
        let count = neighbor_count(level, self.graph.m());
        let out = composer.add(neighbor_len(count));
        put(out, 0, &[NEIGHBOR_TYPE, TUPLE_VERSION]);
        put(out, 2, &(count as u16).to_le_bytes());
        let slots = (0..=level).rev().flat_map(|layer| {
            let (slots, used) = (self.graph.slots(element, layer).len(), self.graph.neighbors(element, layer));
            let unused = std::iter::repeat_n(Tid::INVALID, slots - used.len());
            used.iter().map(|&neighbor| self.layout.element(neighbor)).chain(unused)
        });
        for (slot, tid) in slots.enumerate() {
            put(out, NEIGHBOR_TIDS + TID_LEN * slot, &tid.to_bytes());
        }
    }
}
