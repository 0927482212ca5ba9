use crate::verify::index::Index;
use crate::verify::lists::Links;
use crate::verify::{LayerReport, Report};
use crate::{NO_BLOCK, Tid};

/// Checks the entry point and counts, layer by layer, what it leads to.
pub(super) fn check(index: &Index, links: &Links, report: &mut Report) {
    let meta = &index.meta;
    let top = index.elements.iter().filter(|element| element.live).map(|element| element.level).max();
    if meta.entry.block == NO_BLOCK {
        report.errors.add(top.is_some(), format_args!("no entry point, but {} elements", report.live));
        let odd = meta.entry != Tid::INVALID || meta.entry_level != -1;
        report.warnings.add(odd, format_args!("no entry point, but an offset or a level of it"));
        return;
    }
    let Some((entry, element)) = index.entry() else {
        let (tid, level) = (meta.entry, meta.entry_level);
        return report.errors.push(format_args!("entry point {tid}: not a live element of level {level}"));
    };
    let level = element.level;
    // Searches work, but find elements of higher levels only through lower layers.
    report.warnings.add(top > Some(level), format_args!("entry point {}: an element has a higher level", meta.entry));

    let mut reached = vec![false; index.elements.len()];
    let mut queue = Vec::new();
    for layer in (0..=level).rev() {
        let on_layer = || index.elements.iter().filter(|element| element.live && element.level >= layer);
        reached.fill(false);
        reached[entry as usize] = true;
        queue.push(entry);
        let mut counts = LayerReport { layer, elements: on_layer().count() as u64, reachable: 0, links: 0 };
        while let Some(element) = queue.pop() {
            counts.reachable += 1;
            for neighbor in links.of(element, index.elements[element as usize].level, layer, meta.m) {
                if !std::mem::replace(&mut reached[neighbor as usize], true) {
                    queue.push(neighbor);
                }
            }
        }
        for (number, element) in (0u32..).zip(&index.elements) {
            if element.live {
                counts.links += links.of(number, element.level, layer, meta.m).count() as u64;
            }
        }
        let missing = counts.elements - counts.reachable;
        let problem = format_args!("layer {layer}: {missing} elements cannot be reached from the entry point");
        report.warnings.add(missing > 0, problem);
        report.layers.push(counts);
    }
}
