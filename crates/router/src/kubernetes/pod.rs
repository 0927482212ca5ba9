use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use protocol::{DEFAULT_PORT, DEFAULT_STATUS_PORT};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use service::Clock;

use super::own::Own;
use super::refusal::{is_absent, is_final, is_forbidden, is_taken};
use super::state::{State, state};
use super::template::{leave_to, show_building, wanted_by};
use super::view::{Presence, SOON, View};
use crate::health;
use crate::spawner::{Boxed, Builder, Facts, Place};

/// The time limit for stopping an idle builder.
const STOP: Duration = Duration::from_secs(120);
/// How long a pod may be unready, for instance without its node, before it counts as lost, unless its builder says that it has a build.
const UNREADY: Duration = Duration::from_secs(60);
/// The time limit for releasing a pod to another router.
const LEAVE: Duration = Duration::from_secs(10);
/// The pause between retries.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest pause between checks whether a pod is gone.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often a forbidden patch is retried: an API server that has just started may not have loaded the roles yet.
const FORBIDDEN: u32 = 15;

/// Identifies a pod by name and uid: Kubernetes reuses the name, never the uid.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) uid: String,
    /// A time at which the pod existed.
    pub(super) since: Instant,
}

impl Identity {
    /// The identity of a pod in Kubernetes' answer.
    pub(super) fn of(pod: &Pod) -> Self {
        Self { name: pod.name_any(), uid: pod.uid().unwrap_or_default(), since: Instant::now() }
    }
}

/// A builder in a pod.
pub(super) struct PodBuilder {
    pod: Identity,
    facts: Facts,
    api: Api<Pod>,
    view: View,
    own: Own,
    show_building: watch::Sender<bool>,
}

impl PodBuilder {
    /// The builder in a pod; `None` if the pod has no address.
    pub(super) fn new(pod: &Pod, memory: u64, outdated: bool, api: Api<Pod>, view: View, own: Own) -> Option<Self> {
        let place = place(pod)?;
        let pod = Identity::of(pod);
        // Tickets name the pod by its uid, since names are reused.
        let facts = Facts { ticket_name: pod.uid.clone(), outdated, ..Facts::new(pod.name.clone(), place, memory) };
        // Until the pool says otherwise, it may have a build of an earlier router.
        let (show_building, shown) = watch::channel(true);
        tokio::spawn(show(api.clone(), pod.clone(), shown));
        Some(Self { pod, facts, api, view, own, show_building })
    }

    async fn end(&self) -> String {
        let mut view = self.view.subscribe();
        let (mut unready, mut busy): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            let seen = view.borrow_and_update().clone();
            match seen.pod(&self.pod.uid, self.pod.since) {
                Presence::TooEarly => {}
                Presence::Gone => return "its pod was deleted".to_owned(),
                Presence::Here(pod) => match state(pod) {
                    State::Ended(why) => return format!("its pod {why}"),
                    State::Ready => (unready, busy) = (None, None),
                    State::Waiting(why) | State::Hopeless(crate::spawner::SpawnError { text: why, .. }) => {
                        if unready.get_or_insert_with(Instant::now).elapsed() >= UNREADY {
                            // Kubernetes calls all pods of a node unready whose kubelet is silent. Their builds may go on.
                            match health::builds(&self.facts.place).await {
                                Ok(builds) if builds.active > 0 => busy = Some(Instant::now()),
                                Err(_) if self.may_build(busy.or(unready)) => {}
                                _ => return format!("its pod {why}"),
                            }
                        }
                    }
                },
            }
            if view.changed().await.is_err() {
                return "the router is ending".to_owned();
            }
        }
    }

    /// Whether a build may go on in the pod, which was last known to be ready or to have a build at `since`.
    fn may_build(&self, since: Option<Instant>) -> bool {
        *self.show_building.borrow() && since.is_some_and(|since| since.elapsed() < health::LOST_BUSY)
    }

    async fn leave(&self) {
        let seen = self.view.last();
        let wanting = match seen.pod(&self.pod.uid, self.pod.since) {
            Presence::Here(pod) => wanted_by(pod).unwrap_or_default(),
            Presence::TooEarly | Presence::Gone => "",
        };
        let change = leave_to(&self.pod.uid, wanting);
        if timeout(LEAVE, patch(&self.api, &self.pod.name, &change)).await.is_err() {
            tracing::warn!(pod = self.pod.name, "the pod cannot be left to another router");
        }
        self.own.remove(&self.pod.uid);
    }
}

