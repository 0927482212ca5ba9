use graph::{ElementValues, Graph};

use crate::datum::{datum_len, value_len};
use crate::format::{LINE_POINTER_LEN, PAGE_SPACE, TID_LEN, element_len, neighbor_count, neighbor_len};
use crate::{IndexMeta, LayoutError, NO_BLOCK, Tid};

/// The place of every tuple of an index. Takes 16 bytes per element and 4 per page.
///
/// Element tuples fill pages from block 1, in the given order. The free space of such a page takes neighbor tuples of its own
/// elements, as many as fit; the others fill the pages that follow, in the order of their elements. So elements that are close
/// in the order share pages, which searches read together, and no neighbor tuple lies on a lower block than its element:
/// pgvector's VACUUM locks pages in that order.
#[derive(Debug)]
pub struct Layout {
    meta: IndexMeta,
    order: Box<[u32]>,
    /// By element, as six bytes each: a [`Tid`] takes eight.
    elements: Box<[[u8; TID_LEN]]>,
    neighbors: Box<[[u8; TID_LEN]]>,
    /// For each data page, the position in `order` of its first element or, on pages of neighbor tuples only, of the first
    /// element whose neighbors it has.
    page_starts: Vec<u32>,
    element_blocks: u32,
}

impl Layout {
    /// Assigns every tuple its place.
    ///
    /// `order` has every element once. Searches read fewer pages if linked elements are close in it.
    ///
    /// # Errors
    /// Parameters outside pgvector's limits or with another `m` than the graph, an order that is not a permutation, values
    /// whose length is not that of their type, or an index larger than a relation can be.
    pub fn new(
        graph: &Graph,
        values: &dyn ElementValues,
        order: &[u32],
        meta: &IndexMeta,
    ) -> Result<Self, LayoutError> {
        meta.check()?;
        if meta.m != graph.m() {
            return Err(LayoutError::M { graph: graph.m(), index: meta.m });
        }
        let not_a_permutation = LayoutError::Order { found: order.len(), expected: graph.len() };
        if order.len() != graph.len() {
            return Err(not_a_permutation);
        }
        let mut layout = Self {
            meta: *meta,
            order: order.into(),
            elements: vec![Tid::INVALID.to_bytes(); graph.len()].into(),
            neighbors: vec![Tid::INVALID.to_bytes(); graph.len()].into(),
            page_starts: Vec::new(),
            element_blocks: 0,
        };
        let mut filler = Filler { block: 0, offset: 0, free: 0 };
        let mut page_start = 0;
        for (position, &element) in order.iter().enumerate() {
            if layout.elements.get(element as usize).is_none_or(|&tid| Tid::from_bytes(tid).is_valid()) {
                return Err(not_a_permutation);
            }
            let len = layout.element_len(values, element)?;
            if !filler.fits(len) {
                layout.place_inline(graph, &mut filler, page_start..position);
                layout.start_page(&mut filler, position)?;
                page_start = position;
            }
            layout.elements[element as usize] = filler.place(element, len)?.to_bytes();
        }
        layout.place_inline(graph, &mut filler, page_start..order.len());
        layout.element_blocks = filler.block;
        filler.free = 0;
        for (position, &element) in order.iter().enumerate() {
            if layout.neighbor(element).is_valid() {
                continue;
            }
            let len = neighbor_len(neighbor_count(graph.level(element), meta.m));
            if !filler.fits(len) {
                layout.start_page(&mut filler, position)?;
            }
            layout.neighbors[element as usize] = filler.place(element, len)?.to_bytes();
        }
        if graph.is_empty() {
            // pgvector's inserts need a first data page.
            layout.start_page(&mut filler, 0)?;
            layout.element_blocks = 1;
        }
        Ok(layout)
    }

    fn element_len(&self, values: &dyn ElementValues, element: u32) -> Result<usize, LayoutError> {
        let value = values.value(element);
        let expected = value_len(&self.meta, value);
        if value.len() != expected {
            return Err(LayoutError::Value { element, found: value.len(), expected });
        }
        Ok(element_len(datum_len(self.meta.value_type, expected)))
    }

    fn start_page(&mut self, filler: &mut Filler, position: usize) -> Result<(), LayoutError> {
        let position = u32::try_from(position).map_err(|_| LayoutError::TooManyBlocks)?;
        self.page_starts.push(position);
        filler.next_page()
    }

    /// Places neighbor tuples of a page's elements in its free space.
    fn place_inline(&mut self, graph: &Graph, filler: &mut Filler, positions: std::ops::Range<usize>) {
        for position in positions {
            let element = self.order[position];
            let len = neighbor_len(neighbor_count(graph.level(element), self.meta.m));
            if let Some(tid) = filler.fits(len).then(|| filler.place(element, len)).and_then(Result::ok) {
                self.neighbors[element as usize] = tid.to_bytes();
            }
        }
    }

    /// The parameters of the index.
    #[must_use]
    pub fn meta(&self) -> &IndexMeta {
        &self.meta
    }

    /// The number of blocks, including the meta page: at least 2.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.page_starts.len() as u32 + 1
    }

    /// The number of elements.
    #[must_use]
    pub fn elements(&self) -> u32 {
        self.order.len() as u32
    }

    /// The place of an element's tuple.
    #[must_use]
    pub fn element(&self, element: u32) -> Tid {
        Tid::from_bytes(self.elements[element as usize])
    }

    /// The place of an element's neighbor tuple.
    #[must_use]
    pub fn neighbor(&self, element: u32) -> Tid {
        Tid::from_bytes(self.neighbors[element as usize])
    }

    /// The elements whose tuples are on a data page, in the order of their offsets.
    pub(crate) fn elements_on(&self, block: u32) -> &[u32] {
        if block > self.element_blocks {
            return &[];
        }
        let start = self.page_starts[block as usize - 1] as usize;
        if block == self.element_blocks {
            return &self.order[start..];
        }
        &self.order[start..self.page_starts[block as usize] as usize]
    }

    /// The elements whose neighbor tuples are on a data page, in the order of their offsets.
    pub(crate) fn neighbors_on(&self, block: u32) -> impl Iterator<Item = u32> {
        let candidates = if block > self.element_blocks {
            &self.order[self.page_starts[block as usize - 1] as usize..]
        } else {
            self.elements_on(block)
        };
        // On later pages, neighbor tuples are in the order of their elements, without those that are on element pages.
        let inline = block <= self.element_blocks;
        let tids = candidates.iter().map(|&element| (element, self.neighbor(element).block));
        tids.take_while(move |&(_, at)| inline || at <= block)
            .filter(move |&(_, at)| at == block)
            .map(|(element, _)| element)
    }
}

/// The page being filled.
struct Filler {
    block: u32,
    offset: u16,
    free: usize,
}

impl Filler {
    fn fits(&self, len: usize) -> bool {
        len + LINE_POINTER_LEN <= self.free
    }

    fn place(&mut self, element: u32, len: usize) -> Result<Tid, LayoutError> {
        let taken = len + LINE_POINTER_LEN;
        self.free = self.free.checked_sub(taken).ok_or(LayoutError::TooLarge { element, len })?;
        self.offset += 1;
        Ok(Tid::new(self.block, self.offset))
    }

    fn next_page(&mut self) -> Result<(), LayoutError> {
        let next = self.block.checked_add(1).filter(|&block| block != NO_BLOCK);
        *self = Self { block: next.ok_or(LayoutError::TooManyBlocks)?, offset: 0, free: PAGE_SPACE };
        Ok(())
    }
}
