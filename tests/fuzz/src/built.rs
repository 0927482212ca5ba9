use std::sync::{Arc, LazyLock};

use graph::{HEAP_TIDS_PER_ELEMENT, HeapTid, ValueType};
use hnsw::{BuildSpec, Control, EngineKind, Finished, Metric, Pool, RowBatch};
use pages::{
    IncomingSpec, IncomingVerifier, IndexMeta, Layout, Options, PAGE_SIZE, PageBytes, PageWriter, RowDigest, verify,
};

use super::input::Input;

pub const KEY: [u64; 4] = [1, 2, 3, 4];

static POOL: LazyLock<Arc<Pool>> = LazyLock::new(|| Arc::new(Pool::new(1).expect("one thread")));

/// An index on pages, and what a client that sent its rows knows.
pub struct Index {
    pub spec: IncomingSpec,
    pub sent: RowDigest,
    pub pages: Vec<PageBytes>,
}

/// Rows of any bytes: refused, or built to an index that both verifiers pass.
pub fn graphs(data: &[u8]) {
    let mut input = Input(data);
    let Some((spec, rows)) = rows(&mut input) else { return };
    let Some(index) = index(&spec, &rows) else { return };
    let report = verify(&mut index.pages.as_slice(), Options { value_type: Some(spec.value_type) });
    assert!(report.is_ok(), "{report}");
    let mut verifier = IncomingVerifier::new(index.spec, KEY).expect("the builder's own numbers");
    for (block, page) in (0..).zip(&index.pages) {
        verifier.page(block, page).expect("the builder's own pages");
    }
    verifier.finish(index.sent).expect("all rows");
}

/// A small index of each type; some rows are equal.
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
        let (spec, rows) = self::rows(&mut Input(&data)).expect("a type that exists");
        index(&spec, &rows).expect("values that are right")
    };
    shapes.iter().map(sample).collect()
});

type Rows = Vec<(HeapTid, Vec<u8>)>;

fn rows(input: &mut Input<'_>) -> Option<(BuildSpec, Rows)> {
    let [value_type, metric, dims, m] = input.array();
    let dims = u32::from(dims % 16) + 1;
    let types = [ValueType::Vector, ValueType::HalfVec, ValueType::Bit, ValueType::SparseVec];
    let value_type = types[usize::from(value_type) % 4];
    let metrics: &[Metric] = match value_type {
        ValueType::Bit => &[Metric::Hamming, Metric::Jaccard],
        _ => &[Metric::L2, Metric::InnerProduct, Metric::Cosine, Metric::L1],
    };
    let m = 2 + u16::from(m % 99);
    let spec = BuildSpec {
        value_type,
        metric: metrics[usize::from(metric) % metrics.len()],
        dims,
        m,
        ef_construction: (2 * m).max(4),
        expected_rows: 0,
        rows_per_element: HEAP_TIDS_PER_ELEMENT as u8,
        seed: 1,
    };
    let mut rows = Rows::new();
    while !input.is_empty() && rows.len() < 64 {
        let tid = HeapTid::new(rows.len() as u32, 1);
        let value = match value_type.value_len(dims) {
            Some(len) => padded(input.take(len), len),
            None => {
                let nnz = input.u8();
                let claimed = if nnz < 250 { nnz % 16 } else { nnz };
                let entries = 8 * usize::from(nnz % 16);
                let mut value = u32::from(claimed).to_le_bytes().to_vec();
                for entry in 0..entries / 8 {
                    // Mostly in order, so that some are right.
                    value.extend((entry as u32 + u32::from(input.u8() / 240)).to_le_bytes());
                }
                value.extend(padded(input.take(entries / 2), entries / 2));
                value
            }
        };
        rows.push((tid, value));
    }
    Some((spec, rows))
}

fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(len, 0);
    bytes
}

fn index(spec: &BuildSpec, rows: &Rows) -> Option<Index> {
    let mut engine = hnsw::start(EngineKind::Bulk, spec.clone(), POOL.clone(), Control::default()).ok()?;
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
