use std::io::Read;
use std::sync::Arc;

use anyhow::Context;
use hnsw::EngineKind;
use server::{Config, Server, ServerError};
use service::{Shutdown, TicketGate, TicketKey, Tls, Tokens};

use crate::args::{EngineName, Serve};
use crate::daemon;
use crate::failure::Failure;

/// Runs the builder daemon until a signal ends it.
pub fn run(arguments: &Serve) -> Result<(), Failure> {
    hnsw::memory::map_large_blocks();
    arguments.daemon.run(async || serve(config(arguments)?, arguments.stop_at_eof).await)
}

/// What is wrong with the files that the settings name.
pub fn check(arguments: &Serve) -> Vec<Failure> {
    config(arguments).err().into_iter().collect()
}

async fn serve(config: Config, stop_at_eof: bool) -> Result<(), Failure> {
    // Before the ports: whoever sees them may send a signal.
    let shutdown = Shutdown::on_signals().context("cannot handle signals")?;
    if stop_at_eof {
        stop_at_end_of_input(shutdown.clone()).context("cannot watch standard input")?;
    }
    service::on_hangup(reload(config.tls.clone(), config.tokens.clone())).context("cannot handle signals")?;
    let encrypted = config.tls.is_some();
    let engine = config.engine.name();
    let server = Server::bind(config).await.map_err(explain)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        address = %server.local_addr(),
        status = %server.status_addr(),
        tls = encrypted,
        threads = server.threads(),
        memory_limit = server.memory_limit(),
        engine,
        "builder started"
    );
    if !encrypted && !server.local_addr().ip().is_loopback() {
        tracing::warn!("connections are not encrypted and other machines can connect");
    }
    if !server.asks_clients() && !server.local_addr().ip().is_loopback() {
        tracing::warn!("clients are not asked who they are and other machines can connect");
    }
    let name = "External Indexing";
    daemon::ready(name, server.status_addr(), server.local_addr(), &shutdown).context("cannot write to stdout")?;
    server.run(shutdown).await;
    tracing::info!("builder ended");
    Ok(())
}

/// Reads the certificate and the tokens again. What cannot be used leaves everything as it was.
fn reload(tls: Option<Arc<Tls>>, tokens: Option<Arc<Tokens>>) -> impl FnMut() + Send + 'static {
    let log = |what: &str, result: Result<(), anyhow::Error>| match result {
        Ok(()) => tracing::info!("{what} read again"),
        Err(error) => tracing::error!("{what} not read again, the old ones stay: {error:#}"),
    };
    move || {
        if let Some(tls) = &tls {
            log("certificates", tls.reload().map_err(Into::into));
        }
        if let Some(tokens) = &tokens {
            log("tokens", tokens.reload().map_err(Into::into));
        }
    }
}

/// Ends the daemon with whoever holds the other end of its standard input, however that one ends; before, when it says anything,
/// as SIGTERM does.
fn stop_at_end_of_input(shutdown: Shutdown) -> std::io::Result<()> {
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // An error is an end too.
        if matches!(std::io::stdin().read(&mut [0]), Ok(1)) {
            tracing::info!("told to end by standard input");
            shutdown.drain.cancel();
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        }
        tracing::info!("standard input ended, shutting down");
        shutdown.abort.cancel();
        shutdown.drain.cancel();
    })?;
    Ok(())
}

fn config(arguments: &Serve) -> Result<Config, Failure> {
    let tls = match (&arguments.daemon.cert, &arguments.daemon.key) {
        (Some(cert), Some(key)) => {
            Some(Arc::new(Tls::open(cert, key, arguments.client_ca.as_deref()).map_err(Failure::usage)?))
        }
        _ => None,
    };
    let tokens = match &arguments.token_file {
        Some(file) => Some(Arc::new(Tokens::open(file).map_err(Failure::usage)?)),
        None => None,
    };
    let tickets = match &arguments.ticket_key {
        Some(file) => {
            let key = TicketKey::read(file).map_err(Failure::usage)?;
            Some(Arc::new(TicketGate::new(key, arguments.ticket_name.clone())))
        }
        None => None,
    };
    Ok(Config {
        host: arguments.daemon.host.clone(),
        port: arguments.daemon.port,
        status_host: arguments.daemon.status_host(),
        status_port: arguments.daemon.status_port,
        status_labels: arguments.daemon.status_labels,
        tls,
        tickets,
        tokens,
        allow_anonymous: arguments.allow_anonymous,
        max_rows: arguments.max_rows,
        max_connections: arguments.max_connections as usize,
        max_handshakes: arguments.max_handshakes,
        drain_timeout: arguments.drain_timeout,
        lantern_without_ticket: arguments.lantern_without_ticket,
        allow_plaintext_beyond_loopback: arguments.daemon.allow_plaintext_beyond_loopback,
        engine: match arguments.engine {
            EngineName::Bulk => EngineKind::Bulk,
            EngineName::Usearch => EngineKind::Usearch,
        },
        threads: arguments.threads.into(),
        memory_limit: arguments.memory_limit.unwrap_or(0),
        spool_dir: arguments.spool_dir.clone(),
        max_builds: arguments.max_builds.into(),
        lantern_inner_product: arguments.lantern_inner_product,
        idle_timeout: arguments.idle_timeout,
        ..Config::default()
    })
}

fn explain(error: ServerError) -> Failure {
    match error {
        ServerError::Anonymous(address) => Failure::usage(anyhow::anyhow!(
            "{address} can be reached from other machines, and clients are not asked who they are\n\
             Give a --token-file with secrets, or the authority of their certificates with --client-ca, or listen on --host \
             127.0.0.1, or say --allow-anonymous if everybody there may have indexes built."
        )),
        ServerError::Daemon(error) => daemon::explain(error),
    }
}
