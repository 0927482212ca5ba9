use pgvector::{EF_CONSTRUCTION_RANGE, M_RANGE, ValueType, max_level};

use crate::format::{ELEMENT_DATUM, MAX_SLOTS, META_LOWER, META_VERSION, SPECIAL, element_len, is_zero};
use crate::verify::index::{Element, Index};
use crate::verify::memory::{Memory, TooLarge};
use crate::verify::{PAUSE, Report};
use crate::{
    Datum, ElementTuple, KeptNeighbors, MetaPage, NO_BLOCK, PAGE_SIZE, Page, PageBytes, PageError, PageSource, Tid,
    Tuple,
};

/// Reads all pages: collects the tuples and checks each of them on its own. `None` without a meta page.
pub(super) fn scan(
    source: &mut dyn PageSource,
    value_type: Option<ValueType>,
    report: &mut Report,
    memory: &mut Memory,
    kept: Option<&mut KeptNeighbors>,
) -> Result<Option<Index>, TooLarge> {
    let mut scan = Scan { index: None, value_type, rows: Vec::new(), kept };
    let blocks = source.blocks();
    report.value_type = value_type;
    let mut buffer: Box<PageBytes> = Box::new([0; PAGE_SIZE]);
    for block in 0..blocks {
        memory.has_read(block, blocks);
        match source.read(block, &mut buffer).map(|bytes| Page::parse(block, bytes)) {
            Ok(Ok(page)) => {
                check_frame(&page, report);
                if block > 0 {
                    scan.data_page(&page, report, memory)?;
                } else {
                    scan.meta_page(&page, report);
                }
            }
            // Left by a crash while the file was extended: harmful only if a link leads to it.
            Ok(Err(error @ PageError::New { .. })) => report.warnings.push(format_args!("{error}")),
            Ok(Err(error)) => report.errors.push(format_args!("{error}")),
            Err(error) => report.errors.add_unreadable(block, &error),
        }
        if let Some(kept) = &mut scan.kept {
            memory.take(kept.end_block() + KeptNeighbors::PER_BLOCK)?;
        }
    }
    memory.has_read(blocks, blocks);
    let Scan { index, mut rows, .. } = scan;
    let mut compared = 0usize;
    rows.sort_unstable_by(|a, b| {
        compared += 1;
        if compared.is_multiple_of(PAUSE) {
            source.pause();
        }
        a.cmp(b)
    });
    for pair in rows.windows(2).filter(|pair| pair[0] == pair[1]) {
        let tid = Tid::from_number(pair[0]);
        report.errors.push(format_args!("heap TID {tid}: in more than one element"));
    }
    memory.free(rows);
    if index.is_none() {
        report.errors.push(format_args!("no meta page: this is not an HNSW index"));
    }
    Ok(index)
}

struct Scan<'a> {
    index: Option<Index>,
    value_type: Option<ValueType>,
    /// The places of all rows, as numbers, which sort faster.
    rows: Vec<u64>,
    /// Where neighbor tuples are kept, if they are.
    kept: Option<&'a mut KeptNeighbors>,
}

impl Scan<'_> {
    fn meta_page(&mut self, page: &Page<'_>, report: &mut Report) {
        let meta = match MetaPage::parse(page) {
            Ok(meta) => meta,
            Err(error) => return report.errors.push(format_args!("{error}")),
        };
        let header = page.header();
        let errors = &mut report.errors;
        errors.add(meta.version != META_VERSION, format_args!("meta page: version {}", meta.version));
        errors.add(!M_RANGE.contains(&meta.m), format_args!("meta page: m is {}", meta.m));
        errors.add(meta.dims == 0, format_args!("meta page: dimensions are 0"));
        errors.add(usize::from(header.lower) != META_LOWER, format_args!("meta page: lower is {}", header.lower));
        errors.add(usize::from(header.upper) != SPECIAL, format_args!("meta page: upper is {}", header.upper));
        let ef = meta.ef_construction;
        report.warnings.add(!EF_CONSTRUCTION_RANGE.contains(&ef), format_args!("meta page: ef_construction is {ef}"));
        report.warnings.add(page.next() != NO_BLOCK, format_args!("meta page: has a next block"));
        report.meta = Some(meta);
        self.index = Some(Index::new(meta));
    }

    fn data_page(&mut self, page: &Page<'_>, report: &mut Report, memory: &mut Memory) -> Result<(), TooLarge> {
        let Some(index) = &mut self.index else { return Ok(()) };
        index.start_block(page.block(), page.next(), memory)?;
        let block = page.block();
        let header = page.header();
        report.free_bytes += u64::from(header.upper - header.lower);
        report.errors.add(!header.lower.is_multiple_of(4), format_args!("block {block}: lower is {}", header.lower));
        let mut tuple_bytes = 0;
        for item in page.items() {
            let tuple = item.and_then(|item| {
                tuple_bytes += item.bytes.len();
                Tuple::parse(&item)
            });
            match tuple {
                Ok(Tuple::Element(element)) => {
                    check_element(&element, &mut self.value_type, &index.meta, report);
                    let kept = Element {
                        tid: element.tid().to_bytes(),
                        neighbor: element.neighbor_tid().to_bytes(),
                        level: element.level(),
                        version: element.version(),
                        rows: element.heap_tids()[0].is_valid(),
                    };
                    index.add_element(kept, element.deleted() == 0, memory)?;
                    collect_rows(&element, &mut self.rows, report, memory)?;
                }
                Ok(Tuple::Neighbor(neighbor)) => {
                    report.neighbor_tuples += 1;
                    index.add_neighbor(memory)?;
                    let padded = !is_zero(neighbor.padding());
                    report.warnings.add(padded, format_args!("{}: padding is not zero", neighbor.tid()));
                    if let Some(kept) = &mut self.kept {
                        kept.add(&neighbor);
                    }
                }
                Err(error) => {
                    index.add_unreadable(memory)?;
                    report.errors.push(format_args!("{error}"));
                }
            }
        }
        // When PostgreSQL resizes a tuple it moves others, and assumes that there are no gaps between them.
        let gap = SPECIAL - usize::from(header.upper) != tuple_bytes;
        report.warnings.add(gap, format_args!("block {block}: gaps between tuples"));
        Ok(())
    }
}

