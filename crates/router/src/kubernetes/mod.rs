//! Builders as pods. Names are numbered places, so that routers that know nothing of each other cannot have more pods than
//! there are places; all else is what Kubernetes says.

mod adopt;
mod pod;
mod refusal;
mod state;
mod template;
mod view;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use tokio::time::{Instant, sleep, timeout};

use pod::PodBuilder;
use refusal::{is_absent, is_taken, spawn_error};
use state::{State, state};
use template::Template;
pub use template::TemplateError;
use view::View;

use crate::health;
use crate::spawner::{Boxed, Builder, Order, SpawnError, Spawner};

/// How long a pod that is of no use may take to go.
const CLEAN_UP: Duration = Duration::from_secs(60);

/// How to run builders as pods.
#[derive(Clone, Debug)]
pub struct KubernetesConfig {
    /// A pod as JSON; what the router adds to it, [`Template`](template::Template) says.
    pub template: PathBuf,
    /// The namespace; `None` is that of the service account or kubeconfig.
    pub namespace: Option<String>,
    /// All routers of this name share one set of places.
    pub instance: String,
    /// The name of the pod that this router runs in.
    pub identity: String,
    /// A Deployment with which the pods are deleted.
    pub owner: Option<String>,
    /// The file with the secret that the pods have too.
    pub ticket_key: PathBuf,
}

/// Pods of one namespace.
pub(crate) struct Pods {
    api: Api<Pod>,
    view: View,
    template: Template,
    places: usize,
    identity: String,
    /// The pods that this router answers for.
    own: Arc<Mutex<HashSet<String>>>,
}

impl Pods {
    /// Connects to the API server.
    pub(crate) async fn connect(config: &KubernetesConfig, places: usize) -> Result<Self, SpawnError> {
        let settings = kube::Config::infer().await.map_err(|error| {
            let hint = "Outside a cluster, KUBECONFIG names the file that says where the API server is.";
            SpawnError::lasting(format!("no Kubernetes to be found: {error}"), hint)
        })?;
        let namespace = config.namespace.clone().unwrap_or_else(|| settings.default_namespace.clone());
        let client = Client::try_from(settings).map_err(|error| spawn_error("connect to Kubernetes", &error))?;
        let mut template = Template::read(&config.template, &config.instance, &config.identity)
            .map_err(|error| SpawnError::lasting(error.to_string(), ""))?;
        if let Some(name) = &config.owner {
            let owner = Api::<Deployment>::namespaced(client.clone(), &namespace).get(name).await;
            template.set_owner(&owner.map_err(|error| spawn_error(&format!("get deployment {name}"), &error))?);
        }
        let api = Api::<Pod>::namespaced(client, &namespace);
        let view = View::start(api.clone(), template.selector());
        Ok(Self { api, view, template, places, identity: config.identity.clone(), own: Arc::default() })
    }

    async fn start_one(&self, order: Order) -> Result<Arc<dyn Builder>, SpawnError> {
        let until = Instant::now() + order.limit;
        let made = self.create(order.memory).await?;
        let name = made.name_any();
        self.own().insert(name.clone());
        let ready = timeout(order.limit, self.ready(&name, &order)).await.unwrap_or_else(|_| {
            let last = order.tell.borrow().clone();
            Err(SpawnError::passing(format!("{last} (waited {} s)", order.limit.as_secs())))
        });
        match ready {
            Ok(pod) => Ok(Arc::new(self.builder(&pod, order.memory))),
            Err(error) => {
                tracing::warn!(pod = name, %error, seconds_left = (until - Instant::now()).as_secs(), "pod is of no use");
                self.remove(&name).await;
                Err(error)
            }
        }
    }

    /// Makes a pod in a free place.
    async fn create(&self, memory: u64) -> Result<Pod, SpawnError> {
        let taken = self.view.names();
        // Those that are seen to be free first: others may be free since.
        let mut places: Vec<String> = (1..=self.places).map(|place| self.template.name(place)).collect();
        places.sort_by_key(|name| taken.contains(name));
        for name in places {
            let pod = self.template.pod(&name, memory).map_err(|error| SpawnError::lasting(error.to_string(), ""))?;
            match self.api.create(&PostParams::default(), &pod).await {
                Ok(made) => return Ok(made),
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(spawn_error(&format!("create pod {name}"), &error)),
            }
        }
        Err(SpawnError::full(format!("all {} places for pods are taken, also by other routers", self.places)))
    }

    /// Waits until the pod takes builds, and tells what it is waiting for.
    async fn ready(&self, name: &str, order: &Order) -> Result<Pod, SpawnError> {
        let mut view = self.view.subscribe();
        loop {
            let pod = view.borrow_and_update().get(name).cloned();
            match pod.as_ref().map(state) {
                // Not seen yet.
                None => _ = order.tell.send_replace(format!("pod {name} was created")),
                Some(State::Waiting(why)) => _ = order.tell.send_replace(format!("pod {name} {why}")),
                Some(State::Hopeless(error)) => {
                    return Err(SpawnError { text: format!("pod {name} {}", error.text), ..error });
                }
                Some(State::Ended(why)) => {
                    return Err(SpawnError::passing(format!("pod {name} {why} before it took a build")));
                }
                Some(State::Ready) => {
                    let pod = pod.unwrap_or_default();
                    let builder = self.builder(&pod, order.memory);
                    if health::is_ready(builder.place()).await {
                        return Ok(pod);
                    }
                    order.tell.send_replace(format!("pod {name} runs, but is not ready yet"));
                    sleep(view::SOON).await;
                    continue;
                }
            }
            self.view.hurry();
            if view.changed().await.is_err() {
                return Err(SpawnError::passing("the router is ending"));
            }
        }
    }

    fn builder(&self, pod: &Pod, memory: u64) -> PodBuilder {
        PodBuilder::new(pod, memory, self.api.clone(), self.view.clone(), self.own.clone())
    }

    /// Deletes a pod at once and waits until it is gone.
    async fn remove(&self, name: &str) {
        pod::delete(&self.api, name, &DeleteParams::default().grace_period(0), CLEAN_UP).await;
        self.own().remove(name);
    }

    fn own(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn orphans(&self) -> Result<Vec<Arc<dyn Builder>>, SpawnError> {
        let failed = |error| spawn_error("look for pods", &error);
        let mut found: Vec<Arc<dyn Builder>> = Vec::new();
        for pod in self.view.list().await.map_err(failed)? {
            let name = pod.name_any();
            if self.own().contains(&name) {
                continue;
            }
            let Some(pod) = adopt::adopt(&self.api, pod, &self.identity).await.map_err(failed)? else { continue };
            self.own().insert(name);
            let memory = template::memory(&pod);
            found.push(Arc::new(self.builder(&pod, memory)));
        }
        Ok(found)
    }
}

impl Spawner for Pods {
    fn start(&self, order: Order) -> Boxed<'_, Result<Arc<dyn Builder>, SpawnError>> {
        Box::pin(self.start_one(order))
    }

    fn outlives_router(&self) -> bool {
        true
    }

    fn leftovers(&self) -> Boxed<'_, Result<Vec<Arc<dyn Builder>>, SpawnError>> {
        Box::pin(self.orphans())
    }
}

/// Whether a pod of this name exists.
async fn exists(api: &Api<Pod>, name: &str) -> Result<bool, kube::Error> {
    match api.get_metadata(name).await {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}
