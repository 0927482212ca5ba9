//! Graphs, values and pages to test with.
#![allow(dead_code, reason = "every test file uses its own part")]

use fastrand::Rng;
use graph::{ElementValues, Graph, GraphParts, HeapTid, HeapTids, NO_NEIGHBOR, ValueType};
use lantern_index_pages::{
    IncomingError, IncomingSpec, IncomingVerifier, IndexMeta, Layout, PAGE_SIZE, PageBytes, PageWriter, RowDigest,
};

pub const KEY: [u64; 4] = [1, 2, 3, 4];

pub struct Values(pub Vec<Vec<u8>>);

impl ElementValues for Values {
    fn value(&self, element: u32) -> &[u8] {
        &self.0[element as usize]
    }
}

/// Everything that a builder has at the end of a build.
pub struct Sample {
    pub meta: IndexMeta,
    pub graph: Graph,
    pub values: Values,
    pub order: Vec<u32>,
}

/// A graph whose layers are rings, in which each element links to the next ones, so that all can be reached. `top` is the level
/// of the highest element; about a tenth of the elements have two heap TIDs.
pub fn sample(value_type: ValueType, dims: u32, m: u16, elements: u32, top: u8) -> Sample {
    let mut random = Rng::with_seed(u64::from(dims) << 20 | u64::from(elements));
    let levels: Vec<u8> = (0..elements).map(|element| level(&mut random, m, element, top)).collect();
    let on_layer = |layer: u8| (0..elements).filter(|&e| levels[e as usize] >= layer).collect::<Vec<u32>>();
    let list = |ring: &[u32], element: u32, slots: usize| {
        let at = ring.binary_search(&element).unwrap();
        let used = slots.min(ring.len() - 1);
        let mut list: Vec<u32> = (1..=used).map(|step| ring[(at + step) % ring.len()]).collect();
        list.resize(slots, NO_NEIGHBOR);
        list
    };
    let rings: Vec<Vec<u32>> = (0..=top).map(on_layer).collect();
    let layer0 = (0..elements).flat_map(|element| list(&rings[0], element, 2 * usize::from(m))).collect();
    let upper = (0..elements).flat_map(|element| {
        (1..=levels[element as usize])
            .flat_map(|layer| list(&rings[usize::from(layer)], element, m.into()))
            .collect::<Vec<_>>()
    });
    let upper = upper.collect();
    let mut heap_tids = HeapTids::default();
    for element in 0..elements {
        let rows = if random.usize(..10) == 0 { 2 } else { 1 };
        heap_tids.push((0..rows).map(|row| HeapTid::new(70_000 + element, 1 + row)));
    }
    let highest = levels.iter().max().copied();
    let entry = levels.iter().position(|&level| Some(level) == highest).map(|at| at as u32);
    let graph = Graph::new(GraphParts { m, levels, layer0, upper, heap_tids, entry }).unwrap();
    let values = Values((0..elements).map(|_| value(&mut random, value_type, dims)).collect());
    let mut order: Vec<u32> = (0..elements).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.usize(..at + 1));
    }
    Sample { meta: IndexMeta { value_type, dims, m, ef_construction: 64 }, graph, values, order }
}

fn level(random: &mut Rng, m: u16, element: u32, top: u8) -> u8 {
    if element == 1 {
        return top;
    }
    let mut level = 0;
    while level < top && random.usize(..usize::from(m)) == 0 {
        level += 1;
    }
    level
}

fn value(random: &mut Rng, value_type: ValueType, dims: u32) -> Vec<u8> {
    let number = |random: &mut Rng| (random.usize(..1000) as f32 - 500.5).to_le_bytes();
    match value_type {
        ValueType::Vector => (0..dims).flat_map(|_| number(random)).collect(),
        ValueType::HalfVec => (0..2 * dims).map(|_| random.usize(..60) as u8).collect(),
        ValueType::Bit => {
            let mut bits: Vec<u8> = (0..dims.div_ceil(8)).map(|_| random.usize(..256) as u8).collect();
            *bits.last_mut().unwrap() &= 0xFFu8 << (bits_of_pad(dims));
            bits
        }
        ValueType::SparseVec => {
            let nnz = random.usize(..dims.min(1000) as usize + 1);
            let mut value = (nnz as u32).to_le_bytes().to_vec();
            value.extend((0..nnz as u32).flat_map(u32::to_le_bytes));
            value.extend((0..nnz).flat_map(|_| number(random)));
            value
        }
    }
}

fn bits_of_pad(dims: u32) -> u32 {
    dims.next_multiple_of(8) - dims
}

