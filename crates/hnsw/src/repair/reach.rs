//! Finds unreachable elements and links them.

use std::collections::{HashMap, VecDeque};

use graph::{Graph, NO_NEIGHBOR};

use crate::draft::Draft;
use crate::space::Space;
use crate::{BuildError, Control};

/// Elements compared when no neighbor of an unreachable part is reachable.
const SAMPLE: usize = 4096;
/// At first a host gives up at most one of this many slots.
const GIVEN: usize = 32;

/// Makes every element of every layer reachable from the entry point, and counts the links made at layer 0.
pub(crate) fn repair(draft: &mut Draft, space: Space<'_>, control: &Control) -> Result<u64, BuildError> {
    let Some(entry) = draft.entry() else { return Ok(0) };
    let mut linked = 0;
    for layer in (0..=draft.level(entry)).rev() {
        let mut layer = Layer::new(draft, layer, entry);
        linked = layer.repair(space, control)?;
        // Only at layer 0 does a search begin elsewhere than at the entry point.
        if layer.layer == 0 {
            linked += layer.lead_out(entry, control)?;
        }
    }
    Ok(linked)
}

/// How many elements are unreachable at layer 0.
pub(crate) fn count_unreachable(graph: &Graph) -> u64 {
    let Some(entry) = graph.entry() else { return 0 };
    let mut parents = vec![NO_NEIGHBOR; graph.len()];
    walk(&mut parents, entry, entry, |element| graph.neighbors(element, 0));
    parents.iter().filter(|&&parent| parent == NO_NEIGHBOR).count() as u64
}

/// Marks all elements that are reachable from `start` with their predecessors.
fn walk<'a>(parents: &mut [u32], start: u32, from: u32, neighbors: impl Fn(u32) -> &'a [u32]) {
    parents[start as usize] = from;
    let mut queue = vec![start];
    while let Some(element) = queue.pop() {
        for &neighbor in neighbors(element) {
            let parent = &mut parents[neighbor as usize];
            if *parent == NO_NEIGHBOR {
                *parent = element;
                queue.push(neighbor);
            }
        }
    }
}

struct Layer<'a> {
    draft: &'a mut Draft,
    layer: u8,
    /// The predecessor of each reachable element. These links are never given up.
    parents: Vec<u32>,
    /// Links that elements gave up so far.
    given: HashMap<u32, usize>,
}

/// Which links of a host may be given up for a new one: no link by which another element is reached.
#[derive(Clone, Copy)]
enum Give {
    /// A few of each host, so that it keeps most of its neighborhood.
    Few,
    Half,
    Any,
}

impl<'a> Layer<'a> {
    fn new(draft: &'a mut Draft, layer: u8, entry: u32) -> Self {
        let mut parents = vec![NO_NEIGHBOR; draft.len()];
        walk(&mut parents, entry, entry, |element| draft.neighbors(element, layer));
        Self { draft, layer, parents, given: HashMap::new() }
    }

    fn repair(&mut self, space: Space<'_>, control: &Control) -> Result<u64, BuildError> {
        let mut stranded: Vec<u32> = self.draft.on_layer(self.layer).filter(|&e| !self.is_reached(e)).collect();
        let mut linked = 0;
        // Elements that have just been linked: no path uses their own links yet, so they can give them up.
        let mut rescued = VecDeque::new();
        loop {
            let before = linked;
            for &element in &stranded {
                control.check()?;
                if !self.is_reached(element)
                    && let Some((host, slot)) = self.known_host(element)
                {
                    self.link(host, slot, element);
                    rescued.push_back(element);
                    linked += 1;
                }
            }
            stranded.retain(|&element| !self.is_reached(element));
            if linked == before {
                break;
            }
        }
        for element in stranded {
            control.check()?;
            if self.is_reached(element) {
                continue;
            }
            let known = self.known_host(element).or_else(|| self.rescued_host(&mut rescued));
            match known.or_else(|| self.any_host(element, space)) {
                Some((host, slot)) => self.link(host, slot, element),
                None => self.insert_between(element)?,
            }
            rescued.push_back(element);
            linked += 1;
        }
        Ok(linked)
    }

