//! Pages of all kinds of graphs pass both verifiers.

mod support;

use std::collections::HashSet;
use std::io::Write;

use graph::ValueType;
use lantern_index_pages::{
    FileSource, IndexMeta, Layout, LayoutError, PAGE_SIZE, PageBytes, PageSource, Report, SEGMENT_BLOCKS, verify,
};
use support::{Sample, Values, equal_rows, sample, samples, tuple_start};

fn check(sample: &Sample) -> Report {
    let pages = sample.pages();
    verify(&mut pages.as_slice(), Some(sample.meta.value_type))
}

#[test]
fn every_sample_passes() {
    for (name, sample) in samples() {
        let report = check(&sample);
        assert_eq!(report.errors.first(), [""; 0], "{name}");
        assert_eq!(report.warnings.first(), [""; 0], "{name}");
        assert_eq!(report.live, sample.graph.len() as u64, "{name}");
        assert_eq!(report.heap_tids, sample.graph.heap_tids().rows() as u64, "{name}");
        assert!(report.layers.iter().all(|layer| layer.elements == layer.reachable), "{name}\n{report}");
        assert_eq!(sample.receive(&sample.pages()), Ok(()), "{name}");
    }
}

/// Links by layer, and the number of pages of a layer-0 list's neighbors, as counted in the graph itself.
#[test]
fn links_and_their_pages_are_counted() {
    for (name, sample) in samples().into_iter().filter(|(_, sample)| !sample.graph.is_empty()) {
        let (graph, layout, report) = (&sample.graph, sample.layout(), check(&sample));
        for layer in &report.layers {
            let on_layer = graph.elements().filter(|&element| graph.level(element) >= layer.layer);
            let links: usize = on_layer.map(|element| graph.neighbors(element, layer.layer).len()).sum();
            assert_eq!(layer.links, links as u64, "{name}, layer {}", layer.layer);
        }
        let pages_of = |element: u32| {
            let block = |&neighbor: &u32| layout.element(neighbor).block;
            graph.neighbors(element, 0).iter().map(block).collect::<HashSet<u32>>().len()
        };
        let pages: usize = graph.elements().map(pages_of).sum();
        let mean = pages as f64 / graph.len() as f64;
        assert!((report.mean_pages - mean).abs() < 1e-9, "{name}: {} pages, {mean} expected", report.mean_pages);
    }
}

#[test]
fn a_lower_entry_point_and_unreachable_elements_are_warned_of() {
    let sample = sample(ValueType::Vector, 3, 2, 300, 3);
    let layout = sample.layout();
    let warnings = |pages: &[PageBytes]| {
        let report = verify(&mut &pages[..], None);
        assert!(report.is_ok(), "{report}");
        report.warnings.first().join("; ")
    };
    // The entry point becomes an element of level 0, which links to no other layer.
    let mut pages = sample.pages();
    let low = sample.graph.elements().find(|&element| sample.graph.level(element) == 0).unwrap();
    let tid = layout.element(low);
    let entry = [tid.block.to_le_bytes().as_slice(), &tid.offset.to_le_bytes(), &0i16.to_le_bytes()].concat();
    pages[0][40..48].copy_from_slice(&entry);
    let found = warnings(&pages);
    assert!(found.contains("an element has a higher level") && !found.contains("cannot be reached"), "{found}");
    // In a ring, the elements behind one without links cannot be reached.
    let mut pages = sample.pages();
    for &element in sample.graph.neighbors(sample.graph.entry().unwrap(), 0) {
        let tid = layout.neighbor(element);
        let page = &mut pages[tid.block as usize];
        let start = tuple_start(page, tid.offset);
        let slots = usize::from(u16::from_le_bytes([page[start + 2], page[start + 3]]));
        for slot in 0..slots {
            page[start + 4 + 6 * slot..][..6].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0]);
        }
    }
    let found = warnings(&pages);
    assert!(found.contains("layer 0: ") && found.contains("cannot be reached"), "{found}");
    assert!(!found.contains("an element has a higher level"), "{found}");
}

#[test]
fn the_highest_levels_fit_on_a_page() {
    for (m, top) in [(2, 63), (16, 63), (100, 11)] {
        let report = check(&sample(ValueType::Vector, 5, m, 500, top));
        assert!(report.is_ok() && report.levels[&top] == 1, "{report}");
    }
}

#[test]
fn the_type_is_recognised() {
    for (name, sample) in samples().into_iter().filter(|(_, sample)| !sample.graph.is_empty()) {
        let pages = sample.pages();
        let report = verify(&mut pages.as_slice(), None);
        assert!(report.is_ok(), "{name}\n{report}");
        assert_eq!(report.value_type, Some(sample.meta.value_type), "{name}");
    }
}

