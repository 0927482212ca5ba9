mod data_page;
mod error;
mod levels;
mod outstanding;
mod targets;

use pgvector::{HEAP_TIDS_PER_ELEMENT, max_level};

use crate::datum::datum_len;
use crate::format::{
    LINE_POINTER_LEN, MAX_ELEMENTS_PER_PAGE, PAGE_SIZE, PAGE_SPACE, element_len, neighbor_count, neighbor_len,
};
use crate::incoming::{
    levels::Levels,
    outstanding::{Outstanding, Owner},
    targets::Targets,
};
use crate::{IndexMeta, MetaPage, Page, PageBytes, RowDigest, Tid};

pub use error::IncomingError;

/// The index that is expected from a builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingSpec {
    /// The parameters of the index.
    pub meta: IndexMeta,
    /// Rows sent to the builder, which must announce the same number.
    pub rows: u64,
    /// Elements announced; each has one or more rows.
    pub elements: u64,
    /// Blocks announced, including the meta page.
    pub blocks: u32,
}

/// The most blocks that an honest index of this many elements takes, including the meta page.
///
/// Element pages are full of values of one size; for types of varying size, one element per page is assumed. Neighbor tuples
/// have the sizes that randomly drawn levels give in all but improbable cases, and each of their pages is so full that the
/// first tuple of the next page does not fit.
#[must_use]
pub fn max_blocks(meta: &IndexMeta, elements: u64) -> u64 {
    let per_page = meta
        .value_type
        .value_len(meta.dims)
        .map_or(1, |value_len| PAGE_SPACE / (element_len(datum_len(meta.value_type, value_len)) + LINE_POINTER_LEN));
    let element_pages = elements.div_ceil(per_page.max(1) as u64);
    let pages = element_pages.saturating_add(max_neighbor_pages(&Levels::new(meta.m, elements), meta.m, elements));
    pages.max(1).saturating_add(1)
}

/// The most pages that hold neighbor tuples only: the lesser of two bounds, one with sizes in bytes, one in units of a tuple of
/// level 0.
fn max_neighbor_pages(levels: &Levels, m: u16, elements: u64) -> u64 {
    let size = |level: u8| (neighbor_len(neighbor_count(level, m)) + LINE_POINTER_LEN) as u64;
    let (lowest, space) = (size(0), PAGE_SPACE as u64);
    let in_bytes = pages_of(levels, elements, lowest, space + 1 - lowest, size);
    let in_tuples = pages_of(levels, elements, 1, space / lowest, |level| size(level).div_ceil(lowest));
    in_bytes.min(in_tuples).min(elements)
}

/// The most pages for tuples whose size depends on their level; `lowest` is the size at level 0. Each page is filled up to at
/// least `filled`, provided that the next page begins with a tuple of level 0.
fn pages_of(levels: &Levels, elements: u64, lowest: u64, filled: u64, size: impl Fn(u8) -> u64) -> u64 {
    // By how much the longest `pages` tuples exceed the size at level 0, in all.
    let longer = |pages: u64| {
        let layers = (1..)
            .zip(levels.most())
            .map(|(level, &most)| most.min(pages).saturating_mul(size(level) - size(level - 1)));
        layers.fold(0, u64::saturating_add)
    };
    let all = elements.saturating_mul(lowest).saturating_add(longer(u64::MAX));
    // A page leaves more unused only where the next one begins with a longer tuple, and then at most by that tuple's excess. In
    // the worst case those are the longest tuples.
    let pages = |unused: u64| all.saturating_add(unused) / filled.max(1) + 1;
    pages(longer(pages(longer(u64::MAX))))
}

/// Checks the pages of a builder that is not trusted, one by one in block order, before they are stored.
///
/// A page that passes cannot make pgvector read or write out of bounds, loop or lock pages in the wrong order. Every byte must
/// be as [`crate::PageWriter`] writes it, except for neighbors, which may be any other element, and the entry point, which may
/// be any element of the highest level. The distribution of levels is checked, so that a malicious builder cannot make an index
/// larger than an honest one. Recall is not checked. Rows and values are checked at the end, by [`RowDigest`].
///
/// Takes 2 bytes per page and 8 to 16 per element whose neighbors are on a later page.
#[derive(Debug)]
pub struct IncomingVerifier {
    spec: IncomingSpec,
    digest: RowDigest,
    next_block: u32,
    elements: u64,
    /// The entry point and its level from the meta page, until its element has come.
    entry: Option<(Tid, u8)>,
    entry_level: u8,
    levels: Levels,
    targets: Targets,
    outstanding: Outstanding,
    /// Free bytes that the last page has left for more tuples of its kind.
    room: usize,
    /// Scratch for one neighbor list.
    list: Vec<Tid>,
    /// Scratch: the elements of a page, and whether they place their neighbor tuple on the same page.
    placed: Vec<(Owner, bool)>,
    refused: bool,
}