    /// Links elements from which the entry point is unreachable back to their predecessors: a search that arrives there would
    /// never find the others.
    fn lead_out(&mut self, entry: u32, control: &Control) -> Result<u64, BuildError> {
        let elements = self.draft.len() as u32;
        let mut out = vec![false; elements as usize];
        out[entry as usize] = true;
        // Two sweeps are enough for most graphs; along a thin curve very many would be needed.
        for element in (0..elements).chain((0..elements).rev()) {
            let out_of = |&next: &u32| out[next as usize];
            out[element as usize] =
                out[element as usize] || self.draft.neighbors(element, self.layer).iter().any(out_of);
        }
        control.check()?;
        let sources = Sources::of(self.draft, self.layer, &out);
        let mut leading: Vec<u32> = (0..elements).filter(|&element| out[element as usize]).collect();
        let mut linked = 0;
        // In the order of the walk, so that each element comes after its predecessor.
        let mut order = self.trapped_from(entry, &out).into_iter();
        loop {
            while let Some(element) = leading.pop() {
                for &source in sources.of_element(element) {
                    if !std::mem::replace(&mut out[source as usize], true) {
                        leading.push(source);
                    }
                }
            }
            control.check()?;
            let Some(element) = order.by_ref().find(|&element| !out[element as usize]) else { break };
            let parent = self.parents[element as usize];
            if let Some(slot) = self.room(element, Give::Any).filter(|_| out[parent as usize]) {
                self.draft.slots_mut(element, self.layer)[slot] = parent;
                linked += 1;
                out[element as usize] = true;
                leading.push(element);
            }
        }
        Ok(linked)
    }

    /// The elements without a path to the entry point, each after its predecessor.
    fn trapped_from(&self, entry: u32, out: &[bool]) -> Vec<u32> {
        let mut depths = vec![u32::MAX; out.len()];
        depths[entry as usize] = 0;
        let mut way = Vec::new();
        let mut trapped: Vec<u32> = (0..out.len() as u32).filter(|&e| !out[e as usize] && self.is_reached(e)).collect();
        for &element in &trapped {
            let mut at = element;
            while depths[at as usize] == u32::MAX {
                way.push(at);
                at = self.parents[at as usize];
            }
            let mut depth = depths[at as usize];
            for at in way.drain(..).rev() {
                depth += 1;
                depths[at as usize] = depth;
            }
        }
        trapped.sort_by_key(|&element| depths[element as usize]);
        trapped
    }

    fn is_reached(&self, element: u32) -> bool {
        self.parents[element as usize] != NO_NEIGHBOR
    }

    /// One of the element's own neighbors, nearest first.
    fn known_host(&self, element: u32) -> Option<(u32, usize)> {
        let neighbors = self.draft.neighbors(element, self.layer).iter();
        neighbors.filter(|&&host| self.is_reached(host)).find_map(|&host| Some((host, self.room(host, Give::Few)?)))
    }

    /// The first newly linked element that has room.
    fn rescued_host(&self, rescued: &mut VecDeque<u32>) -> Option<(u32, usize)> {
        loop {
            let &host = rescued.front()?;
            if let Some(slot) = self.room(host, Give::Half) {
                return Some((host, slot));
            }
            rescued.pop_front();
        }
    }

    /// The nearest with room in a sample of the reachable elements; else any.
    fn any_host(&self, element: u32, space: Space<'_>) -> Option<(u32, usize)> {
        let reached: Vec<u32> = self.draft.on_layer(self.layer).filter(|&host| self.is_reached(host)).collect();
        let sample = reached.iter().step_by((reached.len() / SAMPLE).max(1));
        let mut sample: Vec<_> = sample.map(|&host| (space.distance(element, host), host)).collect();
        sample.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let hosts = sample.into_iter().map(|(_, host)| host).chain(reached);
        hosts.into_iter().find_map(|host| Some((host, self.room(host, Give::Any)?)))
    }

    /// A slot for one more link: a free one, or the last one whose target is also reachable by another link.
    fn room(&self, host: u32, give: Give) -> Option<usize> {
        let slots = self.draft.slots(host, self.layer);
        let free = slots.iter().position(|&slot| slot == NO_NEIGHBOR);
        let given = self.given.get(&host).copied().unwrap_or(0);
        let may = match give {
            Give::Few => given < (slots.len() / GIVEN).max(1),
            Give::Half => given < slots.len() / 2,
            Give::Any => true,
        };
        let last = || slots.iter().rposition(|&slot| self.parents[slot as usize] != host);
        free.or_else(|| if may { last() } else { None })
    }

