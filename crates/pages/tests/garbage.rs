//! No content of a file, and nothing that a builder sends, makes a verifier panic.

mod support;

use graph::ValueType;
use lantern_index_pages::{IncomingVerifier, PAGE_SIZE, PageBytes, verify};
use proptest::prelude::*;
use support::{KEY, sample};

/// Valid pages with some bytes overwritten.
fn damaged() -> impl Strategy<Value = Vec<PageBytes>> {
    let types = prop::sample::select(vec![ValueType::Vector, ValueType::HalfVec, ValueType::Bit, ValueType::SparseVec]);
    // Damage matters most in headers, line pointers and the starts of tuples.
    let at = prop_oneof![10..80usize, 24..56usize, 0..PAGE_SIZE, 7000..PAGE_SIZE];
    let damage = prop::collection::vec((any::<prop::sample::Index>(), at, any::<u8>()), 1..40);
    (types, 0..60u32, damage).prop_map(|(value_type, elements, damage)| {
        let mut pages = sample(value_type, 40, 4, elements, 3).pages();
        for (block, at, byte) in damage {
            let block = block.index(pages.len());
            pages[block][at] = byte;
        }
        pages
    })
}

/// Random bytes after a valid header.
fn random() -> impl Strategy<Value = Vec<PageBytes>> {
    let page = (prop::collection::vec(any::<u8>(), PAGE_SIZE), 24..400u16, 400..8184u16);
    prop::collection::vec(page, 1..4).prop_map(|pages| {
        let mut good = sample(ValueType::Vector, 3, 2, 3, 1).pages();
        good.truncate(1);
        good.extend(pages.into_iter().map(|(bytes, lower, upper)| {
            let mut page: PageBytes = bytes.try_into().unwrap();
            page[12..14].copy_from_slice(&lower.to_le_bytes());
            page[14..16].copy_from_slice(&upper.to_le_bytes());
            page[16..20].copy_from_slice(&[0xf8, 0x1f, 4, 0x20]);
            page[8190..].copy_from_slice(&[0x90, 0xff]);
            page
        }));
        good
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_file_makes_verify_panic(pages in prop_oneof![damaged(), random()]) {
        for value_type in [None, Some(ValueType::Vector), Some(ValueType::Bit), Some(ValueType::SparseVec)] {
            let report = verify(&mut pages.as_slice(), value_type);
            prop_assert!(!report.to_string().is_empty());
        }
    }

    #[test]
    fn no_stream_makes_the_incoming_verifier_panic(pages in prop_oneof![damaged(), random()], elements in 0..60u32) {
        let mut spec = sample(ValueType::Vector, 40, 4, elements, 3).spec();
        spec.blocks = pages.len() as u32;
        if let Ok(mut verifier) = IncomingVerifier::new(spec, KEY) {
            let _ = (0..).zip(&pages).try_for_each(|(block, page)| verifier.page(block, page));
        }
    }
}
