use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use half::f16;

use crate::fvecs;

/// Vectors of equal dimensions.
#[derive(Clone, Debug)]
pub struct Vectors {
    dims: usize,
    values: Vec<f32>,
}

impl Vectors {
    /// Interprets `values` as rows of `dims` numbers.
    pub fn new(dims: usize, values: Vec<f32>) -> Self {
        assert!(dims > 0 && values.len().is_multiple_of(dims), "{} values are no rows of {dims}", values.len());
        Self { dims, values }
    }

    /// Reads a `.npy` file with an array of two dimensions of f16, f32 (little-endian) or u8, or a `.fvecs` file.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let vectors = if path.extension().is_some_and(|extension| extension == "fvecs") {
            fvecs::parse(&bytes).map(|(dims, values)| Self { dims, values })
        } else {
            parse(&bytes)
        };
        vectors.with_context(|| format!("{} is not as expected", path.display()))
    }

    /// Writes a `.npy` file of f32.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", self.rows(), self.dims);
        bytes.extend_from_slice(format!("{header:117}\n").as_bytes());
        bytes.extend(self.values.iter().flat_map(|value| value.to_le_bytes()));
        fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Dimensions of each vector.
    pub fn dims(&self) -> usize {
        self.dims
    }

    /// The number of vectors.
    pub fn rows(&self) -> usize {
        self.values.len() / self.dims
    }

    /// The vector number `row`.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.dims..][..self.dims]
    }

    /// The first `rows` vectors only.
    #[must_use]
    pub fn truncated(mut self, rows: usize) -> Self {
        self.values.truncate(rows.saturating_mul(self.dims));
        self
    }

    /// The vectors without the last `count`, and those last ones.
    #[must_use]
    pub fn split_last(mut self, count: usize) -> (Self, Self) {
        let at = self.rows().saturating_sub(count);
        let last = self.values.split_off(at * self.dims);
        let dims = self.dims;
        (self, Self { dims, values: last })
    }

    /// The vectors after `change`, which gets each row's number and values.
    #[must_use]
    pub fn changed(mut self, mut change: impl FnMut(usize, &mut [f32])) -> Self {
        self.values.chunks_exact_mut(self.dims).enumerate().for_each(|(row, values)| change(row, values));
        self
    }
}

fn parse(bytes: &[u8]) -> Result<Vectors> {
    ensure!(bytes.starts_with(b"\x93NUMPY\x01\x00") && bytes.len() >= 10, "no .npy file of version 1.0");
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let (header, data) = bytes[10..].split_at_checked(header).context("the header is cut off")?;
    let header = std::str::from_utf8(header)?;
    ensure!(header.contains("'fortran_order': False"), "the order is not row by row");
    let shape = header.split_once("'shape': (").and_then(|(_, rest)| rest.split_once(')')).context("no shape")?.0;
    let shape: Vec<usize> = shape.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    let [rows, dims] = shape[..] else { anyhow::bail!("{} dimensions instead of two", shape.len()) };
    let values: Vec<f32> = if header.contains("'<f2'") {
        data.chunks_exact(2).map(|value| f16::from_le_bytes([value[0], value[1]]).to_f32()).collect()
    } else if header.contains("'|u1'") {
        data.iter().map(|&value| value.into()).collect()
    } else {
        ensure!(header.contains("'<f4'"), "the values are neither f16, f32 nor u8");
        data.chunks_exact(4).map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]])).collect()
    };
    ensure!(
        dims > 0 && rows.checked_mul(dims) == Some(values.len()),
        "{rows} x {dims} expected, {} found",
        values.len()
    );
    Ok(Vectors { dims, values })
}

#[cfg(test)]
mod tests {
    use crate::{Vectors, data_set};

    #[test]
    fn written_vectors_are_read_back() {
        let path = std::env::temp_dir().join(format!("lantern-index-npy-{}.npy", std::process::id()));
        let vectors = Vectors::new(3, (0..21).map(|x| x as f32 / 3.0).collect());
        vectors.write(&path).unwrap();
        let read = Vectors::read(&path);
        std::fs::remove_file(&path).unwrap();
        let (first, last) = read.unwrap().split_last(2);
        assert_eq!((first.rows(), last.rows()), (5, 2));
        assert_eq!((first.row(4), last.row(0)), (vectors.row(4), vectors.row(5)));
    }

    #[test]
    fn the_samples_can_be_read() {
        for (name, dims) in [("minilm-384", 384), ("glove-100", 100)] {
            let (base, queries) = data_set(name).unwrap();
            assert_eq!((base.rows(), base.dims()), (7000, dims));
            assert_eq!((queries.rows(), queries.dims()), (1000, dims));
            assert!((0..base.rows()).all(|row| base.row(row).iter().all(|value| value.is_finite())));
        }
        let (base, _) = data_set("minilm-384").unwrap();
        let norm: f32 = base.row(17).iter().map(|x| x * x).sum();
        assert!((norm - 1.0).abs() < 1e-2, "{norm}");
    }
}
