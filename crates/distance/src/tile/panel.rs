use super::ahead::Ahead;
use crate::{Elements, dense};

/// Vectors per block: the f32 lanes of the widest registers (AVX-512).
pub const BLOCK: usize = 16;

/// One dimension of a block, in its own cache line: loads that cross lines cost twice.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; BLOCK]);

/// Vectors as f32, packed for tiles: in blocks of [`BLOCK`] vectors, each stored dimension by dimension.
///
/// Reused, so that it allocates rarely. The last block is padded with zeros; the number of blocks is even, as a tile has two
/// blocks of columns.
#[derive(Default)]
pub struct Panel {
    dims: usize,
    rows: usize,
    data: Vec<Line>,
    scratch: Vec<f32>,
}

impl Panel {
    /// Replaces the content by vectors of `dims` dimensions, each with `center` subtracted if there is one. `extra` is
    /// empty, or has one more coordinate for each vector, the last dimension.
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
        let mut extra = extra.iter().copied();
        self.dims = width;
        self.rows = vectors.len();
        let blocks = self.rows.div_ceil(BLOCK).next_multiple_of(2);
        self.data.resize(blocks * width, Line([0.0; BLOCK]));
        self.scratch.resize(BLOCK * dims, 0.0);
        let mut vectors = Ahead::new(vectors, |vector| *vector);
        for block in self.data.chunks_exact_mut(width.max(1)) {
            let rows: [Option<&[u8]>; BLOCK] = std::array::from_fn(|_| vectors.next());
            let (block, last) = block.split_at_mut(dims);
            let lanes = last.iter_mut().flat_map(|line| &mut line.0);
            lanes.for_each(|lane| *lane = extra.next().unwrap_or_default());
            if elements == Elements::F32
                && center.is_none()
                && let Some(rows) = all(rows)
            {
                transpose_f32(rows, dims, block);
                continue;
            }
            for (row, vector) in self.scratch.chunks_exact_mut(dims.max(1)).zip(rows) {
                match vector {
                    Some(vector) => {
                        dense::decode(elements, vector, row);
                        if let Some(center) = center {
                            row.iter_mut().zip(center).for_each(|(x, c)| *x -= c);
                        }
                    }
                    None => row.fill(0.0),
                }
            }
            let rows: [&[f32]; BLOCK] = std::array::from_fn(|row| &self.scratch[row * dims..(row + 1) * dims]);
            for (dim, line) in block.iter_mut().enumerate() {
                for (lane, row) in line.0.iter_mut().zip(rows) {
                    *lane = row[dim];
                }
            }
        }
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

    /// One block: [`BLOCK`] values for each dimension.
    #[must_use]
    pub fn block(&self, block: usize) -> &[f32] {
        let lines = &self.data[block * self.dims..(block + 1) * self.dims];
        // SAFETY: a line is an array of f32 without padding.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * BLOCK) }
    }

    /// The squared lengths of the vectors of a block.
    #[must_use]
    pub fn squared_norms(&self, block: usize) -> [f32; BLOCK] {
        let mut sums = [0f32; BLOCK];
        for lanes in self.block(block).chunks_exact(BLOCK) {
            for (sum, lane) in sums.iter_mut().zip(lanes) {
                *sum += lane * lane;
            }
        }
        sums
    }
}

fn all(rows: [Option<&[u8]>; BLOCK]) -> Option<[&[u8]; BLOCK]> {
    rows.iter().all(Option::is_some).then(|| rows.map(Option::unwrap_or_default))
}

/// Fast path for whole blocks of f32 without a center.
fn transpose_f32(rows: [&[u8]; BLOCK], dims: usize, block: &mut [Line]) {
    let rows = rows.map(|row| row[..4 * dims].as_chunks::<4>().0);
    for (dim, line) in block.iter_mut().enumerate() {
        for (lane, row) in line.0.iter_mut().zip(rows) {
            *lane = f32::from_le_bytes(row[dim]);
        }
    }
}
