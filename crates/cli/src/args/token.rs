use clap::{Args, Subcommand, value_parser};

use crate::count;

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token, and print the lines for the daemon's and the database's configuration
    ///
    /// The token is shown once. The line for the daemon's token file has only its hash.
    New(NewToken),
}

#[derive(Debug, Args)]
pub struct NewToken {
    /// Name of the token's owner, for logs and status
    #[arg(value_parser = service::check_token_name)]
    pub name: String,
    /// The most running builds of the owner; more wait
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub builds: Option<u32>,
    /// The most waiting builds of the owner; more are refused
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub waiting: Option<u32>,
    /// The most memory of the owner's builds together, as in 48GB
    #[arg(long, value_name = "SIZE", value_parser = service::parse_size)]
    pub memory: Option<u64>,
    /// The most rows of a build of the owner, as in 250000, 100k or 2.5M
    #[arg(long, value_name = "N", value_parser = count::parse_some)]
    pub rows: Option<u64>,
}
