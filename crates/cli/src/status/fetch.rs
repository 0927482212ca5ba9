use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use service::report::{REPORT_VERSION, Report};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::target::Target;

/// The time limit for an answer.
pub const LIMIT: Duration = Duration::from_secs(5);

/// The most bytes of an answer; a status is never larger.
const LARGEST: usize = 16 << 20;

/// Requests a daemon's status.
pub fn report(target: &Target) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async { timeout(LIMIT, get(target)).await });
    let (code, body) = match answer {
        Ok(answer) => answer.with_context(|| format!("no status from {target}"))?,
        Err(_) => bail!("no status from {target}: no answer within {} s", LIMIT.as_secs()),
    };
    ensure!(code == StatusCode::OK, "no status from {target}: it answers {code}");
    let report: Report =
        serde_json::from_slice(&body).map_err(|error| anyhow!("{target} is no daemon of lantern-index: {error}"))?;
    ensure!(
        report.version == REPORT_VERSION,
        "{target} has status version {}, this program knows version {REPORT_VERSION}; use the one of release {}",
        report.version,
        service::printable(&report.software)
    );
    Ok(report)
}

async fn get(target: &Target) -> Result<(StatusCode, Bytes)> {
    let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
    exchange(stream, &target.to_string(), Method::GET, &target.path).await
}

/// Sends one request over a connection to a daemon and returns the answer.
pub async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    method: Method,
    path: &str,
) -> Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let code = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await.map_err(|error| anyhow!(error))?;
        Ok::<_, anyhow::Error>((code, body.to_bytes()))
    };
    // The connection makes progress only while it is polled.
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = connection => {
            ended?;
            exchange.await
        }
    }
}
