use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// The pods that this router owns, by uid: names are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct Own(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    uids: HashSet<String>,
    /// Names of pods that are being created, whose uids are not known yet.
    coming: HashSet<String>,
}

impl Own {
    /// A pod of this name is about to be created.
    pub(super) fn begin(&self, name: &str) {
        self.lock().coming.insert(name.to_owned());
    }

    /// The pod of this name has been created, with this uid, or its creation has failed.
    pub(super) fn made(&self, name: &str, uid: Option<String>) {
        let mut inner = self.lock();
        inner.uids.extend(uid);
        inner.coming.remove(name);
    }

    /// This router owns this pod.
    pub(super) fn add(&self, uid: String) {
        self.lock().uids.insert(uid);
    }

    /// The pod is gone, or another router owns it.
    pub(super) fn remove(&self, uid: &str) {
        self.lock().uids.remove(uid);
    }

    /// Whether this router owns a pod, or is just creating it.
    pub(super) fn has(&self, pod: &Pod) -> bool {
        let inner = self.lock();
        pod.metadata.uid.as_ref().is_some_and(|uid| inner.uids.contains(uid)) || inner.coming.contains(&pod.name_any())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
