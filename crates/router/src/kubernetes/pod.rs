use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use protocol::{DEFAULT_PORT, DEFAULT_STATUS_PORT};
use tokio::time::{Instant, sleep, timeout};

use super::exists;
use super::refusal::is_absent;
use super::state::{State, state};
use super::view::{SOON, View};
use crate::spawner::{Boxed, Builder, Place};

/// How long an idle builder may take to end.
const STOP: Duration = Duration::from_secs(120);
/// How long a pod may be without Ready before it is given up, as when its node is gone.
const UNREADY: Duration = Duration::from_secs(60);

/// A builder in a pod.
pub(super) struct PodBuilder {
    name: String,
    uid: String,
    place: Place,
    memory: u64,
    api: Api<Pod>,
    view: View,
    own: Arc<Mutex<HashSet<String>>>,
}

impl PodBuilder {
    pub(super) fn new(pod: &Pod, memory: u64, api: Api<Pod>, view: View, own: Arc<Mutex<HashSet<String>>>) -> Self {
        let host = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let place = Place {
            // An address that nothing has: what has none is lost soon.
            host: Some(host.unwrap_or_else(|| "0.0.0.0".to_owned())),
            port: DEFAULT_PORT,
            status_host: None,
            status_port: DEFAULT_STATUS_PORT,
        };
        Self { name: pod.name_any(), uid: pod.uid().unwrap_or_default(), place, memory, api, view, own }
    }

    async fn end(&self) -> String {
        let mut view = self.view.subscribe();
        // Until the first look after its start it may not be in view.
        let mut seen = false;
        let mut unready: Option<Instant> = None;
        loop {
            let pod = view.borrow_and_update().get(&self.name).cloned();
            match pod {
                Some(pod) if pod.uid().as_deref() == Some(&self.uid) => {
                    seen = true;
                    match state(&pod) {
                        State::Ended(why) => return format!("its pod {why}"),
                        State::Ready => unready = None,
                        State::Waiting(why) | State::Hopeless(crate::spawner::SpawnError { text: why, .. }) => {
                            if unready.get_or_insert_with(Instant::now).elapsed() >= UNREADY {
                                return format!("its pod {why}");
                            }
                        }
                    }
                }
                _ if seen => return "its pod was deleted".to_owned(),
                _ => {}
            }
            if view.changed().await.is_err() {
                return "the router is ending".to_owned();
            }
        }
    }
}

impl Builder for PodBuilder {
    fn name(&self) -> &str {
        &self.name
    }

    /// Places are used again, pods are not.
    fn ticket_name(&self) -> &str {
        &self.uid
    }

    fn place(&self) -> &Place {
        &self.place
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn gone(&self) -> Boxed<'_, String> {
        Box::pin(self.end())
    }

    fn stop(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            delete(&self.api, &self.name, &DeleteParams::default(), STOP).await;
            self.own.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
        })
    }
}

/// Deletes a pod, however often it takes to reach the API server, and waits until it is gone.
pub(super) async fn delete(api: &Api<Pod>, name: &str, how: &DeleteParams, limit: Duration) {
    let deleted = async {
        loop {
            match api.delete(name, how).await {
                Ok(_) => break,
                Err(error) if is_absent(&error) => return,
                Err(error) => {
                    tracing::warn!(pod = name, %error, "cannot delete the pod; trying again");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
        while exists(api, name).await.unwrap_or(true) {
            sleep(SOON).await;
        }
    };
    if timeout(limit, deleted).await.is_err() {
        tracing::warn!(pod = name, "the pod does not go");
    }
}
