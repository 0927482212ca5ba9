//! What both daemons share: flags, logs, threads, signals, reloads.

use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use service::{
    Access, Activity, AdminSocket, DEFAULT_PORT, DEFAULT_STATUS_PORT, DaemonError, Listening, Reload, Shutdown, Tls,
    Tokens,
};

use crate::failure::Failure;
use crate::period;

/// Threads for I/O; builds have their own threads for CPU work.
const IO_THREADS: usize = 2;
/// The interval of warnings that a certificate expires.
const DAY: Duration = Duration::from_secs(86_400);

/// Flags of both daemons: addresses, access, logs.
#[derive(Debug, Args)]
pub struct Daemon {
    /// Certificate chain (PEM); with it connections are encrypted, also those of a router to its own builders
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Host name or address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port for builds; 0 takes any free one
    #[arg(long, default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// Host name or address for status requests [default: the host]
    #[arg(long, value_name = "HOST")]
    pub status_host: Option<String>,
    /// Port for status requests; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_STATUS_PORT)]
    pub status_port: u16,
    /// Unix socket over which the operator lists and cancels builds and drains the daemon, with `lantern-index builds`, `cancel` and `drain`
    #[arg(long, value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,
    /// Show the names of databases, schemas and relations in status, besides types and sizes
    #[arg(long)]
    pub status_labels: bool,
    /// File with tokens, one per line, one of which clients must present (hnsw.external_index_token); `lantern-index token new` makes a
    /// line with a name and limits. Reloaded at SIGHUP and when it changes
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificate authorities (PEM) that sign the certificates of clients (hnsw.external_index_sslcert); reloaded like the token file
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub client_ca: Option<PathBuf>,
    /// Allow clients without authentication beyond loopback: anyone who reaches the port can have indexes built
    #[arg(long)]
    pub allow_anonymous: bool,
    /// How long a client may send nothing while it waits or its rows are due, or leave data unread: 90s, 10m, 1h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = period::parse)]
    pub idle_timeout: Duration,
    /// How long after SIGTERM builds are still accepted, while /readyz already fails, so that a load balancer sends clients elsewhere
    /// [default: none]
    #[arg(long, value_name = "TIME", value_parser = period::parse)]
    pub shutdown_delay: Option<Duration>,
    /// Time limit for a build, from its admission [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = period::parse)]
    pub max_build_time: Option<Duration>,
    /// Connections to accept per second; further ones wait
    #[arg(long, value_name = "N", default_value_t = Listening::default().max_handshakes, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_handshakes: u32,
    /// Listen beyond loopback without encryption: the values of indexed rows cross the network in plaintext
    #[arg(long)]
    pub allow_plaintext_beyond_loopback: bool,
    /// Format of the log on stderr. Two lines on stdout name the listen addresses, in either format
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub log_format: String,
    /// Log level: error, warn, info, debug, trace, or a list of filters as in info,lantern_index_server=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = service::check_log_level)]
    pub log_level: String,
}

impl Daemon {
    /// The host for status requests.
    pub fn status_host(&self) -> String {
        self.status_host.clone().unwrap_or_else(|| self.host.clone())
    }

    /// Ports and connections; reads the files that settings name.
    pub fn listening(&self, max_connections: u32) -> Result<Listening, Failure> {
        Ok(Listening {
            host: self.host.clone(),
            port: self.port,
            status_host: self.status_host(),
            status_port: self.status_port,
            status_labels: self.status_labels,
            access: self.access()?,
            idle_timeout: self.idle_timeout,
            shutdown_delay: self.shutdown_delay.unwrap_or_default(),
            max_connections,
            max_handshakes: self.max_handshakes,
            ..Listening::default()
        })
    }

