//! pgvector's insertion: the reference for what the database would have built.
//!
//! Each element is searched for in the graph of the elements before it, with `ef_construction`, on each of its layers. The diversity rule
//! of the HNSW paper (algorithm 4), with refill, selects its neighbors, and each neighbor adds the element to its own list by the same rule
//! (pgvector's `HnswFindElementNeighbors`, `SelectNeighbors`, `HnswUpdateConnection`).
//!
//! Threads work on batches of at most a fiftieth of the graph (as in ParlayANN, arXiv 2305.04359): elements of a batch search the graph
//! before it, then each list that gets new links is changed by one thread, in the order of the elements. So the graph depends on the rows
//! alone, not on the threads. Up to a hundred elements, each batch has one. Unlike in pgvector, elements come in random order: similar rows
//! that follow one another would not see each other in a batch.

mod engine;
mod lists;

use distance::Candidate;
use rayon::prelude::*;

use crate::search::{Links, Loading, Searcher};
use crate::space::{Query, Space};
use crate::{BuildError, Control};
pub(crate) use engine::{InsertionEngine, draft_by_insertion, insert_all};
use lists::{List, Lists};

/// A batch has at most a `BEFORE`th as many elements as the graph, and at least one.
const BEFORE: usize = 50;

/// A graph into which points are inserted in order. It numbers them by position in `points`.
pub(crate) struct Insertion<'a> {
    space: Space<'a>,
    points: &'a [u32],
    ef_construction: usize,
    lists: Lists,
    entry: u32,
}

/// Memory that a thread reuses from point to point.
#[derive(Default)]
struct Scratch {
    searcher: Searcher,
    list: List,
    query: Query,
    /// The query of the diversity rule.
    rule: Query,
}

/// A reverse link, from a neighbor to the point that chose it.
struct Back {
    target: u32,
    layer: u8,
    point: u32,
    distance: f32,
}

impl<'a> Insertion<'a> {
    /// Inserts all points, with the given levels, by the exact distances of `space`. Runs on the threads of the pool it is called from.
    pub(crate) fn build(
        space: Space<'a>,
        points: &'a [u32],
        levels: Vec<u8>,
        m: usize,
        ef_construction: usize,
        control: &Control,
    ) -> Result<Self, BuildError> {
        let mut graph = Self { space, points, ef_construction, lists: Lists::new(m, levels), entry: 0 };
        let mut done = usize::from(!points.is_empty());
        while done < points.len() {
            let end = points.len().min(done + (done / BEFORE).max(1));
            // An element of a higher level becomes the entry point.
            let top = graph.lists.level(graph.entry);
            let higher = (done..end).find(|&point| graph.lists.level(point as u32) > top);
            let end = higher.map_or(end, |point| point + 1);
            graph.insert(done as u32..end as u32, control)?;
            graph.entry = higher.map_or(graph.entry, |point| point as u32);
            control.progress().add((end - done) as u64);
            done = end;
        }
        Ok(graph)
    }

    fn insert(&self, batch: std::ops::Range<u32>, control: &Control) -> Result<(), BuildError> {
        let insert = |scratch: &mut Scratch, point| Ok(self.link(point, scratch));
        let back = control.section("insertion").map_init(batch.into_par_iter(), insert)?;
        let mut back: Vec<Back> = back.into_iter().flatten().collect();
        // A stable sort: links to one list stay in the order of the elements.
        back.par_sort_by_key(|back| (back.target, back.layer));
        let lists: Vec<&[Back]> = back.chunk_by(|a, b| (a.target, a.layer) == (b.target, b.layer)).collect();
        let links = lists.into_par_iter();
        control.section("reverse links").for_each_init(links, |(list, query): &mut (List, Query), links| {
            let Back { target, layer, .. } = links[0];
            self.lists.take(target, layer, list);
            for link in links {
                self.update(list, layer, Candidate::new(link.distance, link.point), query);
            }
            self.lists.put(target, layer, list);
            Ok(())
        })
    }

    /// Finds the neighbors of a point on each of its layers. Returns the reverse links.
    fn link(&self, point: u32, scratch: &mut Scratch) -> Vec<Back> {
        let Scratch { searcher, list, query, rule } = scratch;
        self.space.prepare(query, self.element(point));
        let query = &*query;
        let (level, top) = (self.lists.level(point), self.lists.level(self.entry));
        let distance = |other| self.space.distance_of(query, self.element(other));
        let mut distances = Loading { distance, bytes: |other| self.space.value(self.element(other)) };
        let mut from = searcher.descend(self, &mut distances, |_| {}, level);
        let mut back = Vec::new();
        for layer in (0..=level.min(top)).rev() {
            from = searcher.layer(self, &mut distances, |_| {}, &from, self.ef_construction, layer);
            list.neighbors.clear();
            list.chosen = None;
            self.select(&from, self.lists.width(layer), &mut list.neighbors, rule);
            let to = |near: &Candidate| Back { target: near.element(), layer, point, distance: near.distance() };
            back.extend(list.neighbors.iter().map(to));
            list.neighbors.sort_unstable();
            self.lists.put(point, layer, list);
        }
        back
    }

