use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pgvector::MAX_EF_SEARCH;

use crate::count;

#[derive(Debug, Args)]
pub struct Advise {
    /// The vectors: a .npy file (f32, f16 or u8, two dimensions, row by row) or a .fvecs file
    pub file: PathBuf,
    /// Vectors to search for, in a file of either form [default: some of the vectors are held out]
    #[arg(long, value_name = "FILE")]
    pub queries: Option<PathBuf>,
    /// The metric of the queries
    #[arg(long, value_enum, default_value_t = MetricName::Cosine)]
    pub metric: MetricName,
    /// The share of the true neighbors that is to be found
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = target)]
    pub target_recall: f64,
    /// Neighbors that a query asks for
    #[arg(short, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_EF_SEARCH)))]
    pub k: u16,
    /// Rows that the table will have, as in 250000, 100k or 2.5M [default: as many as the file]
    #[arg(long, value_name = "N", value_parser = count::parse_some)]
    pub rows: Option<u64>,
    /// Vectors to read from the file at most, from all of its parts
    #[arg(long, value_name = "N", default_value = "100k", value_parser = count::parse_some)]
    pub max_rows: u64,
    /// Threads; 0 takes one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: u16,
    /// Write what was tried to this file, as SVG: recall against index size, and against elements visited
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The metrics of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricName {
    Cosine,
    L2,
    Ip,
    L1,
}

impl From<MetricName> for hnsw::Metric {
    fn from(name: MetricName) -> Self {
        match name {
            MetricName::Cosine => Self::Cosine,
            MetricName::L2 => Self::L2,
            MetricName::Ip => Self::InnerProduct,
            MetricName::L1 => Self::L1,
        }
    }
}

fn target(text: &str) -> Result<f64, String> {
    let target = text.parse().ok().filter(|target| (0.5..=0.999).contains(target));
    target.ok_or_else(|| "must be a number between 0.5 and 0.999".to_owned())
}
