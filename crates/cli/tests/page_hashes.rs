//! The same rows give the same pages, bit by bit: at every run, with any number of threads, and after
//! changes that are not meant to alter pages.

mod support;

use protocol::Metric::{Cosine, Hamming, InnerProduct, Jaccard, L1, L2};
use protocol::ValueType::{Bit, HalfVec, SparseVec, Vector};
use protocol::{Hello, Metric, ValueType};
use support::{Daemon, hello, points};
use tempfile::TempDir;

struct Shape {
    value_type: ValueType,
    metric: Metric,
    dims: usize,
    rows: usize,
    /// The number of distinct values; fewer than rows means duplicates.
    distinct: usize,
    m: u16,
    ef_construction: u16,
}

const fn shape(
    (value_type, dims, metric): (ValueType, usize, Metric),
    (rows, distinct): (usize, usize),
    (m, ef_construction): (u16, u16),
) -> Shape {
    Shape { value_type, metric, dims, rows, distinct, m, ef_construction }
}

/// Builds by the engine `bulk`, with the CRC-32C of all pages. For inner product, and for types without a dot-product form, a trial on a
/// sample chooses between `bulk` and `insertion`.
const BULK: [(Shape, u32); 9] = [
    (shape((Vector, 64, L2), (3000, 3000), (16, 64)), 0xc857_bfb4),
    (shape((Vector, 8, L2), (1, 1), (2, 4)), 0xb94a_c85c),
    (shape((Vector, 48, InnerProduct), (1500, 1500), (8, 40)), 0x3f6d_293e),
    (shape((Vector, 200, Cosine), (1000, 250), (24, 200)), 0xc4b8_4d1f),
    (shape((Vector, 16, L1), (1000, 1000), (16, 64)), 0xfd20_cc47),
    (shape((HalfVec, 96, L2), (1200, 40), (5, 64)), 0x1313_552d),
    (shape((SparseVec, 64, Cosine), (1000, 1000), (16, 64)), 0x9f6f_1c00),
    (shape((Vector, 16, Cosine), (20_000, 20_000), (8, 32)), 0x6178_16b8),
    (shape((Bit, 256, Hamming), (5000, 5000), (16, 128)), 0xf2e8_672e),
];

const INSERTION: [(Shape, u32); 2] = [
    (shape((Bit, 64, Jaccard), (1000, 1000), (12, 100)), 0xa4e6_da2f),
    (shape((HalfVec, 32, InnerProduct), (1000, 500), (16, 64)), 0xb1c1_37e1),
];

/// The level is fixed: kernels of other levels add in another order, and some compare int8 codes.
#[test]
fn pages_are_those_of_earlier_versions() {
    let mut found = Vec::new();
    for (engine, shapes) in [("bulk", &BULK[..]), ("insertion", &INSERTION)] {
        let [one, three] = ["1", "3"].map(|threads| {
            let dir = TempDir::new().unwrap();
            let arguments = ["--cpu-level", "portable", "--engine", engine, "--threads", threads];
            let daemon = Daemon::start(&arguments, dir.path());
            shapes.iter().map(|(shape, _)| hash(&daemon, shape)).collect::<Vec<_>>()
        });
        assert_eq!(one, three, "{engine}: the pages depend on the number of threads");
        found.extend(one);
    }
    let recorded: Vec<_> = BULK.iter().chain(&INSERTION).map(|(_, hash)| *hash).collect();
    assert!(
        found == recorded,
        "the pages have changed. If they were meant to, record these hashes in BULK and INSERTION, and say in the commit's message why \
         pages change:\n{found:#010x?}\nrecorded are\n{recorded:#010x?}"
    );
}

/// Builds an index and returns the CRC-32C of its pages.
fn hash(daemon: &Daemon, shape: &Shape) -> u32 {
    let Shape { value_type, metric, dims, rows, distinct, m, ef_construction } = *shape;
    let values = points(value_type, metric, distinct, dims);
    let values: Vec<_> = values.into_iter().cycle().take(rows).collect();
    let mut client = daemon.connect();
    let hello = hello(dims as u32);
    client.admitted(Hello { value_type, metric, m, ef_construction, estimated_rows: rows as u64, ..hello });
    client.values(value_type, &values);
    client.end_of_rows(rows as u64);
    let pages = client.pages().pages;
    pages.iter().fold(0, |crc, page| crc32c::crc32c_append(crc, page))
}
