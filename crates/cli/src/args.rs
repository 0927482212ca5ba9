mod gen_cert;
mod maintain;
mod token;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pages::ValueType;

pub use self::gen_cert::GenCert;
pub use self::maintain::Maintain;
pub use self::token::{NewToken, TokenCommand};
use crate::daemon::Daemon;
use crate::router::Router;
use crate::{count, owner, period};

/// What the program's end says.
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

/// With the commit, where whoever compiled this has told it.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    option_env!("LANTERN_INDEX_COMMIT").map_or(version.to_owned(), |commit| format!("{version} ({commit})"))
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the builder daemon
    ///
    /// It takes builds on one port and status requests on another. SIGTERM or SIGINT gives running builds the
    /// drain timeout to end, a second one does not wait. SIGHUP reads certificates and tokens again.
    Serve(Box<Serve>),
    /// Run the router, which finds or starts a builder for each build
    ///
    /// Databases point at it as at a builder. By itself it runs builders as processes of this machine.
    Router(Box<Router>),
    /// Make a self-signed certificate and its key
    ///
    /// The certificate is for localhost, 127.0.0.1 and ::1, and for the hosts given. Clients that verify the builder need
    /// a copy of it, but never of the key. With --client it is one that a client shows to a builder.
    GenCert(GenCert),
    /// Make tokens, by which clients say who they are
    #[command(subcommand)]
    Token(TokenCommand),
    /// Verify the pages of an index file and say what is in it
    ///
    /// The exit code is 1 if anything is wrong with the index, and 64 if the file is not one of an hnsw index.
    Inspect(Inspect),
    /// Tell what a build will take: index size, memory of the builder, bytes on the wire
    ///
    /// In the database, lantern_index.estimate() tells the same of a table.
    Estimate(Estimate),
    /// Say which kernels this machine's processor is served by
    Cpu,
    /// Show what a daemon does: its builds, its queue, how the last builds ended
    ///
    /// The exit code is 0 if the daemon takes builds, 1 if it does not answer, and 3 if it answers, but is starting or
    /// shutting down.
    Status(Status),
    /// List the builds of a daemon on this machine, with their numbers and clients
    Builds(owner::Socket),
    /// End a build of a daemon on this machine
    Cancel(owner::Cancel),
    /// Let a daemon on this machine take no more builds; builds that have begun go on
    Drain(owner::Drain),
    /// Look after the hnsw indexes of databases: which need what, and with --rebuild do it
    ///
    /// Without --rebuild and --drop-leftovers it only prints the plan. The databases need CREATE EXTENSION lantern_index, and the role
    /// must own the indexes. SIGTERM ends a rebuild under way and drops what it leaves. The exit code is 0 if nothing is left to do, 3 if
    /// something is, and 1 if a step failed or a database cannot be reached.
    Maintain(Maintain),
    /// Look at the settings of the daemons
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write the manual pages into a directory
    Man {
        /// Where to
        dir: PathBuf,
    },
    /// Print the completions for a shell
    ///
    /// As in `lantern-index completions bash > /usr/share/bash-completion/completions/lantern-index`.
    Completions {
        /// Which
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Find mistakes in the configuration file and the environment, all at once
    ///
    /// The files that settings name are read too. The exit code is 64 if there are mistakes.
    Check,
    /// Print every setting and where its value comes from, as a configuration file
    Show,
}

/// Each flag is a setting, which the environment and the configuration file can have too: see `config::definition`.
#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub daemon: Daemon,
    /// Threads of each build; 0 takes one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: u16,
    /// Memory that all builds together may take, as in 48GB; builds for which there is none wait or are refused
    /// [default: what the control group or the machine has, less an eighth]
    #[arg(long, value_name = "SIZE", value_parser = service::parse_size)]
    pub memory_limit: Option<u64>,
    /// Directory for a file with the values of builds that do not fit into the memory otherwise
    #[arg(long, value_name = "DIR")]
    pub spool_dir: Option<PathBuf>,
    /// Builds at a time, more wait; 0 for as many as there is memory for
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_builds: u16,
    /// Rows that a build may have; 0 for as many as there is memory for
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_rows: u64,
    /// Connections at a time; when there are more, the oldest that has not said what it wants is closed
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,
    /// What builds the graphs
    #[arg(long, value_enum, default_value_t = EngineName::Bulk)]
    pub engine: EngineName,
    /// Take what a Lantern client announces as cosine for inner product: it calls both so
    #[arg(long, env = "LANTERN_INDEX_LANTERN_INNER_PRODUCT")]
    pub lantern_inner_product: bool,
    /// How long the rows of a build may take to come, however often the client says that it is alive [default: as long as it takes]
    #[arg(long, value_name = "TIME", value_parser = period::parse)]
    pub max_rows_time: Option<Duration>,
    /// How long running builds may take to end after SIGTERM: 90s, 10m, 1h
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = period::parse)]
    pub drain_timeout: Duration,
    /// Take only builds that a router sends: the file with the secret that it makes tickets with
    #[arg(long, value_name = "FILE")]
    pub ticket_key: Option<PathBuf>,
    /// The name by which the router knows this builder; tickets for others are refused
    #[arg(long, value_name = "NAME", default_value = "", requires = "ticket_key")]
    pub ticket_name: String,
    /// With a ticket key: let Lantern's clients in all the same, which cannot show a ticket
    #[arg(long)]
    pub lantern_without_ticket: bool,
    /// End at once when standard input ends, as it does when the process that started this one is gone;
    /// as after SIGTERM when anything comes from there
    #[arg(long)]
    pub stop_at_eof: bool,
}

/// The names of the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// All elements at once
    Bulk,
    /// One element after the other, as pgvector itself does it
    Insertion,
    /// The usearch crate, which inserts one element after the other
    #[cfg(feature = "usearch")]
    Usearch,
}

#[derive(Debug, Args)]
pub struct Inspect {
    /// The index's file in the data directory, as pg_relation_filepath() says; its further segments are read too
    pub file: PathBuf,
    /// Type of the indexed column [default: what its values look like]
    #[arg(long = "type", value_name = "TYPE", value_enum)]
    pub value_type: Option<TypeName>,
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
    #[arg(long = "type", value_name = "TYPE", value_enum, default_value_t = TypeName::Vector)]
    pub value_type: TypeName,
    /// Neighbors per element and layer, as in WITH (m = …)
    #[arg(short, long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=100))]
    pub m: u16,
    /// Different values among the rows: equal ones share an element, up to ten [default: all are different]
    #[arg(long, value_name = "N", value_parser = count::parse)]
    pub distinct: Option<u64>,
    /// Of sparsevec: how many values of a row are not zero, on average
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(0..=1000))]
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
    /// Where the daemon answers status requests: a host, host:port or URL; the usual port is 8999
    #[arg(default_value = "127.0.0.1:8999")]
    pub url: String,
    /// Look again every second, until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Print what /status answers; with --watch, one line each time
    #[arg(long)]
    pub json: bool,
}

/// The names of the types in SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub enum TypeName {
    Vector,
    HalfVec,
    Bit,
    SparseVec,
}

impl From<TypeName> for ValueType {
    fn from(name: TypeName) -> Self {
        match name {
            TypeName::Vector => Self::Vector,
            TypeName::HalfVec => Self::HalfVec,
            TypeName::Bit => Self::Bit,
            TypeName::SparseVec => Self::SparseVec,
        }
    }
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
