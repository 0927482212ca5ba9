//! Replays the inputs that the fuzzers of `tests/fuzz` have found, each of which covers another path through the decoders.

use std::fs;

#[path = "../fuzz/src/lib.rs"]
mod targets;

/// Variants of each input, so that every run also tries new inputs.
const CHANGES: u64 = 20;

#[test]
fn corpora_are_replayed() {
    for (name, target) in targets::TARGETS {
        let corpus = harness::root().join("tests/fuzz/corpus").join(name);
        let mut inputs = 0;
        for file in fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display())) {
            let data = fs::read(file.unwrap().path()).unwrap();
            target(&data);
            for seed in 1..=CHANGES {
                target(&changed(data.clone(), seed));
            }
            inputs += 1;
        }
        assert!(inputs >= 5, "{name} has {inputs} inputs");
    }
}

/// The input with one bit flipped; the last variant is also cut at that byte.
fn changed(mut data: Vec<u8>, seed: u64) -> Vec<u8> {
    let random = (seed + data.len() as u64).wrapping_mul(6_364_136_223_846_793_005) >> 24;
    if let Some(at) = (random as usize).checked_rem(data.len()) {
        data[at] ^= 1 << (random >> 32 & 7);
        if seed == CHANGES {
            data.truncate(at);
        }
    }
    data
}
