//! Administration by the daemon's operator, over a Unix socket that only the daemon's account can open.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use thiserror::Error;
use tokio::net::UnixListener;

use crate::Activity;
use crate::activity::NotCancelled;
use crate::report::Report;

/// Why the operator's socket could not be created.
#[derive(Debug, Error)]
pub enum AdminError {
    /// The system does not allow it.
    #[error("cannot listen on {path}")]
    Bind {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The path exists but is not a socket, so it is not replaced.
    #[error("{0} exists and is not a socket")]
    Occupied(PathBuf),
}

/// The socket of a daemon's operator; dropping this removes it.
#[derive(Debug)]
pub struct AdminSocket {
    path: PathBuf,
    inode: u64,
}

impl AdminSocket {
    /// Listens on a Unix socket that only the daemon's account can open. A socket left by an earlier daemon is replaced.
    ///
    /// Must be called within a tokio runtime, which serves the socket.
    ///
    /// # Errors
    /// [`AdminError`]
    pub fn start(path: &Path, activity: Arc<Activity>) -> Result<Self, AdminError> {
        let bind = |source| AdminError::Bind { path: path.to_owned(), source };
        if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            return Err(AdminError::Occupied(path.to_owned()));
        }
        // Renamed to its final name only once nobody else can open it.
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{}", std::process::id()));
        let new = PathBuf::from(new);
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new).map_err(bind)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).map_err(bind)?;
        let inode = fs::symlink_metadata(&new).map_err(bind)?.ino();
        fs::rename(&new, path).map_err(bind)?;
        tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router(activity)).await {
                tracing::error!(%error, "the operator's socket is closed");
            }
        });
        Ok(Self { path: path.to_owned(), inode })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // By now the socket may have been removed, or replaced by the next daemon's.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn router(activity: Arc<Activity>) -> Router {
    Router::new()
        .route("/status", get(report))
        .route("/cancel/{build}", post(cancel))
        .route("/drain", post(async |State(activity): State<Arc<Activity>>| activity.drain(true)))
        .route("/resume", post(async |State(activity): State<Arc<Activity>>| activity.drain(false)))
        .with_state(activity)
}

async fn report(State(activity): State<Arc<Activity>>) -> Json<Report> {
    Json(activity.report())
}

async fn cancel(State(activity): State<Arc<Activity>>, UrlPath(build): UrlPath<String>) -> (StatusCode, String) {
    match activity.cancel(&build) {
        Ok(()) => (StatusCode::OK, String::new()),
        Err(why @ NotCancelled::Unknown(_)) => (StatusCode::NOT_FOUND, why.to_string()),
        Err(why @ NotCancelled::Elsewhere { .. }) => (StatusCode::CONFLICT, why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::AdminSocket;
    use crate::report::Subject;
    use crate::{Activity, Readiness, Role, Stage};
    use protocol::Phase;

    #[tokio::test]
    async fn a_daemon_does_not_remove_its_successor_s_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let start = || AdminSocket::start(&path, Arc::new(Activity::new(Role::Builder, "0", false).unwrap())).unwrap();
        let first = start();
        let second = start();
        drop(first);
        UnixStream::connect(&path).await.unwrap();
        drop(second);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn the_operator_cancels_and_drains() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let activity = Arc::new(Activity::new(Role::Builder, "0", false).unwrap());
        activity.set_readiness(Readiness::Ready);
        let socket = AdminSocket::start(&path, activity.clone()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let ask = async |request: &str| {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            let request = format!("{request} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let queued = activity.queue(Subject { build: "0123456789abcdef".to_owned(), ..Subject::default() });
        assert!(ask("GET /status").await.contains("0123456789abcdef"));
        assert!(ask("POST /cancel/fedcba9876543210").await.starts_with("HTTP/1.1 404"));
        assert!(ask("POST /cancel/0123456789abcdef").await.starts_with("HTTP/1.1 200"));
        queued.cancelled().await;
        let sent = activity.queue(Subject { build: "00000000000000aa".to_owned(), ..Subject::default() });
        let sent = sent.begin(0, || Stage { phase: Phase::Rows, done: 0, total: 0, spent: Default::default() });
        sent.set_elsewhere("builder-1 (127.0.0.1:1)");
        let answer = ask("POST /cancel/00000000000000aa").await;
        assert!(answer.starts_with("HTTP/1.1 409") && answer.contains("sent to builder builder-1"), "{answer}");
        assert!(ask("POST /drain").await.starts_with("HTTP/1.1 200"));
        assert_eq!(activity.readiness(), Readiness::Draining);
        assert!(activity.refuses("builder").is_some());
        ask("POST /resume").await;
        assert_eq!(activity.readiness(), Readiness::Ready);
        assert!(activity.refuses("builder").is_none());
        drop(socket);
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        assert!(AdminSocket::start(&path, activity).is_err(), "a file of somebody else's stays");
    }
}
