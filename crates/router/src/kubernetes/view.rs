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
/// Interval while somebody waits for a change.
pub(super) const SOON: Duration = Duration::from_millis(100);
/// How long after its start the API server may not have loaded the roles.
const SETTLING: Duration = Duration::from_secs(10);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One list of the pods.
#[derive(Clone, Debug, Default)]
pub(super) struct PodList {
    /// When the list was requested; `None` before the first answer.
    asked: Option<Instant>,
    /// When the API server was last unreachable.
    missed: Option<Instant>,
    by_uid: Arc<HashMap<String, Pod>>,
}

/// A pod in a list.
pub(super) enum Presence<'a> {
    /// The list is older than the pod.
    TooEarly,
    Here(&'a Pod),
    /// The pod does not exist any more.
    Gone,
}

impl PodList {
    /// Finds a pod, which existed at `since`, by its uid.
    pub(super) fn pod(&self, uid: &str, since: Instant) -> Presence<'_> {
        match self.by_uid.get(uid) {
            Some(pod) => Presence::Here(pod),
            None if self.asked.is_none_or(|asked| asked < since) => Presence::TooEarly,
            None => Presence::Gone,
        }
    }

    /// Whether the API server has just come back: until it has loaded the roles, it forbids everything.
    pub(super) fn is_server_new(&self) -> bool {
        self.missed.is_some_and(|missed| missed.elapsed() < SETTLING)
    }

    /// All pods.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.by_uid.values()
    }
}

/// The last list of the pods of all routers of this name.
///
/// Polls with one request for all pods: unlike a watch, a list cannot fall behind, expire or miss anything, and the API
/// server answers it from memory. While the server is unreachable the last answer remains.
#[derive(Clone)]
pub(super) struct View {
    api: Api<Pod>,
    list: ListParams,
    pods: watch::Receiver<PodList>,
    hurry: Arc<Notify>,
}

impl View {
    /// Polls the pods with these labels as long as a view exists. Returns after the first list, or without it if Kubernetes
    /// does not answer.
    pub(super) async fn start(api: Api<Pod>, labels: String) -> Self {
        let list = ListParams::default().labels(&labels);
        let (tell, mut pods) = watch::channel(PodList::default());
        let hurry = Arc::new(Notify::new());
        tokio::spawn(look(api.clone(), list.clone(), tell, hurry.clone()));
        let _ = timeout(PATIENCE, pods.changed()).await;
        Self { api, list, pods, hurry }
    }

    /// The pods and their changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<PodList> {
        self.pods.clone()
    }

    /// The last list.
    pub(super) fn last(&self) -> PodList {
        self.pods.borrow().clone()
    }

    /// Makes the next request soon.
    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// The pods as they are now.
    pub(super) async fn list(&self) -> Result<Vec<Pod>, kube::Error> {
        Ok(self.api.list(&self.list).await?.items)
    }
}

async fn look(api: Api<Pod>, list: ListParams, tell: watch::Sender<PodList>, hurry: Arc<Notify>) {
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
                // A server that answers with an error is reachable.
                if !matches!(failed, Ok(Err(kube::Error::Api(_)))) {
                    tell.send_modify(|seen| seen.missed = Some(Instant::now()));
                }
                let error = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer in time".to_owned(),
                };
                if !away {
                    tracing::warn!(error, "Kubernetes does not say what becomes of the pods; asking again");
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
    fn a_pod_is_known_by_its_uid_and_missed_only_by_a_later_look() {
        let asked = Instant::now();
        let by_uid = Arc::new(HashMap::from([("old".to_owned(), Pod::default())]));
        let seen = PodList { asked: Some(asked), by_uid, ..PodList::default() };
        let second = Duration::from_secs(1);
        assert!(matches!(seen.pod("old", asked), Presence::Here(_)));
        assert!(matches!(seen.pod("new", asked + second), Presence::TooEarly), "the pod was made after the look");
        assert!(matches!(seen.pod("new", asked - second), Presence::Gone));
        assert!(matches!(PodList::default().pod("new", asked), Presence::TooEarly), "before the first look");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_away_is_new_for_a_while() {
        let seen = PodList { missed: Some(Instant::now()), ..PodList::default() };
        assert!(seen.is_server_new() && !PodList::default().is_server_new());
        tokio::time::sleep(super::SETTLING).await;
        assert!(!seen.is_server_new());
    }
}