impl Builder for PodBuilder {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn gone(&self) -> Boxed<'_, String> {
        Box::pin(self.end())
    }

    fn stop(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            delete(&self.api, &self.pod, DeleteParams::default(), STOP).await;
            self.own.remove(&self.pod.uid);
        })
    }

    fn let_go(&self) -> Boxed<'_, ()> {
        Box::pin(self.leave())
    }

    fn show_building(&self, building: bool) {
        self.show_building.send_replace(building);
    }
}

/// The pod's address; `None` before it has one: an empty host would mean this machine.
fn place(pod: &Pod) -> Option<Place> {
    let host = pod.status.as_ref()?.pod_ip.clone().filter(|address| !address.is_empty())?;
    let (port, status_port, clock) = (DEFAULT_PORT, DEFAULT_STATUS_PORT, Clock::default());
    Some(Place { host: Some(host), port, status_host: None, status_port, clock })
}

/// Labels a pod as building or idle. Intermediate states may be skipped, the latest is always written.
async fn show(api: Api<Pod>, pod: Identity, mut building: watch::Receiver<bool>) {
    while building.changed().await.is_ok() {
        let now = *building.borrow_and_update();
        patch(&api, &pod.name, &show_building(&pod.uid, now)).await;
    }
}

/// Patches a pod, unless it is gone. Retries while the API server is unreachable or fails; other errors end in a warning.
async fn patch(api: &Api<Pod>, name: &str, change: &Value) {
    let (mut forbidden, mut warned) = (0, false);
    while let Err(error) = api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(change)).await {
        if is_absent(&error) || is_taken(&error) {
            return;
        }
        forbidden += u32::from(is_forbidden(&error));
        if forbidden > FORBIDDEN || is_final(&error) && !is_forbidden(&error) {
            return tracing::warn!(pod = name, %error, "cannot change the pod's labels");
        }
        // The server may be away for hours.
        if !std::mem::replace(&mut warned, true) {
            tracing::warn!(pod = name, %error, "cannot change the pod's labels; trying again");
        }
        sleep(AGAIN).await;
    }
}

/// Deletes a pod; retries until the API server answers, then waits until the pod is gone.
pub(super) async fn delete(api: &Api<Pod>, pod: &Identity, how: DeleteParams, limit: Duration) {
    let this_one = Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
    let how = how.preconditions(this_one);
    let deleted = async {
        loop {
            match api.delete(&pod.name, &how).await {
                Ok(_) => break,
                // The pod is gone, or another pod has its name.
                Err(error) if is_absent(&error) || is_taken(&error) => return,
                Err(error) => {
                    tracing::warn!(pod = pod.name, %error, "cannot delete the pod; trying again");
                    sleep(AGAIN).await;
                }
            }
        }
        let mut pause = SOON;
        while exists(api, pod).await.unwrap_or(true) {
            sleep(pause).await;
            // The pod of a lost node does not go.
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    };
    if timeout(limit, deleted).await.is_err() {
        tracing::warn!(pod = pod.name, "the pod does not go");
    }
}

async fn exists(api: &Api<Pod>, pod: &Identity) -> Result<bool, kube::Error> {
    match api.get_metadata(&pod.name).await {
        Ok(found) => Ok(found.metadata.uid.as_deref() == Some(&pod.uid)),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::place;

    #[test]
    fn a_pod_without_an_address_has_no_place() {
        let of = |status| place(&serde_json::from_value::<Pod>(json!({ "status": status })).unwrap());
        assert_eq!(of(json!({ "podIP": "10.0.0.7" })).unwrap().host(), "10.0.0.7");
        for status in [json!({ "phase": "Pending" }), json!({ "podIP": "" }), json!(null)] {
            assert!(of(status.clone()).is_none(), "{status}");
        }
    }
}