    /// For a host all of whose links are needed: takes over the slot of the first link, and links to its target.
    fn insert_between(&mut self, element: u32) -> Result<(), BuildError> {
        let has_one = |&host: &u32| self.is_reached(host) && !self.draft.neighbors(host, self.layer).is_empty();
        let host = self.draft.on_layer(self.layer).find(has_one);
        let host = host.ok_or_else(|| BuildError::Internal("no element has room for a link".into()))?;
        let slot = self.draft.neighbors(host, self.layer).len() - 1;
        let next = self.draft.slots(host, self.layer)[slot];
        if !self.draft.neighbors(element, self.layer).contains(&next) {
            let own = self.draft.slots_mut(element, self.layer);
            let at = own.iter().position(|&slot| slot == NO_NEIGHBOR).unwrap_or(own.len() - 1);
            own[at] = next;
        }
        self.parents[next as usize] = element;
        self.link(host, slot, element);
        Ok(())
    }

    fn link(&mut self, host: u32, slot: usize, element: u32) {
        *self.given.entry(host).or_default() += 1;
        let Self { draft, layer, parents, .. } = self;
        draft.slots_mut(host, *layer)[slot] = element;
        // Link back to the host if there is a free slot: above layer 0 lists may be empty.
        let own = draft.slots_mut(element, *layer);
        if let Some(free) = own.iter().position(|&slot| slot == NO_NEIGHBOR)
            && !own.contains(&host)
        {
            own[free] = host;
        }
        walk(parents, element, host, |element| draft.neighbors(element, *layer));
    }
}

/// Reverse links: for each element, the elements without a path to the entry point that link to it.
struct Sources {
    starts: Vec<usize>,
    sources: Vec<u32>,
}

impl Sources {
    fn of(draft: &Draft, layer: u8, out: &[bool]) -> Self {
        let trapped = || (0..out.len() as u32).filter(|&element| !out[element as usize]);
        let mut starts = vec![0; out.len() + 1];
        for element in trapped() {
            draft.neighbors(element, layer).iter().for_each(|&next| starts[next as usize + 1] += 1);
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut sources = vec![0; starts[out.len()]];
        let mut places = starts.clone();
        for element in trapped() {
            for &next in draft.neighbors(element, layer) {
                let place = &mut places[next as usize];
                sources[*place] = element;
                *place += 1;
            }
        }
        Self { starts, sources }
    }

    fn of_element(&self, element: u32) -> &[u32] {
        &self.sources[self.starts[element as usize]..self.starts[element as usize + 1]]
    }
}

#[cfg(test)]
mod tests {
    use graph::NO_NEIGHBOR;

    use super::{Layer, repair};
    use crate::Control;
    use crate::draft::Draft;
    use crate::testing::{euclidean, store};

    fn line(elements: usize) -> Vec<[f32; 1]> {
        (0..elements).map(|at| [at as f32]).collect()
    }

    #[test]
    fn two_rings_become_one_graph() {
        // Elements 0-9 and 10-19: two parts with full lists and no links between them.
        let store = store(&line(20));
        let mut draft = Draft::new(2, vec![0; 20]);
        for element in 0..20u32 {
            let part = element / 10 * 10;
            draft.set(element, 0, (1..=4).map(|step| part + (element + step) % 10));
        }
        let linked = repair(&mut draft, euclidean::<1>(&store), &Control::default()).unwrap();
        assert_eq!(linked, 1);
        let layer = Layer::new(&mut draft, 0, 0);
        assert!(layer.parents.iter().all(|&parent| parent != NO_NEIGHBOR));
        for element in 0..20 {
            assert_eq!(draft.neighbors(element, 0).len(), 4);
        }
    }

    #[test]
    fn empty_upper_lists_get_links_both_ways() {
        let store = store(&line(4));
        let mut draft = Draft::new(2, vec![1, 1, 1, 1]);
        for element in 0..4u32 {
            draft.set(element, 0, (0..4).filter(|&other| other != element));
        }
        assert_eq!(repair(&mut draft, euclidean::<1>(&store), &Control::default()).unwrap(), 0);
        let layer = Layer::new(&mut draft, 1, 0);
        assert!(layer.parents.iter().all(|&parent| parent != NO_NEIGHBOR));
        assert!((0..4).all(|element| !draft.neighbors(element, 1).is_empty()));
    }
}
