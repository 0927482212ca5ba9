//! An index that pgvector itself has written, before and after VACUUM.

mod support;

use graph::ValueType;
use lantern_index_pages::{IndexMeta, MetaPage, PAGE_SIZE, Page, PageBytes, Report, Tid, Tuple, verify};

fn t3() -> Vec<PageBytes> {
    let mut bytes = vec![0; 2 * PAGE_SIZE];
    for line in include_str!("t3.hex").lines().filter(|line| !line.starts_with('#')) {
        let (offset, row) = line.split_once("  ").unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        for (at, byte) in row.split(' ').enumerate() {
            bytes[offset + at] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    bytes.chunks_exact(PAGE_SIZE).map(|page| page.try_into().unwrap()).collect()
}

fn check(pages: &[PageBytes]) -> Report {
    verify(&mut &pages[..], Some(ValueType::Vector))
}

#[test]
fn pgvectors_own_index_passes() {
    let report = check(&t3());
    assert!(report.is_ok() && report.warnings.count() == 0, "{report}");
    assert_eq!((report.live, report.heap_tids, report.duplicates, report.neighbors_elsewhere), (3, 3, 0, 0));
    assert_eq!(report.versions, [(1, 3)].into());
    assert_eq!(report.levels, [(0, 1), (1, 1), (2, 1)].into());
    assert!(report.layers.iter().all(|layer| layer.elements == layer.reachable));
    assert_eq!(report.layers.len(), 3);
    assert_eq!(report.not_full, 3);
}

#[test]
fn fields_of_pgvectors_own_index_are_read() {
    let pages = t3();
    let meta = MetaPage::parse(&Page::parse(0, &pages[0]).unwrap()).unwrap();
    let index = IndexMeta { value_type: ValueType::Vector, dims: 3, m: 2, ef_construction: 4 };
    assert_eq!(meta, MetaPage::new(&index, Some((Tid::new(1, 5), 2)), 1));
    let page = Page::parse(1, &pages[1]).unwrap();
    assert_eq!(page.header().lsn, 0x0161_3D10);
    let tuples: Vec<_> = page.items().map(|item| Tuple::parse(&item.unwrap()).unwrap()).collect();
    let (Tuple::Element(element), Tuple::Neighbor(neighbor)) = (tuples[4], tuples[5]) else { panic!("{tuples:?}") };
    assert_eq!((element.level(), element.version(), element.neighbor_tid()), (2, 1, Tid::new(1, 6)));
    assert_eq!(element.heap_tids()[0].offset(), 1);
    let slots: Vec<_> = neighbor.slots().filter(|tid| tid.is_valid()).collect();
    assert_eq!(slots, [Tid::new(1, 3), Tid::new(1, 3), Tid::new(1, 1)]);
}

#[test]
fn an_index_after_vacuum_passes() {
    let mut pages = t3();
    let page = &mut pages[1];
    let invalid = Tid::INVALID.to_bytes();
    // Element (1,1) and its neighbor tuple (1,2) after VACUUM: emptied, with the next version.
    let (element, neighbors) = (0x1f98, 0x1f78);
    page[element + 2..element + 4].copy_from_slice(&[1, 2]);
    page[element + 4..element + 10].copy_from_slice(&invalid);
    page[element + 72..element + 96].fill(0);
    page[neighbors + 1] = 2;
    page[neighbors + 4..neighbors + 10].copy_from_slice(&invalid);
    page[neighbors + 10..neighbors + 16].copy_from_slice(&invalid);
    // Links to it: the second slot of the others' layer-0 lists.
    let links = [0x1e7a, 0x1f06];
    for link in links {
        assert_eq!(page[link..link + 6], Tid::new(1, 1).to_bytes());
        page[link..link + 6].copy_from_slice(&invalid);
    }
    let report = check(&pages);
    assert!(report.is_ok(), "{report}");
    assert_eq!((report.live, report.deleted, report.versions), (2, 1, [(1, 2), (2, 1)].into()));

    pages[1][links[0]..links[0] + 6].copy_from_slice(&Tid::new(1, 1).to_bytes());
    let report = check(&pages);
    let problem = "element (1,5), layer 0: neighbor (1,1) is deleted";
    assert_eq!(report.errors.first(), [problem]);

    // Element (1,5) without its heap TID: VACUUM will delete it, too, but has not come that far.
    pages[1][0x1e94..0x1e9a].copy_from_slice(&invalid);
    let report = check(&pages);
    assert!(report.is_ok(), "{report}");
    assert!(report.warnings.first().iter().any(|warning| warning == problem), "{report}");
}

#[test]
fn an_interrupted_vacuum_leaves_no_errors() {
    // The heap TIDs of the three elements.
    let tids = [0x1f9c, 0x1f1c, 0x1e94];
    let without_rows = |pages: &mut [PageBytes], tids: &[usize]| {
        tids.iter().for_each(|&tid| pages[1][tid..tid + 6].copy_from_slice(&Tid::INVALID.to_bytes()));
    };
    // An insert has put an element of level 0 in the place of a deleted one of level 1.
    let mut pages = t3();
    pages[1][0x1e6c] = 1;
    without_rows(&mut pages, &tids[2..]);
    let report = check(&pages);
    let problem = "element (1,5), layer 1: neighbor (1,1) is not on the layer";
    assert!(report.is_ok() && report.warnings.first().iter().any(|warning| warning == problem), "{report}");
    // All rows were deleted: VACUUM has removed the entry point, and not yet marked the elements.
    let mut pages = t3();
    pages[0][40..48].copy_from_slice(&[255, 255, 255, 255, 0, 0, 255, 255]);
    without_rows(&mut pages, &tids[1..]);
    assert_eq!(check(&pages).errors.first(), ["no entry point, but 3 elements"]);
    without_rows(&mut pages, &tids);
    let report = check(&pages);
    assert!(report.is_ok(), "{report}");
    let odd = |pages: &[PageBytes]| {
        check(pages).warnings.first().iter().any(|warning| warning.contains("no entry point, but an"))
    };
    assert!(!odd(&pages));
    // An offset without a block, then a level.
    for (at, byte) in [(44, 3), (46, 0)] {
        let mut pages = pages.clone();
        pages[0][at] = byte;
        assert!(odd(&pages), "{at}");
    }
}

#[test]
fn each_broken_rule_is_found() {
    let broken = |block: usize, at: usize, bytes: &[u8]| {
        let mut pages = t3();
        pages[block][at..at + bytes.len()].copy_from_slice(bytes);
        let report = check(&pages);
        report.errors.first().join("; ")
    };
    let cases: [(usize, usize, &[u8], &str); 18] = [
        (0, 24, &[0], "magic number"),
        (0, 28, &[2], "meta page: version 2"),
        (0, 36, &[1], "meta page: m is 1"),
        (0, 12, &[48], "meta page: lower is 48"),
        (0, 44, &[3], "entry point (1,3): not a live element of level 2"),
        (0, 48, &[255, 255, 255, 255], "insert page 4294967295: not in the chain"),
        (1, 8184, &[1, 0, 0, 0], "next block 1 is in the chain already"),
        (1, 8184, &[2, 0, 0, 0], "next block 2 is not a data page"),
        (1, 8190, &[0], "block 1: page id"),
        (1, 0x1e90, &[3], "(1,5): unknown tuple type 3"),
        (1, 0x1e91, &[3], "8 neighbor slots, 10 expected"),
        (1, 0x1e93, &[2], "version 2, its neighbor tuple's 1"),
        (1, 0x1ea4, &[1], "(1,5): hole in the heap TIDs"),
        (1, 0x1f20, &[1], "heap TID (0,1): in more than one element"),
        (1, 0x1ed4, &[4], "neighbor tuple (1,4) belongs to another element"),
        (1, 0x1edc, &[4], "(1,5): value with dimensions 4, expected 3"),
        (1, 0x1e78, &[5], "neighbor (1,5) is the element itself"),
        (1, 0x1e6c, &[1], "layer 1: neighbor (1,1) is not on the layer"),
    ];
    for (block, at, bytes, problem) in cases {
        let found = broken(block, at, bytes);
        assert!(found.contains(problem), "{problem}: {found}");
    }
}

#[test]
fn a_repeated_neighbor_is_no_error() {
    let mut pages = t3();
    pages[1][0x1e78] = 1;
    let report = check(&pages);
    assert!(report.is_ok(), "{report}");
    assert!(report.warnings.first().iter().any(|warning| warning.ends_with("neighbor (1,1) is repeated")), "{report}");
}
