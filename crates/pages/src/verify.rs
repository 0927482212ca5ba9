mod chain;
mod index;
mod lists;
mod memory;
mod reach;
mod report;
mod scan;

use pgvector::ValueType;

use crate::verify::memory::Memory;
use crate::{PAGE_SIZE, Page, PageBytes, PageSource};

pub use memory::TooLarge;
pub use report::{LayerReport, Problems, Report};

/// Work that reads no pages calls [`PageSource::pause`] after this many steps: some milliseconds.
const PAUSE: usize = 1 << 14;

/// Reads a whole index and checks every rule that pgvector relies on, from page headers to reachability.
///
/// Errors make pgvector misbehave; warnings are legal but unusual or harmful. Indexes of every release of pgvector pass, also
/// after inserts and VACUUM. All pages are read twice, in block order, and those with neighbor tuples several times more.
/// Memory depends on the content of the pages: about 36 bytes per element with one row, 8 per further row and 10 per block.
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

/// The most memory in bytes that [`verify`] needs; vectors grow by a quarter, so up to a fifth of them is unused.
#[must_use]
pub fn verify_bytes(elements: u64, rows: u64, blocks: u32) -> u64 {
    elements.saturating_mul(35).saturating_add(rows.saturating_mul(10)).saturating_add(u64::from(blocks) * 12)
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
    let mut report = Report { blocks: source.blocks(), ..Report::default() };
    let memory = &mut Memory::new(memory);
    let Some(mut index) = scan::scan(source, value_type, &mut report, memory)? else { return Ok(report) };
    chain::check(&index, source, &mut report, memory)?;
    index.assign_neighbors(source, &mut report);
    lists::check(source, &index, &mut report);
    reach::check(source, &index, &mut report, memory)?;
    Ok(report)
}

/// Calls `work` with each valid page, in block order. With `complain`, invalid pages are reported as errors, and all-zero ones
/// as warnings.
fn for_each_page<E>(
    source: &mut dyn PageSource,
    report: &mut Report,
    complain: bool,
    mut work: impl FnMut(&Page<'_>, &mut Report) -> Result<(), E>,
) -> Result<(), E> {
    let mut bytes: Box<PageBytes> = Box::new([0; PAGE_SIZE]);
    for block in 0..source.blocks() {
        if let Err(error) = source.read(block, &mut bytes) {
            if complain {
                report.errors.add_unreadable(block, &error);
            }
            continue;
        }
        match Page::parse(block, &bytes) {
            Ok(page) => work(&page, report)?,
            // Left by a crash while the file was extended: harmful only if a link leads to it.
            Err(error @ crate::PageError::New { .. }) => report.warnings.add(complain, format_args!("{error}")),
            Err(error) => report.errors.add(complain, format_args!("{error}")),
        }
    }
    Ok(())
}
