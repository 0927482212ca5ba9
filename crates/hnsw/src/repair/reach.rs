//! Finds unreachable elements and links them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use distance::Metric;
use graph::{Graph, NO_NEIGHBOR};
use rayon::prelude::*;

use crate::draft::Draft;
use crate::space::Space;
use crate::tasks::ranges;
use crate::{BuildError, Control};

/// Reachable elements compared with an unreachable one that no neighbor can link to.
const SAMPLE: usize = 4096;
/// At first a host gives up at most one in this many of its links.
const GIVEN: usize = 32;
/// A round that links at most one in this many of the elements still unreachable is the last.
const FEW: u64 = 64;

/// Elements whose links a task follows.
const AT_ONCE: usize = 512;

/// Makes every element of every layer reachable from the entry point, and counts the links made at layer 0. Runs on the threads of the pool
/// it is called from.
pub(crate) fn repair(draft: &mut Draft, space: Space<'_>, control: &Control) -> Result<u64, BuildError> {
    let Some((entry, top)) = draft.entry_point() else { return Ok(0) };
    let mut linked = 0;
    for layer in (0..=top).rev() {
        let mut layer = Layer::new(draft, layer, entry, control)?;
        linked = layer.repair(space, control)?;
        // Only at layer 0: there, most searches do not begin at the entry point.
        if layer.layer == 0 {
            linked += layer.link_trapped(entry, control)?;
        }
    }
    Ok(linked)
}

/// How many elements are unreachable at layer 0.
pub(crate) fn count_unreachable(graph: &Graph, control: &Control) -> Result<u64, BuildError> {
    let Some(entry) = graph.entry() else { return Ok(0) };
    let parents = walk_all(graph.len(), entry, |element| graph.neighbors(element, 0), control)?;
    Ok(parents.iter().filter(|&&parent| parent == NO_NEIGHBOR).count() as u64)
}

/// For each of `len` elements, its predecessor on a shortest path from the entry point, of several the one with the lowest number;
/// `NO_NEIGHBOR` if there is no path.
fn walk_all<'a>(
    len: usize,
    entry: u32,
    neighbors: impl Fn(u32) -> &'a [u32] + Sync + Send,
    control: &Control,
) -> Result<Vec<u32>, BuildError> {
    // Upper 32 bits: steps; lower 32 bits: predecessor. The minimum wins.
    let reached: Vec<AtomicU64> = (0..len).map(|_| AtomicU64::new(u64::MAX)).collect();
    reached[entry as usize].store(entry.into(), Ordering::Relaxed);
    let mut front = vec![entry];
    let mut steps = 0u64;
    while !front.is_empty() {
        steps += 1;
        let next = control.section("walk").map(front.par_chunks(AT_ONCE), |front| {
            let mut next = Vec::new();
            for &element in front {
                let own = steps << 32 | u64::from(element);
                for &neighbor in neighbors(element) {
                    let reached = &reached[neighbor as usize];
                    if own < reached.load(Ordering::Relaxed) && reached.fetch_min(own, Ordering::Relaxed) == u64::MAX {
                        next.push(neighbor);
                    }
                }
            }
            Ok(next)
        })?;
        front = next.concat();
    }
    control.section("walk").fill(len, |at| reached[at].load(Ordering::Relaxed) as u32)
}

/// Marks `start` as reached from `from`, and sets the predecessor of all unreached elements that are reachable from it.
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
    /// The predecessor of each reachable element. The link from it is never replaced.
    parents: Vec<u32>,
    /// For each element, how many of its links have been replaced.
    given: HashMap<u32, usize>,
}

/// How many links of a host may be replaced. Links from an element's predecessor (`parents`) never are.
#[derive(Clone, Copy)]
enum GivenUp {
    /// A few of each host, so that it keeps most of its neighborhood.
    Few,
    Half,
    Any,
}

impl<'a> Layer<'a> {
    fn new(draft: &'a mut Draft, layer: u8, entry: u32, control: &Control) -> Result<Self, BuildError> {
        let parents = walk_all(draft.len(), entry, |element| draft.neighbors(element, layer), control)?;
        Ok(Self { draft, layer, parents, given: HashMap::new() })
    }

