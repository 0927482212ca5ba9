use super::ahead::Ahead;
use super::panel::BLOCK;
use crate::level::compiled_for_each_level;
use crate::{Elements, Level, dense};

/// Dimensions whose codes are adjacent: instructions multiply four int8 pairs per 32-bit lane.
pub(super) const GROUP: usize = 4;
/// Bytes of one group of dimensions in a block.
const LINE: usize = GROUP * BLOCK;
/// Codes are from `-LIMIT` to `LIMIT`.
const LIMIT: f32 = 127.0;

/// One group of dimensions of a block, in its own cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [i8; LINE]);

/// Lines per group of dimensions where the instructions multiply 16 bits: codes are widened once, when they are packed.
pub(super) const WIDE: usize = 2;

/// Vectors as int8 codes, packed for products: like a [`super::Panel`], but approximate, and in a quarter of the memory, or in half
/// where codes are widened (AVX2) or kept in two layouts (AMX). Element `i` of a vector is about `code[i] * factor`, with an error
/// of at most half the factor, which is the vector's greatest absolute element divided by 127.
pub struct CodePanel {
    level: Level,
    rows: usize,
    /// Lines per block: one per group of dimensions, rounded up to whole tiles with AMX; [`WIDE`] per group with AVX2.
    block_lines: usize,
    lines: Vec<Line>,
    /// The same codes by vectors, the layout in which AMX loads rows: 64 dimensions of each vector of a block, then the
    /// next 64. Empty without AMX.
    tiles: Vec<Line>,
    factors: Vec<[f32; BLOCK]>,
    sums: Vec<[i32; BLOCK]>,
    squared_norms: Vec<[f32; BLOCK]>,
    scratch: Vec<f32>,
    codes: Vec<u8>,
}

/// A block of [`BLOCK`] vectors.
#[derive(Clone, Copy)]
pub struct CodeBlock<'a> {
    lines: &'a [Line],
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    tiles: &'a [Line],
    /// For each vector, the factor of its codes.
    pub factors: &'a [f32; BLOCK],
    /// For each vector, the sum of its codes: instructions that multiply unsigned by signed codes need it for a correction.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) sums: &'a [i32; BLOCK],
}

impl CodeBlock<'_> {
    /// The codes by groups of dimensions, then by vectors, then by dimensions of the group: 64 aligned bytes per group. Not
    /// for the levels whose kernels need widened codes.
    pub(super) fn groups(&self) -> impl ExactSizeIterator<Item = &[i8; LINE]> {
        self.lines.iter().map(|line| &line.0)
    }

    /// The number of lines.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The codes by tiles of 64 dimensions, then by vectors; empty without AMX.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) fn tiles(&self) -> &'_ [[Line; BLOCK]] {
        self.tiles.as_chunks().0
    }

    /// The first byte of the first line.
    #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
    pub(super) fn as_ptr(&self) -> *const i8 {
        self.lines.as_ptr().cast()
    }
}

/// Encodes a vector into int8 codes, bytes in two's complement, and returns their factor: an element is about its code times
/// the factor. Codes and factor are 0 if an element is not finite, or all are so near 0 that the factor has no finite inverse.
///
/// # Panics
/// If the lengths differ.
pub fn encode(vector: &[f32], codes: &mut [u8]) -> f32 {
    assert_eq!(vector.len(), codes.len());
    encoder(Level::current())(vector, codes)
}

/// Factor and norm of a quantised vector.
#[derive(Clone, Copy, Default)]
pub struct CodeNote {
    /// What codes are multiplied by to approximate the elements.
    pub factor: f32,
    /// The squared length of the decoded vector.
    pub squared_norm: f32,
    sum: i32,
}

impl CodeNote {
    /// The note of a vector with these codes, bytes in two's complement, and this factor.
    #[must_use]
    pub fn new(codes: &[u8], factor: f32) -> Self {
        let (sum, squares) = adder(Level::current())(codes);
        Self { factor, squared_norm: squares as f32 * factor * factor, sum }
    }
}

compiled_for_each_level!(encoder, encode_body, (vector: &[f32], codes: &mut [u8]) -> f32);
compiled_for_each_level!(adder, add_body, (codes: &[u8]) -> (i32, i32));

