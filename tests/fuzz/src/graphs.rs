use graph::{HEAP_TIDS_PER_ELEMENT, HeapTid, ValueType};
use hnsw::{BuildSpec, Metric, Storage};
use pages::{IncomingVerifier, verify};

use super::built::{KEY, POOL, index};
use super::input::Input;

/// Builds an index of arbitrary rows: either a row is refused, or the index passes both verifiers.
pub fn graphs(data: &[u8]) {
    let [kind, _, dims] = Input(data).array();
    let (spec, rows) = rows(&mut Input(data), if dims >> 4 == 15 { MANY_ROWS } else { FEW_ROWS });
    // Files take time, so only one input in eight uses the spool.
    let spool = kind >> 3 & 7 == 7;
    let storage = if spool { Storage::with_spool(std::env::temp_dir()) } else { Storage::default() };
    assert_eq!(storage.spool(), spool);
    let Some(index) = POOL.run(|| index(&spec, storage, &rows)) else { return };
    let report = verify(&mut index.pages.as_slice(), Some(spec.value_type));
    assert!(report.is_ok(), "{report}");
    let mut verifier = IncomingVerifier::new(index.spec, KEY).expect("the builder's own numbers");
    for (block, page) in (0..).zip(&index.pages) {
        verifier.page(block, page).expect("the builder's own pages");
    }
    verifier.finish(index.sent).expect("all rows");
}

/// Heap TIDs and values.
pub type Rows = Vec<(HeapTid, Vec<u8>)>;

/// The most rows: enough for several levels, full neighbor lists and duplicates; one input in sixteen may have more, for several tiles.
const FEW_ROWS: usize = 14;
const MANY_ROWS: usize = 40;

/// Decodes a build. In the first four bytes the low bits have the largest effect; zeros in the high bits select common settings.
pub fn rows(input: &mut Input<'_>, most: usize) -> (BuildSpec, Rows) {
    let [kind, metric, dims, m] = input.array();
    let types = [ValueType::Vector, ValueType::HalfVec, ValueType::Bit, ValueType::SparseVec];
    let value_type = types[usize::from(kind % 4)];
    let metrics: &[Metric] = match value_type {
        ValueType::Bit => &[Metric::Hamming, Metric::Jaccard],
        _ => &[Metric::L2, Metric::InnerProduct, Metric::Cosine, Metric::L1],
    };
    let m = 2 + u16::from(m % 99);
    let dims = u32::from(dims % 16) + 1;
    let rows_per_element = [HEAP_TIDS_PER_ELEMENT as u8, HEAP_TIDS_PER_ELEMENT as u8, 3, 1][usize::from(kind >> 6)];
    let ef_construction = (2 * m + 4 * u16::from(metric >> 2)).max(4);
    let metric = metrics[usize::from(metric) % metrics.len()];
    let spec = BuildSpec { rows_per_element, seed: 1, ..BuildSpec::new(value_type, metric, dims, m, ef_construction) };
    // Otherwise values are arbitrary bytes of the input, most of which are refused.
    let chosen = kind & 4 != 0;
    let mut rows = Rows::new();
    while !input.is_empty() && rows.len() < most {
        let value = match value_type.value_len(dims) {
            Some(len) if chosen => chosen_value(value_type, dims, len, input),
            Some(len) => padded(input.take(len), len),
            None => sparse_value(chosen, input),
        };
        rows.push((HeapTid::new(rows.len() as u32, 1), value));
    }
    (spec, rows)
}

/// A valid value; one byte of the input makes one number.
fn chosen_value(value_type: ValueType, dims: u32, len: usize, input: &mut Input<'_>) -> Vec<u8> {
    match value_type {
        ValueType::HalfVec => (0..dims).flat_map(|_| half(input.u8()).to_le_bytes()).collect(),
        ValueType::Bit => {
            let mut value = padded(input.take(len), len);
            let unused = (8 - dims % 8) % 8;
            value[len - 1] &= 0xff << unused;
            value
        }
        _ => (0..dims).flat_map(|_| float(input.u8()).to_le_bytes()).collect(),
    }
}

fn sparse_value(chosen: bool, input: &mut Input<'_>) -> Vec<u8> {
    let nnz = input.u8();
    let entries = usize::from(nnz % 16);
    let claimed = if nnz < 250 { nnz % 16 } else { nnz };
    let mut value = u32::from(claimed).to_le_bytes().to_vec();
    for entry in 0..entries {
        // Mostly ascending, so that some values are valid.
        value.extend((entry as u32 + u32::from(input.u8() / 240)).to_le_bytes());
    }
    match chosen {
        true => value.extend((0..entries).flat_map(|_| float(input.u8()).to_le_bytes())),
        false => value.extend(padded(input.take(4 * entries), 4 * entries)),
    }
    value
}

/// Mostly numbers that are close to each other or equal; some from tiny ones to ones whose square overflows.
fn float(byte: u8) -> f32 {
    match byte {
        0..224 => (f32::from(byte) - 112.0) / 8.0,
        _ => f32::from_bits(u32::from(byte) << 27),
    }
}

/// The bits of a half-precision number with any sign and exponent, but finite.
fn half(byte: u8) -> u16 {
    let bits = u16::from(byte) << 8;
    if bits & 0x7c00 == 0x7c00 { bits & 0x83ff | 0x7bff } else { bits }
}

fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(len, 0);
    bytes
}
