use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use hyper::{Method, StatusCode};
use service::exchange;
use service::report::{REPORT_VERSION, Report};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::target::Target;

/// The time limit for an answer.
pub const LIMIT: Duration = Duration::from_secs(5);

/// The most bytes of an answer; a status is never larger.
pub const LARGEST: usize = 16 << 20;

/// Requests a daemon's status.
pub fn report(target: &Target) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = async {
        let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
        exchange(stream, &target.to_string(), Method::GET, &target.path, LARGEST).await
    };
    let answer = match runtime.block_on(async { timeout(LIMIT, asked).await }) {
        Ok(answer) => answer.with_context(|| format!("no status from {target}"))?,
        Err(_) => bail!("no status from {target}: no answer within {} s", LIMIT.as_secs()),
    };
    let code = answer.status();
    ensure!(code == StatusCode::OK, "no status from {target}: it answers {code}");
    let report: Report = serde_json::from_slice(answer.body())
        .map_err(|error| anyhow!("{target} is no daemon of lantern-index: {error}"))?;
    ensure!(
        report.version == REPORT_VERSION,
        "{target} has status version {}, this program knows version {REPORT_VERSION}; use the one of release {}",
        report.version,
        service::printable(&report.software)
    );
    Ok(report)
}
