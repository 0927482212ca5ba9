use std::ops::Range;

use pgvector::{HEAP_TIDS_PER_ELEMENT, M_RANGE, max_level};

use crate::{GraphError, HeapTids};

/// Marks an unused slot at the end of a neighbor list.
pub const NO_NEIGHBOR: u32 = u32::MAX;

/// The parts of a [`Graph`], as an engine makes them. Elements are numbered from 0.
#[derive(Debug, Default)]
pub struct GraphParts {
    /// Neighbors per element on layers above 0; layer 0 has twice as many.
    pub m: u16,
    /// The level of each element.
    pub levels: Vec<u8>,
    /// `2 * m` slots per element; unused ones come last, as [`NO_NEIGHBOR`].
    pub layer0: Vec<u32>,
    /// For each element in order, `m` slots for layer 1, then `m` for layer 2, up to its level.
    pub upper: Vec<u32>,
    /// The heap TIDs of each element.
    pub heap_tids: HeapTids,
    /// An element of the highest level; `None` in an empty graph.
    pub entry: Option<u32>,
}

/// A finished HNSW graph.
#[derive(Debug)]
pub struct Graph {
    parts: GraphParts,
    /// For each element of level 1 or more, in ascending order: the element, and the start of its lists in `parts.upper`.
    upper_starts: Vec<(u32, u64)>,
}

impl Graph {
    /// Checks the parts and makes a graph of them.
    ///
    /// # Errors
    /// [`GraphError`] names the first rule that is broken: array lengths, `m`, level caps, the entry point, heap TIDs, and per
    /// neighbor list: known elements of sufficient level, no self link, no repeat, no hole, and at layer 0 a full list
    /// if there are more than `2 * m` elements (VACUUM repairs every element whose layer-0 list is not full).
    pub fn new(parts: GraphParts) -> Result<Self, GraphError> {
        Self::checked_by(parts, |elements, check| check(0..elements), std::convert::identity)
    }

    /// [`Graph::new`] on several threads: `run(n, check)` must call `check` on ranges that cover `0..n`, on any threads; `fail`
    /// converts [`GraphError`] to the caller's error.
    ///
    /// # Errors
    /// Those of [`Graph::new`], converted by `fail`, and those of `run`.
    pub fn checked_by<E>(
        parts: GraphParts,
        run: impl FnOnce(u32, &(dyn Fn(Range<u32>) -> Result<(), GraphError> + Sync)) -> Result<(), E>,
        fail: impl FnOnce(GraphError) -> E,
    ) -> Result<Self, E> {
        let graph = Self::unchecked(parts).map_err(fail)?;
        run(graph.elements().end, &|elements| graph.check_lists(elements))?;
        Ok(graph)
    }

    /// Checks everything except heap TIDs and neighbor lists.
    fn unchecked(parts: GraphParts) -> Result<Self, GraphError> {
        let m = parts.m;
        if !M_RANGE.contains(&m) {
            return Err(GraphError::M(m));
        }
        let elements = parts.levels.len();
        check_len("layer 0", parts.layer0.len(), elements * 2 * usize::from(m))?;
        check_len("heap TIDs", parts.heap_tids.elements(), elements)?;
        let lists: usize = parts.levels.iter().map(|&level| usize::from(level)).sum();
        check_len("upper layers", parts.upper.len(), lists * usize::from(m))?;

        let mut upper_starts = Vec::new();
        let mut start = 0u64;
        let cap = max_level(m);
        for (element, &level) in (0u32..).zip(&parts.levels) {
            if level > cap {
                return Err(GraphError::Level { element, level, cap });
            }
            if level > 0 {
                upper_starts.push((element, start));
                start += u64::from(level) * u64::from(m);
            }
        }
        let top = parts.levels.iter().max();
        let entry_level = parts.entry.and_then(|entry| parts.levels.get(entry as usize));
        if top != entry_level {
            return Err(GraphError::Entry { entry: parts.entry });
        }
        Ok(Self { parts, upper_starts })
    }

