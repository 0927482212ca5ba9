use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// How often pods are looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often while somebody waits for one.
pub(super) const SOON: Duration = Duration::from_millis(100);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

type ByName = Arc<HashMap<String, Pod>>;

/// The pods of all routers of this name, as Kubernetes said last.
///
/// They are listed again and again, one request for all: unlike a watch a list cannot fall behind, expire or miss anything,
/// and the API server answers it from its memory. While the server is away the last answer stands.
#[derive(Clone)]
pub(super) struct View {
    api: Api<Pod>,
    list: ListParams,
    pods: watch::Receiver<ByName>,
    hurry: Arc<Notify>,
}

impl View {
    /// Looks at the pods with these labels for as long as somebody has a view.
    pub(super) fn start(api: Api<Pod>, labels: String) -> Self {
        let list = ListParams::default().labels(&labels);
        let (tell, pods) = watch::channel(ByName::default());
        let hurry = Arc::new(Notify::new());
        tokio::spawn(look(api.clone(), list.clone(), tell, hurry.clone()));
        Self { api, list, pods, hurry }
    }

    /// The pods and their changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<ByName> {
        self.pods.clone()
    }

    /// The names that are taken.
    pub(super) fn names(&self) -> HashSet<String> {
        self.pods.borrow().keys().cloned().collect()
    }

    /// Asks for the next look soon.
    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// The pods as they are now.
    pub(super) async fn list(&self) -> Result<Vec<Pod>, kube::Error> {
        Ok(self.api.list(&self.list).await?.items)
    }
}

async fn look(api: Api<Pod>, list: ListParams, tell: watch::Sender<ByName>, hurry: Arc<Notify>) {
    let mut away = false;
    loop {
        match timeout(PATIENCE, api.list(&list)).await {
            Ok(Ok(pods)) => {
                if away {
                    tracing::info!("Kubernetes answers again");
                }
                away = false;
                let by_name = pods.items.into_iter().map(|pod| (pod.name_any(), pod)).collect();
                if tell.send(Arc::new(by_name)).is_err() {
                    return;
                }
            }
            failed => {
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
