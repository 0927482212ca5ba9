use std::ops::Range;

use crate::format::{neighbor_count, neighbor_len};
use crate::verify::index::{Element, Index};
use crate::verify::{Problems, Report};
use crate::{NeighborSource, NeighborTuple, Tid};

/// What the neighbor tuples of some blocks contain.
#[derive(Default)]
pub struct Lists {
    /// By layer: links between elements of the layer.
    links: Vec<u64>,
    /// Neighbor tuples of live elements.
    listed: u64,
    /// Live elements with unused slots at layer 0.
    not_full: u64,
    /// Sum over layer-0 lists of the number of pages that their neighbors are on.
    pages: u64,
    errors: Problems,
    warnings: Problems,
}

/// Reads the neighbor tuples of a range of blocks and checks each against its element and the elements it links to. Counts the links.
pub(super) fn check(source: &mut (impl NeighborSource + ?Sized), index: &Index, blocks: Range<u32>) -> Lists {
    let mut check = Check { index, lists: Lists::default(), seen: Vec::new() };
    let mut buffer = Vec::new();
    // Block 0 is the meta page.
    for block in blocks.filter(|&block| block > 0) {
        source.neighbors(block, &mut buffer).tuples().for_each(|tuple| check.tuple(&tuple));
    }
    check.lists
}

/// Adds what was found to the report. Returns the number of links by layer.
pub(super) fn add(found: impl IntoIterator<Item = Lists>, index: &Index, report: &mut Report) -> Vec<u64> {
    let (mut links, mut listed, mut pages) = (Vec::new(), 0, 0);
    for lists in found {
        links.resize(links.len().max(lists.links.len()), 0);
        links.iter_mut().zip(&lists.links).for_each(|(sum, more)| *sum += more);
        listed += lists.listed;
        pages += lists.pages;
        report.not_full += lists.not_full;
        report.errors.append(lists.errors);
        report.warnings.append(lists.warnings);
    }
    report.mean_pages = pages as f64 / listed.max(1) as f64;
    let slots = 2 * usize::from(index.meta.m);
    if report.not_full > 0 && report.live > slots as u64 {
        let count = report.not_full;
        report.warnings.push(format_args!("{count} layer-0 lists are not full: VACUUM searches their neighbors anew"));
    }
    links
}

struct Check<'a> {
    index: &'a Index,
    lists: Lists,
    /// Scratch: the neighbors of one list, as [`Tid::to_number`].
    seen: Vec<u64>,
}

impl Check<'_> {
    fn tuple(&mut self, tuple: &NeighborTuple<'_>) {
        let Some((_, &element)) = self.index.owner(tuple.tid()) else { return };
        let (tid, Element { level, version, .. }) = (element.tid(), element);
        let expected = neighbor_count(level, self.index.meta.m);
        if usize::from(tuple.count()) != expected {
            // pgvector treats such an element as one without neighbors.
            let count = tuple.count();
            return self.lists.errors.push(format_args!("element {tid}: {count} neighbor slots, {expected} expected"));
        }
        let len = neighbor_len(expected);
        // Happens where a deleted element of a higher level had this slot before.
        self.lists.warnings.add(
            tuple.bytes().len() != len,
            format_args!("{}: {} bytes, {len} expected", tuple.tid(), tuple.bytes().len()),
        );
        if tuple.version() != version {
            let found = tuple.version();
            self.lists.errors.push(format_args!("element {tid}: version {version}, its neighbor tuple's {found}"));
        }
        if !self.index.is_live(&element) {
            let linked = tuple.slots().any(Tid::is_valid);
            return self.lists.errors.add(linked, format_args!("element {tid}: deleted, but has neighbors"));
        }
        self.lists.listed += 1;
        let layers = self.lists.links.len().max(usize::from(level) + 1);
        self.lists.links.resize(layers, 0);
        for layer in (0..=level).rev() {
            self.list(&element, layer, tuple.on_layer(layer, level, self.index.meta.m));
        }
    }

    fn list(&mut self, owner: &Element, layer: u8, slots: impl Iterator<Item = Tid>) {
        let Self { index, lists, seen } = self;
        let tid = owner.tid();
        let mut ended = false;
        seen.clear();
        for neighbor in slots {
            let problem = if !neighbor.is_valid() {
                ended = true;
                continue;
            } else if ended {
                "comes after an unused slot"
            } else if neighbor == tid {
                "is the element itself"
            } else if index.is_on(neighbor, layer) {
                lists.links[usize::from(layer)] += 1;
                seen.push(neighbor.to_number());
                continue;
            } else if let Some(number) = index.number(neighbor) {
                let deleted = !index.is_live(&index.elements[number as usize]);
                let problem = if deleted { "is deleted" } else { "is not on the layer" };
                if !owner.rows {
                    // VACUUM repairs the lists of elements that keep rows before it marks others as deleted, which an insert may
                    // then replace by an element of a lower level: seen while VACUUM runs, or if it was interrupted.
                    let problem = format_args!("element {tid}, layer {layer}: neighbor {neighbor} {problem}");
                    lists.warnings.push(problem);
                    continue;
                }
                problem
            } else {
                // An insert after the elements were collected may have added it.
                let problem = format_args!("element {tid}, layer {layer}: neighbor {neighbor} is not an element");
                lists.errors.push_passing(problem);
                continue;
            };
            lists.errors.push(format_args!("element {tid}, layer {layer}: neighbor {neighbor} {problem}"));
        }
        seen.sort_unstable();
        // Only a warning: an insert may add a link that VACUUM has just made, and searches visit such a neighbor once.
        for pair in seen.windows(2).filter(|pair| pair[0] == pair[1]) {
            let neighbor = Tid::from_number(pair[0]);
            lists.warnings.push(format_args!("element {tid}, layer {layer}: neighbor {neighbor} is repeated"));
        }
        if layer == 0 {
            lists.not_full += u64::from(ended);
            lists.pages +=
                seen.chunk_by(|&one, &next| Tid::from_number(one).block == Tid::from_number(next).block).count() as u64;
        }
    }
}
