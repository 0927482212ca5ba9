use std::convert::Infallible;
use std::env;
use std::fs::File;
use std::future::pending;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use service::Clock;

use crate::spawner::{Boxed, Builder, Facts, Order, Place, SpawnError, Spawner};

/// The time limit for a builder to end on request, and again after its stdin was closed, before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Prefix of environment variables with daemons' settings. The router's own are not passed to builders.
const SETTINGS: &str = "LANTERN_INDEX_";

/// How to run builders on this machine.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    /// The program `lantern-index`.
    pub program: PathBuf,
    /// Where builders listen: a name or an address of this machine.
    pub host: String,
    /// The certificate and key that builders use; `None` if connections are not encrypted.
    pub cert_and_key: Option<(PathBuf, PathBuf)>,
    /// Further arguments for `lantern-index serve`.
    pub arguments: Vec<String>,
}

/// Builders as processes of this machine. Their standard input is a pipe from the router: it closes when the router
/// ends, even if killed, and they end with it.
pub(crate) struct Processes {
    config: ProcessConfig,
    ticket_key: PathBuf,
    started: AtomicU64,
    _secret: File,
}

impl Processes {
    /// `ticket_key` is the text of the key. Builders inherit it as an anonymous file (`memfd`), which
    /// exists until the last process closes it.
    pub(crate) fn new(config: ProcessConfig, ticket_key: &str) -> io::Result<Self> {
        let mut secret = File::from(memfd_create("ticket-key", MemfdFlags::empty())?);
        secret.write_all(ticket_key.as_bytes())?;
        let ticket_key = format!("/proc/self/fd/{}", secret.as_raw_fd()).into();
        Ok(Self { config, ticket_key, started: AtomicU64::new(0), _secret: secret })
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.config.program);
        // Pass only the settings given here: configuration file and environment are meant for the router.
        for (variable, _) in env::vars_os() {
            if variable.to_string_lossy().starts_with(SETTINGS) {
                command.env_remove(variable);
            }
        }
        // Only the router reports to the service manager.
        command.env_remove("NOTIFY_SOCKET");
        command.args(["serve", "--config", "/dev/null", "--host", &self.config.host, "--port", "0", "--stop-at-eof"]);
        command.args(["--status-host", "127.0.0.1", "--status-port", "0", "--ticket-name", name]);
        command.arg("--ticket-key").arg(&self.ticket_key);
        match &self.config.cert_and_key {
            Some((cert, key)) => _ = command.arg("--cert").arg(cert).arg("--key").arg(key),
            // The router has checked that plaintext is allowed at its own address.
            None => _ = command.arg("--allow-plaintext-beyond-loopback"),
        }
        command.args(&self.config.arguments);
        // A process group of its own: Ctrl-C reaches only the router, which lets builds end first.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
        command
    }

    async fn start_one(&self, order: Order) -> Result<Arc<dyn Builder>, SpawnError> {
        let name = format!("builder-{}", self.started.fetch_add(1, Ordering::Relaxed) + 1);
        let program = self.config.program.display();
        let mut child = self.command(&name).spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                SpawnError::lasting(format!("cannot start {program}: {error}"), "Was the program replaced or removed?")
            }
            _ => SpawnError::passing(format!("cannot start {program}: {error}")),
        })?;
        order.tell.send_replace(format!("builder process {} is starting", child.id().unwrap_or(0)));
        let stdout = child.stdout.take().ok_or_else(|| SpawnError::passing("builder without output"))?;
        let mut lines = BufReader::new(stdout).lines();
        // On error the child is dropped, which kills it.
        let (status, address) = match timeout(order.limit, announced(&mut lines)).await {
            Ok(Some(addresses)) => addresses,
            Ok(None) => {
                let ended = timeout(GRACE, child.wait()).await.ok().and_then(Result::ok);
                let how = ended.map_or_else(|| "closed its output".to_owned(), said);
                return Err(SpawnError {
                    hint: "The router's log has what it said.".to_owned(),
                    ..SpawnError::passing(format!("builder process {how} before it was ready"))
                });
            }
            Err(_) => return Err(SpawnError::passing("builder process was not ready in time")),
        };
        let host = (!address.ip().is_unspecified()).then(|| address.ip().to_string());
        let place = Place {
            host,
            port: address.port(),
            status_port: status.port(),
            status_host: Some(status.ip().to_string()),
            clock: Clock::default(),
        };
        let (tell_gone, gone) = watch::channel(None);
        let stop = Arc::new(Notify::new());
        tokio::spawn(supervise(child, lines, stop.clone(), tell_gone));
        Ok(Arc::new(Process { facts: Facts::new(name, place, order.memory), stop, gone }))
    }
}

impl Spawner for Processes {
    fn start(&self, order: Order) -> Boxed<'_, Result<Arc<dyn Builder>, SpawnError>> {
        Box::pin(self.start_one(order))
    }
}

/// The addresses for status requests and for builds, as the process prints them; `None` if it ends before.
async fn announced(lines: &mut Lines<BufReader<ChildStdout>>) -> Option<(SocketAddr, SocketAddr)> {
    let (mut status, mut builds) = (None, None);
    loop {
        if let (Some(status), Some(builds)) = (status, builds) {
            return Some((status, builds));
        }
        let line = lines.next_line().await.ok()??;
        if let Some((words, address)) = line.split_once(" started on ") {
            let address: Option<SocketAddr> = address.trim().parse().ok();
            *(if words.contains("Status") { &mut status } else { &mut builds }) = address;
        }
    }
}

struct Process {
    facts: Facts,
    stop: Arc<Notify>,
    gone: watch::Receiver<Option<String>>,
}

impl Builder for Process {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn gone(&self) -> Boxed<'_, String> {
        let mut gone = self.gone.clone();
        Box::pin(async move {
            match gone.wait_for(Option::is_some).await {
                Ok(how) => how.clone().unwrap_or_default(),
                Err(_) => "the router is ending".to_owned(),
            }
        })
    }

    fn stop(&self) -> Boxed<'_, ()> {
        self.stop.notify_one();
        Box::pin(async { _ = self.gone().await })
    }
}

async fn supervise(
    mut child: Child,
    mut lines: Lines<BufReader<ChildStdout>>,
    stop: Arc<Notify>,
    tell_gone: watch::Sender<Option<String>>,
) {
    // Take stdin first: `wait` would close it, which makes the builder end.
    let mut stdin = child.stdin.take();
    let output = async {
        while let Ok(Some(line)) = lines.next_line().await {
            tracing::debug!(line, "builder says");
        }
        pending::<Infallible>().await
    };
    let ended = tokio::select! {
        ended = child.wait() => Some(ended),
        () = stop.notified() => None,
        never = output => match never {},
    };
    let how = match ended {
        Some(Ok(status)) => format!("its process {}", said(status)),
        Some(Err(error)) => format!("its process cannot be watched: {error}"),
        None => {
            // Request an orderly end: the last client may still be reading.
            if let Some(stdin) = &mut stdin {
                let _ = stdin.write_all(b"end\n").await;
            }
            let ended = timeout(GRACE, child.wait()).await.is_ok();
            drop(stdin);
            if !ended && timeout(GRACE, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
            "it was stopped".to_owned()
        }
    };
    tell_gone.send_replace(Some(how));
}

fn said(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(9)) => "was killed (signal 9), perhaps for want of memory".to_owned(),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
    }
}