    /// How clients authenticate; reads the files that settings name.
    pub fn access(&self) -> Result<Access, Failure> {
        let tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(Tls::open(cert, key, self.client_ca.as_deref()).map_err(Failure::usage)?),
            _ => None,
        };
        let tokens = self.token_file.as_deref().map(Tokens::open).transpose().map_err(Failure::usage)?;
        Ok(Access {
            tls: tls.map(Arc::new),
            tokens: tokens.map(Arc::new),
            allow_plaintext_beyond_loopback: self.allow_plaintext_beyond_loopback,
            allow_anonymous: self.allow_anonymous,
        })
    }

    /// Sets up logs and threads, and serves until a signal ends the daemon.
    pub fn run(&self, serve: impl AsyncFnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        service::init_telemetry(self.log_format == "json", &self.log_level).map_err(Failure::usage)?;
        allow_all_files();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(IO_THREADS)
            .thread_name("io")
            .enable_all()
            .build()
            .context("cannot start the threads for connections")?;
        let result = runtime.block_on(serve());
        // Abandon builds that have not ended within their grace period.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result
    }
}

/// Raises the limit of open files to what the administrator allows: many systems set a lower one, 1024, for programs that use `select`.
fn allow_all_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // A failure leaves the limit as it was.
    _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Reloads the files of `access` and `more` at SIGHUP and when they change; warns of certificates that expire.
pub fn keep_fresh(access: &Access, more: Vec<Arc<dyn Reload>>) -> io::Result<()> {
    let mut parts: Vec<Arc<dyn Reload>> = more;
    if let Some(tokens) = &access.tokens {
        parts.push(tokens.clone());
    }
    if let Some(tls) = &access.tls {
        parts.push(tls.clone());
        let tls = tls.clone();
        tokio::spawn(async move {
            loop {
                tls.warning_of_dates().iter().for_each(|warning| tracing::warn!("{warning}"));
                tokio::time::sleep(DAY).await;
            }
        });
    }
    service::keep_fresh(parts)
}

/// Opens the operator's socket, if a path is set.
pub fn admin(path: Option<&Path>, activity: Arc<Activity>) -> Result<Option<AdminSocket>, Failure> {
    path.map(|path| AdminSocket::start(path, activity)).transpose().map_err(Failure::usage)
}

/// Warns if other machines can connect without encryption or authentication. Prints the listen addresses, in lines that Lantern's users
/// and scripts parse, and notifies the service manager.
pub fn ready(
    name: &str,
    daemon: &service::Daemon,
    encrypted: bool,
    asks_clients: bool,
    shutdown: &Shutdown,
) -> io::Result<()> {
    let (status, clients) = (daemon.status_addr(), daemon.local_addr());
    let is_exposed = !clients.ip().is_loopback();
    if is_exposed && !encrypted {
        tracing::warn!("connections are not encrypted and other machines can connect");
    }
    if is_exposed && !asks_clients {
        tracing::warn!("clients are not authenticated, and other machines can connect");
    }
    // Before the lines: a router that reads them gives a build at once, and takes a builder that is not ready for a drained one.
    daemon.ready();
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

/// The failure to start, with advice.
pub fn explain(error: DaemonError) -> Failure {
    match error {
        DaemonError::Plaintext(address) => Failure::usage(anyhow!(
            "{address} can be reached from other machines, and without a certificate connections are not encrypted\n\
             Give one with --cert and --key (`lantern-index gen-cert` makes a pair), or listen on --host 127.0.0.1, or say \
             --allow-plaintext-beyond-loopback if you trust the network with the values of indexed rows."
        )),
        DaemonError::Anonymous(address) => Failure::usage(anyhow!(
            "{address} can be reached from other machines, and clients are not authenticated\n\
             Give a --token-file with secrets, or the authority of their certificates with --client-ca, or listen on --host \
             127.0.0.1, or say --allow-anonymous if everybody there may have indexes built."
        )),
        error @ DaemonError::Resolve { .. } => Failure::usage(error),
        error => Failure::Other(error.into()),
    }
}
