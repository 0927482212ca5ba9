use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use maintain::Window;

use crate::period;

#[derive(Debug, Args)]
pub struct Maintain {
    /// Connection strings, as for psql: postgresql://…, "key=value …", or the name of a database; one without a database means all
    /// databases of the server. Without any, the environment (PGHOST, PGSERVICE, …) names the server
    #[arg(value_name = "DSN")]
    pub dsns: Vec<String>,
    /// Check indexes, and rebuild those that need it. Without this and --drop-leftovers only the plan is printed
    #[arg(long)]
    pub rebuild: bool,
    /// Drop invalid indexes that a failed REINDEX CONCURRENTLY has left, whose names end in _ccnew or _ccold, and those whose DROP INDEX
    /// CONCURRENTLY did not end
    #[arg(long)]
    pub drop_leftovers: bool,
    /// Rebuild all indexes by the builder, not only those with the option external
    #[arg(long)]
    pub external: bool,
    /// Concurrent rebuilds per database
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// Hours in which a step may begin, by the server's clock and the database's time zone, as in 01:00-05:00
    #[arg(long, value_name = "FROM-TO")]
    pub window: Option<Window>,
    /// The most that replicas may lag behind when a step begins
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = period::parse)]
    pub max_lag: Duration,
    /// The greatest age, when a step begins, of transactions for which a rebuild would have to wait
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = period::parse)]
    pub max_transaction: Duration,
    /// How long to wait for replicas, transactions and other sessions before an index is left to the next run
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = period::parse)]
    pub patience: Duration,
    /// Print the plan and its results as JSON
    #[arg(long)]
    pub json: bool,
    /// Write metrics to this file, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,
}
