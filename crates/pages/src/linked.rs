use pgvector::ValueType;

use crate::{Datum, ElementTuple, MetaPage, NO_BLOCK, NeighborTuple, Page, PageBytes, Tid, Tuple};

/// The place of an element in use.
#[derive(Clone, Copy, Debug)]
struct Place {
    block: u32,
    offset: u16,
    /// Whether it has rows.
    rows: bool,
}

/// The graph of an index whose pages are in memory, for searches. Elements in use are numbered from 0, in the order of their TIDs.
///
/// Links are read from the pages on each call. Invalid tuples are skipped; [`crate::verify`] reports them.
#[derive(Debug)]
pub struct Linked<'a> {
    pages: &'a [PageBytes],
    meta: MetaPage,
    value_type: ValueType,
    places: Vec<Place>,
    /// By block: the number of its first element.
    starts: Vec<u32>,
}

impl<'a> Linked<'a> {
    /// The most memory in bytes for this many elements and blocks, without the pages.
    #[must_use]
    pub fn bytes(elements: u64, blocks: u32) -> u64 {
        // A vector that grows may have twice the capacity that it needs.
        elements.saturating_mul(2 * size_of::<Place>() as u64).saturating_add(u64::from(blocks) * 4)
    }

    /// Finds the elements. `None` without a meta page.
    #[must_use]
    pub fn new(pages: &'a [PageBytes], value_type: ValueType) -> Option<Self> {
        let meta = MetaPage::parse(&Page::parse(0, pages.first()?).ok()?).ok()?;
        let mut linked =
            Self { pages, meta, value_type, places: Vec::new(), starts: Vec::with_capacity(pages.len() + 1) };
        for block in 0..u32::try_from(pages.len()).unwrap_or(NO_BLOCK) {
            linked.starts.push(linked.places.len() as u32);
            let Some(page) = linked.page(block).filter(|_| block > 0) else { continue };
            for item in page.items().filter_map(Result::ok) {
                if let Ok(Tuple::Element(element)) = Tuple::parse(&item)
                    && element.deleted() == 0
                {
                    let rows = element.heap_tids()[0].is_valid();
                    linked.places.push(Place { block, offset: item.tid.offset, rows });
                }
            }
        }
        linked.starts.push(linked.places.len() as u32);
        Some(linked)
    }

    /// The number of elements in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The entry point of searches, and its level.
    #[must_use]
    pub fn entry(&self) -> Option<(u32, u8)> {
        let number = self.number(self.meta.entry)?;
        Some((number, u8::try_from(self.meta.entry_level).ok()?))
    }

    /// Whether an element has rows: without rows it takes part in searches, but is no result.
    #[must_use]
    pub fn has_rows(&self, element: u32) -> bool {
        self.places.get(element as usize).is_some_and(|place| place.rows)
    }

    /// The value of an element in the encoding of distance kernels, in two parts as in [`Datum::value`].
    #[must_use]
    pub fn value(&self, element: u32) -> Option<[&'a [u8]; 2]> {
        let tuple = self.tuple(element)?;
        let datum = Datum::parse(self.value_type, self.meta.dims, tuple.tid(), tuple.data()).ok()?;
        Some(datum.value)
    }

    /// The neighbors of an element on a layer.
    pub fn neighbors(&self, element: u32, layer: u8) -> impl Iterator<Item = u32> {
        let list = self.list(element).filter(|&(_, level)| layer <= level);
        let slots = list.into_iter().flat_map(move |(list, level)| list.on_layer(layer, level, self.meta.m));
        slots.take_while(|slot| slot.is_valid()).filter_map(|slot| self.number(slot))
    }

    /// The neighbor tuple of an element, if its version is the element's, and the element's level.
    fn list(&self, element: u32) -> Option<(NeighborTuple<'a>, u8)> {
        let tuple = self.tuple(element)?;
        let tid = tuple.neighbor_tid();
        let item = self.page(tid.block)?.item(tid.offset)?;
        match Tuple::parse(&item).ok()? {
            Tuple::Neighbor(list) if list.version() == tuple.version() => Some((list, tuple.level())),
            _ => None,
        }
    }

    fn tuple(&self, element: u32) -> Option<ElementTuple<'a>> {
        let place = self.places.get(element as usize)?;
        match Tuple::parse(&self.page(place.block)?.item(place.offset)?).ok()? {
            Tuple::Element(tuple) => Some(tuple),
            Tuple::Neighbor(_) => None,
        }
    }

    fn page(&self, block: u32) -> Option<Page<'a>> {
        Page::parse(block, self.pages.get(block as usize)?).ok()
    }

    fn number(&self, tid: Tid) -> Option<u32> {
        let block = tid.block as usize;
        let (start, end) = (*self.starts.get(block)?, *self.starts.get(block + 1)?);
        let places = &self.places[start as usize..end as usize];
        let at = places.binary_search_by_key(&tid.offset, |place| place.offset).ok()?;
        Some(start + at as u32)
    }
}
