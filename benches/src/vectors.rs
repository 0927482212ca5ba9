use std::path::Path;
use std::thread;

use anyhow::Result;
use clap::ValueEnum;
use distance::{Kernel, Metric};
use harness::{Vectors, cores};

/// A metric on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MetricName {
    /// Euclidean distance.
    L2,
    /// Inner product.
    Ip,
    /// Angle.
    Cosine,
}

impl From<MetricName> for Metric {
    fn from(name: MetricName) -> Self {
        match name {
            MetricName::L2 => Self::L2,
            MetricName::Ip => Self::InnerProduct,
            MetricName::Cosine => Self::Cosine,
        }
    }
}

/// Reads vectors and encodes them as the builder receives them.
pub fn read_values(path: &Path, metric: Metric) -> Result<Vec<Vec<u8>>> {
    Ok(encode(&Vectors::read(path)?, metric))
}

/// Encodes vectors as the builder receives them, normalised for cosine.
pub(crate) fn encode(vectors: &Vectors, metric: Metric) -> Vec<Vec<u8>> {
    let encode = |row: &[f32]| -> Vec<u8> {
        let norm = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
        let by = if metric == Metric::Cosine { norm } else { 1.0 };
        row.iter().flat_map(|&x| ((f64::from(x) / by) as f32).to_le_bytes()).collect()
    };
    (0..vectors.rows()).map(|row| encode(vectors.row(row))).collect()
}

/// The ten rows nearest to each query, by number.
pub fn exact_neighbors(base: &[Vec<u8>], queries: &[Vec<u8>], kernel: Kernel) -> Vec<Vec<usize>> {
    let threads = cores();
    let share = queries.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts: Vec<_> = queries
            .chunks(share)
            .map(|part| scope.spawn(move || part.iter().map(|query| nearest(base, query, kernel)).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("no panic")).collect()
    })
}

fn nearest(base: &[Vec<u8>], query: &[u8], kernel: Kernel) -> Vec<usize> {
    let mut rows: Vec<(f32, usize)> = base.iter().enumerate().map(|(row, value)| (kernel(query, value), row)).collect();
    if rows.len() > 10 {
        rows.select_nth_unstable_by(9, |a, b| a.0.total_cmp(&b.0));
        rows.truncate(10);
    }
    rows.into_iter().map(|(_, row)| row).collect()
}
