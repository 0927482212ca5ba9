//! Memory that is there when it is wanted.
//!
//! A virtual machine may give memory that nobody uses back to its host. It gets it again page by page, each at several times the
//! cost of clearing it: whoever builds after a pause would be measured by that.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::memory;

const PAGE: usize = 4096;
/// Memory wanted per byte of the set: its copies in a builder, in the index, in the log, and graphs.
const PER_BYTE: usize = 4;
const MOST_PASSES: usize = 8;

/// Has the memory for building a set of so many bytes at hand, for a few seconds at least: uses and frees it until that is no
/// longer faster than the time before.
pub fn up(set_bytes: usize) {
    let bytes = (PER_BYTE * set_bytes).min(memory::available() / 2);
    let mut before = Duration::MAX;
    for _ in 0..MOST_PASSES {
        let took = use_once(bytes);
        if took > before.mul_f64(0.8) {
            break;
        }
        before = took;
    }
}

fn use_once(bytes: usize) -> Duration {
    let start = Instant::now();
    let mut memory = vec![0u8; bytes];
    for page in memory.chunks_mut(PAGE) {
        page[0] = 1;
    }
    black_box(memory);
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_there_is_enough() {
        assert!(memory::available() > 64 << 20);
        up(1 << 20);
    }
}