    fn check_lists(&self, elements: Range<u32>) -> Result<(), GraphError> {
        let full = self.len() > 2 * usize::from(self.m());
        let mut seen = Seen::default();
        for element in elements {
            let tids = self.heap_tids().of(element);
            if tids.is_empty() || tids.len() > HEAP_TIDS_PER_ELEMENT || tids.iter().any(|tid| !tid.is_valid()) {
                return Err(GraphError::HeapTids { element, count: tids.len() });
            }
            for layer in 0..=self.level(element) {
                let fail = |problem| Err(GraphError::Neighbors { element, layer, problem });
                let slots = self.slots(element, layer);
                let neighbors = self.neighbors(element, layer);
                if slots[neighbors.len()..].iter().any(|&slot| slot != NO_NEIGHBOR) {
                    return fail("hole in the list");
                }
                if layer == 0 && full && neighbors.len() < slots.len() {
                    return fail("list is not full");
                }
                for &neighbor in neighbors {
                    let Some(&level) = self.parts.levels.get(neighbor as usize) else {
                        return fail("unknown neighbor");
                    };
                    if neighbor == element {
                        return fail("link to itself");
                    }
                    if level < layer {
                        return fail("neighbor is not on the layer");
                    }
                }
                if seen.repeats(neighbors) {
                    return fail("neighbor repeated");
                }
            }
        }
        Ok(())
    }

    /// Neighbors per element on layers above 0.
    #[must_use]
    pub fn m(&self) -> u16 {
        self.parts.m
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.levels.len()
    }

    /// Whether the graph has no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.levels.is_empty()
    }

    /// All elements.
    pub fn elements(&self) -> Range<u32> {
        0..u32::try_from(self.len()).unwrap_or(u32::MAX)
    }

    /// The entry point: an element of the highest level.
    #[must_use]
    pub fn entry(&self) -> Option<u32> {
        self.parts.entry
    }

    /// The level of an element.
    #[must_use]
    pub fn level(&self, element: u32) -> u8 {
        self.parts.levels[element as usize]
    }

    /// The heap TIDs of all elements.
    #[must_use]
    pub fn heap_tids(&self) -> &HeapTids {
        &self.parts.heap_tids
    }

    /// All slots of an element's list on a layer, used or not: `m`, or `2 * m` at layer 0.
    ///
    /// # Panics
    /// If the element is not on the layer.
    #[must_use]
    pub fn slots(&self, element: u32, layer: u8) -> &[u32] {
        assert!(layer <= self.level(element), "element {element} is not on layer {layer}");
        let m = usize::from(self.m());
        if layer == 0 {
            let start = element as usize * 2 * m;
            return &self.parts.layer0[start..start + 2 * m];
        }
        let at = self.upper_starts.partition_point(|&(other, _)| other < element);
        let start = self.upper_starts[at].1 as usize + usize::from(layer - 1) * m;
        &self.parts.upper[start..start + m]
    }

    /// The neighbors of an element on a layer.
    ///
    /// # Panics
    /// If the element is not on the layer.
    #[must_use]
    pub fn neighbors(&self, element: u32, layer: u8) -> &[u32] {
        let slots = self.slots(element, layer);
        let used = slots.iter().position(|&slot| slot == NO_NEIGHBOR).unwrap_or(slots.len());
        &slots[..used]
    }
}

/// A filter of 1,024 bits, indexed by the low bits of a neighbor, which is compared with others only if its bit is set.
#[derive(Default)]
struct Seen([u64; 16]);

impl Seen {
    fn repeats(&mut self, neighbors: &[u32]) -> bool {
        self.0.fill(0);
        neighbors.iter().enumerate().any(|(at, neighbor)| {
            let (word, bit) = (&mut self.0[*neighbor as usize / 64 % 16], 1 << (neighbor % 64));
            let maybe = *word & bit != 0;
            *word |= bit;
            maybe && neighbors[..at].contains(neighbor)
        })
    }
}

fn check_len(what: &'static str, found: usize, expected: usize) -> Result<(), GraphError> {
    if found == expected { Ok(()) } else { Err(GraphError::Length { what, found, expected }) }
}

#[cfg(test)]
mod tests {
    use super::{Graph, GraphParts, NO_NEIGHBOR};
    use crate::{GraphError, HeapTid, HeapTids};

    /// Three elements, m = 2, element 1 on level 1.
    fn parts() -> GraphParts {
        let mut heap_tids = HeapTids::with_capacity(3, 3);
        for offset in 1..=3 {
            heap_tids.push([HeapTid::new(0, offset)]);
        }
        GraphParts {
            m: 2,
            levels: vec![0, 1, 0],
            layer0: vec![
                1,
                2,
                NO_NEIGHBOR,
                NO_NEIGHBOR,
                0,
                2,
                NO_NEIGHBOR,
                NO_NEIGHBOR,
                0,
                1,
                NO_NEIGHBOR,
                NO_NEIGHBOR,
            ],
            upper: vec![NO_NEIGHBOR, NO_NEIGHBOR],
            heap_tids,
            entry: Some(1),
        }
    }