/// Where a tuple begins in the bytes of its page, by the tuple's line pointer.
pub fn tuple_start(page: &PageBytes, offset: u16) -> usize {
    let pointer = 24 + 4 * (usize::from(offset) - 1);
    (u32::from_le_bytes(page[pointer..pointer + 4].try_into().unwrap()) & 0x7fff) as usize
}

/// 25 rows of one value, in elements of 10, 10 and 5 rows.
pub fn equal_rows() -> Sample {
    let mut heap_tids = HeapTids::default();
    for (block, rows) in [(1, 10), (2, 10), (3, 5)] {
        heap_tids.push((1..=rows).map(|offset| HeapTid::new(block, offset)));
    }
    let mut layer0 = vec![NO_NEIGHBOR; 3 * 4];
    for (element, others) in [[1, 2], [2, 0], [0, 1]].iter().enumerate() {
        layer0[4 * element..4 * element + 2].copy_from_slice(others);
    }
    let parts = GraphParts { m: 2, levels: vec![0; 3], layer0, upper: Vec::new(), heap_tids, entry: Some(0) };
    let meta = IndexMeta { value_type: ValueType::Vector, dims: 2, m: 2, ef_construction: 4 };
    Sample { meta, graph: Graph::new(parts).unwrap(), values: Values(vec![vec![7; 8]; 3]), order: vec![0, 1, 2] }
}

/// Samples of all types, with tuples of all sizes and from no to many elements.
pub fn samples() -> Vec<(&'static str, Sample)> {
    use ValueType::{Bit, HalfVec, SparseVec, Vector};
    vec![
        ("empty", sample(Vector, 3, 16, 0, 0)),
        ("one", sample(Vector, 3, 16, 1, 0)),
        ("three", sample(Vector, 3, 2, 3, 2)),
        ("equal rows", equal_rows()),
        ("vector", sample(Vector, 64, 16, 500, 4)),
        ("vector, m = 2, level 40", sample(Vector, 8, 2, 500, 40)),
        ("vector, m = 100, level 7", sample(Vector, 5, 100, 500, 7)),
        ("vector, 1536 dimensions", sample(Vector, 1536, 16, 120, 3)),
        ("vector, 2000 dimensions", sample(Vector, 2000, 16, 60, 3)),
        ("vector, 2000 dimensions, m = 50", sample(Vector, 2000, 50, 120, 3)),
        ("vector, 1 dimension", sample(Vector, 1, 2, 500, 5)),
        ("halfvec", sample(HalfVec, 33, 16, 500, 4)),
        ("halfvec, 4000 dimensions", sample(HalfVec, 4000, 16, 40, 2)),
        ("bit", sample(Bit, 77, 16, 500, 4)),
        ("bit, 1 dimension", sample(Bit, 1, 2, 300, 4)),
        ("bit, 64000 dimensions", sample(Bit, 64_000, 16, 40, 2)),
        ("sparsevec", sample(SparseVec, 50, 16, 500, 4)),
        ("sparsevec, up to 1000 values", sample(SparseVec, 1_000_000_000, 16, 120, 3)),
    ]
}

impl Sample {
    pub fn layout(&self) -> Layout {
        Layout::new(&self.graph, &self.values, &self.order, &self.meta).unwrap()
    }

    pub fn pages(&self) -> Vec<PageBytes> {
        let layout = self.layout();
        let writer = PageWriter::new(&self.graph, &self.values, &layout);
        let mut pages = vec![[0xAA; PAGE_SIZE]; writer.blocks() as usize];
        // The order does not matter.
        for block in (0..writer.blocks()).rev() {
            writer.write_page(block, &mut pages[block as usize]);
        }
        pages
    }

    pub fn digest(&self) -> RowDigest {
        let mut digest = RowDigest::new(KEY);
        for element in self.graph.elements() {
            for &tid in self.graph.heap_tids().of(element) {
                digest.add(tid, self.values.value(element));
            }
        }
        digest
    }

    pub fn spec(&self) -> IncomingSpec {
        IncomingSpec {
            meta: self.meta,
            rows: self.graph.heap_tids().rows() as u64,
            elements: self.graph.len() as u64,
            blocks: self.layout().blocks(),
        }
    }

    /// The result of the incoming verifier for these pages.
    pub fn receive(&self, pages: &[PageBytes]) -> Result<(), IncomingError> {
        let mut verifier = IncomingVerifier::new(self.spec(), KEY)?;
        for (block, page) in (0..).zip(pages) {
            verifier.page(block, page)?;
        }
        verifier.finish(self.digest())
    }
}
