use graph::ValueType;
use pages::{Datum, IncomingVerifier, PAGE_SIZE, PageBytes, Tid, value_len, verify};

use super::built::{Index, KEY, SAMPLES};
use super::input::Input;

const TYPES: [ValueType; 4] = [ValueType::Vector, ValueType::HalfVec, ValueType::Bit, ValueType::SparseVec];

/// A value on a page, made of arbitrary bytes.
pub fn datums(data: &[u8]) {
    let mut input = Input(data);
    let value_type = TYPES[usize::from(input.u8()) % 4];
    let dims = u32::from_le_bytes(input.array());
    let dims = if input.u8() & 1 == 1 { dims % 64 } else { dims };
    let tid = Tid { block: 1, offset: 1 };
    let Ok(datum) = Datum::parse(value_type, dims, tid, input.0) else { return };
    assert!(datum.len <= input.0.len() && dims <= value_type.max_dims());
    let value = datum.value.concat();
    let meta = pages::IndexMeta { value_type, dims, m: 16, ef_construction: 64 };
    assert_eq!(value_len(&meta, &value), value.len());
}

/// An index file with arbitrary damage: the verifier reports, whatever type it is given.
pub fn verify_pages(data: &[u8]) {
    let mut input = Input(data);
    let sample = sample(&mut input);
    let declared = [None, Some(TYPES[0]), Some(TYPES[1]), Some(TYPES[2]), Some(TYPES[3])][input.below(5)];
    let pages = damaged(&sample.pages, &mut input);
    let report = verify(&mut pages.as_slice(), declared);
    assert!(!report.to_string().is_empty());
}

/// Pages of an untrusted builder: whatever passes verification is an index of the sent rows.
pub fn incoming_pages(data: &[u8]) {
    let mut input = Input(data);
    let sample = sample(&mut input);
    let mut spec = sample.spec;
    let [rows, elements] = input.array();
    // 0 leaves the announced number unchanged.
    spec.rows = spec.rows.wrapping_add_signed(i64::from(rows.cast_signed()));
    spec.elements = spec.elements.wrapping_add_signed(i64::from(elements.cast_signed()));
    let pages = damaged(&sample.pages, &mut input);
    spec.blocks = u32::try_from(pages.len()).expect("a few");
    let Ok(mut verifier) = IncomingVerifier::new(spec, KEY) else { return };
    if (0..).zip(&pages).try_for_each(|(block, page)| verifier.page(block, page)).is_err() {
        return;
    }
    if verifier.finish(sample.sent.clone()).is_ok() {
        let report = verify(&mut pages.as_slice(), Some(spec.meta.value_type)).to_string();
        // Links to elements that are not on the layer may pass, since pgvector's searches skip them.
        let mut errors = report.lines().filter(|line| line.starts_with("error "));
        assert!(errors.all(|line| line.ends_with("is not on the layer")), "{report}");
    }
}

fn sample(input: &mut Input<'_>) -> &'static Index {
    &SAMPLES[input.below(SAMPLES.len())]
}

/// The pages after random changes of bytes and numbers, with pieces of other pages, lost pages and repeated pages.
fn damaged(good: &[PageBytes], input: &mut Input<'_>) -> Vec<PageBytes> {
    let mut pages = good.to_vec();
    while !input.is_empty() && !pages.is_empty() {
        let change = input.u8();
        let block = input.below(pages.len());
        let at = input.below(PAGE_SIZE);
        match change % 8 {
            0..3 => pages[block][at] = input.u8(),
            3 | 4 => put(&mut pages[block], at, &input.array::<2>()),
            5 => {
                let len = usize::from(input.u8());
                put(&mut pages[block], at, input.take(len));
            }
            6 => {
                let (from, start, len) = (input.below(pages.len()), input.below(PAGE_SIZE), input.below(PAGE_SIZE));
                let piece = pages[from][start..].iter().take(len).copied().collect::<Vec<u8>>();
                put(&mut pages[block], at, &piece);
            }
            _ if change & 8 == 0 => drop(pages.remove(block)),
            _ if pages.len() < 2 * good.len() + 2 => pages.insert(block, pages[at % pages.len()]),
            _ => {}
        }
    }
    pages
}

fn put(page: &mut PageBytes, at: usize, bytes: &[u8]) {
    for (to, from) in page[at..].iter_mut().zip(bytes) {
        *to = *from;
    }
}
