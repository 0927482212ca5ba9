use std::ops::RangeInclusive;

use pgvector::{EF_CONSTRUCTION_RANGE, M_RANGE, ValueType};

use crate::format::{
    META_DIMS, META_EF_CONSTRUCTION, META_ENTRY_BLOCK, META_ENTRY_LEVEL, META_ENTRY_OFFSET, META_INSERT_PAGE,
    META_LOWER, META_M, META_MAGIC, META_MAGIC_AT, META_VERSION, META_VERSION_AT, SPECIAL, put, read_u16, read_u32,
};
use crate::page::Page;
use crate::{MetaError, NO_BLOCK, PageBytes, PageError, Tid, compose};

/// The parameters of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexMeta {
    /// The type of the indexed column.
    pub value_type: ValueType,
    /// Its dimensions.
    pub dims: u32,
    /// Neighbors per element on layers above 0; layer 0 has twice as many.
    pub m: u16,
    /// The `ef_construction` of the build; pgvector never reads it from the meta page.
    pub ef_construction: u16,
}

impl IndexMeta {
    /// Checks every parameter against pgvector's limits.
    ///
    /// # Errors
    /// [`MetaError`] names the first parameter that is out of bounds.
    pub fn check(&self) -> Result<(), MetaError> {
        let within = |what, found: u32, min: u32, max: u32| {
            let error = MetaError { what, found: found.into(), min: min.into(), max: max.into() };
            if (min..=max).contains(&found) { Ok(()) } else { Err(error) }
        };
        let within_range = |what, found: u16, range: RangeInclusive<u16>| {
            within(what, found.into(), (*range.start()).into(), (*range.end()).into())
        };
        within("dims", self.dims, 1, self.value_type.max_dims())?;
        within_range("m", self.m, M_RANGE)?;
        within_range("ef_construction", self.ef_construction, EF_CONSTRUCTION_RANGE)
    }
}

/// The contents of block 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaPage {
    /// Marks an HNSW index.
    pub magic: u32,
    /// 1 in all releases.
    pub version: u32,
    /// Dimensions of the column.
    pub dims: u32,
    /// Neighbors per element on layers above 0.
    pub m: u16,
    /// The `ef_construction` of the build; pgvector never reads it.
    pub ef_construction: u16,
    /// The entry point's element tuple; block [`NO_BLOCK`] if there is none.
    pub entry: Tid,
    /// The entry point's level; -1 if there is none.
    pub entry_level: i16,
    /// The data page where inserts begin to look for free space.
    pub insert_page: u32,
}

impl MetaPage {
    /// The contents for an index with this entry point (its place and its level).
    #[must_use]
    pub fn new(meta: &IndexMeta, entry: Option<(Tid, u8)>, insert_page: u32) -> Self {
        let (entry, entry_level) = entry.map_or((Tid::INVALID, -1), |(tid, level)| (tid, i16::from(level)));
        Self {
            magic: META_MAGIC,
            version: META_VERSION,
            dims: meta.dims,
            m: meta.m,
            ef_construction: meta.ef_construction,
            entry,
            entry_level,
            insert_page,
        }
    }

    /// Reads the fields of block 0, whose header has been checked.
    ///
    /// # Errors
    /// The magic number is not that of an HNSW index.
    pub fn parse(page: &Page<'_>) -> Result<Self, PageError> {
        let bytes = page.bytes();
        let meta = Self {
            magic: read_u32(bytes, META_MAGIC_AT),
            version: read_u32(bytes, META_VERSION_AT),
            dims: read_u32(bytes, META_DIMS),
            m: read_u16(bytes, META_M),
            ef_construction: read_u16(bytes, META_EF_CONSTRUCTION),
            entry: Tid::new(read_u32(bytes, META_ENTRY_BLOCK), read_u16(bytes, META_ENTRY_OFFSET)),
            entry_level: read_u16(bytes, META_ENTRY_LEVEL).cast_signed(),
            insert_page: read_u32(bytes, META_INSERT_PAGE),
        };
        if meta.magic != META_MAGIC {
            let block = page.block();
            return Err(PageError::Field { block, field: "magic number", found: meta.magic, expected: META_MAGIC });
        }
        Ok(meta)
    }

    /// Fills `page` with block 0.
    pub fn write(&self, page: &mut PageBytes) {
        page.fill(0);
        put(page, META_MAGIC_AT, &self.magic.to_le_bytes());
        put(page, META_VERSION_AT, &self.version.to_le_bytes());
        put(page, META_DIMS, &self.dims.to_le_bytes());
        put(page, META_M, &self.m.to_le_bytes());
        put(page, META_EF_CONSTRUCTION, &self.ef_construction.to_le_bytes());
        put(page, META_ENTRY_BLOCK, &self.entry.block.to_le_bytes());
        put(page, META_ENTRY_OFFSET, &self.entry.offset.to_le_bytes());
        put(page, META_ENTRY_LEVEL, &self.entry_level.to_le_bytes());
        put(page, META_INSERT_PAGE, &self.insert_page.to_le_bytes());
        compose::frame(page, META_LOWER, SPECIAL, NO_BLOCK);
    }
}
