//! Finds the elements that no search can arrive at and links them.

use graph::{Graph, NO_NEIGHBOR};

use crate::draft::Draft;
use crate::space::Space;
use crate::{BuildError, Control};

/// Elements compared when a stranded part knows nobody who can be reached.
const SAMPLE: usize = 4096;

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

/// How many elements layer 0 does not lead to.
pub(crate) fn count_unreachable(graph: &Graph) -> u64 {
    let Some(entry) = graph.entry() else { return 0 };
    let mut parents = vec![NO_NEIGHBOR; graph.len()];
    walk(&mut parents, entry, entry, |element| graph.neighbors(element, 0));
    parents.iter().filter(|&&parent| parent == NO_NEIGHBOR).count() as u64
}

/// Marks everything that can be reached from `start` with the element it was reached from.
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
    /// For each element that can be reached, where from. These links are never given up.
    parents: Vec<u32>,
}

impl<'a> Layer<'a> {
    fn new(draft: &'a mut Draft, layer: u8, entry: u32) -> Self {
        let mut parents = vec![NO_NEIGHBOR; draft.len()];
        walk(&mut parents, entry, entry, |element| draft.neighbors(element, layer));
        Self { draft, layer, parents }
    }

    fn repair(&mut self, space: Space<'_>, control: &Control) -> Result<u64, BuildError> {
        let mut stranded: Vec<u32> = self.draft.on_layer(self.layer).filter(|&e| !self.is_reached(e)).collect();
        let mut linked = 0;
        while !stranded.is_empty() {
            control.check()?;
            let before = linked;
            for &element in &stranded {
                if !self.is_reached(element)
                    && let Some((host, slot)) = self.known_host(element)
                {
                    self.link(host, slot, element);
                    linked += 1;
                }
            }
            if linked == before {
                let (host, slot) = self
                    .any_host(stranded[0], space)
                    .ok_or_else(|| BuildError::Internal("no element has room for a link".into()))?;
                self.link(host, slot, stranded[0]);
                linked += 1;
            }
            stranded.retain(|&element| !self.is_reached(element));
        }
        Ok(linked)
    }

    /// Links the elements from which the entry point cannot be reached to the one that they were reached from: a search that
    /// arrives among them would never see the others.
    fn lead_out(&mut self, entry: u32, control: &Control) -> Result<u64, BuildError> {
        let mut out = vec![false; self.draft.len()];
        out[entry as usize] = true;
        let mut trapped: Vec<u32> = (0..self.draft.len() as u32).filter(|&element| element != entry).collect();
        let mut linked = 0;
        while !trapped.is_empty() {
            control.check()?;
            let before = trapped.len();
            trapped.retain(|&element| {
                let leads_out = self.draft.neighbors(element, self.layer).iter().any(|&next| out[next as usize]);
                out[element as usize] = leads_out;
                !leads_out
            });
            if trapped.len() < before {
                continue;
            }
            // The first of them on its way from the entry point has a parent that leads out.
            let link = trapped.iter().find_map(|&element| {
                let parent = self.parents[element as usize];
                out[parent as usize].then_some(())?;
                Some((element, self.room(element)?, parent))
            });
            let Some((element, slot, parent)) = link else { break };
            self.draft.slots_mut(element, self.layer)[slot] = parent;
            linked += 1;
        }
        Ok(linked)
    }

    fn is_reached(&self, element: u32) -> bool {
        self.parents[element as usize] != NO_NEIGHBOR
    }

    /// One of the element's own neighbors, nearest first.
    fn known_host(&self, element: u32) -> Option<(u32, usize)> {
        let neighbors = self.draft.neighbors(element, self.layer).iter();
        neighbors.filter(|&&host| self.is_reached(host)).find_map(|&host| Some((host, self.room(host)?)))
    }

    /// The nearest of a sample of those that can be reached; failing that, any.
    fn any_host(&self, element: u32, space: Space<'_>) -> Option<(u32, usize)> {
        let reached = || self.draft.on_layer(self.layer).filter(|&host| self.is_reached(host));
        let step = (reached().count() / SAMPLE).max(1);
        let mut sample: Vec<_> = reached().step_by(step).map(|host| (space.distance(element, host), host)).collect();
        sample.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let hosts = sample.into_iter().map(|(_, host)| host).chain(reached());
        hosts.into_iter().find_map(|host| Some((host, self.room(host)?)))
    }

    /// A slot for one more link: a free one, or the last one that leads to an element which is also reached otherwise.
    fn room(&self, host: u32) -> Option<usize> {
        let slots = self.draft.slots(host, self.layer);
        let free = slots.iter().position(|&slot| slot == NO_NEIGHBOR);
        free.or_else(|| slots.iter().rposition(|&slot| self.parents[slot as usize] != host))
    }

    fn link(&mut self, host: u32, slot: usize, element: u32) {
        let Self { draft, layer, parents } = self;
        draft.slots_mut(host, *layer)[slot] = element;
        // Where there is a free slot, know the host as well: above layer 0 lists may be empty.
        let own = draft.slots_mut(element, *layer);
        if let Some(free) = own.iter().position(|&slot| slot == NO_NEIGHBOR)
            && !own.contains(&host)
        {
            own[free] = host;
        }
        walk(parents, element, host, |element| draft.neighbors(element, *layer));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Layer, repair};
    use crate::Control;
    use crate::draft::Draft;
    use crate::space::{Measure, Space};
    use crate::values::{Chunk, ValueStore};
    use graph::NO_NEIGHBOR;

    fn store(elements: u32) -> Arc<ValueStore> {
        let store = ValueStore::new(crate::Storage::default());
        let mut chunk = Chunk::new(Some(4));
        (0..elements).for_each(|element| chunk.push(&(element as f32).to_le_bytes()));
        store.publish(chunk);
        Arc::new(store)
    }

    #[test]
    fn two_rings_become_one_graph() {
        // Elements 0-9 and 10-19: two parts whose lists are full and know nothing of each other.
        let store = store(20);
        let measure =
            Measure { products: None, ..Measure::new(distance::Elements::F32, distance::Metric::L2, 1).unwrap() };
        let mut draft = Draft::new(2, vec![0; 20]);
        for element in 0..20u32 {
            let part = element / 10 * 10;
            draft.set(element, 0, (1..=4).map(|step| part + (element + step) % 10));
        }
        let linked =
            repair(&mut draft, Space { measure, store: &store, lifts: &[], codes: None }, &Control::default()).unwrap();
        assert_eq!(linked, 1);
        let layer = Layer::new(&mut draft, 0, 0);
        assert!(layer.parents.iter().all(|&parent| parent != NO_NEIGHBOR));
        for element in 0..20 {
            assert_eq!(draft.neighbors(element, 0).len(), 4);
        }
    }

    #[test]
    fn empty_upper_lists_get_links_both_ways() {
        let store = store(4);
        let measure =
            Measure { products: None, ..Measure::new(distance::Elements::F32, distance::Metric::L2, 1).unwrap() };
        let mut draft = Draft::new(2, vec![1, 1, 1, 1]);
        for element in 0..4u32 {
            draft.set(element, 0, (0..4).filter(|&other| other != element));
        }
        assert_eq!(
            repair(&mut draft, Space { measure, store: &store, lifts: &[], codes: None }, &Control::default()).unwrap(),
            0
        );
        let layer = Layer::new(&mut draft, 1, 0);
        assert!(layer.parents.iter().all(|&parent| parent != NO_NEIGHBOR));
        assert!((0..4).all(|element| !draft.neighbors(element, 1).is_empty()));
    }
}
