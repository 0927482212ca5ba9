//! Verification stays within its memory limit, and can be cancelled.

mod support;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use graph::{Graph, GraphParts, HeapTid, HeapTids, ValueType};
use lantern_index_pages::{
    BlockNeighbors, KeptNeighbors, MetaPage, NeighborSource, Page, PageBytes, PageSource, Scanned, TooLarge, verify,
    verify_bytes, verify_within,
};
use support::{sample, tuple_start};

const ELEMENTS: u32 = 40_000;

fn pages() -> Vec<PageBytes> {
    sample(ValueType::Vector, 1, 2, ELEMENTS, 8).pages()
}

/// Counts reads and pauses.
struct Counting<'a> {
    pages: &'a [PageBytes],
    reads: usize,
    pauses: usize,
    /// The number of the pause that cancels the work.
    last: usize,
}

impl PageSource for Counting<'_> {
    fn blocks(&self) -> u32 {
        self.pages.len() as u32
    }

    fn read<'a>(&'a mut self, block: u32, buffer: &'a mut PageBytes) -> io::Result<&'a PageBytes> {
        self.reads += 1;
        self.pages.read(block, buffer)
    }

    fn pause(&mut self) {
        self.pauses += 1;
        assert!(self.pauses != self.last, "cancelled");
    }
}

#[test]
fn verification_takes_the_memory_that_was_estimated() {
    let pages = pages();
    let estimated = verify_bytes(ELEMENTS.into(), ELEMENTS.into(), pages.len() as u32);
    let within = |memory| verify_within(&mut pages.as_slice(), None, memory);
    // About a tenth of the elements have a second row, which the estimate leaves out.
    let report = within(estimated * 11 / 10).unwrap();
    assert_eq!((report.live, report.errors.count()), (ELEMENTS.into(), 0), "{report}");
    for (memory, least) in [(estimated / 2, estimated * 9 / 10), (estimated / 10, estimated * 3 / 4), (0, 0)] {
        let TooLarge { needed } = within(memory).unwrap_err();
        assert!(
            needed > memory && needed >= least && (memory == 0 || needed < 3 * estimated),
            "{needed} of {estimated}"
        );
        assert!(needed < 100_000 || within(needed).is_ok(), "{needed} bytes are not enough");
    }
}

#[test]
fn many_equal_rows_take_the_memory_that_was_estimated() {
    let mut sample = sample(ValueType::Vector, 1, 2, ELEMENTS, 0);
    let rows = |element| (1..=10).map(move |row| HeapTid::new(70_000 + element, row));
    let mut heap_tids = HeapTids::default();
    (0..ELEMENTS).for_each(|element| heap_tids.push(rows(element)));
    let ring = |element| [1, 2, 3, 4].map(|step| (element + step) % ELEMENTS);
    let (levels, layer0) = (vec![0; ELEMENTS as usize], (0..ELEMENTS).flat_map(ring).collect());
    let parts = GraphParts { m: 2, levels, layer0, upper: Vec::new(), heap_tids, entry: Some(0) };
    sample.graph = Graph::new(parts).unwrap();
    let pages = sample.pages();
    let estimated = verify_bytes(ELEMENTS.into(), 10 * u64::from(ELEMENTS), pages.len() as u32);
    let report = verify_within(&mut pages.as_slice(), None, estimated).unwrap();
    assert_eq!((report.heap_tids, report.errors.count()), (10 * u64::from(ELEMENTS), 0), "{report}");
}

#[test]
fn long_work_pauses_and_can_be_cancelled() {
    let pages = pages();
    let counting = |last| Counting { pages: &pages, reads: 0, pauses: 0, last };
    let mut source = counting(usize::MAX);
    let report = verify(&mut source, None);
    assert!(report.is_ok(), "{report}");
    let (reads, pauses) = (source.reads, source.pauses);
    println!("{} pages, {reads} reads, {pauses} pauses", pages.len());
    // Sorting alone compares each row more than ten times.
    assert!(pauses > 10 * ELEMENTS as usize / (1 << 14), "{pauses}");
    // In rings each element links to few others, on arbitrary pages: at worst a page is read for each element of each layer.
    let on_layers: u64 = report.layers.iter().map(|layer| layer.elements).sum();
    assert!(reads <= 2 * pages.len() + on_layers as usize, "{reads} reads of {} pages", pages.len());
    for last in [1, pauses / 2, pauses] {
        let mut source = counting(last);
        let cancelled = catch_unwind(AssertUnwindSafe(|| verify(&mut source, None)));
        assert!(cancelled.is_err() && source.pauses == last);
    }
}

