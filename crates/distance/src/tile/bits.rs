//! Tiles of bit strings: exact distances, from the number of bits that are set in both strings of a pair.

use super::ahead::Ahead;
use super::{BLOCK, COLS, ROWS, Tile, TileInput};
use crate::bits::last_word;
use crate::level::compiled_for_each_level;
use crate::{Level, Metric};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// One word of each bit string of a block, in cache lines of its own.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct BitLine([u64; BLOCK]);

/// Bit strings, packed for tiles: in blocks of [`BLOCK`] strings, each stored word by word.
///
/// Reused, so that it allocates rarely. The last block is padded with zeros; the number of blocks is even, as a tile has two
/// blocks of columns.
#[derive(Default)]
pub struct BitPanel {
    /// Words of a string.
    words: usize,
    lines: Vec<BitLine>,
}

impl BitPanel {
    /// Replaces the content by bit strings of equal length.
    ///
    /// # Panics
    /// If a string is shorter than the first.
    pub fn fill<'a>(&mut self, strings: impl ExactSizeIterator<Item = &'a [u8]>) {
        let blocks = strings.len().div_ceil(BLOCK).next_multiple_of(2);
        let mut strings = strings.peekable();
        let bytes = strings.peek().map_or(0, |first| first.len());
        self.words = bytes.div_ceil(WORD);
        self.lines.clear();
        self.lines.resize(blocks * self.words, BitLine([0; BLOCK]));
        let mut strings = Ahead::new(strings, |string| *string);
        for block in self.lines.chunks_exact_mut(self.words.max(1)) {
            for (lane, string) in strings.by_ref().take(BLOCK).enumerate() {
                let (whole, rest) = string[..bytes].as_chunks::<WORD>();
                block.iter_mut().zip(whole).for_each(|(line, word)| line.0[lane] = u64::from_le_bytes(*word));
                if let Some(line) = block.get_mut(whole.len()) {
                    line.0[lane] = last_word(rest);
                }
            }
        }
    }

    /// The number of blocks, even.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.lines.len() / self.words.max(1)
    }

    /// One block: a line for each word.
    #[must_use]
    pub fn block(&self, block: usize) -> &[BitLine] {
        &self.lines[block * self.words..(block + 1) * self.words]
    }

    /// The number of bits set in each string of a block: the terms of [`TileInput`].
    #[must_use]
    pub fn counts(&self, block: usize) -> [f32; BLOCK] {
        let mut counts = [0; BLOCK];
        for line in self.block(block) {
            counts.iter_mut().zip(line.0).for_each(|(count, word)| *count += word.count_ones());
        }
        counts.map(|count| count as f32)
    }
}

/// Computes a tile from a block of rows and two blocks of columns of strings of the same length. Terms are the numbers of bits that are
/// set in the strings, or infinite for padding, whose distances are infinite; the scale is not used.
pub type BitKernel = fn(rows: &[BitLine], cols: [&[BitLine]; 2], input: &TileInput<'_>, tile: &mut Tile);

/// The tile kernel for a metric of bit strings on this processor; `None` for other metrics. Distances are the same as those of
/// [`crate::kernel`].
#[must_use]
pub fn bit_kernel(metric: Metric) -> Option<BitKernel> {
    bit_kernel_at(metric, Level::current())
}

pub(super) fn bit_kernel_at(metric: Metric, level: Level) -> Option<BitKernel> {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = counting_words::kernel(metric, level) {
        return Some(kernel);
    }
    match metric {
        Metric::Hamming => Some(hamming(level)),
        Metric::Jaccard => Some(jaccard(level)),
        Metric::L2 | Metric::InnerProduct | Metric::Cosine | Metric::L1 => None,
    }
}

compiled_for_each_level!(
    hamming,
    hamming_tile,
    (rows: &[BitLine], cols: [&[BitLine]; 2], input: &TileInput<'_>, tile: &mut Tile) -> ()
);
compiled_for_each_level!(
    jaccard,
    jaccard_tile,
    (rows: &[BitLine], cols: [&[BitLine]; 2], input: &TileInput<'_>, tile: &mut Tile) -> ()
);

/// The kernels for processors that count the bits of words.
#[cfg(target_arch = "x86_64")]
mod counting_words {
    use super::*;

    #[target_feature(enable = "avx2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")]
    fn hamming(rows: &[BitLine], cols: [&[BitLine]; 2], input: &TileInput<'_>, tile: &mut Tile) {
        hamming_tile(rows, cols, input, tile);
    }

    #[target_feature(enable = "avx2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")]
    fn jaccard(rows: &[BitLine], cols: [&[BitLine]; 2], input: &TileInput<'_>, tile: &mut Tile) {
        jaccard_tile(rows, cols, input, tile);
    }

    /// `None` for other metrics, or if the processor lacks VPOPCNTDQ.
    pub(super) fn kernel(metric: Metric, level: Level) -> Option<BitKernel> {
        if !crate::bits::counts_words(level) {
            return None;
        }
        match metric {
            // SAFETY: the level includes AVX-512, and VPOPCNTDQ was found.
            Metric::Hamming => Some(|rows, cols, input, tile| unsafe { hamming(rows, cols, input, tile) }),
            // SAFETY: as above.
            Metric::Jaccard => Some(|rows, cols, input, tile| unsafe { jaccard(rows, cols, input, tile) }),
            _ => None,
        }
    }
}

#[inline(always)]
fn hamming_tile(rows: &[BitLine], cols: [&[BitLine]; 2], input: &TileInput<'_>, tile: &mut Tile) {
    tile_of(rows, cols, input, tile, |set, shared| set - 2.0 * shared);
}

#[inline(always)]
fn jaccard_tile(rows: &[BitLine], cols: [&[BitLine]; 2], input: &TileInput<'_>, tile: &mut Tile) {
    tile_of(rows, cols, input, tile, |set, shared| {
        let either = set - shared;
        let ratio = if shared == 0.0 { 0.0 } else { f64::from(shared) / f64::from(either) };
        if either == f32::INFINITY { either } else { (1.0 - ratio) as f32 }
    });
}

/// Computes a tile. `distance_of` takes the numbers of bits set in each string, added up, and of bits set in both.
#[inline(always)]
fn tile_of(
    rows: &[BitLine],
    cols: [&[BitLine]; 2],
    input: &TileInput<'_>,
    tile: &mut Tile,
    distance_of: impl Fn(f32, f32) -> f32,
) {
    let [left, right] = cols;
    for row in 0..ROWS {
        let mut shared = [0u64; COLS];
        let (left_shared, right_shared) = shared.split_at_mut(BLOCK);
        for ((word, left), right) in rows.iter().zip(left).zip(right) {
            let word = word.0[row];
            let both = left_shared.iter_mut().zip(right_shared.iter_mut()).zip(left.0.iter().zip(right.0));
            for ((left_shared, right_shared), (left, right)) in both {
                *left_shared += u64::from((word & left).count_ones());
                *right_shared += u64::from((word & right).count_ones());
            }
        }
        // A string has fewer than 2^24 bits: these numbers are exact.
        tile.set_row(row, input, |col| {
            distance_of(input.row_terms[row] + input.col_terms[col], shared[col] as i32 as f32)
        });
    }
}
