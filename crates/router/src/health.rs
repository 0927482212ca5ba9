use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{DATE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::spawner::Place;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of an answer.
const MAX_ANSWER: usize = 1 << 20;
/// How often a builder is asked whether its build has ended.
const POLL: Duration = Duration::from_millis(200);
/// Consecutive requests that may go unanswered.
const MISSES: u32 = 5;

/// Numbers of a builder's builds, from its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Builds {
    /// Running or waiting.
    pub(crate) active: u64,
    /// Ended. Refused builds count too, except for clients that may not use the builder: the awaited client is not one of them.
    pub(crate) ended: u64,
    /// Succeeded.
    pub(crate) succeeded: u64,
}

/// Whether a builder accepts builds.
pub(crate) async fn is_ready(place: &Place) -> bool {
    get(place, "/readyz").await.is_ok()
}

/// What a builder is doing.
pub(crate) async fn builds(place: &Place) -> io::Result<Builds> {
    let text = get(place, "/metrics").await?;
    let sum = |name: &str| {
        let samples = text.lines().filter_map(|line| line.strip_prefix("lantern_index_")?.strip_prefix(name));
        let values = samples.filter(|rest| rest.starts_with([' ', '{'])).filter_map(|rest| rest.rsplit(' ').next());
        values.filter_map(|value| value.parse::<f64>().ok()).sum::<f64>() as u64
    };
    Ok(Builds {
        active: sum("build_active") + sum("queue_depth"),
        ended: sum("builds_total").saturating_sub(sum("builds_refused_total{reason=\"access\"}")),
        succeeded: sum("builds_total{outcome=\"succeeded\"}"),
    })
}

/// Waits until `settled` holds of a builder's builds.
pub(crate) async fn wait_until(place: &Place, mut settled: impl FnMut(Builds) -> bool) -> io::Result<Builds> {
    let mut misses = 0;
    loop {
        match builds(place).await {
            Ok(builds) if settled(builds) => return Ok(builds),
            Ok(_) => misses = 0,
            Err(error) => {
                misses += 1;
                if misses >= MISSES {
                    return Err(error);
                }
            }
        }
        sleep(POLL).await;
    }
}

/// The body of a good answer to `GET path`.
async fn get(place: &Place, path: &str) -> io::Result<String> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer on the status port");
    timeout(PATIENCE, exchange(place, path)).await.map_err(late)?
}

async fn exchange(place: &Place, path: &str) -> io::Result<String> {
    let stream = TcpStream::connect((place.status_host(), place.status_port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request =
        Request::get(path).header(HOST, place.status_host()).body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        let date = answer.headers().get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        date.into_iter().for_each(|date| place.clock.read(date));
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await.map_err(io::Error::other)?.to_bytes();
        if !status.is_success() {
            return Err(io::Error::other(format!("{path} answers {status}")));
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    };
    // The connection makes progress only while polled, and ends with this function.
    let connection = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = answer => answer,
        () = connection => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
