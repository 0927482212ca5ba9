use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

/// Interval between lists of the pods.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval while a task waits for a change.
pub(super) const SOON: Duration = Duration::from_millis(100);
/// For this time after its start the API server may not have loaded the roles.
const SETTLING: Duration = Duration::from_secs(10);
/// The time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer to one list request.
#[derive(Clone, Debug, Default)]
pub(super) struct PodList {
    /// When the request was sent; `None` before the first answer.
    asked: Option<Instant>,
    /// When a request last failed because the API server was unreachable.
    missed: Option<Instant>,
    by_uid: Arc<HashMap<String, Pod>>,
}

/// What a list says about a pod.
pub(super) enum Presence<'a> {
    /// The list was requested before the pod existed.
    TooEarly,
    Here(&'a Pod),
    /// The pod no longer exists.
    Gone,
}

impl PodList {
    /// Looks up by its uid a pod that existed at `since`.
    pub(super) fn pod(&self, uid: &str, since: Instant) -> Presence<'_> {
        match self.by_uid.get(uid) {
            Some(pod) => Presence::Here(pod),
            None if self.asked.is_none_or(|asked| asked < since) => Presence::TooEarly,
            None => Presence::Gone,
        }
    }

    /// Whether the API server was unreachable a moment ago: until it has loaded the roles it forbids every request.
    pub(super) fn is_server_new(&self) -> bool {
        self.missed.is_some_and(|missed| missed.elapsed() < SETTLING)
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.by_uid.values()
    }
}

/// The last list of the pods of all routers of this instance.
///
/// Polls with one list request for all pods. Unlike a watch, a list cannot fall behind, expire or miss an event, and the API server answers
/// it from memory. While the server is unreachable the last list remains.
#[derive(Clone)]
pub(super) struct View {
    api: Api<Pod>,
    list: ListParams,
    pods: watch::Receiver<PodList>,
    hurry: Arc<Notify>,
}

impl View {
    /// Polls pods with these labels as long as a `View` exists.
    /// Returns after the first list, or after a time limit if Kubernetes does not answer.
    pub(super) async fn start(api: Api<Pod>, labels: String) -> Self {
        let list = ListParams::default().labels(&labels);
        let (tell, mut pods) = watch::channel(PodList::default());
        let hurry = Arc::new(Notify::new());
        tokio::spawn(poll(api.clone(), list.clone(), tell, hurry.clone()));
        let _ = timeout(PATIENCE, pods.changed()).await;
        Self { api, list, pods, hurry }
    }

    /// A receiver of the list and its changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<PodList> {
        self.pods.clone()
    }

    pub(super) fn last(&self) -> PodList {
        self.pods.borrow().clone()
    }

    /// Shortens the time to the next request.
    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Requests the current list.
    pub(super) async fn list(&self) -> Result<Vec<Pod>, kube::Error> {
        Ok(self.api.list(&self.list).await?.items)
    }
}

async fn poll(api: Api<Pod>, list: ListParams, tell: watch::Sender<PodList>, hurry: Arc<Notify>) {
    let mut away = false;
    loop {
        let asked = Some(Instant::now());
        match timeout(PATIENCE, api.list(&list)).await {
            Ok(Ok(pods)) => {
                if away {
                    tracing::info!("Kubernetes answers again");
                }
                away = false;
                let by_uid = pods.items.into_iter().map(|pod| (pod.uid().unwrap_or_default(), pod)).collect();
                let missed = tell.borrow().missed;
                if tell.send(PodList { asked, missed, by_uid: Arc::new(by_uid) }).is_err() {
                    return;
                }
            }
            failed => {
                // An error in an answer still shows that the server is reachable.
                if !matches!(failed, Ok(Err(kube::Error::Api(_)))) {
                    tell.send_modify(|seen| seen.missed = Some(Instant::now()));
                }
                let error = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer in time".to_owned(),
                };
                if !away {
                    tracing::warn!(error, "cannot list pods; retrying");
                }
                away = true;
                if tell.is_closed() {
                    return;
                }
            }
        }
        sleep(SOON).await;
        let _ = timeout(INTERVAL - SOON, hurry.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use tokio::time::Instant;

    use super::{PodList, Presence};

    #[test]
    fn a_pod_is_gone_only_if_a_later_list_lacks_its_uid() {
        let asked = Instant::now();
        let by_uid = Arc::new(HashMap::from([("old".to_owned(), Pod::default())]));
        let seen = PodList { asked: Some(asked), by_uid, ..PodList::default() };
        let second = Duration::from_secs(1);
        assert!(matches!(seen.pod("old", asked), Presence::Here(_)));
        assert!(matches!(seen.pod("new", asked + second), Presence::TooEarly), "the pod was created after the request");
        assert!(matches!(seen.pod("new", asked - second), Presence::Gone));
        assert!(matches!(PodList::default().pod("new", asked), Presence::TooEarly), "before the first list");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_away_is_new_for_a_while() {
        let seen = PodList { missed: Some(Instant::now()), ..PodList::default() };
        assert!(seen.is_server_new() && !PodList::default().is_server_new());
        tokio::time::sleep(super::SETTLING).await;
        assert!(!seen.is_server_new());
    }
}
