//! A check: receives the pages of an index, verifies them meanwhile, and measures the recall of searches.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use distance::{Elements, Kernel, Least, kernel};
use hnsw::{BuildError, BuildSpec, Control, Links, Phase, Pool, Searcher};
use pages::{
    BlockNeighbors, Estimate, KeptNeighbors, Linked, NeighborSource, PAGE_SIZE, PageBytes, PageSource, Report, Scanned,
    TooLarge,
};
use pgvector::{HEAP_TIDS_PER_ELEMENT, MAX_EF_SEARCH, ValueType};
use protocol::{Check, Findings};
use rayon::prelude::*;
use service::Size;

use crate::admission::FIXED;
use crate::job::millionths;
use crate::session_error::SessionError;

/// Neighbors per search: recall@10, as in the database's own check.
const WANTED: usize = 10;
/// The most elements to search for.
const MAX_SAMPLE: usize = 10_000;
/// The most elements that a search may visit, several times what searches of good graphs visit: in a malicious
/// index each search might visit all elements.
const MOST_VISITED: usize = 1 << 18;
/// Elements that a thread compares with all sampled values between checks for cancellation.
const CHUNK: usize = 1 << 10;
/// Ranges of blocks whose neighbor lists are checked in parallel: enough for many threads, but each may keep a hundred messages.
const PARTS: u32 = 64;
/// Bytes assumed for a sparse value: 16 entries. Less than for a build, for an upper bound: the shorter
/// values are, the more elements fit on a page.
const SHORT_SPARSE_VALUE: usize = 4 + 8 * 16;
/// The least bytes for elements: each `Vec` has room for a thousand, even if there are fewer.
const KEPT_AT_LEAST: u64 = 4 << 20;

/// The memory of a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckNeed {
    /// Bytes for the pages, which are kept for searches only.
    pages: u64,
    /// Bytes for the data kept about elements.
    elements: u64,
    /// Bytes for the sampled values, none of which is longer than a page.
    sample: u64,
}

impl CheckNeed {
    pub(crate) fn new(spec: &BuildSpec, check: &Check) -> Self {
        let value_len = spec.value_type.value_len(spec.dims).unwrap_or(SHORT_SPARSE_VALUE);
        let elements = Estimate::elements_in(spec.value_type, value_len, spec.m, check.blocks);
        let most_rows = elements.saturating_mul(HEAP_TIDS_PER_ELEMENT as u64);
        // After VACUUM and inserts, pages may hold more small elements than after a build.
        let most_elements = elements.saturating_add(elements / 2);
        let neighbors = KeptNeighbors::bytes(most_elements, spec.m, check.blocks);
        let verify = pages::verify_bytes(most_elements, most_rows, check.blocks).saturating_add(neighbors);
        let kept = KEPT_AT_LEAST + verify.max(Linked::bytes(elements, check.blocks));
        let sample = u64::from(check.sample).min(MAX_SAMPLE as u64) * PAGE_SIZE as u64;
        let pages = if check.sample > 0 { u64::from(check.blocks) * PAGE_SIZE as u64 } else { 0 };
        Self { pages, elements: kept, sample }
    }

    pub(crate) fn bytes(&self) -> u64 {
        [self.elements, self.sample, FIXED].into_iter().fold(self.pages, u64::saturating_add)
    }
}

/// The pages of an index, which are verified while they arrive.
pub(crate) struct Incoming<'a> {
    /// The last pages that have arrived, or all of them if searches need them.
    pages: Vec<PageBytes>,
    /// The block of the first of these pages.
    first: u32,
    keep: bool,
    blocks: u32,
    /// Waits for the next pages, whose order the session has checked.
    next: &'a mut dyn FnMut() -> Result<protocol::Pages, SessionError>,
    control: &'a Control,
    /// Why no more pages arrive.
    failure: Option<SessionError>,
}

impl<'a> Incoming<'a> {
    pub(crate) fn new(
        check: &Check,
        next: &'a mut dyn FnMut() -> Result<protocol::Pages, SessionError>,
        control: &'a Control,
    ) -> Result<Self, SessionError> {
        let mut pages = Vec::new();
        let keep = check.sample > 0;
        if keep {
            let room = pages.try_reserve_exact(check.blocks as usize);
            room.map_err(|_| BuildError::Memory("no memory for the pages of the index".to_owned()))?;
        }
        control.progress().enter(Phase::Rows, check.blocks.into());
        Ok(Self { pages, first: 0, keep, blocks: check.blocks, next, control, failure: None })
    }

    /// Verifies each page as it arrives.
    pub(crate) fn scan(mut self, value_type: ValueType, need: &CheckNeed) -> Result<Received, SessionError> {
        let scanned = until_stopped(|| Scanned::keeping_neighbors(&mut self, Some(value_type), need.elements));
        let scanned = scanned.map_err(|stopped| self.failure.take().unwrap_or(stopped))?;
        let (scanned, neighbors) = scanned.map_err(|error| too_large(&error, need))?;
        Ok(Received { scanned, neighbors, pages: self.pages })
    }

