use std::io;
use std::time::Duration;

use hyper::Method;
use hyper::header::DATE;
use service::{Outcome, exchange};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::spawner::Place;

/// The time limit for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of an answer.
const MAX_ANSWER: usize = 1 << 20;
/// The shortest and longest interval of requests that ask a builder whether its build has ended.
const POLL: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(2)];
/// A builder without a build counts as lost after this time without an answer.
pub(crate) const LOST: Duration = Duration::from_secs(20);
/// The same for a builder with a build: the trouble may be the router's own, and stopping the builder would end the build.
pub(crate) const LOST_BUSY: Duration = Duration::from_secs(600);
/// Why a builder that answers gets no build.
pub(crate) const NOT_READY: &str = "it takes no builds at the moment";

/// What a builder's metrics say of its builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Builds {
    /// Whether it accepts builds.
    pub(crate) ready: bool,
    /// Running or queued builds.
    pub(crate) active: u64,
    /// Ended builds by outcome, in the order of [`Outcome::ALL`]. Refusals for lack of access do not count: a redirected client has access.
    ended: [u64; Outcome::ALL.len()],
    /// When the builder was started, in seconds since 1970: its counters begin there. 0 if an older release does not report it.
    started: u64,
}

impl Builds {
    /// Whether the builder has restarted since `before`, so that builds of that time are lost.
    pub(crate) fn restarted_since(&self, before: &Self) -> bool {
        self.started != before.started
    }

    /// The outcome of a build that has ended since `before`.
    pub(crate) fn ended_since(&self, before: &Self) -> Option<Outcome> {
        let more = |&at: &usize| self.ended[at] > before.ended[at];
        (0..Outcome::ALL.len()).find(more).map(|at| Outcome::ALL[at])
    }
}

/// Whether the builder reports that it accepts builds.
pub(crate) async fn is_ready(place: &Place) -> bool {
    get(place, "/readyz").await.is_ok()
}

/// Like [`builds`], but an error if the builder accepts none.
pub(crate) async fn builds_if_ready(place: &Place) -> io::Result<Builds> {
    let builds =
        builds(place).await.map_err(|error| io::Error::other(format!("its status port does not answer: {error}")))?;
    builds.ready.then_some(builds).ok_or_else(|| io::Error::other(NOT_READY))
}

/// The builder's numbers of builds.
pub(crate) async fn builds(place: &Place) -> io::Result<Builds> {
    let text = get(place, "/metrics").await?;
    let sum = |name: &str| {
        let samples = text.lines().filter_map(|line| line.strip_prefix("lantern_index_")?.strip_prefix(name));
        let values = samples.filter(|rest| rest.starts_with([' ', '{'])).filter_map(|rest| rest.rsplit(' ').next());
        values.filter_map(|value| value.parse::<f64>().ok()).sum::<f64>() as u64
    };
    let ended = |outcome: Outcome| {
        let all = sum(&format!("builds_total{{outcome=\"{}\"}}", outcome.name()));
        let others = if outcome == Outcome::Refused { sum("builds_refused_total{reason=\"access\"}") } else { 0 };
        all.saturating_sub(others)
    };
    let active = sum("build_active") + sum("queue_depth");
    let started = sum("start_time_seconds");
    Ok(Builds { ready: sum("ready") > 0, active, ended: Outcome::ALL.map(ended), started })
}

/// Polls a builder until `settled` holds for its numbers of builds; an error if it does not answer for as long as `patience`.
pub(crate) async fn wait_until(
    place: &Place,
    patience: Duration,
    mut settled: impl FnMut(Builds) -> bool,
) -> io::Result<Builds> {
    let begun = Instant::now();
    let mut heard = begun;
    loop {
        match builds(place).await {
            Ok(builds) if settled(builds) => return Ok(builds),
            Ok(_) => heard = Instant::now(),
            Err(error) if heard.elapsed() > patience => return Err(error),
            Err(_) => {}
        }
        // The end is noticed late by a small share of the build's time.
        sleep((begun.elapsed() / 16).clamp(POLL[0], POLL[1])).await;
    }
}

/// The body of the answer to `GET path`; an error unless the status is 200.
async fn get(place: &Place, path: &str) -> io::Result<String> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer on the status port");
    let asked = async {
        let stream = TcpStream::connect((place.status_host(), place.status_port)).await?;
        exchange(stream, place.status_host(), Method::GET, path, MAX_ANSWER).await
    };
    let answer = timeout(PATIENCE, asked).await.map_err(late)??;
    let date = answer.headers().get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    date.into_iter().for_each(|date| place.clock.read(date));
    if !answer.status().is_success() {
        return Err(io::Error::other(format!("{path} answers {}", answer.status())));
    }
    Ok(String::from_utf8_lossy(answer.body()).into_owned())
}
