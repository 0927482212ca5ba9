use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use service::lock;

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
        lock(&self.0).coming.insert(name.to_owned());
    }

    /// Records the uid of a created pod, or with `None` that its creation failed.
    pub(super) fn made(&self, name: &str, uid: Option<String>) {
        let mut inner = lock(&self.0);
        inner.uids.extend(uid);
        inner.coming.remove(name);
    }

    /// Records that this router owns the pod.
    pub(super) fn add(&self, uid: String) {
        lock(&self.0).uids.insert(uid);
    }

    /// Records that the pod is gone or belongs to another router.
    pub(super) fn remove(&self, uid: &str) {
        lock(&self.0).uids.remove(uid);
    }

    /// Whether this router owns the pod or is creating it.
    pub(super) fn has(&self, pod: &Pod) -> bool {
        let inner = lock(&self.0);
        pod.metadata.uid.as_ref().is_some_and(|uid| inner.uids.contains(uid)) || inner.coming.contains(&pod.name_any())
    }
}
