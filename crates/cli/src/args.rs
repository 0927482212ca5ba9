mod advise;
mod gen_cert;
mod maintain;
mod token;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use hnsw::Level;
use pgvector::{DEFAULT_M, M_RANGE, MAX_SPARSEVEC_NNZ, ValueType};
use service::Listening;

pub use self::advise::Advise;
pub use self::gen_cert::GenCert;
pub use self::maintain::Maintain;
pub use self::token::{NewToken, TokenCommand};
use crate::daemon::Daemon;
use crate::router::Router;
use crate::{count, operator, period};

/// The exit codes, as --help shows them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0   success; of daemons: a signal ended it and builds were given their time
  1   failure; of inspect: something is wrong with the index
  3   of status: the daemon answers, but takes no builds; of maintain: something is left to do
  64  arguments, settings or the files they name cannot work: they must change first";

/// Builds pgvector HNSW indexes outside PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "lantern-index", version = version())]
#[command(after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// The version, with the commit if `LANTERN_INDEX_COMMIT` was set at compile time.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    option_env!("LANTERN_INDEX_COMMIT").map_or(version.to_owned(), |commit| format!("{version} ({commit})"))
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the builder daemon
    ///
    /// It accepts builds on one port and status requests on another. After SIGTERM or SIGINT running builds may continue for the drain
    /// timeout; a second signal ends the builder at once. SIGHUP reloads certificates and tokens.
    Serve(Box<Serve>),
    /// Run the router, which finds or starts a builder for each build
    ///
    /// Databases connect to it as to a builder. By default it runs builders as processes of this machine.
    Router(Box<Router>),
    /// Make a self-signed certificate and its key
    ///
    /// The certificate is for localhost, 127.0.0.1 and ::1, and for the hosts given. Clients that verify the builder need
    /// a copy of the certificate, never of the key. With --client it makes a client certificate.
    GenCert(GenCert),
    /// Make tokens with which clients authenticate
    #[command(subcommand)]
    Token(TokenCommand),
    /// Verify the pages of an index file and summarise its content
    ///
    /// The exit code is 1 if the index has errors, and 64 if the file is not that of an hnsw index.
    Inspect(Inspect),
    /// Estimate a build: index size, memory of the builder, bytes on the wire
    ///
    /// In the database, lantern_index.estimate() does the same for a table.
    Estimate(Estimate),
    /// Recommend which index to build and which ef_search to use, by trials on the vectors of a file or table
    ///
    /// Builds and searches graphs of a sample on this machine, and extrapolates the results to all rows. A database needs pgvector and a
    /// role that may read the column; in one with the extension, lantern_index.advise() does the same on a builder.
    Advise(Advise),
    /// Show the distance kernels for this machine's processor
    Cpu,
    /// Show a daemon's running builds, its queue, and how the last builds ended
    ///
    /// The exit code is 0 if the daemon accepts builds, 1 if it does not answer, and 3 if it is starting, drained or shutting
    /// down.
    Status(Status),
    /// List the builds of a daemon on this machine, with their ids and clients
    Builds(operator::Socket),
    /// Cancel a build of a daemon on this machine
    Cancel(operator::Cancel),
    /// Make a daemon on this machine accept no new builds; running and waiting builds continue
    Drain(operator::Drain),
    /// Find hnsw indexes in databases that need maintenance, and with --rebuild maintain them
    ///
    /// Without --rebuild and --drop-leftovers it only prints the plan. The databases need CREATE EXTENSION lantern_index. A role that is no
    /// superuser must own the tables, be a member of pg_monitor, and have USAGE on the schema lantern_index, and SELECT, INSERT, UPDATE and
    /// DELETE on lantern_index.checks. SIGTERM interrupts a rebuild and drops its leftovers; a second one ends the
    /// program at once. The exit code is 0 if nothing is left to do, 3 if something is, and 1 if a step failed or a database cannot be reached.
    Maintain(Maintain),
    /// Check and show the settings of the daemons
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write the manual pages into a directory
    Man {
        /// The directory
        dir: PathBuf,
    },
    /// Print the completions for a shell
    ///
    /// Example: `lantern-index completions bash > /usr/share/bash-completion/completions/lantern-index`.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Find mistakes in the configuration file and the environment, all at once
    ///
    /// Also reads the files that settings name. The exit code is 64 if there are mistakes.
    Check,
    /// Print every setting and the source of its value, as a configuration file
    Show,
}

