use std::sync::{Arc, LazyLock};

use graph::ValueType;
use hnsw::{BuildSpec, Control, EngineKind, Finished, Pool, RowBatch, Storage};
use pages::{IncomingSpec, IndexMeta, Layout, PAGE_SIZE, PageBytes, PageWriter, RowDigest};

use super::graphs::{Rows, rows};
use super::input::Input;

pub const KEY: [u64; 4] = [1, 2, 3, 4];

/// One thread: the pool is entered once per input, not at every step of a build.
pub static POOL: LazyLock<Arc<Pool>> = LazyLock::new(|| Arc::new(Pool::new(1).expect("one thread")));

/// The pages of an index, and what a client that sent its rows knows about them.
pub struct Index {
    pub spec: IncomingSpec,
    pub sent: RowDigest,
    pub pages: Vec<PageBytes>,
}

/// A small index of each type; some rows have equal values.
pub static SAMPLES: LazyLock<Vec<Index>> = LazyLock::new(|| {
    let shapes: [(u8, u8, u8, usize); 8] = [
        (0, 2, 2, 0),
        (0, 2, 2, 1),
        (0, 2, 2, 40),
        (0, 7, 60, 9),
        (1, 4, 5, 40),
        (2, 7, 3, 60),
        (3, 15, 2, 40),
        (0, 15, 14, 70),
    ];
    let sample = |&(value_type, dims, m, rows): &(u8, u8, u8, usize)| {
        let numbers = (0..rows * 80).map(|at| ((at * at + at / 7) % 61) as u8);
        let data: Vec<u8> = [value_type, 0, dims, m].into_iter().chain(numbers).collect();
        let (spec, rows) = self::rows(&mut Input(&data), 64);
        index(&spec, Storage::default(), &rows).expect("values that are right")
    };
    shapes.iter().map(sample).collect()
});

/// Builds an index; `None` if a row was refused. Runs on the threads of the current pool.
pub fn index(spec: &BuildSpec, storage: Storage, rows: &Rows) -> Option<Index> {
    let mut engine = hnsw::start_in(storage, EngineKind::Bulk, spec.clone(), POOL.clone(), Control::default()).ok()?;
    let mut sent = RowDigest::new(KEY);
    for (tid, value) in rows {
        let lengths = [value.len() as u32];
        let lengths: &[u32] = if spec.value_type == ValueType::SparseVec { &lengths } else { &[] };
        engine.add(RowBatch { tids: &[*tid], values: value, lengths }).ok()?;
        sent.add(*tid, value);
    }
    let Finished { graph, values, order, report } = engine.finish().expect("rows that were taken");
    let meta =
        IndexMeta { value_type: spec.value_type, dims: spec.dims, m: spec.m, ef_construction: spec.ef_construction };
    let layout = Layout::new(&graph, &*values, &order, &meta).expect("the engine's own graph");
    let writer = PageWriter::new(&graph, &*values, &layout);
    let mut pages = vec![[0; PAGE_SIZE]; writer.blocks() as usize];
    for (block, page) in (0..).zip(&mut pages) {
        writer.write_page(block, page);
    }
    let spec = IncomingSpec { meta, rows: report.rows, elements: report.elements, blocks: writer.blocks() };
    Some(Index { spec, sent, pages })
}