#[inline(always)]
fn encode_body(vector: &[f32], codes: &mut [u8]) -> f32 {
    const LANES: usize = 16;
    let (mut greatest, mut finite) = ([0f32; LANES], [0f32; LANES]);
    let mut look = |lane: usize, x: f32| {
        let size = x.abs();
        greatest[lane] = if size > greatest[lane] { size } else { greatest[lane] };
        // NaN if `x` is not finite.
        finite[lane] += x * 0.0;
    };
    let (chunks, rest) = vector.as_chunks::<LANES>();
    chunks.iter().for_each(|chunk| (0..LANES).for_each(|lane| look(lane, chunk[lane])));
    rest.iter().for_each(|&x| look(0, x));
    let greatest = greatest.into_iter().fold(0f32, f32::max);
    let (factor, inverse) = (greatest / LIMIT, LIMIT / greatest);
    if finite.into_iter().sum::<f32>().is_nan() || !inverse.is_finite() {
        codes.fill(0);
        return 0.0;
    }
    // Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the mantissa, in two's complement.
    const ROUND: f32 = 12_582_912.0;
    for (code, x) in codes.iter_mut().zip(vector) {
        *code = (x * inverse + ROUND).to_bits() as u8;
    }
    factor
}

/// The sum of the codes and the sum of their squares.
#[inline(always)]
fn add_body(codes: &[u8]) -> (i32, i32) {
    let add = |(sum, squares), code: &u8| {
        let code = i32::from(code.cast_signed());
        (sum + code, squares + code * code)
    };
    codes.iter().fold((0, 0), add)
}

impl Default for CodePanel {
    fn default() -> Self {
        Self::at(Level::current())
    }
}

impl CodePanel {
    /// An empty panel for the kernels of a level.
    pub(super) fn at(level: Level) -> Self {
        Self {
            level,
            rows: 0,
            block_lines: 0,
            lines: Vec::new(),
            tiles: Vec::new(),
            factors: Vec::new(),
            sums: Vec::new(),
            squared_norms: Vec::new(),
            scratch: Vec::new(),
            codes: Vec::new(),
        }
    }