    #[test]
    fn good_parts_make_a_graph() {
        let graph = Graph::new(parts()).unwrap();
        assert_eq!(graph.neighbors(0, 0), [1, 2]);
        assert_eq!(graph.neighbors(1, 1), [0u32; 0]);
        assert_eq!(graph.slots(1, 1).len(), 2);
        assert!(!graph.is_empty());
    }

    /// `count` elements, m = 3, each linked to the next `neighbors` ones, element 0 on level 1.
    fn ring(count: u32, neighbors: u32) -> GraphParts {
        let mut heap_tids = HeapTids::default();
        let mut layer0 = Vec::new();
        for element in 0..count {
            heap_tids.push([HeapTid::new(element, 1)]);
            let list = (1..=6).map(|step| if step <= neighbors { (element + step) % count } else { NO_NEIGHBOR });
            layer0.extend(list);
        }
        let mut levels = vec![0; count as usize];
        levels[0] = 1;
        GraphParts { m: 3, levels, layer0, upper: vec![NO_NEIGHBOR; 3], heap_tids, entry: Some(0) }
    }

    #[test]
    fn lists_of_layer_0_are_full_if_there_are_enough_elements() {
        assert!(Graph::new(ring(6, 5)).is_ok(), "too few elements for six neighbors");
        assert!(Graph::new(ring(7, 6)).is_ok());
        assert!(Graph::new(ring(8, 6)).is_ok());
        for count in [7, 8] {
            let problem = Graph::new(ring(count, 5)).unwrap_err();
            assert!(
                matches!(problem, GraphError::Neighbors { layer: 0, problem: "list is not full", .. }),
                "{problem}"
            );
        }
    }

    #[test]
    fn elements_have_one_to_ten_heap_tids() {
        let with = |tids: Vec<HeapTid>| {
            let mut parts = parts();
            parts.heap_tids = HeapTids::default();
            parts.heap_tids.push([HeapTid::new(0, 1)]);
            parts.heap_tids.push(tids);
            parts.heap_tids.push([HeapTid::new(0, 2)]);
            Graph::new(parts).err()
        };
        let tids = |count| (1..=count).map(|offset| HeapTid::new(7, offset)).collect::<Vec<_>>();
        assert_eq!([1, 10].map(|count| with(tids(count))), [None, None]);
        for count in [0, 11, 12] {
            assert_eq!(with(tids(count)), Some(GraphError::HeapTids { element: 1, count: count.into() }));
        }
        assert_eq!(
            with(vec![HeapTid::new(7, 0)]),
            Some(GraphError::HeapTids { element: 1, count: 1 }),
            "no line pointer 0"
        );
    }

    #[test]
    fn an_empty_graph_has_no_entry() {
        let graph = Graph::new(GraphParts { m: 16, ..GraphParts::default() }).unwrap();
        assert!(graph.is_empty() && graph.entry().is_none());
    }

    #[test]
    fn each_broken_rule_is_named() {
        let broken = |change: fn(&mut GraphParts)| {
            let mut parts = parts();
            change(&mut parts);
            Graph::new(parts).unwrap_err()
        };
        assert_eq!(broken(|p| p.m = 1), GraphError::M(1));
        assert!(matches!(broken(|p| p.layer0.truncate(4)), GraphError::Length { what: "layer 0", .. }));
        assert!(matches!(broken(|p| p.entry = Some(0)), GraphError::Entry { .. }));
        assert!(matches!(broken(|p| p.entry = None), GraphError::Entry { .. }));
        let list = |change: fn(&mut GraphParts)| match broken(change) {
            GraphError::Neighbors { problem, .. } => problem,
            other => panic!("unexpected {other}"),
        };
        assert_eq!(list(|p| p.layer0[0] = NO_NEIGHBOR), "hole in the list");
        assert_eq!(list(|p| p.layer0[0] = 0), "link to itself");
        assert_eq!(list(|p| p.layer0[0] = 2), "neighbor repeated");
        assert_eq!(list(|p| p.layer0[0] = 9), "unknown neighbor");
        assert_eq!(list(|p| p.upper[0] = 0), "neighbor is not on the layer");
    }
}