/// With two entries, a sparsevec is as long as a vector, halfvec or bit value of these dimensions.
#[test]
fn a_sparse_value_as_long_as_another_is_recognised() {
    for dims in [6, 12, 192] {
        let mut sparse = sample(ValueType::SparseVec, dims, 16, 10, 0);
        let words = [2u32, 0, 3].map(u32::to_le_bytes).concat();
        let value = [words, [1f32, 0.5].map(f32::to_le_bytes).concat()].concat();
        sparse.values = Values(vec![value; 10]);
        let report = verify(&mut sparse.pages().as_slice(), None);
        assert!(report.is_ok(), "{dims}\n{report}");
        assert_eq!(report.value_type, Some(ValueType::SparseVec), "{dims}");
    }
}

#[test]
fn an_empty_index_has_two_pages() {
    let sample = sample(ValueType::Vector, 3, 16, 0, 0);
    let pages = sample.pages();
    assert_eq!(pages.len(), 2);
    assert_eq!(pages[0][40..52], [255, 255, 255, 255, 0, 0, 255, 255, 1, 0, 0, 0]);
    assert_eq!(pages[1][12..16], [24, 0, 0xf8, 0x1f]);
}

#[test]
fn equal_rows_share_elements() {
    let report = check(&equal_rows());
    assert_eq!((report.live, report.heap_tids, report.duplicates), (3, 25, 22));
}

#[test]
fn wide_vectors_have_their_neighbors_beside_them() {
    let wide = sample(ValueType::Vector, 1536, 16, 120, 0);
    let report = check(&wide);
    assert_eq!((report.blocks, report.neighbors_elsewhere), (121, 0));
    let narrow = check(&sample(ValueType::Vector, 64, 16, 500, 4));
    assert!(narrow.neighbors_elsewhere > 400, "{narrow}");
}

#[test]
fn neighbors_never_lie_on_a_lower_block() {
    for (name, sample) in samples() {
        let layout = sample.layout();
        for element in sample.graph.elements() {
            assert!(layout.neighbor(element).block >= layout.element(element).block, "{name}");
        }
    }
}

#[test]
fn impossible_layouts_are_refused() {
    let sample = sample(ValueType::Vector, 3, 2, 3, 1);
    let layout = |order: &[u32], meta: IndexMeta, values: &Values| {
        Layout::new(&sample.graph, values, order, &meta).map(|layout| layout.blocks()).unwrap_err()
    };
    let order = |order: &[u32]| layout(order, sample.meta, &sample.values);
    assert_eq!(order(&[0, 1]), LayoutError::Order { found: 2, expected: 3 });
    assert_eq!(order(&[0, 1, 1]), LayoutError::Order { found: 3, expected: 3 });
    assert_eq!(order(&[0, 1, 3]), LayoutError::Order { found: 3, expected: 3 });
    let meta = |meta| layout(&[0, 1, 2], meta, &sample.values);
    assert_eq!(meta(IndexMeta { m: 3, ..sample.meta }), LayoutError::M { graph: 2, index: 3 });
    assert!(matches!(meta(IndexMeta { dims: 2001, ..sample.meta }), LayoutError::Meta(_)));
    assert_eq!(meta(IndexMeta { dims: 4, ..sample.meta }), LayoutError::Value { element: 0, found: 12, expected: 16 });
    let sparse = IndexMeta { value_type: ValueType::SparseVec, ..sample.meta };
    let too_many = Values(vec![[&2000u32.to_le_bytes()[..], &[0; 16_000]].concat(); 3]);
    assert!(matches!(layout(&[0, 1, 2], sparse, &too_many), LayoutError::Value { element: 0, .. }));
    let short = Values(vec![vec![0; 3]; 3]);
    assert!(matches!(layout(&[0, 1, 2], sparse, &short), LayoutError::Value { element: 0, .. }));
}

#[test]
fn a_file_is_read_like_its_pages() {
    let sample = sample(ValueType::Vector, 64, 16, 500, 4);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for page in sample.pages() {
        file.write_all(&page).unwrap();
    }
    let mut source = FileSource::open(file.path()).unwrap();
    let report = verify(&mut source, None);
    assert_eq!(report.to_string(), check(&sample).to_string());
    file.write_all(&[0]).unwrap();
    assert!(FileSource::open(file.path()).unwrap_err().to_string().contains("not a relation file"));
}

#[test]
fn segments_are_one_relation() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("16384");
    let sparse = |name: &str, blocks: u32| {
        let file = std::fs::File::create(folder.path().join(name)).unwrap();
        file.set_len(u64::from(blocks) * PAGE_SIZE as u64).unwrap();
        file
    };
    sparse("16384", SEGMENT_BLOCKS);
    sparse("16384.1", 3).write_all(&[7; 5]).unwrap();
    sparse("16384.2", 9);
    let mut source = FileSource::open(&first).unwrap();
    assert_eq!(source.blocks(), SEGMENT_BLOCKS + 3);
    let mut buffer = [0; PAGE_SIZE];
    assert_eq!(source.read(SEGMENT_BLOCKS, &mut buffer).unwrap()[..6], [7, 7, 7, 7, 7, 0]);
    assert!(source.read(SEGMENT_BLOCKS + 3, &mut buffer).is_err());
    assert!(FileSource::open(&folder.path().join("1")).is_err());
}