    fn repair(&mut self, space: Space<'_>, control: &Control) -> Result<u64, BuildError> {
        let mut stranded: Vec<u32> = self.draft.on_layer(self.layer).filter(|&e| !self.is_reached(e)).collect();
        // Elements that have just been linked: few others are reached by their links, so they can give up many.
        let mut rescued = VecDeque::new();
        // Under inner product, unreachable elements are short vectors, hardly ever a result. Their neighbors are the longest vectors, which
        // every search passes: these keep their links, and unreachable elements are linked to each other.
        let short = space.measure.metric == Metric::InnerProduct;
        let mut linked = if short { 0 } else { self.link_to_known(&mut stranded, &mut rescued, control)? };
        for element in stranded {
            control.check()?;
            if self.is_reached(element) {
                continue;
            }
            let known = match short {
                false => self.known_host(element).or_else(|| self.rescued_host(&mut rescued)),
                true => self.rescued_host(&mut rescued).or_else(|| self.known_host(element)),
            };
            match known.or_else(|| self.any_host(element, space)) {
                Some((host, slot)) => self.link(host, slot, element),
                None => self.insert_between(element)?,
            }
            rescued.push_back(element);
            linked += 1;
        }
        Ok(linked)
    }

    /// Gives `stranded` elements links from their own neighbors, in rounds: elements linked in one round can be hosts in the next. Stops
    /// when a round links few, since one element per round would cost quadratic time.
    fn link_to_known(
        &mut self,
        stranded: &mut Vec<u32>,
        rescued: &mut VecDeque<u32>,
        control: &Control,
    ) -> Result<u64, BuildError> {
        let mut linked = 0;
        loop {
            let before = linked;
            for &element in &*stranded {
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
            if linked - before <= stranded.len() as u64 / FEW {
                return Ok(linked);
            }
        }
    }

    /// Gives elements without a path to the entry point a link to their predecessor: a search that arrives there could not get out.
    /// Returns the number of links.
    fn link_trapped(&mut self, entry: u32, control: &Control) -> Result<u64, BuildError> {
        let elements = self.draft.len() as u32;
        let mut out = self.mark_ways_out(entry, control)?;
        if !out.contains(&false) {
            return Ok(0);
        }
        let sources = Sources::of(self.draft, self.layer, &out);
        let leads = |&element: &u32| out[element as usize] && !sources.of_element(element).is_empty();
        let mut leading: Vec<u32> = (0..elements).filter(leads).collect();
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
            if let Some(slot) = self.room(element, GivenUp::Any).filter(|_| out[parent as usize]) {
                self.draft.slots_mut(element, self.layer)[slot] = parent;
                linked += 1;
                out[element as usize] = true;
                leading.push(element);
            }
        }
        Ok(linked)
    }

