use crate::verify::index::Index;
use crate::verify::memory::{Memory, TooLarge};
use crate::verify::{PAUSE, Report};
use crate::{NO_BLOCK, PageSource};

/// Follows the chain of data pages from block 1: pgvector's inserts and VACUUM see no other pages.
pub(super) fn check(
    index: &Index,
    source: &mut dyn PageSource,
    report: &mut Report,
    memory: &mut Memory,
) -> Result<(), TooLarge> {
    let mut chained = memory.bits(index.blocks())?;
    let mut in_order = true;
    let mut block = 1;
    let mut previous = 0;
    while block != NO_BLOCK {
        if (block as usize).is_multiple_of(PAUSE) {
            source.pause();
        }
        let Some(next) = index.next(block) else {
            report.errors.push(format_args!("block {previous}: next block {block} is not a data page"));
            break;
        };
        if chained.set(block as usize) {
            report.errors.push(format_args!("block {previous}: next block {block} is in the chain already"));
            break;
        }
        in_order &= previous < block;
        (previous, block) = (block, next);
    }
    report.warnings.add(!in_order, format_args!("the chain of pages is not in block order"));

    let readable = (0..index.blocks()).filter(|&block| index.next(block as u32).is_some());
    let outside = readable.filter(|&block| !chained.is_set(block)).count();
    report.warnings.add(outside > 0, format_args!("{outside} pages are not in the chain"));
    let mut reported = 0;
    for (number, element) in index.elements.iter().enumerate() {
        if number.is_multiple_of(PAUSE) {
            source.pause();
        }
        let block = element.tid().block;
        if block != reported && !chained.is_set(block as usize) {
            report
                .errors
                .push(format_args!("block {block}: has elements, but VACUUM does not see it outside the chain"));
            reported = block;
        }
    }
    let insert_page = index.meta.insert_page;
    report
        .errors
        .add(!chained.is_set(insert_page as usize), format_args!("insert page {insert_page}: not in the chain"));
    Ok(())
}