/// Each flag is a setting that the environment and the configuration file can also contain: see `config::definition`.
#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub daemon: Daemon,
    /// Threads of each build; 0 takes one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: u16,
    /// Memory limit for all builds together, as in 48GB; builds that do not fit wait or are refused
    /// [default: 7/8 of what the control group or the machine has, less 128 MB]
    #[arg(long, value_name = "SIZE", value_parser = service::parse_size)]
    pub memory_limit: Option<u64>,
    /// Directory for a spool file with the values of builds that do not fit into memory
    #[arg(long, value_name = "DIR")]
    pub spool_dir: Option<PathBuf>,
    /// The most concurrent builds; more wait. 0: as many as fit into memory
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_builds: u16,
    /// The most rows of a build. 0: as many as fit into memory
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_rows: u64,
    /// The most connections; beyond them the oldest one without a request, or whose request has ended, is closed
    #[arg(long, value_name = "N", default_value_t = Listening::default().max_connections, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,
    /// The engine that builds graphs
    #[arg(long, value_enum, default_value_t = EngineName::Bulk)]
    pub engine: EngineName,
    /// Distance kernels for this level of processors, for tests: portable, avx2, avx512, vnni, amx, neon or neondot
    /// [default: the highest that the processor has]
    #[arg(long, value_name = "LEVEL", value_parser = Level::named)]
    pub cpu_level: Option<Level>,
    /// Build for inner product when Lantern's clients announce cosine: they announce both as cosine
    #[arg(long, env = "LANTERN_INDEX_LANTERN_INNER_PRODUCT")]
    pub lantern_inner_product: bool,
    /// Time limit for the rows of a build to arrive [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = period::parse)]
    pub max_rows_time: Option<Duration>,
    /// How long running builds may continue after SIGTERM: 90s, 10m, 1h
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = period::parse)]
    pub drain_timeout: Duration,
    /// Accept only builds that come through a router; the file has the key with which the router signs tickets
    #[arg(long, value_name = "FILE")]
    pub ticket_key: Option<PathBuf>,
    /// The name by which the router knows this builder, HOST:PORT with --builders static; tickets for others are refused
    #[arg(long, value_name = "NAME", default_value = "", requires = "ticket_key")]
    pub ticket_name: String,
    /// With a ticket key: also accept Lantern's clients, which cannot present a ticket
    #[arg(long)]
    pub lantern_without_ticket: bool,
    /// Stop at once when standard input is closed, as it is when the parent process ends; any input has the effect of SIGTERM
    #[arg(long)]
    pub stop_at_eof: bool,
}

/// The names of the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// Finds candidates for all elements at once, then selects neighbors
    Bulk,
    /// pgvector's algorithm, which inserts elements, here in batches and in random order
    Insertion,
    /// The usearch crate, which inserts one element after the other
    #[cfg(feature = "usearch")]
    Usearch,
}

#[derive(Debug, Args)]
pub struct Inspect {
    /// The index's file in the data directory, as pg_relation_filepath() returns it; its further segments are read too
    pub file: PathBuf,
    /// Type of the indexed column [default: recognised from the values]
    #[arg(long = "type", value_name = "TYPE", value_parser = value_type())]
    pub value_type: Option<ValueType>,
}

#[derive(Debug, Args)]
pub struct Estimate {
    /// Rows to be indexed, as in 250000, 100k, 2.5M or 1B
    #[arg(long, value_name = "N", value_parser = count::parse)]
    pub rows: u64,
    /// Dimensions of the column
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub dims: u32,
    /// Type of the column
    #[arg(long = "type", value_name = "TYPE", value_parser = value_type(), default_value = "vector")]
    pub value_type: ValueType,
    /// Neighbors per element and layer, as in WITH (m = …)
    #[arg(short, long, default_value_t = DEFAULT_M, value_parser = clap::value_parser!(u16).range(i64::from(*M_RANGE.start())..=i64::from(*M_RANGE.end())))]
    pub m: u16,
    /// Distinct values among the rows: up to ten rows of equal values share an element [default: all are distinct]
    #[arg(long, value_name = "N", value_parser = count::parse)]
    pub distinct: Option<u64>,
    /// For sparsevec: the average number of nonzero entries per row
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(0..=MAX_SPARSEVEC_NNZ as i64))]
    pub nonzero: u16,
    /// Threads of the builder [default: one per core of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,
    /// Print JSON, in bytes
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Status {
    /// Where the daemon answers status requests: a host, host:port or URL; without a port, at the daemons' default one
    #[arg(default_value = "127.0.0.1")]
    pub url: String,
    /// Refresh every second, until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Print the answer of /status; with --watch, a line for each refresh
    #[arg(long)]
    pub json: bool,
}

/// Parses the name of a type in SQL.
fn value_type() -> impl TypedValueParser<Value = ValueType> {
    PossibleValuesParser::new(ValueType::ALL.map(ValueType::name))
        .map(|name| ValueType::named(&name).expect("one of the names"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Arguments;

    #[test]
    fn certificate_and_key_go_together() {
        let parse = |words: &[&str]| Arguments::try_parse_from([&["lantern-index"], words].concat()).is_ok();
        assert!(parse(&["serve"]));
        assert!(parse(&["serve", "--cert", "c", "--key", "k"]));
        assert!(!parse(&["serve", "--cert", "c"]));
        assert!(!parse(&["serve", "--key", "k"]));
        assert!(!parse(&["gen-cert", "--cert", "c"]));
        assert!(!parse(&["serve", "--idle-timeout", "10"]));
        assert!(parse(&["serve", "--memory-limit", "48GB", "--max-builds", "2"]));
        assert!(parse(&["inspect", "16400", "--type", "sparsevec"]));
    }
}
