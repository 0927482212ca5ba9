mod chain;
mod index;
mod lists;
mod reach;
mod report;
mod scan;

use graph::ValueType;

use crate::{PAGE_SIZE, Page, PageBytes, PageSource};

pub use report::{LayerReport, Problems, Report};

/// How to verify an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The type of the indexed column; the file does not name it. Without it the first value decides.
    pub value_type: Option<ValueType>,
}

/// Reads a whole index and checks every rule that pgvector relies on, from page headers to reachability.
///
/// Errors are what makes pgvector misbehave, warnings are legal but unusual or harmful. Indexes of every release of pgvector
/// pass, those after inserts and VACUUM included. Pages are read twice, in block order. Memory is bounded by what the
/// pages hold: about 40 bytes per element, 8 per row and 4 per neighbor slot.
pub fn verify(source: &mut dyn PageSource, options: Options) -> Report {
    let mut report = Report { blocks: source.blocks(), ..Report::default() };
    let Some(mut index) = scan::scan(source, options, &mut report) else { return report };
    chain::check(&index, &mut report);
    index.assign_neighbors(&mut report);
    let links = lists::check(source, &index, &mut report);
    reach::check(&index, &links, &mut report);
    report
}

/// Calls `work` with each page that has one, in block order; others become errors when `complain` is set.
fn for_each_page(
    source: &mut dyn PageSource,
    report: &mut Report,
    complain: bool,
    mut work: impl FnMut(&Page<'_>, &mut Report),
) {
    let mut bytes: Box<PageBytes> = Box::new([0; PAGE_SIZE]);
    for block in 0..source.blocks() {
        if let Err(error) = source.read(block, &mut bytes) {
            report.errors.add(complain, format_args!("block {block}: cannot be read: {error}"));
            continue;
        }
        match Page::parse(block, &bytes) {
            Ok(page) => work(&page, report),
            // Left by a crash while the file was extended: only bad if something points to it.
            Err(error @ crate::PageError::New { .. }) => report.warnings.add(complain, format_args!("{error}")),
            Err(error) => report.errors.add(complain, format_args!("{error}")),
        }
    }
}