    /// Replaces the content by codes of dense vectors of `dims` dimensions, each with `center` subtracted if there is one.
    /// `extra` is empty, or has one more coordinate for each vector, the last dimension.
    ///
    /// # Panics
    /// If a dense vector is shorter than `dims`, or a value is a bit string.
    pub fn fill<'a>(
        &mut self,
        elements: Elements,
        dims: usize,
        vectors: impl ExactSizeIterator<Item = &'a [u8]>,
        center: Option<&[f32]>,
        extra: &[f32],
    ) {
        let width = dims + usize::from(!extra.is_empty());
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut codes = std::mem::take(&mut self.codes);
        scratch.resize(width, 0.0);
        codes.resize(BLOCK * width, 0);
        self.reset(width, vectors.len());
        let encode = encoder(Level::current());
        for (row, vector) in Ahead::new(vectors, |vector| *vector).enumerate() {
            dense::decode(elements, vector, &mut scratch[..dims]);
            if let Some(center) = center {
                scratch.iter_mut().zip(center).for_each(|(x, c)| *x -= c);
            }
            if let Some(&extra) = extra.get(row) {
                scratch[dims] = extra;
            }
            let encoded = &mut codes[row % BLOCK * width..][..width];
            let factor = encode(&scratch, encoded);
            self.note(row, CodeNote::new(encoded, factor));
            if row % BLOCK == BLOCK - 1 || row + 1 == self.rows {
                // Lanes of padding may have any codes: their factor is 0.
                self.put_block(row / BLOCK, &std::array::from_fn(|lane| &codes[lane * width..][..width]));
            }
        }
        (self.scratch, self.codes) = (scratch, codes);
    }

    /// Replaces the content by vectors that are encoded already; codes are bytes in two's complement.
    ///
    /// # Panics
    /// If a vector does not have `dims` codes.
    pub fn fill_encoded<'a>(&mut self, dims: usize, vectors: impl ExactSizeIterator<Item = (&'a [u8], CodeNote)>) {
        self.reset(dims, vectors.len());
        let mut rows = [&[][..]; BLOCK];
        for (row, (codes, note)) in Ahead::new(vectors, |(codes, _)| *codes).enumerate() {
            assert_eq!(codes.len(), dims);
            self.note(row, note);
            rows[row % BLOCK] = codes;
            if row % BLOCK == BLOCK - 1 {
                self.put_block(row / BLOCK, &rows);
            }
        }
        let rest = self.rows % BLOCK;
        if rest > 0 {
            // Lanes of padding may have any codes: their factor is 0.
            let first = rows[0];
            rows[rest..].fill(first);
            self.put_block(self.rows / BLOCK, &rows);
        }
    }

    /// Writes all rows of a block.
    fn put_block(&mut self, block: usize, rows: &[&[u8]; BLOCK]) {
        let range = block * self.block_lines..(block + 1) * self.block_lines;
        let lines = &mut self.lines[range.clone()];
        #[cfg(target_arch = "x86_64")]
        match self.level {
            Level::Avx2 | Level::Avx512 => return super::x64_codes_256::interleave(rows, lines),
            Level::Vnni | Level::Amx => {
                return super::x64_codes::interleave(rows, lines, self.tiles.get_mut(range).unwrap_or_default());
            }
            _ => {}
        }
        let whole = rows[0].len() / GROUP;
        let groups = rows.map(|codes| &codes.as_chunks::<GROUP>().0[..whole]);
        for (at, line) in lines[..whole].iter_mut().enumerate() {
            for (place, groups) in line.0.as_chunks_mut::<GROUP>().0.iter_mut().zip(&groups) {
                *place = groups[at].map(u8::cast_signed);
            }
        }
        if let Some(line) = lines.get_mut(whole) {
            line.0.fill(0);
            for (place, codes) in line.0.as_chunks_mut::<GROUP>().0.iter_mut().zip(rows) {
                let rest = &codes[whole * GROUP..];
                place.iter_mut().zip(rest).for_each(|(place, code)| *place = code.cast_signed());
            }
        }
    }

    fn reset(&mut self, dims: usize, rows: usize) {
        self.rows = rows;
        let groups = dims.div_ceil(GROUP);
        self.block_lines = match self.level {
            Level::Avx2 | Level::Avx512 => groups * WIDE,
            Level::Amx => groups.next_multiple_of(BLOCK),
            _ => groups,
        };
        let lines = self.blocks() * self.block_lines;
        // Old content may stay: every line of a block with vectors is written, and the factors of padding are 0.
        self.lines.resize(lines, Line([0; LINE]));
        if self.level == Level::Amx {
            self.tiles.resize(lines, Line([0; LINE]));
        }
        let blocks = self.blocks();
        self.factors.clear();
        self.factors.resize(blocks, [0.0; BLOCK]);
        self.sums.clear();
        self.sums.resize(blocks, [0; BLOCK]);
        self.squared_norms.clear();
        self.squared_norms.resize(blocks, [0.0; BLOCK]);
    }

    fn note(&mut self, row: usize, note: CodeNote) {
        let (block, lane) = (row / BLOCK, row % BLOCK);
        self.factors[block][lane] = note.factor;
        self.sums[block][lane] = note.sum;
        self.squared_norms[block][lane] = note.squared_norm;
    }

    /// The number of vectors.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of blocks, rounded up to an even one.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.rows.div_ceil(BLOCK).next_multiple_of(2)
    }

    /// One block.
    #[must_use]
    pub fn block(&self, block: usize) -> CodeBlock<'_> {
        let range = block * self.block_lines..(block + 1) * self.block_lines;
        CodeBlock {
            lines: &self.lines[range.clone()],
            tiles: self.tiles.get(range).unwrap_or_default(),
            factors: &self.factors[block],
            sums: &self.sums[block],
        }
    }

    /// The squared lengths of the decoded vectors of a block.
    #[must_use]
    pub fn squared_norms(&self, block: usize) -> [f32; BLOCK] {
        self.squared_norms[block]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The estimate of a build's memory counts two bytes.
    #[test]
    fn a_packed_code_takes_at_most_two_bytes() {
        let codes = [1; 192];
        let vectors = || [(&codes[..], CodeNote::default()); 64].into_iter();
        for level in Level::available() {
            let mut panel = CodePanel::at(level);
            panel.fill_encoded(codes.len(), vectors());
            let bytes = (panel.lines.len() + panel.tiles.len()) * LINE;
            assert!(bytes <= 2 * codes.len() * vectors().len(), "{level}: {bytes}");
        }
    }

    #[test]
    fn every_level_has_the_same_codes() {
        let mut random = fastrand::Rng::with_seed(3);
        for dims in 0..130 {
            let vector: Vec<f32> = (0..dims).map(|_| 2.0 * random.f32() - 1.0).collect();
            let at = |level: Level| {
                let mut codes = vec![1; dims];
                let factor = encoder(level)(&vector, &mut codes);
                (factor, adder(level)(&codes), codes)
            };
            assert!(Level::available().into_iter().all(|level| at(level) == at(Level::Portable)), "{dims}");
        }
    }
}
