//! Makes memory available before a build is timed.
//!
//! A virtual machine may return unused memory to its host, and gets it back page by page, which costs several times as much as clearing a
//! page. That would slow down a build after a pause.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::memory;

const PAGE: usize = 4096;
/// Bytes of memory needed per byte of the set: copies in a builder, in the index and in the WAL, and graphs.
const PER_BYTE: usize = 4;
const MOST_PASSES: usize = 8;

/// Makes the memory for a build of `set_bytes` bytes available for at least a few seconds: allocates and frees it until a
/// repetition is no faster than the one before.
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
