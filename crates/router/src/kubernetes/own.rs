use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// The uids of pods that this router owns. Names would not do, since they are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct Own(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    uids: HashSet<String>,
    /// Names of pods whose creation is under way: their uids are not known yet.
    coming: HashSet<String>,
}

impl Own {
    /// Records that a pod of this name is about to be created.
    pub(super) fn begin(&self, name: &str) {
        self.lock().coming.insert(name.to_owned());
    }

    /// Records the uid of a created pod, or with `None` that its creation failed.
    pub(super) fn made(&self, name: &str, uid: Option<String>) {
        let mut inner = self.lock();
        inner.uids.extend(uid);
        inner.coming.remove(name);
    }

    /// Records that this router owns the pod.
    pub(super) fn add(&self, uid: String) {
        self.lock().uids.insert(uid);
    }

    /// Records that the pod is gone or belongs to another router.
    pub(super) fn remove(&self, uid: &str) {
        self.lock().uids.remove(uid);
    }

    /// Whether this router owns the pod or is creating it.
    pub(super) fn has(&self, pod: &Pod) -> bool {
        let inner = self.lock();
        pod.metadata.uid.as_ref().is_some_and(|uid| inner.uids.contains(uid)) || inner.coming.contains(&pod.name_any())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
