//! Vectors of equal width, one a row.

use distance::{COLS, Elements, Panel, ROWS, Tile, TileInput};
use rayon::prelude::*;

use crate::{BuildError, Control};

/// Work on all rows runs on the threads of the pool it is called from, with the same result for any number of threads.
pub(crate) struct Matrix {
    pub(crate) width: usize,
    pub(crate) values: Vec<f32>,
}

impl Matrix {
    pub(crate) fn rows(&self) -> usize {
        self.values.len() / self.width
    }

    pub(crate) fn row(&self, at: usize) -> &[f32] {
        &self.values[at * self.width..][..self.width]
    }

    /// `count` evenly spaced rows.
    pub(crate) fn evenly_spaced(&self, count: usize) -> Self {
        let step = self.rows() / count;
        let values = (0..count).flat_map(|at| self.row(at * step)).copied().collect();
        Self { width: self.width, values }
    }

    pub(crate) fn transposed(&self, control: &Control) -> Result<Self, BuildError> {
        let rows = self.rows();
        let mut values = vec![0f32; self.values.len()];
        control.section("components").for_each(values.par_chunks_mut(rows).enumerate(), |(col, values)| {
            for (value, row) in values.iter_mut().zip(self.values.chunks_exact(self.width)) {
                *value = row[col];
            }
            Ok(())
        })?;
        Ok(Self { width: rows, values })
    }

    /// The dot products of each row with all rows of `others`: a row of the result for each row of `self`.
    pub(crate) fn products(&self, others: &Self, control: &Control) -> Result<Self, BuildError> {
        let (width, tile_kernel) = (others.rows(), distance::tile_kernel());
        let packed = |(at, rows)| Ok((at * COLS, pack(rows, self.width)));
        let cols = others.values.par_chunks(COLS * self.width).enumerate();
        let cols: Vec<(usize, Panel)> = control.section("components").map(cols, packed)?;
        let mut found = vec![0f32; self.rows() * width];
        let rows = self.values.par_chunks(ROWS * self.width).zip(found.par_chunks_mut(ROWS * width));
        control.section("components").for_each_init(rows, |tile: &mut Tile, (rows, found)| {
            let rows = pack(rows, self.width);
            for (first, cols) in &cols {
                tile_kernel(rows.block(0), [cols.block(0), cols.block(1)], &ALL_PRODUCTS, tile);
                for (found, tile) in found.chunks_exact_mut(width).zip(&tile.distances) {
                    found[*first..].iter_mut().zip(tile).for_each(|(found, product)| *found = *product);
                }
            }
            Ok(())
        })?;
        Ok(Self { width, values: found })
    }

    /// Makes rows orthonormal (Gram-Schmidt). Rows that are linear combinations of others become zero.
    pub(crate) fn make_orthogonal(&mut self, control: &Control) -> Result<(), BuildError> {
        /// A row whose square has fallen below this fraction is only rounding error.
        const NOTHING: f32 = 1e-8;
        /// Rows of a task.
        const ORTHOGONAL: usize = 16;
        let squares: Vec<f32> = self.values.chunks_exact(self.width).map(|row| dot(row, row)).collect();
        let mut rest = self.values.as_mut_slice();
        for square in squares {
            let (row, others) = rest.split_at_mut(self.width);
            let left = dot(row, row);
            let factor = if left > square * NOTHING { left.sqrt().recip() } else { 0.0 };
            row.iter_mut().for_each(|x| *x *= factor);
            control.section("components").for_each(others.par_chunks_mut(ORTHOGONAL * self.width), |others| {
                for other in others.chunks_exact_mut(self.width) {
                    let along = dot(row, other);
                    other.iter_mut().zip(&*row).for_each(|(x, direction)| *x -= along * direction);
                }
                Ok(())
            })?;
            rest = others;
        }
        Ok(())
    }
}

/// A tile's input for plain products, without terms and limits.
pub(crate) const ALL_PRODUCTS: TileInput<'static> = TileInput {
    scale: 1.0,
    row_terms: &[0.0; ROWS],
    col_terms: &[0.0; COLS],
    row_limits: &[f32::INFINITY; ROWS],
    col_limits: &[f32::INFINITY; COLS],
};

fn pack(rows: &[f32], width: usize) -> Panel {
    let bytes: Vec<u8> = rows.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut panel = Panel::default();
    panel.fill(Elements::F32, width, bytes.chunks_exact(4 * width), None, &[]);
    panel
}

pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Independent sums can be computed at once.
    const LANES: usize = 16;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        (0..LANES).for_each(|lane| sums[lane] += a[lane] * b[lane]);
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::{Matrix, dot};
    use crate::Control;

    fn matrix(rows: usize, width: usize) -> Matrix {
        Matrix { width, values: (0..rows * width).map(|at| (at * 37 % 101) as f32 - 50.0).collect() }
    }

    #[test]
    fn products_are_those_of_all_pairs() {
        let (a, b) = (matrix(35, 19), matrix(50, 19));
        let found = a.products(&b, &Control::default()).unwrap();
        let transposed = |matrix: &Matrix| matrix.transposed(&Control::default()).unwrap();
        for (row, col) in (0..35).flat_map(|row| (0..50).map(move |col| (row, col))) {
            let product: f32 = a.row(row).iter().zip(b.row(col)).map(|(a, b)| a * b).sum();
            assert!((found.row(row)[col] - product).abs() <= 1e-3 * product.abs().max(1.0));
            assert!((dot(a.row(row), b.row(col)) - product).abs() <= 1e-3 * product.abs().max(1.0));
        }
        assert!(transposed(&transposed(&a)).values == a.values && transposed(&a).row(3)[5] == a.row(5)[3]);
    }

    #[test]
    fn rows_become_orthogonal_or_nothing() {
        let mut rows = Matrix { width: 5, values: (0..20).map(|at| ((at * at) % 13) as f32 + 1.0).collect() };
        // One row is a linear combination of two others, the last is zero.
        let last: Vec<f32> = (0..5).map(|at| rows.row(0)[at] - 3.0 * rows.row(2)[at]).collect();
        rows.values.extend(last);
        rows.values.extend([0.0; 5]);
        rows.make_orthogonal(&Control::default()).unwrap();
        for (a, b) in (0..6).flat_map(|a| (0..6).map(move |b| (a, b))) {
            let expected = if a == b && a < 4 { 1.0 } else { 0.0 };
            assert!((dot(rows.row(a), rows.row(b)) - expected).abs() < 1e-4, "{a} {b}");
        }
    }
}