    /// Receives pages until `block` has arrived; blocks are read in order.
    fn receive(&mut self, block: u32) -> Result<(), SessionError> {
        while self.first + self.pages.len() as u32 <= block {
            let pages = (self.next)()?;
            let (whole, _) = pages.pages.as_chunks::<PAGE_SIZE>();
            if !self.keep {
                self.first += self.pages.len() as u32;
                self.pages.clear();
            }
            let room = (self.blocks - self.first) as usize - self.pages.len();
            self.pages.extend_from_slice(&whole[..whole.len().min(room)]);
            self.control.progress().add(whole.len() as u64);
        }
        Ok(())
    }
}

impl PageSource for Incoming<'_> {
    fn blocks(&self) -> u32 {
        self.blocks
    }

    fn read<'a>(&'a mut self, block: u32, _: &'a mut PageBytes) -> io::Result<&'a PageBytes> {
        pause(self.control);
        if let Err(error) = self.receive(block) {
            self.failure = Some(error);
            stop();
        }
        let page = block.checked_sub(self.first).and_then(|at| self.pages.get(at as usize));
        Ok(page.ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    fn pause(&mut self) {
        pause(self.control);
    }
}

/// All pages of an index, each of which has been checked on its own.
pub(crate) struct Received {
    scanned: Scanned,
    neighbors: KeptNeighbors,
    /// All pages, if searches need them.
    pages: Vec<PageBytes>,
}

impl Received {
    /// Checks neighbor lists and reachability. Then measures the recall of searches, unless there are errors that no insert can have caused.
    pub(crate) fn check(
        self,
        spec: &BuildSpec,
        check: &Check,
        need: &CheckNeed,
        pool: &Pool,
        control: &Control,
    ) -> Result<Findings, SessionError> {
        let Self { scanned, neighbors, pages } = self;
        control.progress().enter(Phase::Graph, check.blocks.into());
        let report = until_stopped(|| pool.run(|| verify(scanned, check.blocks, &neighbors, control)))?;
        let report = report.map_err(|error| too_large(&error, need))?;
        drop(neighbors);
        let mut findings = findings(&report);
        if report.errors.lasting() == 0 && check.sample > 0 {
            let ef = usize::from(check.ef_search.clamp(1, MAX_EF_SEARCH));
            let sample = Sample { spec, count: check.sample as usize, ef };
            let (sampled, recall) = pool.run(|| sample.recall(&pages, control))?;
            findings.sampled = sampled;
            findings.recall_ppm = recall.map_or(u32::MAX, millionths);
        }
        Ok(findings)
    }
}

/// One thread follows the links from the entry point, while the others check the lists of ranges of blocks.
fn verify(scanned: Scanned, blocks: u32, neighbors: &KeptNeighbors, control: &Control) -> Result<Report, TooLarge> {
    let source = || Kept { neighbors, control };
    let start = |part: u32| (u64::from(blocks) * u64::from(part) / u64::from(PARTS)) as u32;
    let lists = |part| {
        let blocks = start(part)..start(part + 1);
        let count = blocks.len() as u64;
        let lists = scanned.lists(&mut source(), blocks);
        control.progress().add(count);
        lists
    };
    let all = || (0..PARTS).into_par_iter().map(lists).collect::<Vec<_>>();
    let (reach, lists) = rayon::join(|| scanned.reach(&mut source()), all);
    Ok(scanned.report(lists, reach?))
}

struct Kept<'a> {
    neighbors: &'a KeptNeighbors,
    control: &'a Control,
}

impl NeighborSource for Kept<'_> {
    fn neighbors<'a>(&'a mut self, block: u32, _: &'a mut Vec<u8>) -> BlockNeighbors<'a> {
        pause(self.control);
        self.neighbors.block(block)
    }

    fn pause(&mut self) {
        pause(self.control);
    }
}

/// The panic payload that ends a verification early.
struct Stopped;

fn pause(control: &Control) {
    if control.is_cancelled() {
        stop();
    }
}

fn stop() -> ! {
    resume_unwind(Box::new(Stopped))
}

/// Runs a verification; [`stop`] ends it as cancelled.
fn until_stopped<T>(work: impl FnOnce() -> T) -> Result<T, SessionError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| match panic.is::<Stopped>() {
        true => BuildError::Cancelled.into(),
        false => resume_unwind(panic),
    })
}

fn too_large(error: &TooLarge, need: &CheckNeed) -> SessionError {
    let (needed, reserved) = (Size(error.needed), Size(need.elements));
    BuildError::Memory(format!("the elements of the index need about {needed}, and {reserved} are reserved")).into()
}

fn findings(report: &Report) -> Findings {
    let layer0 = report.layers.iter().find(|layer| layer.layer == 0);
    Findings {
        m: report.meta.map_or(0, |meta| meta.m),
        live: report.live,
        deleted: report.deleted,
        rows: report.heap_tids,
        duplicates: report.duplicates,
        not_full: report.not_full,
        reachable: layer0.map_or(0, |layer| layer.reachable),
        sampled: 0,
        recall_ppm: u32::MAX,
        errors: report.errors.count(),
        first_errors: report.errors.first().to_vec(),
    }
}

