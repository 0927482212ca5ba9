use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use service::lock;
use tokio::time::Instant;

/// When pods were first seen in some state, by uid. A monotonic clock measures the time since: Kubernetes' timestamps are times of day, which may
/// jump.
#[derive(Debug, Default)]
pub(super) struct FirstSeen(Mutex<HashMap<String, Instant>>);

impl FirstSeen {
    /// How long ago the pod was first seen, which may be now.
    pub(super) fn ago(&self, pod: &Pod) -> Duration {
        let mut seen = lock(&self.0);
        seen.entry(pod.uid().unwrap_or_default()).or_insert_with(Instant::now).elapsed()
    }

    /// Forgets pods that were first seen at least this long ago.
    pub(super) fn forget(&self, after: Duration) {
        lock(&self.0).retain(|_, first| first.elapsed() < after);
    }
}
