//! Commands of a daemon's operator, over its Unix socket.

use std::io::{Write, stdout};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use service::exchange;
use service::report::{Report, is_build_id};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::status::{fetch, text};

/// How to reach the daemon.
#[derive(Debug, Args)]
pub struct Socket {
    /// The daemon's --admin-socket
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/lantern-index/admin.sock",
        env = "LANTERN_INDEX_ADMIN_SOCKET"
    )]
    pub socket: PathBuf,
}

/// The build to cancel.
#[derive(Debug, Args)]
pub struct Cancel {
    /// The build's id, as in `lantern-index builds`, the logs and the status page
    pub build: String,
    #[command(flatten)]
    pub socket: Socket,
}

/// Whether to begin or to undo the drain.
#[derive(Debug, Args)]
pub struct Drain {
    /// Make the daemon accept builds again
    #[arg(long)]
    pub undo: bool,
    #[command(flatten)]
    pub socket: Socket,
}

/// Lists running and waiting builds.
pub fn builds(socket: &Socket) -> Result<(), Failure> {
    let body = ask(socket, Method::GET, "/status")?.ok_or_else(|| anyhow!("the daemon has no status"))?;
    let report: Report = serde_json::from_slice(&body).context("the daemon's answer is not a status")?;
    let running = report.builds.iter().map(|build| {
        let of = &build.subject;
        format!("{}  {}  {}  {}", of.build, service::printable(&of.client), text::subject(of), text::progress(build))
    });
    let waiting = report.queue.iter().map(|queued| {
        let of = &queued.subject;
        format!(
            "{}  {}  {}  waiting, number {}",
            of.build,
            service::printable(&of.client),
            text::subject(of),
            queued.position
        )
    });
    let mut out = stdout().lock();
    for line in running.chain(waiting) {
        writeln!(out, "{line}").context("cannot write to stdout")?;
    }
    Ok(())
}

/// Cancels a build.
pub fn cancel(arguments: &Cancel) -> Result<(), Failure> {
    let none = || anyhow!("there is no build {}", arguments.build);
    if !is_build_id(&arguments.build) {
        return Err(none().into());
    }
    ask(&arguments.socket, Method::POST, &format!("/cancel/{}", arguments.build))?.ok_or_else(none)?;
    Ok(())
}

/// Makes a daemon accept no new builds, or accept builds again.
pub fn drain(arguments: &Drain) -> Result<(), Failure> {
    ask(&arguments.socket, Method::POST, if arguments.undo { "/resume" } else { "/drain" })?;
    Ok(())
}

/// The body of an answer; `None` for status 404.
fn ask(socket: &Socket, method: Method, path: &str) -> Result<Option<Bytes>> {
    let name = socket.socket.display();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = async {
        let stream = UnixStream::connect(&socket.socket)
            .await
            .with_context(|| format!("cannot reach a daemon on {name}; it needs --admin-socket {name}"))?;
        let answer = exchange(stream, "localhost", method, path, fetch::LARGEST).await;
        answer.with_context(|| format!("no answer on {name}"))
    };
    let answer = match runtime.block_on(async { timeout(fetch::LIMIT, asked).await }) {
        Ok(answer) => answer?,
        Err(_) => bail!("no answer on {name} within {} s", fetch::LIMIT.as_secs()),
    };
    match answer.status() {
        StatusCode::NOT_FOUND => Ok(None),
        StatusCode::OK => Ok(Some(answer.into_body())),
        StatusCode::CONFLICT => bail!("{}", service::printable(&String::from_utf8_lossy(answer.body()))),
        code => bail!("the daemon answers {code}"),
    }
}
