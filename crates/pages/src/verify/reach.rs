use crate::format::neighbor_count;
use crate::verify::index::{Element, Index};
use crate::verify::memory::{Bits, Memory, TooLarge};
use crate::verify::{LayerReport, PAUSE, Problems, Report};
use crate::{BlockNeighbors, NO_BLOCK, NeighborSource, NeighborTuple, Tid};

/// What can be reached from the entry point.
#[derive(Default)]
pub struct Reach {
    /// From the entry point's layer down to 0; links are not counted.
    layers: Vec<LayerReport>,
    errors: Problems,
    warnings: Problems,
}

impl Reach {
    /// Adds what was found, and the number of links by layer, to the report.
    pub(super) fn add(self, links: &[u64], report: &mut Report) {
        let links = |layer: u8| links.get(usize::from(layer)).copied().unwrap_or_default();
        report.layers =
            self.layers.into_iter().map(|layer| LayerReport { links: links(layer.layer), ..layer }).collect();
        report.errors.append(self.errors);
        report.warnings.append(self.warnings);
    }
}

/// Checks the entry point and counts, layer by layer, the elements that can be reached from it.
///
/// Links would take many times more memory than everything else, so a source may read them from the pages each time. Therefore blocks with
/// reached elements are read in order, repeatedly, until no reached element is left to expand. Each read expands at least one element.
pub(super) fn check(
    source: &mut (impl NeighborSource + ?Sized),
    index: &Index,
    mut memory: Memory,
) -> Result<Reach, TooLarge> {
    let mut found = Reach::default();
    let meta = &index.meta;
    let (mut top, mut has_rows, mut live) = (None, false, 0u64);
    let mut on_layer = [0u64; 256];
    for (number, element) in index.elements.iter().enumerate() {
        if number.is_multiple_of(PAUSE) {
            source.pause();
        }
        if index.is_live(element) {
            top = top.max(Some(element.level));
            has_rows |= element.rows;
            live += 1;
            on_layer[usize::from(element.level)] += 1;
        }
    }
    for layer in (1..on_layer.len()).rev() {
        on_layer[layer - 1] += on_layer[layer];
    }
    if meta.entry.block == NO_BLOCK {
        // VACUUM removes the entry point before it marks the last elements as deleted, and may be interrupted between the two.
        let problems = if has_rows { &mut found.errors } else { &mut found.warnings };
        problems.add(live > 0, format_args!("no entry point, but {live} elements"));
        let odd = meta.entry != Tid::INVALID || meta.entry_level != -1;
        found.warnings.add(odd, format_args!("no entry point, but an offset or a level of it"));
        return Ok(found);
    }
    let Some(element) = index.entry() else {
        let (tid, level) = (meta.entry, meta.entry_level);
        found.errors.push(format_args!("entry point {tid}: not a live element of level {level}"));
        return Ok(found);
    };
    let level = element.level;
    // Only a warning: searches find elements of higher levels through lower layers.
    found.warnings.add(top > Some(level), format_args!("entry point {}: an element has a higher level", meta.entry));

    let mut walk = Walk {
        index,
        layer: level,
        reached: memory.bits(index.slots())?,
        followed: memory.bits(index.elements.len())?,
        pending: memory.bits(index.blocks())?,
        count: 0,
    };
    for layer in (0..=level).rev() {
        let reachable = walk.layer(source, layer, meta.entry);
        let elements = on_layer[usize::from(layer)];
        found.layers.push(LayerReport { layer, elements, reachable, links: 0 });
        let missing = elements - reachable;
        let problem = format_args!("layer {layer}: {missing} elements cannot be reached from the entry point");
        found.warnings.add(missing > 0, problem);
    }
    Ok(found)
}

/// A breadth-first walk along the links of one layer.
struct Walk<'a> {
    index: &'a Index,
    layer: u8,
    /// By place of the element's tuple: whether it has been reached.
    reached: Bits,
    /// By element: whether its own links have been followed.
    followed: Bits,
    /// By block: whether it has neighbor tuples of elements that were reached but not followed.
    pending: Bits,
    /// The number of elements reached.
    count: u64,
}

impl Walk<'_> {
    /// The number of elements on a layer that can be reached from the entry point.
    fn layer(&mut self, source: &mut (impl NeighborSource + ?Sized), layer: u8, entry: Tid) -> u64 {
        self.reached.clear();
        self.followed.clear();
        (self.layer, self.count) = (layer, 0);
        self.reach(entry);
        let mut buffer = Vec::new();
        while let Some(first) = self.pending.next(0) {
            let mut next = Some(first);
            while let Some(block) = next {
                self.block(block, source.neighbors(block as u32, &mut buffer));
                next = self.pending.next(block + 1);
            }
        }
        self.count
    }

    /// Follows the links of the reached elements of a block, including those that are reached meanwhile.
    fn block(&mut self, block: usize, neighbors: BlockNeighbors<'_>) {
        while self.pending.is_set(block) {
            self.pending.unset(block);
            for tuple in neighbors.tuples() {
                if let Some((number, &element)) = self.index.owner(tuple.tid())
                    && !self.followed.is_set(number as usize)
                    && self.index.place(element.tid()).is_some_and(|place| self.reached.is_set(place))
                {
                    self.followed.set(number as usize);
                    self.follow(&tuple, &element);
                }
            }
        }
    }

    fn follow(&mut self, tuple: &NeighborTuple<'_>, element: &Element) {
        let m = self.index.meta.m;
        if usize::from(tuple.count()) != neighbor_count(element.level, m) {
            return;
        }
        for neighbor in tuple.on_layer(self.layer, element.level, m).take_while(|slot| slot.is_valid()) {
            self.reach(neighbor);
        }
    }

    /// Counts an element of the layer, unless it has been reached before.
    fn reach(&mut self, element: Tid) {
        let Some(place) = self.index.place(element) else { return };
        // Most neighbors have been reached already: then nothing else needs to be read.
        if self.reached.is_set(place) || !self.index.place_is_on(place, self.layer) {
            return;
        }
        self.reached.set(place);
        self.count += 1;
        let Some(number) = self.index.number(element) else { return };
        // Two elements may name the same neighbor tuple, which then belongs to the first one only.
        let neighbor = self.index.elements[number as usize].neighbor();
        if self.index.owner(neighbor).is_some_and(|(owner, _)| owner == number) {
            self.pending.set(neighbor.block as usize);
        }
    }
}
