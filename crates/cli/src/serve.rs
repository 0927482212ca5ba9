use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hnsw::EngineKind;
use server::{Config, Server, ServerError};
use service::{Shutdown, TicketGate, TicketKey, Tls, Tokens};

use crate::args::{EngineName, Serve};
use crate::failure::Failure;

/// Threads that move bytes; the CPU work has threads of its own.
const IO_THREADS: usize = 2;

/// Runs the builder daemon until a signal ends it.
pub fn run(arguments: &Serve) -> Result<(), Failure> {
    service::init_telemetry(arguments.log_format, &arguments.log_level).map_err(Failure::usage)?;
    let config = config(arguments)?;
    let stop_at_eof = arguments.stop_at_eof;
    hnsw::memory::map_large_blocks();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .thread_name("io")
        .enable_all()
        .build()
        .context("cannot start the threads for connections")?;
    let result = runtime.block_on(serve(config, stop_at_eof));
    // Builds that did not end within the grace period are left behind.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
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
    announce(&server).context("cannot write to stdout")?;
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
    service::notify_manager("READY=1");
    let drain = shutdown.drain.clone();
    tokio::spawn(async move {
        drain.cancelled().await;
        service::notify_manager("STOPPING=1");
    });
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

/// Ends the daemon with whoever holds the other end of its standard input, however that one ends.
fn stop_at_end_of_input(shutdown: Shutdown) -> std::io::Result<()> {
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // Whatever comes is not for us, and an error is an end too.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        tracing::info!("standard input ended, shutting down");
        shutdown.abort.cancel();
        shutdown.drain.cancel();
    })?;
    Ok(())
}

/// The lines that Lantern's users and scripts know.
fn announce(server: &Server) -> std::io::Result<()> {
    let mut out = stdout().lock();
    let name = "[*] [Lantern External Index] External Indexing";
    writeln!(out, "{name} Status Server started on {}", server.status_addr())?;
    writeln!(out, "{name} Server started on {}", server.local_addr())?;
    out.flush()
}

fn config(arguments: &Serve) -> Result<Config, Failure> {
    let tls = match (&arguments.cert, &arguments.key) {
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
        host: arguments.host.clone(),
        port: arguments.port,
        status_host: arguments.status_host.clone().unwrap_or_else(|| arguments.host.clone()),
        status_port: arguments.status_port,
        status_labels: arguments.status_labels,
        tls,
        tickets,
        tokens,
        allow_anonymous: arguments.allow_anonymous,
        max_rows: arguments.max_rows,
        max_connections: arguments.max_connections as usize,
        max_handshakes: arguments.max_handshakes,
        drain_timeout: arguments.drain_timeout,
        lantern_without_ticket: arguments.lantern_without_ticket,
        allow_plaintext_beyond_loopback: arguments.allow_plaintext_beyond_loopback,
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
        ServerError::Plaintext(address) => Failure::usage(anyhow::anyhow!(
            "{address} can be reached from other machines, and without a certificate connections are not encrypted\n\
             Give one with --cert and --key (`lantern-index gen-cert` makes a pair), or listen on --host 127.0.0.1, or say \
             --allow-plaintext-beyond-loopback if you trust the network with the values of indexed rows."
        )),
        ServerError::Anonymous(address) => Failure::usage(anyhow::anyhow!(
            "{address} can be reached from other machines, and clients are not asked who they are\n\
             Give a --token-file with secrets, or the authority of their certificates with --client-ca, or listen on --host \
             127.0.0.1, or say --allow-anonymous if everybody there may have indexes built."
        )),
        error @ ServerError::Resolve { .. } => Failure::usage(error),
        error => Failure::Other(error.into()),
    }
}
