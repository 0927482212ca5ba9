//! The incoming verifier accepts what the writer makes, and nothing else.

mod support;

use fastrand::Rng;
use graph::{Graph, GraphParts, NO_NEIGHBOR, ValueType};
use lantern_index_pages::{
    Estimate, IncomingError, IncomingSpec, IncomingVerifier, IndexMeta, PAGE_SIZE, Page, PageBytes, RowDigest, Tuple,
    max_blocks, verify,
};
use support::{KEY, Sample, Values, sample, samples};

/// Whether a byte may differ: in a slot of a neighbor list, or in the entry point.
fn is_free(pages: &[PageBytes], block: usize, at: usize) -> bool {
    if block == 0 {
        return (40..46).contains(&at);
    }
    let page = Page::parse(block as u32, &pages[block]).unwrap();
    page.items().map(Result::unwrap).any(|item| match Tuple::parse(&item).unwrap() {
        Tuple::Neighbor(tuple) => (4..4 + 6 * usize::from(tuple.count())).contains(&at.wrapping_sub(item.start)),
        Tuple::Element(_) => false,
    })
}

/// Flips bits of one byte. If the pages are still accepted, pgvector must be able to work with the index.
fn mutate(sample: &Sample, pages: &mut [PageBytes], block: usize, at: usize, bits: u8) {
    pages[block][at] ^= bits;
    if sample.receive(pages).is_ok() {
        assert!(is_free(pages, block, at), "block {block}, byte {at}, bits {bits:#x}");
        let report = verify(&mut &pages[..], Some(sample.meta.value_type));
        // Allowed: searches skip links to elements that are not on the layer.
        let off_layer = report.errors.first().iter().filter(|error| error.ends_with("is not on the layer")).count();
        assert_eq!(off_layer as u64, report.errors.count(), "block {block}, byte {at}, bits {bits:#x}\n{report}");
    }
    pages[block][at] ^= bits;
}

#[test]
fn every_byte_of_small_indexes_matters() {
    for sample in [sample(ValueType::Vector, 3, 16, 0, 0), sample(ValueType::Vector, 3, 2, 3, 2)] {
        let mut pages = sample.pages();
        for block in 0..pages.len() {
            for at in 0..PAGE_SIZE {
                for bits in [1, 0x80, 0xFF] {
                    mutate(&sample, &mut pages, block, at, bits);
                }
            }
        }
    }
}

#[test]
fn flipped_bytes_of_large_indexes_are_found() {
    let mut random = Rng::with_seed(7);
    for (_, sample) in samples() {
        let mut pages = sample.pages();
        for _ in 0..400 {
            let block = random.usize(..pages.len());
            // Half of them near the start or the end of the page, where header, line pointers and special area are.
            let at =
                [random.usize(..64), random.usize(..PAGE_SIZE), random.usize(..PAGE_SIZE), 8100 + random.usize(..92)];
            let bits = 1 << random.usize(..8);
            mutate(&sample, &mut pages, block, at[random.usize(..4)], bits);
        }
    }
}

#[test]
fn lost_repeated_and_altered_rows_are_refused() {
    let sample = sample(ValueType::SparseVec, 50, 16, 100, 2);
    let (graph, values) = (&sample.graph, &sample.values);
    let rows: Vec<_> = graph
        .elements()
        .flat_map(|element| {
            graph.heap_tids().of(element).iter().map(move |&tid| (tid, values.0[element as usize].clone()))
        })
        .collect();
    let receive = |rows: &[(graph::HeapTid, Vec<u8>)]| {
        let mut verifier = IncomingVerifier::new(sample.spec(), KEY).unwrap();
        for (block, page) in (0..).zip(&sample.pages()) {
            verifier.page(block, page).unwrap();
        }
        let mut sent = RowDigest::new(KEY);
        rows.iter().for_each(|(tid, value)| sent.add(*tid, value));
        verifier.finish(sent)
    };
    assert_eq!(receive(&rows), Ok(()));
    assert_eq!(receive(&rows[1..]), Err(IncomingError::Rows));
    let changed = |change: fn(&mut Vec<(graph::HeapTid, Vec<u8>)>)| {
        let mut rows = rows.clone();
        change(&mut rows);
        receive(&rows)
    };
    assert_eq!(changed(|rows| rows.reverse()), Ok(()));
    assert_eq!(changed(|rows| rows[0].0 = rows[1].0), Err(IncomingError::Rows));
    assert_eq!(changed(|rows| rows[0] = rows[1].clone()), Err(IncomingError::Rows));
    assert_eq!(changed(|rows| *rows[3].1.last_mut().unwrap() ^= 1), Err(IncomingError::Rows));
    let swapped = changed(|rows| {
        let first = rows[0].0;
        rows[0].0 = rows[9].0;
        rows[9].0 = first;
    });
    assert_eq!(swapped, Err(IncomingError::Rows));
    assert_eq!(changed(|rows| rows.push(rows[0].clone())), Err(IncomingError::Rows));
}

