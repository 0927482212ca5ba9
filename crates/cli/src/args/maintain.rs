use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use maintain::Window;

use crate::period;

#[derive(Debug, Args)]
pub struct Maintain {
    /// Connection strings, as for psql: postgresql://…, "key=value …", or the name of a database; without a database all of the
    /// server's. Without any, the environment (PGHOST, PGSERVICE, …) says it all
    #[arg(value_name = "DSN")]
    pub dsns: Vec<String>,
    /// Check and rebuild what needs it; otherwise only print the plan
    #[arg(long)]
    pub rebuild: bool,
    /// Drop the invalid indexes that REINDEX CONCURRENTLY leaves when it fails, those that end in _ccnew or _ccold
    #[arg(long)]
    pub drop_leftovers: bool,
    /// Rebuild all through the builder, not only indexes with the option external
    #[arg(long)]
    pub external: bool,
    /// Rebuilds at a time in a database
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// Hours in which rebuilds may begin, by the server's clock, as in 01:00-05:00
    #[arg(long, value_name = "FROM-TO")]
    pub window: Option<Window>,
    /// How far replicas may be behind when a rebuild begins
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = period::parse)]
    pub max_lag: Duration,
    /// How old transactions that a rebuild would wait for may be when it begins
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = period::parse)]
    pub max_transaction: Duration,
    /// How long to wait for replicas, transactions and other sessions before an index is left for the next run
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = period::parse)]
    pub patience: Duration,
    /// Print plan and outcome as JSON
    #[arg(long)]
    pub json: bool,
    /// Write metrics to this file, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,
}