/// A graph like those of real builds: few links lead from any element to any other.
#[test]
fn a_small_world_is_read_a_few_times() {
    const M: u16 = 8;
    let mut random = Rng::with_seed(7);
    let slots = 2 * usize::from(M);
    let mut layer0 = Vec::with_capacity(ELEMENTS as usize * slots);
    for element in 0..ELEMENTS {
        let mut list = vec![element];
        while list.len() <= slots {
            let other = random.usize(..ELEMENTS as usize) as u32;
            if !list.contains(&other) {
                list.push(other);
            }
        }
        layer0.extend(&list[1..]);
    }
    let mut sample = sample(ValueType::Vector, 3, M, ELEMENTS, 0);
    let (levels, heap_tids) = (vec![0; ELEMENTS as usize], sample.graph.heap_tids().clone());
    sample.graph =
        Graph::new(GraphParts { m: M, levels, layer0, upper: Vec::new(), heap_tids, entry: Some(0) }).unwrap();
    let pages = sample.pages();
    let mut source = Counting { pages: &pages, reads: 0, pauses: 0, last: usize::MAX };
    let report = verify(&mut source, None);
    assert!(report.is_ok() && report.layers[0].reachable == ELEMENTS.into(), "{report}");
    println!("{} pages, {} reads", pages.len(), source.reads);
    assert!(source.reads < 8 * pages.len(), "{} reads of {} pages", source.reads, pages.len());
}

/// Several threads may check the lists of ranges of blocks: together they find what one thread finds.
#[test]
fn lists_are_checked_in_parts() {
    let mut pages = pages();
    let entry = MetaPage::parse(&Page::parse(0, &pages[0]).unwrap()).unwrap().entry;
    for (_, page) in pages.iter_mut().enumerate().skip(1).step_by(7).filter(|(block, _)| *block != entry.block as usize)
    {
        let element = tuple_start(page, 1);
        // An element's tuple begins with its type, 1. Marked as deleted, so that lists of other pages link to it.
        if page[element] == 1 {
            page[element + 2] = 1;
        }
    }
    let whole = verify(&mut pages.as_slice(), None);
    assert!(whole.errors.count() > 500 && whole.layers.len() > 1, "{whole}");
    let blocks = pages.len() as u32;
    let parts = || [0..1, 1..blocks / 3, blocks / 3..blocks / 2, blocks / 2..blocks];
    let scanned = Scanned::new(&mut pages.as_slice(), None, u64::MAX).unwrap();
    let lists = parts().map(|part| scanned.lists(&mut pages.as_slice(), part));
    let mut source = Counting { pages: &pages, reads: 0, pauses: 0, last: usize::MAX };
    let reach = scanned.reach(&mut source).unwrap();
    // While no pages are read, it pauses at least every 2^14 elements.
    assert!(source.pauses > ELEMENTS as usize >> 14, "{} pauses", source.pauses);
    assert_eq!(scanned.report(lists, reach).to_string(), whole.to_string());

    // The same from neighbor tuples that were kept.
    let (scanned, kept) = Scanned::keeping_neighbors(&mut pages.as_slice(), None, u64::MAX).unwrap();
    drop(pages);
    let lists = parts().map(|part| scanned.lists(&mut Kept(&kept), part));
    let reach = scanned.reach(&mut Kept(&kept)).unwrap();
    assert_eq!(scanned.report(lists, reach).to_string(), whole.to_string());
}

struct Kept<'a>(&'a KeptNeighbors);

impl NeighborSource for Kept<'_> {
    fn neighbors<'a>(&'a mut self, block: u32, _: &'a mut Vec<u8>) -> BlockNeighbors<'a> {
        self.0.block(block)
    }
}

/// For each neighbor tuple its offset, its length and its bytes; for each block a pointer, a length, and what the allocator adds.
fn kept_bytes(pages: &[PageBytes]) -> u64 {
    let tuples = |(block, bytes): (usize, &PageBytes)| -> u64 {
        let page = Page::parse(block as u32, bytes).unwrap();
        let items = page.items().filter_map(Result::ok).filter(|item| block > 0 && item.bytes[0] == 2);
        items.map(|item| 4 + item.bytes.len() as u64).sum()
    };
    pages.iter().enumerate().map(tuples).sum::<u64>() + 32 * pages.len() as u64
}

#[test]
fn kept_neighbors_are_no_larger_than_the_pages() {
    assert_eq!(KeptNeighbors::bytes(u64::MAX, 16, 1000), 1000 * (8192 + 32));
}

#[test]
fn kept_neighbors_take_the_memory_that_was_estimated() {
    for (dims, m, elements) in [(8, 2, ELEMENTS), (8, 3, ELEMENTS), (300, 16, 5_000)] {
        let pages = sample(ValueType::Vector, dims, m, elements, 12).pages();
        let blocks = pages.len() as u32;
        let verify = verify_bytes(elements.into(), elements.into(), blocks);
        let neighbors = KeptNeighbors::bytes(elements.into(), m, blocks);
        let kept = kept_bytes(&pages);
        assert!((kept - kept / 50..kept + kept / 8).contains(&neighbors), "m = {m}: {neighbors} of {kept}");
        // Vectors grow by at least 1024 values.
        let estimated = verify + neighbors + (1 << 17);
        let kept = |memory| Scanned::keeping_neighbors(&mut pages.as_slice(), None, memory).map(drop);
        kept(estimated).unwrap();
        let TooLarge { needed } = kept(estimated * 2 / 3).unwrap_err();
        assert!((estimated * 2 / 3..2 * estimated).contains(&needed), "m = {m}: {needed} of {estimated}");
    }
}