impl IncomingVerifier {
    /// The most bytes that a verifier takes for an index of these `elements` and `blocks`: 2 for each block, and 16 for each
    /// element, as a queue of 8 bytes per element may have twice the capacity that it needs.
    pub(crate) fn most_memory_bytes(elements: u64, blocks: u64) -> u64 {
        let queue = 2 * elements.saturating_mul(Outstanding::BYTES_PER_ELEMENT);
        queue.saturating_add(blocks.saturating_mul(Targets::BYTES_PER_BLOCK))
    }

    /// Checks the announced numbers. `key` is that of the [`RowDigest`] of the rows sent.
    ///
    /// # Errors
    /// Parameters or announced numbers that are impossible, or too little memory.
    pub fn new(spec: IncomingSpec, key: [u64; 4]) -> Result<Self, IncomingError> {
        spec.meta.check()?;
        let announced = |what, found, min, max| {
            let error = IncomingError::Announced { what, found, min, max };
            if (min..=max).contains(&found) { Ok(()) } else { Err(error) }
        };
        let max_rows = HEAP_TIDS_PER_ELEMENT as u64;
        announced("elements", spec.elements, spec.rows.div_ceil(max_rows), spec.rows.min(u32::MAX.into()))?;
        announced("blocks", spec.blocks.into(), 2, max_blocks(&spec.meta, spec.elements))?;
        Ok(Self {
            spec,
            digest: RowDigest::new(key),
            next_block: 0,
            elements: 0,
            entry: None,
            entry_level: 0,
            levels: Levels::new(spec.meta.m, spec.elements),
            targets: Targets::new(spec.blocks)?,
            outstanding: Outstanding::default(),
            room: 0,
            list: Vec::with_capacity(2 * usize::from(spec.meta.m)),
            placed: Vec::with_capacity(MAX_ELEMENTS_PER_PAGE),
            refused: false,
        })
    }

    /// Checks the next page.
    ///
    /// # Errors
    /// The first rule that is broken. The page must not be stored; all later pages are refused, too.
    pub fn page(&mut self, block: u32, bytes: &PageBytes) -> Result<(), IncomingError> {
        if std::mem::replace(&mut self.refused, true) {
            return Err(IncomingError::Refused);
        }
        if block != self.next_block || block >= self.spec.blocks {
            return Err(IncomingError::Block { found: block, expected: self.next_block, blocks: self.spec.blocks });
        }
        let page = Page::parse(block, bytes)?;
        if block == 0 {
            self.meta_page(&page)?;
        } else {
            self.data_page(&page)?;
        }
        self.next_block += 1;
        self.refused = false;
        Ok(())
    }

    /// Ends the index: checks the totals, and that the rows in the index are those that were sent.
    ///
    /// # Errors
    /// Missing pages, other numbers than announced, or lost, repeated or altered rows.
    pub fn finish(self, sent: RowDigest) -> Result<(), IncomingError> {
        if self.refused {
            return Err(IncomingError::Refused);
        }
        let total = |what, found, expected| {
            if found == expected { Ok(()) } else { Err(IncomingError::Total { what, found, expected }) }
        };
        total("blocks", self.next_block.into(), self.spec.blocks.into())?;
        total("elements", self.elements, self.spec.elements)?;
        total("rows", self.digest.rows(), self.spec.rows)?;
        total("neighbor tuples", self.elements - self.outstanding.len() as u64, self.elements)?;
        if self.digest == sent { Ok(()) } else { Err(IncomingError::Rows) }
    }

    fn meta_page(&mut self, page: &Page<'_>) -> Result<(), IncomingError> {
        let found = MetaPage::parse(page)?;
        let level = u8::try_from(found.entry_level).ok();
        let Tid { block, offset } = found.entry;
        let plausible = (1..self.spec.blocks).contains(&block)
            && (1..=MAX_ELEMENTS_PER_PAGE).contains(&usize::from(offset))
            && level.is_some_and(|level| level <= max_level(self.spec.meta.m));
        if self.spec.elements > 0 && !plausible {
            return Err(IncomingError::Frame { block: 0, problem: "the entry point cannot be an element" });
        }
        let entry = level.filter(|_| self.spec.elements > 0).map(|level| (found.entry, level));
        let mut expected = [0; PAGE_SIZE];
        MetaPage::new(&self.spec.meta, entry, self.spec.blocks - 1).write(&mut expected);
        if let Some(at) = (0..PAGE_SIZE).find(|&at| page.bytes()[at] != expected[at]) {
            return Err(IncomingError::MetaPage { at, found: page.bytes()[at], expected: expected[at] });
        }
        self.entry = entry;
        self.entry_level = level.unwrap_or_default();
        Ok(())
    }
}
