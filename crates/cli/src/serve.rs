use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hnsw::{EngineKind, Level, Storage};
use server::{Config, Server};
use service::{Reload, Shutdown, TicketGate, TicketKeys};

use crate::args::{EngineName, Serve};
use crate::daemon;
use crate::failure::Failure;

/// Runs the builder daemon until a signal ends it.
pub fn run(arguments: &Serve) -> Result<(), Failure> {
    hnsw::memory::map_large_blocks();
    if let Some(level) = arguments.cpu_level {
        level.choose().context("--cpu-level").map_err(Failure::usage)?;
    }
    arguments
        .daemon
        .run(async || serve(config(arguments)?, arguments.stop_at_eof, arguments.daemon.admin_socket.clone()).await)
}

async fn serve(config: Config, stop_at_eof: bool, admin_socket: Option<PathBuf>) -> Result<(), Failure> {
    // Before the ports are open: from then on, a signal may come.
    let shutdown = Shutdown::on_signals().context("cannot handle signals")?;
    if stop_at_eof {
        stop_at_end_of_input(shutdown.clone()).context("cannot watch standard input")?;
    }
    let keys = config.tickets.iter().map(|gate| gate.keys() as Arc<dyn Reload>).collect();
    daemon::keep_fresh(&config.listening.access, keys).context("cannot handle signals")?;
    let encrypted = config.listening.access.tls.is_some();
    let engine = config.engine.name();
    let server = Server::bind(config).await.map_err(daemon::explain)?;
    let daemon = server.daemon();
    let _socket = daemon::admin(admin_socket.as_deref(), daemon.activity())?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        address = %daemon.local_addr(),
        status = %daemon.status_addr(),
        tls = encrypted,
        threads = server.threads(),
        memory_limit = server.memory_limit(),
        engine,
        kernels = Level::current().name(),
        "builder started"
    );
    daemon::ready("External Indexing", daemon, encrypted, server.asks_clients(), &shutdown)
        .context("cannot write to stdout")?;
    server.run(shutdown).await;
    tracing::info!("builder ended");
    Ok(())
}

/// Stops the daemon when standard input is closed, that is when its parent ends, however that happens. Any input drains it like SIGTERM.
fn stop_at_end_of_input(shutdown: Shutdown) -> std::io::Result<()> {
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // A read error counts as closed.
        if matches!(std::io::stdin().read(&mut [0]), Ok(1)) {
            shutdown.drain.cancel();
            tracing::info!("input on standard input, draining");
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        }
        shutdown.abort.cancel();
        shutdown.drain.cancel();
        tracing::info!("standard input ended, shutting down");
    })?;
    Ok(())
}

/// Whether the spool can create files in this directory.
pub fn check_spool_dir(dir: &Path) -> Result<(), Failure> {
    let unusable = |error| anyhow::anyhow!("spool directory {} cannot be used: {error}", dir.display());
    Storage::try_dir(dir).map_err(|error| Failure::usage(unusable(error)))
}

/// The configuration of the builder; reads the files that settings name.
pub fn config(arguments: &Serve) -> Result<Config, Failure> {
    arguments.spool_dir.as_deref().map_or(Ok(()), check_spool_dir)?;
    let tickets = match &arguments.ticket_key {
        Some(file) => {
            let keys = Arc::new(TicketKeys::open(file).map_err(Failure::usage)?);
            Some(Arc::new(TicketGate::new(keys, arguments.ticket_name.clone())))
        }
        None => None,
    };
    Ok(Config {
        listening: arguments.daemon.listening(arguments.max_connections)?,
        tickets,
        max_rows: arguments.max_rows,
        drain_timeout: arguments.drain_timeout,
        lantern_without_ticket: arguments.lantern_without_ticket,
        engine: match arguments.engine {
            EngineName::Bulk => EngineKind::Bulk,
            EngineName::Insertion => EngineKind::Insertion,
            #[cfg(feature = "usearch")]
            EngineName::Usearch => EngineKind::Usearch,
        },
        threads: arguments.threads.into(),
        memory_limit: arguments.memory_limit.unwrap_or(0),
        spool_dir: arguments.spool_dir.clone(),
        max_builds: arguments.max_builds.into(),
        lantern_inner_product: arguments.lantern_inner_product,
        max_build_time: arguments.daemon.max_build_time,
        max_rows_time: arguments.max_rows_time,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use server::Config;

    use super::config;
    use crate::args::{Arguments, Command};

    #[test]
    fn times_have_the_defaults_of_the_library() {
        let Command::Serve(serve) = Arguments::parse_from(["lantern-index", "serve"]).command else { panic!("serve") };
        let times = |config: Config| (config.listening.idle_timeout, config.drain_timeout);
        assert_eq!(config(&serve).ok().map(times), Some(times(Config::default())));
    }
}
