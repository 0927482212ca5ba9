use crate::NO_BLOCK;
use crate::verify::Report;
use crate::verify::index::Index;

/// Follows the chain of data pages from block 1: inserts and VACUUM see nothing else.
pub(super) fn check(index: &Index, report: &mut Report) {
    let mut chained = vec![false; index.next.len()];
    let mut in_order = true;
    let mut block = 1;
    let mut previous = 0;
    while block != NO_BLOCK {
        let Some(next) = index.next.get(block as usize).copied().flatten() else {
            report.errors.push(format_args!("block {previous}: next block {block} is not a data page"));
            break;
        };
        if std::mem::replace(&mut chained[block as usize], true) {
            report.errors.push(format_args!("block {previous}: next block {block} is in the chain already"));
            break;
        }
        in_order &= previous < block;
        (previous, block) = (block, next);
    }
    report.warnings.add(!in_order, format_args!("the chain of pages is not in block order"));

    let is_chained = |block: u32| chained.get(block as usize).copied().unwrap_or_default();
    let readable = (0u32..).zip(&index.next).filter(|(_, next)| next.is_some());
    let outside = readable.filter(|&(block, _)| !is_chained(block)).count();
    report.warnings.add(outside > 0, format_args!("{outside} pages are not in the chain"));
    let mut reported = 0;
    for block in index.elements.iter().map(|element| element.tid.block) {
        if block != reported && !is_chained(block) {
            report
                .errors
                .push(format_args!("block {block}: has elements, but VACUUM does not see it outside the chain"));
            reported = block;
        }
    }
    let insert_page = index.meta.insert_page;
    report.errors.add(!is_chained(insert_page), format_args!("insert page {insert_page}: not in the chain"));
}