    /// Marks elements with a path to the entry point, by parallel sweeps, until a sweep finds few more. Elements with long paths may stay
    /// unmarked.
    fn mark_ways_out(&self, entry: u32, control: &Control) -> Result<Vec<bool>, BuildError> {
        let out: Vec<AtomicBool> = (0..self.draft.len()).map(|_| AtomicBool::new(false)).collect();
        out[entry as usize].store(true, Ordering::Relaxed);
        let leads_out = |&element: &u32| out[element as usize].load(Ordering::Relaxed);
        let mut left = usize::MAX;
        loop {
            let trapped = control.section("ways out").map(ranges(out.len()), |range| {
                let mut trapped = 0;
                for element in (range.start as u32..range.end as u32).filter(|element| !leads_out(element)) {
                    match self.draft.neighbors(element, self.layer).iter().any(leads_out) {
                        true => out[element as usize].store(true, Ordering::Relaxed),
                        false => trapped += 1,
                    }
                }
                Ok(trapped)
            })?;
            let before = std::mem::replace(&mut left, trapped.into_iter().sum());
            // Along a thin curve, very many sweeps would be needed; the caller follows links backwards instead.
            if left == 0 || left > before / 2 {
                return Ok(out.into_iter().map(AtomicBool::into_inner).collect());
            }
        }
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

    /// The nearest of the element's own neighbors that is reachable and has room, with the slot.
    fn known_host(&self, element: u32) -> Option<(u32, usize)> {
        let neighbors = self.draft.neighbors(element, self.layer).iter();
        neighbors.filter(|&&host| self.is_reached(host)).find_map(|&host| Some((host, self.room(host, GivenUp::Few)?)))
    }

    /// The first newly linked element that has room.
    fn rescued_host(&self, rescued: &mut VecDeque<u32>) -> Option<(u32, usize)> {
        loop {
            let &host = rescued.front()?;
            if let Some(slot) = self.room(host, GivenUp::Half) {
                return Some((host, slot));
            }
            rescued.pop_front();
        }
    }

    /// The nearest with room in a sample of the reachable elements; else any reachable element with room.
    fn any_host(&self, element: u32, space: Space<'_>) -> Option<(u32, usize)> {
        let reached: Vec<u32> = self.draft.on_layer(self.layer).filter(|&host| self.is_reached(host)).collect();
        let sample = reached.iter().step_by((reached.len() / SAMPLE).max(1));
        let mut sample: Vec<_> = sample.map(|&host| (space.distance(element, host), host)).collect();
        sample.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let hosts = sample.into_iter().map(|(_, host)| host).chain(reached);
        hosts.into_iter().find_map(|host| Some((host, self.room(host, GivenUp::Any)?)))
    }

    /// A slot for one more link: a free one, or the last one whose target has another predecessor.
    fn room(&self, host: u32, most: GivenUp) -> Option<usize> {
        let slots = self.draft.slots(host, self.layer);
        let free = slots.iter().position(|&slot| slot == NO_NEIGHBOR);
        let given = self.given.get(&host).copied().unwrap_or(0);
        let may = match most {
            GivenUp::Few => given < (slots.len() / GIVEN).max(1),
            GivenUp::Half => given < slots.len() / 2,
            GivenUp::Any => true,
        };
        let last = || slots.iter().rposition(|&slot| self.parents[slot as usize] != host);
        free.or_else(|| if may { last() } else { None })
    }

    /// For a host all of whose links are needed: puts the element in the slot of the host's last link, and links the element to that link's
    /// target.
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
    use distance::{Elements, Metric};
    use graph::NO_NEIGHBOR;

    use super::{Layer, repair};
    use crate::Control;
    use crate::draft::Draft;
    use crate::space::{Measure, Space};
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
        let layer = Layer::new(&mut draft, 0, 0, &Control::default()).unwrap();
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
        let layer = Layer::new(&mut draft, 1, 0, &Control::default()).unwrap();
        assert!(layer.parents.iter().all(|&parent| parent != NO_NEIGHBOR));
        assert!((0..4).all(|element| !draft.neighbors(element, 1).is_empty()));
    }

    #[test]
    fn by_inner_product_the_longest_keep_their_links() {
        const LONG: u32 = 5;
        let points: Vec<[f32; 1]> = (0..60).map(|at| [if at < LONG { 100.0 } else { at as f32 * 0.01 }]).collect();
        let store = store(&points);
        for (metric, most) in [(Metric::InnerProduct, 1), (Metric::L2, 5)] {
            let measure = Measure::new(Elements::F32, metric, 1).expect("vectors have both");
            let mut draft = Draft::new(2, vec![0; points.len()]);
            // All link to the longest.
            let long = |element: u32| (0..LONG).filter(move |&other| other != element).take(4);
            (0..points.len() as u32).for_each(|element| draft.set(element, 0, long(element)));
            repair(&mut draft, Space::exact(measure, &store), &Control::default()).unwrap();
            let layer = Layer::new(&mut draft, 0, 0, &Control::default()).unwrap();
            assert!(layer.parents.iter().all(|&parent| parent != NO_NEIGHBOR));
            let given =
                (0..LONG).flat_map(|element| draft.neighbors(element, 0)).filter(|&&other| other >= LONG).count();
            assert!(given <= most && given > 0, "{metric:?}: {given}");
        }
    }
}
