//! What the daemons have in common on the command line, and around their work.

use std::io::{self, Write, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use service::{DaemonError, LogFormat, Shutdown};

use crate::failure::Failure;

/// Threads that move bytes; the CPU work of builds has threads of its own.
const IO_THREADS: usize = 2;

/// Where a daemon listens, and what it says of itself.
#[derive(Debug, Args)]
pub struct Daemon {
    /// Certificate chain (PEM); with it connections are encrypted, also those of a router to its own builders
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Name or address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port for builds; 0 takes any free one
    #[arg(long, default_value_t = 8998)]
    pub port: u16,
    /// Name or address to listen on for status requests [default: the host]
    #[arg(long, value_name = "HOST")]
    pub status_host: Option<String>,
    /// Port for status requests; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value_t = 8999)]
    pub status_port: u16,
    /// Show the names of relations in status, not only types and sizes
    #[arg(long)]
    pub status_labels: bool,
    /// Listen without encryption where other machines can connect: the values of indexed rows cross the network readable
    #[arg(long)]
    pub allow_plaintext_beyond_loopback: bool,
    /// How log lines look on stderr: text or json
    #[arg(long, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or a list of filters as in info,lantern_index_server=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = service::check_log_level)]
    pub log_level: String,
}

impl Daemon {
    /// Where to listen for status requests.
    pub fn status_host(&self) -> String {
        self.status_host.clone().unwrap_or_else(|| self.host.clone())
    }

    /// Sets up logs and threads, and serves until a signal ends that.
    pub fn run(&self, serve: impl AsyncFnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        service::init_telemetry(self.log_format, &self.log_level).map_err(Failure::usage)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(IO_THREADS)
            .thread_name("io")
            .enable_all()
            .build()
            .context("cannot start the threads for connections")?;
        let result = runtime.block_on(serve());
        // Builds that did not end within the grace period are left behind.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result
    }
}

/// Says where a daemon listens, on stdout in lines that Lantern's users and scripts know, and tells the service manager.
pub fn ready(name: &str, status: SocketAddr, clients: SocketAddr, shutdown: &Shutdown) -> io::Result<()> {
    let mut out = stdout().lock();
    let name = format!("[*] [Lantern External Index] {name}");
    writeln!(out, "{name} Status Server started on {status}")?;
    writeln!(out, "{name} Server started on {clients}")?;
    out.flush()?;
    service::notify_manager("READY=1");
    let drain = shutdown.drain.clone();
    tokio::spawn(async move {
        drain.cancelled().await;
        service::notify_manager("STOPPING=1");
    });
    Ok(())
}

/// A start that failed, with what may help.
pub fn explain(error: DaemonError) -> Failure {
    match error {
        DaemonError::Plaintext(address) => Failure::usage(anyhow!(
            "{address} can be reached from other machines, and without a certificate connections are not encrypted\n\
             Give one with --cert and --key (`lantern-index gen-cert` makes a pair), or listen on --host 127.0.0.1, or say \
             --allow-plaintext-beyond-loopback if you trust the network with the values of indexed rows."
        )),
        error @ DaemonError::Resolve { .. } => Failure::usage(error),
        error => Failure::Other(error.into()),
    }
}
