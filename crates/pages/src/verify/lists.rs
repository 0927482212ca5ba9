use std::convert::Infallible;

use crate::format::{neighbor_count, neighbor_len};
use crate::verify::index::{Element, Index};
use crate::verify::{Report, for_each_page};
use crate::{NeighborTuple, PageSource, Tid, Tuple};

/// Reads all neighbor tuples and checks each against its element and the elements it links to. Counts the links.
pub(super) fn check(source: &mut dyn PageSource, index: &Index, report: &mut Report) {
    let mut lists = Lists { index, links: Vec::new(), listed: 0, pages: 0, page_of: Vec::new(), seen: Vec::new() };
    let Ok(()) = for_each_page(source, report, false, |page, report| {
        if page.block() > 0 {
            for item in page.items().filter_map(Result::ok) {
                if let Ok(Tuple::Neighbor(tuple)) = Tuple::parse(&item) {
                    lists.tuple(&tuple, report);
                }
            }
        }
        Ok::<(), Infallible>(())
    });
    report.mean_pages = lists.pages as f64 / lists.listed.max(1) as f64;
    report.links = lists.links;
    let slots = 2 * usize::from(index.meta.m);
    if report.not_full > 0 && report.live > slots as u64 {
        let count = report.not_full;
        report.warnings.push(format_args!("{count} layer-0 lists are not full: VACUUM searches their neighbors anew"));
    }
}

struct Lists<'a> {
    index: &'a Index,
    /// By layer: links between elements of the layer.
    links: Vec<u64>,
    /// Neighbor tuples of live elements.
    listed: u64,
    /// Sum over layer-0 lists of the number of pages that their neighbors are on.
    pages: u64,
    /// Scratch for one list: the blocks of its neighbors.
    page_of: Vec<u32>,
    seen: Vec<Tid>,
}

impl Lists<'_> {
    fn tuple(&mut self, tuple: &NeighborTuple<'_>, report: &mut Report) {
        let Some((_, &element)) = self.index.owner(tuple.tid()) else { return };
        let (tid, Element { level, version, live, .. }) = (element.tid(), element);
        let expected = neighbor_count(level, self.index.meta.m);
        if usize::from(tuple.count()) != expected {
            // pgvector treats such an element as one without neighbors.
            let count = tuple.count();
            return report.errors.push(format_args!("element {tid}: {count} neighbor slots, {expected} expected"));
        }
        let len = neighbor_len(expected);
        // Happens where a deleted element of a higher level had this slot before.
        report.warnings.add(
            tuple.tuple_len() != len,
            format_args!("{}: {} bytes, {len} expected", tuple.tid(), tuple.tuple_len()),
        );
        if tuple.version() != version {
            let found = tuple.version();
            report.errors.push(format_args!("element {tid}: version {version}, its neighbor tuple's {found}"));
        }
        if !live {
            let linked = tuple.slots().any(Tid::is_valid);
            return report.errors.add(linked, format_args!("element {tid}: deleted, but has neighbors"));
        }
        self.listed += 1;
        self.links.resize(self.links.len().max(usize::from(level) + 1), 0);
        for layer in (0..=level).rev() {
            self.list(&element, layer, tuple.on_layer(layer, level, self.index.meta.m), report);
        }
    }

    fn list(&mut self, owner: &Element, layer: u8, slots: impl Iterator<Item = Tid>, report: &mut Report) {
        let tid = owner.tid();
        let fail = |report: &mut Report, neighbor: Tid, problem: &str| {
            report.errors.push(format_args!("element {tid}, layer {layer}: neighbor {neighbor} {problem}"));
        };
        let mut ended = false;
        self.seen.clear();
        self.page_of.clear();
        for neighbor in slots {
            if !neighbor.is_valid() {
                ended = true;
            } else if ended {
                fail(report, neighbor, "comes after an unused slot");
            } else if neighbor == tid {
                fail(report, neighbor, "is the element itself");
            } else if let Some((_, element)) = self.index.element(neighbor) {
                let problem = match element {
                    element if !element.live => Some("is deleted"),
                    element if element.level < layer => Some("is not on the layer"),
                    _ => None,
                };
                if let Some(problem) = problem.filter(|_| owner.rows) {
                    fail(report, neighbor, problem);
                } else if let Some(problem) = problem {
                    // VACUUM repairs the lists of elements that keep rows before it marks others as deleted, which an insert may then
                    // replace by an element of a lower level: seen while VACUUM runs, or if it was interrupted.
                    report.warnings.push(format_args!("element {tid}, layer {layer}: neighbor {neighbor} {problem}"));
                } else {
                    self.links[usize::from(layer)] += 1;
                    self.seen.push(neighbor);
                    self.page_of.push(neighbor.block);
                }
            } else {
                // An insert after the elements were collected may have added it.
                let problem = format_args!("element {tid}, layer {layer}: neighbor {neighbor} is not an element");
                report.errors.push_passing(problem);
            }
        }
        self.seen.sort_unstable();
        // Only a warning: an insert may add a link that VACUUM has just made, and searches visit such a neighbor once.
        for pair in self.seen.windows(2).filter(|pair| pair[0] == pair[1]) {
            let neighbor = pair[0];
            report.warnings.push(format_args!("element {tid}, layer {layer}: neighbor {neighbor} is repeated"));
        }
        if layer == 0 {
            report.not_full += u64::from(ended);
            self.page_of.sort_unstable();
            self.page_of.dedup();
            self.pages += self.page_of.len() as u64;
        }
    }
}