#[test]
fn blocks_out_of_order_missing_or_too_many_are_refused() {
    let sample = sample(ValueType::Vector, 64, 16, 100, 2);
    let pages = sample.pages();
    let verifier = || IncomingVerifier::new(sample.spec(), KEY).unwrap();
    let mut skipping = verifier();
    skipping.page(0, &pages[0]).unwrap();
    let blocks = sample.spec().blocks;
    assert_eq!(skipping.page(2, &pages[2]), Err(IncomingError::Block { found: 2, expected: 1, blocks }));
    assert_eq!(skipping.page(1, &pages[1]), Err(IncomingError::Refused));
    assert_eq!(skipping.finish(sample.digest()), Err(IncomingError::Refused));

    let mut short = verifier();
    for (block, page) in (0..blocks - 1).zip(&pages) {
        short.page(block, page).unwrap();
    }
    assert!(matches!(short.finish(sample.digest()), Err(IncomingError::Total { what: "blocks", .. })));

    let mut long = verifier();
    for (block, page) in (0..blocks).zip(&pages) {
        long.page(block, page).unwrap();
    }
    assert!(matches!(long.page(blocks, &pages[1]), Err(IncomingError::Block { .. })));
    for (block, page) in pages.iter().enumerate().skip(1) {
        assert!(verifier().page(0, page).is_err(), "{block}");
    }
}

