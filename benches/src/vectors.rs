use std::path::Path;

use anyhow::Result;
use distance::Metric;
use harness::Vectors;

/// Parses a metric on the command line.
pub fn metric(word: &str) -> Result<Metric, String> {
    match word {
        "l2" => Ok(Metric::L2),
        "ip" => Ok(Metric::InnerProduct),
        "cosine" => Ok(Metric::Cosine),
        _ => Err("l2, ip or cosine is needed".to_owned()),
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
