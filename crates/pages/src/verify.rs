mod chain;
mod index;
mod lists;
mod memory;
mod reach;
mod report;
mod scan;

use std::ops::Range;

use pgvector::ValueType;

use crate::verify::index::Index;
use crate::verify::memory::Memory;
use crate::{KeptNeighbors, NeighborSource, PageSource};

pub use lists::Lists;
pub use memory::TooLarge;
pub use reach::Reach;
pub use report::{LayerReport, Problems, Report};

/// Work that reads no pages calls [`PageSource::pause`] after this many steps: some milliseconds.
const PAUSE: usize = 1 << 14;

/// Reads a whole index and checks every rule that pgvector relies on, from page headers to reachability.
///
/// Errors make pgvector misbehave; warnings are legal but unusual or harmful. Indexes of every release of pgvector pass, also
/// after inserts and VACUUM. All pages are read twice, in block order, and those with neighbor tuples several times more.
/// Memory depends on the content of the pages: about 36 bytes per element with one row, 8 per further row and 12 per block.
///
/// `value_type` is that of the indexed column; the file does not name it. Without it the first value decides.
pub fn verify(source: &mut dyn PageSource, value_type: Option<ValueType>) -> Report {
    let blocks = source.blocks();
    verify_within(source, value_type, u64::MAX).unwrap_or_else(|error| {
        let mut report = Report { blocks, ..Report::default() };
        report.errors.push(format_args!("out of memory: {error}"));
        report
    })
}

/// The most memory in bytes that [`verify`] needs, besides some KiB; vectors grow by a quarter, so up to a fifth of them is unused.
#[must_use]
pub fn verify_bytes(elements: u64, rows: u64, blocks: u32) -> u64 {
    elements.saturating_mul(35).saturating_add(rows.saturating_mul(10)).saturating_add(u64::from(blocks) * 16)
}

/// [`verify`] with at most `memory` bytes.
///
/// # Errors
/// [`TooLarge`] if more memory is needed; it has not been allocated.
pub fn verify_within(
    source: &mut dyn PageSource,
    value_type: Option<ValueType>,
    memory: u64,
) -> Result<Report, TooLarge> {
    let scanned = Scanned::new(source, value_type, memory)?;
    let blocks = 0..source.blocks();
    let lists = scanned.lists(source, blocks);
    let reach = scanned.reach(source)?;
    Ok(scanned.report([lists], reach))
}

/// The first stage of [`verify`]: all tuples are read and checked one by one. The other stages, [`Self::lists`] and [`Self::reach`],
/// depend on nothing but this one, so that several threads can take parts of them.
pub struct Scanned {
    /// `None` without a meta page: then there is nothing to verify.
    index: Option<Index>,
    report: Report,
    /// What the first stage has left of the memory.
    memory: Memory,
}

impl Scanned {
    /// Reads all blocks once, in order.
    ///
    /// # Errors
    /// [`TooLarge`] if more memory is needed; it has not been allocated.
    pub fn new(source: &mut dyn PageSource, value_type: Option<ValueType>, memory: u64) -> Result<Self, TooLarge> {
        Self::scan(source, value_type, memory, None)
    }

    /// [`Self::new`] that keeps all neighbor tuples for the other stages: then the pages are read once.
    ///
    /// # Errors
    /// [`TooLarge`] if more memory is needed; it has not been allocated.
    pub fn keeping_neighbors(
        source: &mut dyn PageSource,
        value_type: Option<ValueType>,
        memory: u64,
    ) -> Result<(Self, KeptNeighbors), TooLarge> {
        let mut kept = KeptNeighbors::default();
        let scanned = Self::scan(source, value_type, memory, Some(&mut kept))?;
        Ok((scanned, kept))
    }

    fn scan(
        source: &mut dyn PageSource,
        value_type: Option<ValueType>,
        memory: u64,
        kept: Option<&mut KeptNeighbors>,
    ) -> Result<Self, TooLarge> {
        let mut report = Report { blocks: source.blocks(), ..Report::default() };
        let mut memory = Memory::new(memory);
        let mut index = scan::scan(source, value_type, &mut report, &mut memory, kept)?;
        if let Some(index) = &mut index {
            chain::check(index, source, &mut report, &mut memory)?;
            index.assign_neighbors(source, &mut report);
        }
        Ok(Self { index, report, memory })
    }

    /// Checks the neighbor tuples of a range of blocks.
    pub fn lists(&self, source: &mut (impl NeighborSource + ?Sized), blocks: Range<u32>) -> Lists {
        self.index.as_ref().map_or_else(Lists::default, |index| lists::check(source, index, blocks))
    }

    /// Checks the entry point, and what can be reached from it. Reads neighbor tuples several times.
    ///
    /// # Errors
    /// [`TooLarge`] if more memory is needed; it has not been allocated.
    pub fn reach(&self, source: &mut (impl NeighborSource + ?Sized)) -> Result<Reach, TooLarge> {
        self.index
            .as_ref()
            .map_or_else(|| Ok(Reach::default()), |index| reach::check(source, index, self.memory.clone()))
    }

    /// The findings of all stages. `lists` of all blocks, in block order.
    pub fn report(self, lists: impl IntoIterator<Item = Lists>, reach: Reach) -> Report {
        let Self { index, mut report, .. } = self;
        if let Some(index) = index {
            let links = lists::add(lists, &index, &mut report);
            reach.add(&links, &mut report);
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use pgvector::ValueType;

    use super::{Index, Memory, verify_bytes};
    use crate::{IndexMeta, MetaPage};

    #[test]
    fn estimated_memory_has_room_for_the_growth_of_blocks() {
        let meta = IndexMeta { value_type: ValueType::Vector, dims: 3, m: 16, ef_construction: 64 };
        let mut index = Index::new(MetaPage::new(&meta, None, 1));
        // The last block makes the vectors grow from 8,000 to 10,000.
        let blocks = 8001;
        let mut memory = Memory::new(verify_bytes(0, 0, blocks));
        for block in 0..blocks {
            index.start_block(block, block + 1, &mut memory).unwrap();
        }
    }
}
