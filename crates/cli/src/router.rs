use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use service::{Reload, Shutdown};

use crate::daemon::{self, Daemon};
use crate::failure::Failure;
use crate::period;
#[cfg(feature = "kubernetes")]
use crate::pods::Pods;
use crate::router_config::{config, explain, parse_builder};

/// Each flag is a setting that the environment and the configuration file can also contain: see `config::definition`.
#[derive(Debug, Args)]
pub struct Router {
    #[command(flatten)]
    pub daemon: Daemon,
    /// How clients are connected to their builder
    #[arg(long, value_enum, default_value_t = ModeName::Relay)]
    pub mode: ModeName,
    /// Where builders come from
    #[arg(long, value_enum, default_value_t = SourceName::Process)]
    pub builders: SourceName,
    /// The most connections; beyond them the oldest one without a request, or whose request has ended, is closed
    #[arg(long, value_name = "N", default_value_t = router::Config::MAX_CONNECTIONS, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,
    /// The number of builders to keep running, idle or not
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub min_builders: u16,
    /// The most concurrent builders; further builds wait
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_builders: u16,
    /// The number of idle builders to keep besides busy ones, so that the next build need not wait for a start
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub spare_builders: u16,
    /// How long builders beyond --min-builders and --spare-builders may stay idle: 90s, 10m, 1h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = period::parse)]
    pub idle_ttl: Duration,
    /// How long a client waits for a builder to start; waiting for a busy one does not count
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = period::parse)]
    pub start_timeout: Duration,
    /// How long relayed builds may continue when the router is stopped
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = period::parse)]
    pub grace: Duration,
    /// With --builders process: a further argument of `lantern-index serve`, as in --builder-arg=--threads=4; may be repeated
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub builder_arg: Vec<String>,
    /// With --builders static: a builder, as host:port/status-port; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = parse_builder)]
    pub builder: Vec<router::FixedBuilder>,
    #[cfg(feature = "kubernetes")]
    #[command(flatten)]
    pub pods: Pods,
    /// Authorities (PEM) that signed the builders' certificates, if connections to builders are encrypted
    #[arg(long, value_name = "FILE", requires = "builder_name")]
    pub builder_ca: Option<PathBuf>,
    /// The name in the builders' certificates
    #[arg(long, value_name = "NAME")]
    pub builder_name: Option<String>,
    /// File with the key that signs tickets: needed with --builders kubernetes, and with static if the builders have one
    #[arg(long, value_name = "FILE")]
    pub ticket_key: Option<PathBuf>,
}

/// The values of `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// The router relays all bytes: clients need to reach only the router
    Relay,
    /// The client is redirected to the builder, which it must be able to reach; clients that do not support that are relayed
    Redirect,
}

/// The values of `--builders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceName {
    /// Processes on this machine, which end with the router
    Process,
    /// Builders given with --builder, which the router does not start
    Static,
    /// Kubernetes pods
    #[cfg(feature = "kubernetes")]
    Kubernetes,
}

/// Runs the router daemon until a signal ends it.
pub fn run(arguments: &Router) -> Result<(), Failure> {
    // Return the buffers of relayed builds and of unauthenticated connections to the system when they are freed.
    hnsw::memory::map_large_blocks();
    arguments.daemon.run(async || serve(config(arguments)?, arguments.daemon.admin_socket.clone()).await)
}

async fn serve(config: router::Config, admin_socket: Option<PathBuf>) -> Result<(), Failure> {
    // Before the ports are open: from then on, a signal may come.
    let shutdown = Shutdown::on_signals().context("cannot handle signals")?;
    let mut parts: Vec<Arc<dyn Reload>> = Vec::new();
    if let Some(tls) = &config.builder_tls {
        parts.push(tls.clone());
    }
    if let Some(keys) = config.ticket_keys() {
        parts.push(keys);
    }
    let access = &config.listening.access;
    daemon::keep_fresh(access, parts).context("cannot handle signals")?;
    let (encrypted, asks_clients) = (access.tls.is_some(), access.asks_clients());
    let (mode, max_builders) = (config.mode, config.rules.max_builders);
    let router = router::Router::bind(config).await.map_err(explain)?;
    let daemon = router.daemon();
    let _socket = daemon::admin(admin_socket.as_deref(), daemon.activity())?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        address = %daemon.local_addr(),
        status = %daemon.status_addr(),
        tls = encrypted,
        ?mode,
        max_builders,
        "router started"
    );
    daemon::ready("Router", daemon, encrypted, asks_clients, &shutdown).context("cannot write to stdout")?;
    router.run(shutdown).await;
    tracing::info!("router ended");
    Ok(())
}