/// Checks what all pages of an index have in common: header flags, unused fields and the hole.
fn check_frame(page: &Page<'_>, report: &mut Report) {
    let (block, header) = (page.block(), page.header());
    report.errors.add(header.flags & !7 != 0, format_args!("block {block}: flags {:#x}", header.flags));
    let warnings = &mut report.warnings;
    warnings.add(header.flags & 7 != 0, format_args!("block {block}: flags {:#x}", header.flags));
    warnings.add(header.prune_xid != 0, format_args!("block {block}: prune_xid {}", header.prune_xid));
    warnings.add(page.unused() != 0, format_args!("block {block}: unused field of the special area {}", page.unused()));
    warnings.add(!is_zero(page.hole()), format_args!("block {block}: hole is not zero"));
}

fn check_element(element: &ElementTuple<'_>, value_type: &mut Option<ValueType>, meta: &MetaPage, report: &mut Report) {
    let tid = element.tid();
    *report.versions.entry(element.version()).or_default() += 1;
    report.warnings.add(element.unused() != 0, format_args!("{tid}: unused field {}", element.unused()));
    match element.deleted() {
        0 => report.live += 1,
        1 => {
            report.deleted += 1;
            return;
        }
        // pgvector treats any other number as deleted, too, but never writes it.
        other => report.errors.push(format_args!("{tid}: deleted is {other}")),
    }
    let level = element.level();
    *report.levels.entry(level).or_default() += 1;
    // Levels are capped at 63 since pgvector 0.8.6 only: higher ones are legal if their neighbor tuple fits on a page.
    let fitting = (MAX_SLOTS / usize::from(meta.m.max(1))).saturating_sub(2).min(255);
    if usize::from(level) > fitting {
        report.errors.push(format_args!("{tid}: level {level}, above the cap of {fitting}"));
    } else if level > max_level(meta.m) {
        report.warnings.push(format_args!("{tid}: level {level}, more than pgvector 0.8.6 gives"));
    }
    if value_type.is_none() {
        *value_type = recognise(element, meta.dims);
        report.value_type = *value_type;
    }
    let Some(value_type) = *value_type else {
        return report.errors.push(format_args!("{tid}: value of no known type with {} dimensions", meta.dims));
    };
    match Datum::parse(value_type, meta.dims, tid, element.data()) {
        Err(error) => report.errors.push(format_args!("{error}")),
        Ok(datum) => {
            let (found, expected) = (ELEMENT_DATUM + element.data().len(), element_len(datum.len));
            report.errors.add(found != expected, format_args!("{tid}: {found} bytes, {expected} expected"));
            let padded = !is_zero(&element.data()[datum.len..]);
            report.warnings.add(padded, format_args!("{tid}: padding is not zero"));
        }
    }
}

/// Infers the type from a value's layout. A sparsevec with entries may be as long as another type's value, but only it
/// has ascending indices below its dimensions; one without entries looks like a bit value of zeros.
fn recognise(element: &ElementTuple<'_>, dims: u32) -> Option<ValueType> {
    let fits = |&value_type: &ValueType| Datum::parse(value_type, dims, element.tid(), element.data()).is_ok();
    let has_entries = element.data().get(8..12).is_some_and(|count| count != [0; 4]);
    let sparse = Some(ValueType::SparseVec).filter(|_| has_entries);
    sparse.into_iter().chain(ValueType::ALL).find(fits)
}

fn collect_rows(
    element: &ElementTuple<'_>,
    rows: &mut Vec<u64>,
    report: &mut Report,
    memory: &mut Memory,
) -> Result<(), TooLarge> {
    let tid = element.tid();
    let heap_tids = element.heap_tids();
    let used = heap_tids.iter().take_while(|heap_tid| heap_tid.is_valid()).count();
    let (used, unused) = heap_tids.split_at(used);
    let hole = unused.iter().any(|heap_tid| heap_tid.is_valid());
    report.errors.add(hole, format_args!("{tid}: hole in the heap TIDs"));
    let odd = unused.iter().any(|heap_tid| !heap_tid.is_valid() && heap_tid.block() != NO_BLOCK);
    report.warnings.add(odd, format_args!("{tid}: unused heap TID with a block"));
    if element.deleted() != 0 {
        report.errors.add(!used.is_empty() || hole, format_args!("{tid}: deleted, but has heap TIDs"));
        return Ok(());
    }
    // VACUUM removes heap TIDs in its first pass and marks elements in its last; it may have been interrupted between the two.
    report.warnings.add(used.is_empty(), format_args!("{tid}: no heap TID, but not deleted"));
    report.heap_tids += used.len() as u64;
    report.duplicates += used.len().saturating_sub(1) as u64;
    used.iter().try_for_each(|heap_tid| memory.push(rows, heap_tid.place()))
}
