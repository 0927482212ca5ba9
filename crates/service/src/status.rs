mod listener;
mod page;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::listener::Connections;
use crate::{Activity, DaemonError, Readiness, throughput};

/// The JSON that Lantern's clients and dashboards expect at `/`.
#[derive(Serialize)]
struct LanternStatus {
    status: u8,
    status_updated_at: u64,
}

/// Serves status and metrics over HTTP until it is dropped.
///
/// It has a separate thread and runtime, so that it answers even if everything else is busy.
#[derive(Debug)]
pub struct StatusServer {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl StatusServer {
    /// Listens on `host:port` (0: any free port) and serves `/`, `/status`, `/healthz`, `/livez`, `/readyz` and `/metrics`.
    ///
    /// # Errors
    /// If the address cannot be used, or the thread cannot be started.
    pub fn start(host: &str, port: u16, activity: Arc<Activity>) -> Result<Self, DaemonError> {
        let bind = |source| DaemonError::BindStatus { host: host.to_owned(), port, source };
        let listener = TcpListener::bind((host, port)).map_err(bind)?;
        listener.set_nonblocking(true).map_err(DaemonError::Status)?;
        let address = listener.local_addr().map_err(DaemonError::Status)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(DaemonError::Status)?;
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::spawn(take_samples(activity.clone()));
            let server = axum::serve(Connections::new(listener), router(activity));
            // No graceful shutdown: a scraper with an open connection must not delay the end of the daemon.
            tokio::select! {
                result = server => result,
                () = stopped => Ok(()),
            }
        };
        let thread = thread::Builder::new().name("status".to_owned());
        let thread = thread.spawn(move || {
            if let Err(error) = runtime.block_on(serve) {
                tracing::error!(%error, "status server ended");
            }
            runtime.shutdown_timeout(Duration::from_millis(100));
        });
        Ok(Self { address, stop, thread: Some(thread.map_err(DaemonError::Status)?) })
    }

    /// The address where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been logged already.
            let _ = thread.join();
        }
    }
}

async fn take_samples(activity: Arc<Activity>) {
    let mut ticks = tokio::time::interval(throughput::INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        activity.sample();
    }
}

fn router(activity: Arc<Activity>) -> Router {
    Router::new()
        .route("/", get(root))
        .route("/page.css", get(page::style))
        .route("/page.js", get(page::script))
        .route("/page.svg", get(page::icon))
        .route("/status", get(report))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(activity)
}

/// The status page for clients that accept HTML, Lantern's JSON for all others.
async fn root(State(activity): State<Arc<Activity>>, headers: HeaderMap) -> Response {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut response = if accepts.into_iter().any(|value| value.contains("text/html")) {
        page::html()
    } else {
        let (status, status_updated_at) = activity.status();
        Json(LanternStatus { status, status_updated_at }).into_response()
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

async fn report(State(activity): State<Arc<Activity>>) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(activity.report())).into_response()
}

async fn ready(State(activity): State<Arc<Activity>>) -> (StatusCode, &'static str) {
    match activity.readiness() {
        Readiness::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        Readiness::Ready => (StatusCode::OK, "ready\n"),
        Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    }
}

async fn metrics(State(activity): State<Arc<Activity>>) -> Response {
    match activity.exposition() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
