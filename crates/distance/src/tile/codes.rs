use super::panel::BLOCK;
use crate::{Elements, dense};

/// Dimensions whose codes lie next to each other, as the instructions for int8 products want them.
pub(super) const GROUP: usize = 4;
/// Bytes of a group of dimensions of a block.
const LINE: usize = GROUP * BLOCK;
/// Codes are from `-LIMIT` to `LIMIT`.
const LIMIT: f32 = 127.0;

/// A group of dimensions of a block, in a cache line of its own.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([i8; LINE]);

/// Vectors as int8 codes, packed for products: like a [`super::Panel`], in a quarter of the memory, and rough. Element `i` of a
/// vector is about `code[i] * factor`, to half of the factor, which is the vector's greatest element divided by 127.
#[derive(Default)]
pub struct CodePanel {
    rows: usize,
    groups: usize,
    lines: Vec<Line>,
    factors: Vec<[f32; BLOCK]>,
    sums: Vec<[i32; BLOCK]>,
    scratch: Vec<f32>,
    codes: Vec<i8>,
}

/// A block of [`BLOCK`] vectors.
#[derive(Clone, Copy)]
pub struct CodeBlock<'a> {
    lines: &'a [Line],
    /// What a code is multiplied by, of each vector.
    pub factors: &'a [f32; BLOCK],
    /// The sum of each vector's codes.
    pub(super) sums: &'a [i32; BLOCK],
}

impl CodeBlock<'_> {
    /// The codes by groups of dimensions, then vectors, then the dimensions of the group; 64 bytes each, aligned to that.
    pub(super) fn groups(&self) -> impl ExactSizeIterator<Item = &[i8; LINE]> {
        self.lines.iter().map(|line| &line.0)
    }

    /// How many groups there are.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The first byte of the first group.
    #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
    pub(super) fn as_ptr(&self) -> *const i8 {
        self.lines.as_ptr().cast()
    }
}

/// Codes of a vector; what they are to be multiplied by. A vector with an element that is not finite has codes 0.
///
/// # Panics
/// If the lengths differ.
pub fn encode(vector: &[f32], codes: &mut [i8]) -> f32 {
    assert_eq!(vector.len(), codes.len());
    let greatest = vector.iter().fold(0f32, |greatest, x| greatest.max(x.abs()));
    let sum = vector.iter().fold(0f32, |sum, x| sum + x);
    let (factor, inverse) = (greatest / LIMIT, LIMIT / greatest);
    if !(sum.is_finite() && inverse.is_finite()) {
        codes.fill(0);
        return 0.0;
    }
    // Adding and subtracting this leaves an integer, rounded to the nearest: faster than `round`.
    const ROUND: f32 = 12_582_912.0;
    for (code, x) in codes.iter_mut().zip(vector) {
        *code = (x * inverse + ROUND - ROUND) as i8;
    }
    factor
}

impl CodePanel {
    /// An empty panel.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces what is in the panel by the codes of other dense vectors, each with `center` subtracted if there is one. Where
    /// there are `lifts`, one for each vector, they are one more dimension.
    ///
    /// # Panics
    /// If a vector is shorter than `dims`, or of a type that is not dense.
    pub fn fill<'a>(
        &mut self,
        elements: Elements,
        dims: usize,
        vectors: impl ExactSizeIterator<Item = &'a [u8]>,
        center: Option<&[f32]>,
        lifts: &[f32],
    ) {
        let width = dims + usize::from(!lifts.is_empty());
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut codes = std::mem::take(&mut self.codes);
        scratch.resize(width, 0.0);
        codes.resize(width, 0);
        self.reset(width, vectors.len());
        for (row, vector) in vectors.enumerate() {
            dense::decode(elements, vector, &mut scratch[..dims]);
            if let Some(center) = center {
                scratch.iter_mut().zip(center).for_each(|(x, c)| *x -= c);
            }
            if let Some(&lift) = lifts.get(row) {
                scratch[dims] = lift;
            }
            let factor = encode(&scratch, &mut codes);
            self.put(row, &codes, factor);
        }
        (self.scratch, self.codes) = (scratch, codes);
    }

    /// Replaces what is in the panel by vectors that were encoded before, and their factors.
    ///
    /// # Panics
    /// If a vector has not `dims` codes.
    pub fn fill_encoded<'a>(&mut self, dims: usize, vectors: impl ExactSizeIterator<Item = (&'a [i8], f32)>) {
        self.reset(dims, vectors.len());
        for (row, (codes, factor)) in vectors.enumerate() {
            assert_eq!(codes.len(), dims);
            self.put(row, codes, factor);
        }
    }

    fn reset(&mut self, dims: usize, rows: usize) {
        self.rows = rows;
        self.groups = dims.div_ceil(GROUP);
        let blocks = self.blocks();
        self.lines.clear();
        self.lines.resize(blocks * self.groups, Line([0; LINE]));
        self.factors.clear();
        self.factors.resize(blocks, [0.0; BLOCK]);
        self.sums.clear();
        self.sums.resize(blocks, [0; BLOCK]);
    }

    fn put(&mut self, row: usize, codes: &[i8], factor: f32) {
        let (block, lane) = (row / BLOCK, row % BLOCK);
        let lines = &mut self.lines[block * self.groups..(block + 1) * self.groups];
        let (groups, rest) = codes.as_chunks::<GROUP>();
        for (line, group) in lines.iter_mut().zip(groups) {
            line.0[lane * GROUP..(lane + 1) * GROUP].copy_from_slice(group);
        }
        if let (Some(line), false) = (lines.last_mut(), rest.is_empty()) {
            line.0[lane * GROUP..lane * GROUP + rest.len()].copy_from_slice(rest);
        }
        self.factors[block][lane] = factor;
        self.sums[block][lane] = codes.iter().map(|&code| i32::from(code)).sum();
    }

    /// The number of vectors.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of blocks, even.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.rows.div_ceil(BLOCK).next_multiple_of(2)
    }

    /// One block.
    #[must_use]
    pub fn block(&self, block: usize) -> CodeBlock<'_> {
        CodeBlock {
            lines: &self.lines[block * self.groups..(block + 1) * self.groups],
            factors: &self.factors[block],
            sums: &self.sums[block],
        }
    }

    /// The squared lengths of the vectors of a block, as their codes have them.
    #[must_use]
    pub fn squared_norms(&self, block: usize) -> [f32; BLOCK] {
        let block = self.block(block);
        let mut sums = [0i32; BLOCK];
        for line in block.groups() {
            for (sum, group) in sums.iter_mut().zip(line.as_chunks::<GROUP>().0) {
                *sum += group.iter().map(|&code| i32::from(code) * i32::from(code)).sum::<i32>();
            }
        }
        std::array::from_fn(|lane| sums[lane] as f32 * block.factors[lane] * block.factors[lane])
    }
}