    /// The diversity rule: takes candidates, nearest first, that are nearer to the point than to any chosen before; then refills with the
    /// nearest of the others.
    fn select(&self, candidates: &[Candidate], wanted: usize, chosen: &mut Vec<Candidate>, query: &mut Query) {
        if candidates.len() <= wanted {
            chosen.extend_from_slice(candidates);
            return;
        }
        let mut others = Vec::new();
        for &candidate in candidates {
            if chosen.len() == wanted {
                return;
            }
            if self.is_apart(candidate, chosen, query) { chosen.push(candidate) } else { others.push(candidate) }
        }
        chosen.extend(others.into_iter().take(wanted - chosen.len()));
    }

    /// Adds a point to the list of another. From a full list, the furthest neighbor that the rule does not choose is dropped.
    ///
    /// Earlier results of the rule are reused unless the new point changes them (as in pgvector).
    fn update(&self, list: &mut List, layer: u8, new: Candidate, query: &mut Query) {
        let width = self.lists.width(layer);
        let List { neighbors, chosen } = list;
        let place = neighbors.partition_point(|near| *near < new);
        neighbors.insert(place, new);
        if neighbors.len() <= width {
            *chosen = None;
            return;
        }
        let before = chosen.take().map(|mut before| {
            before.insert(place, false);
            before
        });
        let mut by_rule: Vec<Candidate> = Vec::with_capacity(width);
        let mut now = vec![false; neighbors.len()];
        let (mut added, mut removed): (Vec<Candidate>, bool) = (Vec::new(), false);
        for (at, &candidate) in neighbors.iter().enumerate() {
            if by_rule.len() == width {
                break;
            }
            now[at] = match &before {
                None => self.is_apart(candidate, &by_rule, query),
                Some(before) if at < place => before[at],
                Some(_) if at == place => self.is_apart(candidate, &by_rule, query),
                Some(before) if before[at] => self.is_apart(candidate, &added, query),
                Some(_) => removed && self.is_apart(candidate, &by_rule, query),
            };
            if let Some(before) = &before {
                removed |= before[at] && !now[at];
                if now[at] && !before[at] {
                    added.push(candidate);
                }
            }
            if now[at] {
                by_rule.push(candidate);
            }
        }
        // The furthest neighbor that the rule did not choose; the last one if it chose all.
        let out = now.iter().rposition(|&chosen| !chosen).unwrap_or(width);
        neighbors.remove(out);
        now.remove(out);
        *chosen = Some(now);
    }

    /// Whether a candidate is nearer to the point than to any of `chosen`.
    fn is_apart(&self, candidate: Candidate, chosen: &[Candidate], query: &mut Query) -> bool {
        if chosen.is_empty() {
            return true;
        }
        self.space.prepare(query, self.element(candidate.element()));
        let distance = |other: &Candidate| self.space.distance_of(query, self.element(other.element()));
        chosen.iter().all(|other| distance(other) > candidate.distance())
    }

    pub(crate) fn element(&self, point: u32) -> u32 {
        self.points[point as usize]
    }

    /// The neighbors of a point at layer 0 that the diversity rule chose, nearest first, then its other neighbors, which may be replaced.
    fn by_rule(&self, point: u32) -> Vec<u32> {
        let mut list = List::default();
        self.lists.take(point, 0, &mut list);
        let chosen = list.chosen.unwrap_or_default();
        let is_chosen = |at: usize| chosen.get(at).copied().unwrap_or(true);
        let numbered = || list.neighbors.iter().enumerate();
        let first = numbered().filter(|&(at, _)| is_chosen(at));
        let ordered = first.chain(numbered().filter(|&(at, _)| !is_chosen(at)));
        ordered.map(|(_, near)| self.element(near.element())).collect()
    }

    /// The neighbors of a point on a layer, nearest first, as elements.
    pub(crate) fn list(&self, point: u32, layer: u8) -> impl Iterator<Item = Candidate> {
        self.lists.of(point, layer).map(|near| Candidate::new(near.distance(), self.element(near.element())))
    }
}

impl Links for Insertion<'_> {
    fn len(&self) -> usize {
        self.lists.len()
    }

    fn entry(&self) -> Option<(u32, u8)> {
        (self.len() > 0).then(|| (self.entry, self.lists.level(self.entry)))
    }

    fn neighbors(&self, element: u32, layer: u8) -> impl Iterator<Item = u32> {
        self.lists.of(element, layer).map(|near| near.element())
    }
}