#[test]
fn impossible_announcements_are_refused() {
    let meta = sample(ValueType::Vector, 64, 16, 0, 0).meta;
    let announce = |rows, elements, blocks| {
        IncomingVerifier::new(IncomingSpec { meta, rows, elements, blocks }, KEY)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert_eq!(announce(100, 100, 6), Ok(()));
    assert_eq!(announce(100, 10, 3), Ok(()));
    assert_eq!(announce(0, 0, 2), Ok(()));
    assert_eq!(announce(100, 9, 3).unwrap_err(), "9 elements announced, must be between 10 and 100");
    assert!(announce(100, 101, 3).is_err() && announce(0, 0, 3).is_err() && announce(0, 0, 1).is_err());
    // 24 elements of 64 dimensions fit on a page, 39 lists of layer 0, and upper layers take a little more.
    assert_eq!(max_blocks(&meta, 100), 1 + 5 + 4);
    assert!(announce(100, 100, 11).is_err());
    assert!(announce(u64::MAX, u64::MAX, u32::MAX).is_err());
}

#[test]
fn announced_blocks_are_hardly_more_than_honest_ones() {
    use ValueType::{Bit, HalfVec, Vector};
    for (value_type, dims) in [(Vector, 1), (Vector, 384), (Vector, 1025), (Vector, 2000), (HalfVec, 2050), (Bit, 8)] {
        for m in 2..=100 {
            for elements in [20_000, 1_000_000] {
                let meta = IndexMeta { value_type, dims, m, ef_construction: 200 };
                let value_len = value_type.value_len(dims).unwrap();
                let honest = Estimate { value_type, dims, value_len, m, rows: elements, elements }.blocks();
                let most = max_blocks(&meta, elements);
                assert!(most >= honest, "{value_type:?}({dims}), m = {m}: {most} blocks, honest {honest}");
                // Where neighbor tuples fit beside their elements, which the page verifier requires, the bound has pages for them, too.
                let beside = 8160 / (96 + value_len) * (96 + value_len) + 100 < 8160 && value_len > 1000;
                let list = f64::from(12 * m + 20);
                let lists = if beside { elements as f64 * list / (8160.0 - list) } else { 0.0 };
                let close = most as f64 <= 1.1 * (honest as f64 + lists);
                assert!(close, "{value_type:?}({dims}), m = {m}: {most} blocks, honest {honest}");
            }
        }
    }
}

#[test]
fn improbably_many_elements_of_a_level_are_refused() {
    for (m, elements, top) in [(2, 500, 63), (16, 24, 63), (16, 500, 40), (100, 500, 11)] {
        let sample = sample(ValueType::Vector, 3, m, elements, top);
        let error = sample.receive(&sample.pages()).unwrap_err().to_string();
        assert!(error.ends_with("more elements of its level than levels drawn at random give"), "{error}");
    }
    // No level is too high, but too many are.
    let mut sample = sample(ValueType::Vector, 3, 16, 500, 0);
    let mut levels = vec![0; 500];
    levels[..100].fill(1);
    sample.graph = Graph::new(GraphParts {
        m: 16,
        levels,
        layer0: sample.graph.elements().flat_map(|e| sample.graph.slots(e, 0).to_vec()).collect(),
        upper: vec![NO_NEIGHBOR; 100 * 16],
        heap_tids: sample.graph.heap_tids().clone(),
        entry: Some(0),
    })
    .unwrap();
    let error = sample.receive(&sample.pages()).unwrap_err().to_string();
    assert!(error.ends_with("more elements of its level than levels drawn at random give"), "{error}");
}

#[test]
fn counts_other_than_announced_are_refused() {
    let sample = sample(ValueType::Vector, 64, 16, 100, 2);
    let receive = |change: fn(&mut IncomingSpec)| {
        let mut spec = sample.spec();
        change(&mut spec);
        let mut verifier = IncomingVerifier::new(spec, KEY).unwrap();
        for (block, page) in (0..).zip(&sample.pages()) {
            verifier.page(block, page)?;
        }
        verifier.finish(sample.digest())
    };
    assert!(matches!(
        receive(|spec| spec.elements -= 1),
        Err(IncomingError::Tuple { problem: "more elements than announced", .. })
    ));
    assert!(matches!(receive(|spec| spec.elements += 1), Err(IncomingError::Total { what: "elements", .. })));
    assert!(matches!(
        receive(|spec| spec.rows -= 1),
        Err(IncomingError::Tuple { problem: "more rows than announced", .. })
    ));
    assert!(matches!(receive(|spec| spec.rows += 1), Err(IncomingError::Total { what: "rows", .. })));
    assert!(matches!(receive(|spec| spec.blocks += 1), Err(IncomingError::MetaPage { at: 48, .. })));
    assert!(matches!(receive(|spec| spec.meta.m = 8), Err(IncomingError::MetaPage { at: 36, .. })));
}

#[test]
fn values_of_another_length_are_refused() {
    let mut sample = sample(ValueType::Vector, 3, 2, 3, 1);
    let pages = sample.pages();
    sample.meta.dims = 4;
    sample.values = Values(vec![vec![0; 16]; 3]);
    assert!(matches!(sample.receive(&pages), Err(IncomingError::MetaPage { at: 32, .. })));
}

/// One page with two elements and two neighbor tuples, of 96, 96, 32 and 32 bytes.
fn pair() -> (Sample, Vec<PageBytes>) {
    let mut sample = sample(ValueType::Vector, 3, 2, 2, 0);
    sample.order = vec![0, 1];
    let pages = sample.pages();
    (sample, pages)
}

#[test]
fn each_broken_rule_is_found() {
    let (sample, pages) = pair();
    assert_eq!(sample.receive(&pages), Ok(()));
    let [element, second, neighbors] = [8184 - 96, 8184 - 192, 8184 - 224];
    let cases: [(usize, usize, &[u8], &str); 22] = [
        (0, 48, &[2], "meta page: byte 48 is 0x02, expected 0x01"),
        (0, 44, &[0], "the entry point cannot be an element"),
        (0, 44, &[3], "block 1: the entry point is not an element"),
        (0, 46, &[9, 1], "the entry point cannot be an element"),
        (1, 4, &[1], "block 1: header fields that must be 0"),
        (1, 4000, &[1], "block 1: bytes between line pointers and tuples"),
        (1, 8184, &[1, 0, 0, 0], "block 1: the next block is not the one after it"),
        (1, element + 1, &[1], "(1,1): level is above the entry point's"),
        (1, element + 2, &[1], "(1,1): deleted"),
        (1, element + 3, &[1], "(1,1): version is not 0"),
        (1, element + 8, &[0, 0], "(1,1): no heap TID"),
        (1, element + 38, &[1], "(1,1): slots behind the heap TIDs are not empty"),
        (1, element + 68, &[4], "(1,3): is not where its element says"),
        (1, element + 64, &[0, 0, 1, 0, 0, 0], "(1,1): neighbor tuple is nowhere"),
        (1, element + 64, &[0, 0, 2, 0, 1, 0], "(1,1): neighbor tuple is nowhere"),
        (1, second + 92, &[1], "(1,2): padding is not 0"),
        (1, neighbors + 1, &[1], "(1,3): version is not 0"),
        (1, neighbors + 2, &[3], "(1,3): count does not fit the level"),
        (1, neighbors + 8, &[1], "element (1,1), layer 0: neighbor (1,1) is the element itself"),
        (1, neighbors + 8, &[3], "element (1,1), layer 0: neighbor (1,3) is not an element"),
        (1, neighbors + 10, &[0, 0, 1, 0, 2, 0], "element (1,1), layer 0: neighbor (1,2) is repeated"),
        (1, neighbors + 16, &[0, 0, 1, 0, 2, 0], "element (1,1), layer 0: neighbor (1,2) comes after an unused slot"),
    ];
    for (block, at, bytes, problem) in cases {
        let mut pages = pages.clone();
        pages[block][at..at + bytes.len()].copy_from_slice(bytes);
        let error = sample.receive(&pages).unwrap_err().to_string();
        assert!(error.contains(problem), "{problem}: {error}");
    }
}

/// A data page with these tuples.
fn compose(tuples: &[&[u8]], next: u32) -> PageBytes {
    let mut page = [0; PAGE_SIZE];
    let mut upper = 8184;
    for (at, tuple) in (24..).step_by(4).zip(tuples) {
        upper -= tuple.len();
        page[upper..upper + tuple.len()].copy_from_slice(tuple);
        page[at..at + 4].copy_from_slice(&((tuple.len() << 17 | 1 << 15 | upper) as u32).to_le_bytes());
    }
    page[12..14].copy_from_slice(&(24 + 4 * tuples.len() as u16).to_le_bytes());
    page[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
    page[16..20].copy_from_slice(&[0xf8, 0x1f, 4, 0x20]);
    page[8184..8188].copy_from_slice(&next.to_le_bytes());
    page[8190..].copy_from_slice(&[0x90, 0xff]);
    page
}

#[test]
fn an_index_cannot_be_inflated() {
    let (sample, pages) = pair();
    let tuple = |from: usize, len: usize| pages[1][8184 - from..8184 - from + len].to_vec();
    let (first, mut second, mut first_list, second_list) =
        (tuple(96, 96), tuple(192, 96), tuple(224, 32), tuple(256, 32));
    assert_eq!(compose(&[&first, &second, &first_list, &second_list], u32::MAX), pages[1]);

    // Each element with its neighbors on a page of its own.
    let mut spec = sample.spec();
    spec.blocks = 3;
    let mut meta = pages[0];
    meta[48] = 2;
    let mut first = first;
    first[68] = 2;
    second[64..70].copy_from_slice(&[0, 0, 2, 0, 2, 0]);
    first_list[4..10].copy_from_slice(&[0, 0, 2, 0, 1, 0]);
    let pages = [meta, compose(&[&first, &first_list], 2), compose(&[&second, &second_list], u32::MAX)];
    let report = verify(&mut &pages[..], None);
    assert!(report.is_ok(), "{report}");
    let mut verifier = IncomingVerifier::new(spec, KEY).unwrap();
    verifier.page(0, &pages[0]).unwrap();
    verifier.page(1, &pages[1]).unwrap();
    assert_eq!(verifier.page(2, &pages[2]).unwrap_err().to_string(), "(2,1): the page before has room for it");

    // Both neighbor tuples on a separate page.
    let mut first = tuple(96, 96);
    first[64..70].copy_from_slice(&[0, 0, 2, 0, 1, 0]);
    second[64..70].copy_from_slice(&[0, 0, 2, 0, 2, 0]);
    first_list[4..10].copy_from_slice(&[0, 0, 1, 0, 2, 0]);
    let pages = [meta, compose(&[&first, &second], 2), compose(&[&first_list, &second_list], u32::MAX)];
    let report = verify(&mut &pages[..], None);
    assert!(report.is_ok(), "{report}");
    let mut verifier = IncomingVerifier::new(spec, KEY).unwrap();
    verifier.page(0, &pages[0]).unwrap();
    let error = verifier.page(1, &pages[1]).unwrap_err().to_string();
    assert_eq!(error, "(1,1): its page has room for its neighbor tuple");
}