/// The graph that the pages contain, for searches.
struct Graph<'a>(&'a Linked<'a>);

impl Links for Graph<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn entry(&self) -> Option<(u32, u8)> {
        self.0.entry()
    }

    fn neighbors(&self, element: u32, layer: u8) -> impl Iterator<Item = u32> {
        self.0.neighbors(element, layer)
    }
}

/// The sampled elements to search for.
struct Sample<'a> {
    spec: &'a BuildSpec,
    count: usize,
    ef: usize,
}

impl Sample<'_> {
    /// The number of elements searched for, and the mean recall.
    fn recall(&self, pages: &[PageBytes], control: &Control) -> Result<(u32, Option<f64>), SessionError> {
        let elements = Elements::of(self.spec.value_type);
        let Some(kernel) = kernel(elements, self.spec.metric) else { return Ok((0, None)) };
        let Some(linked) = Linked::new(pages, self.spec.value_type) else { return Ok((0, None)) };
        let queries = self.draw(&linked);
        control.progress().enter(Phase::Repair, linked.len() as u64);
        let found = self.search(&linked, &queries, kernel, control)?;
        let nearest = exact(&linked, &queries, kernel, control)?;
        let (mut wanted, mut hits) = (0, 0);
        for (found, nearest) in found.iter().zip(&nearest) {
            let limit = nearest.distances().last().copied().unwrap_or(f32::NEG_INFINITY);
            wanted += nearest.distances().len();
            hits += found.iter().filter(|&&distance| distance <= limit).count();
        }
        Ok((queries.len() as u32, (wanted > 0).then(|| hits as f64 / wanted as f64)))
    }

    /// Draws values of elements with rows, from all parts of the index.
    fn draw(&self, linked: &Linked<'_>) -> Vec<Vec<u8>> {
        let count = self.count.min(MAX_SAMPLE).min(linked.len());
        let drawn = pages::one_of_each_part(count as u64, linked.len() as u64).map(|element| element as u32);
        let value = |element| linked.value(element).filter(|_| linked.has_rows(element)).map(|parts| parts.concat());
        drawn.filter_map(value).collect()
    }

    /// The distances of the elements that searches return.
    fn search(
        &self,
        linked: &Linked<'_>,
        queries: &[Vec<u8>],
        kernel: Kernel,
        control: &Control,
    ) -> Result<Vec<Vec<f32>>, SessionError> {
        let graph = Graph(linked);
        let one = |(searcher, scratch): &mut (Searcher, Vec<u8>), query: &Vec<u8>| {
            control.check()?;
            let mut visited = 0;
            let distance = |element| {
                visited += 1;
                let value = (visited <= MOST_VISITED).then(|| value(linked, element, scratch)).flatten();
                value.map_or(f32::INFINITY, |value| kernel(query, value))
            };
            let near = searcher.search(&graph, distance, |_| {}, self.ef);
            let with_rows = near.iter().filter(|near| linked.has_rows(near.element()));
            Ok(with_rows.take(WANTED).map(|near| near.distance()).collect())
        };
        queries.par_iter().map_init(Default::default, one).collect()
    }
}

/// For each query, the ten smallest distances of an exact search.
fn exact(
    linked: &Linked<'_>,
    queries: &[Vec<u8>],
    kernel: Kernel,
    control: &Control,
) -> Result<Vec<Least>, SessionError> {
    let none = || vec![Least::default(); queries.len()];
    let chunk = |mut nearest: Vec<Least>, number: usize| {
        control.check()?;
        let mut scratch = Vec::new();
        let to = linked.len().min((number + 1) * CHUNK);
        for element in number * CHUNK..to {
            let element = element as u32;
            if !linked.has_rows(element) {
                continue;
            }
            let Some(value) = value(linked, element, &mut scratch) else { continue };
            for (query, nearest) in queries.iter().zip(&mut nearest) {
                nearest.offer(kernel(query, value), WANTED);
            }
        }
        control.progress().add((to - number * CHUNK) as u64);
        Ok::<_, SessionError>(nearest)
    };
    let merge = |mut one: Vec<Least>, other: Vec<Least>| {
        one.iter_mut().zip(other).for_each(|(one, other)| one.merge(other, WANTED));
        Ok(one)
    };
    (0..linked.len().div_ceil(CHUNK)).into_par_iter().try_fold(none, chunk).try_reduce(none, merge)
}

/// The value of an element as contiguous bytes.
fn value<'a>(linked: &'a Linked<'_>, element: u32, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let [head, rest] = linked.value(element)?;
    if head.is_empty() {
        return Some(rest);
    }
    scratch.clear();
    scratch.extend_from_slice(head);
    scratch.extend_from_slice(rest);
    Some(scratch)
}
