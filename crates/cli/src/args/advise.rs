use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pgvector::{MAX_EF_SEARCH, Metric, SAMPLE_ROWS, ValueType};

use crate::count;

#[derive(Debug, Args)]
pub struct Advise {
    /// The vectors: a file (.npy of f32, f16 or u8 with two dimensions, row by row; .fvecs; .parquet with a column of lists of floats), or
    /// with --table a connection string, as for psql: postgresql://…, "key=value …", or the name of a database. With --table alone, the
    /// environment (PGHOST, PGSERVICE, …) names the database
    #[arg(value_name = "FILE|DSN", required_unless_present = "table")]
    pub source: Option<PathBuf>,
    /// A table of the database, as SQL names it
    #[arg(long, value_name = "NAME")]
    pub table: Option<String>,
    /// The column of the table or the Parquet file [default: the only one with vectors]
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
    /// Vectors to search for: a file with vectors, or with --table a SELECT [default: some of the vectors, which are held out]
    #[arg(long, value_name = "FILE|SELECT")]
    pub queries: Option<PathBuf>,
    /// The metric of the queries [default: cosine; hamming for columns of type bit]
    #[arg(long, value_parser = metric())]
    pub metric: Option<Metric>,
    /// The fraction of true neighbors that searches must find
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = target)]
    pub target_recall: f64,
    /// Neighbors per query (LIMIT)
    #[arg(short, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_EF_SEARCH)))]
    pub k: u16,
    /// Rows that the table will have, as in 250000, 100k or 2.5M [default: the present number]
    #[arg(long, value_name = "N", value_parser = count::parse_some)]
    pub rows: Option<u64>,
    /// The most vectors to read, from all parts of the file or table
    #[arg(long, value_name = "N", default_value = "100k", value_parser = max_rows)]
    pub max_rows: u64,
    /// Threads; 0 takes one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: u16,
    /// Write a plot of all trials to this SVG file: recall against index size, and against elements visited
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Parses a metric by its name in operator classes.
fn metric() -> impl TypedValueParser<Value = Metric> {
    PossibleValuesParser::new(["cosine", "l2", "ip", "l1", "hamming", "jaccard"]).map(|name| {
        let of_type = |value_type| Metric::named(value_type, Some(&name));
        [ValueType::Vector, ValueType::Bit].into_iter().find_map(of_type).expect("one of the names")
    })
}

fn target(text: &str) -> Result<f64, String> {
    let target = text.parse().ok().filter(|target| (0.5..=0.999).contains(target));
    target.ok_or_else(|| "must be a number between 0.5 and 0.999".to_owned())
}

fn max_rows(text: &str) -> Result<u64, String> {
    let (least, most) = (SAMPLE_ROWS.start(), SAMPLE_ROWS.end());
    let in_range = |rows| SAMPLE_ROWS.contains(&rows).then_some(rows);
    in_range(count::parse(text)?).ok_or_else(|| format!("must be between {least} and {most}"))
}
