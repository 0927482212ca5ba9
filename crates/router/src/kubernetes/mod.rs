//! Builders as pods. Each pod has one of `max_builders` numbered names, so that several routers, which share nothing but Kubernetes,
//! cannot create more pods together.

mod adopt;
mod first_seen;
mod own;
mod pod;
mod refusal;
mod state;
mod surroundings;
mod template;
mod view;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use service::TicketKeys;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use first_seen::FirstSeen;
use own::Own;
use pod::{Identity, PodBuilder};
use refusal::{is_over_quota, is_taken, spawn_error, spawn_error_of_new};
use state::{State, state};
use template::Template;
pub use template::{TemplateError, check_template};
use view::{Presence, View};

use crate::health;
use crate::spawner::{Boxed, Builder, Order, Outlook, SpawnError, Spawner, Surroundings};

/// The time limit for deleting a pod that is not needed.
const CLEAN_UP: Duration = Duration::from_secs(60);

/// The time limit for an answer of the API server, which may ask admission webhooks for 30 s.
const ANSWER: Duration = Duration::from_secs(60);

/// How long a new pod is looked at more often: most are ready by then.
const EAGER: Duration = Duration::from_secs(15);

/// If a router has not released a requested builder within this time, another is asked. The router may be dead.
const WISH: Duration = Duration::from_secs(10);
/// After this time, the request is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// How to run builders as pods.
#[derive(Clone, Debug)]
pub struct KubernetesConfig {
    /// The pod template, a JSON file; [`Template`](template::Template) describes what the router adds.
    pub template: PathBuf,
    /// The namespace; `None` is that of the service account or of the kubeconfig.
    pub namespace: Option<String>,
    /// Routers with the same instance name share one set of pod names.
    pub instance: String,
    /// The name of the pod that this router runs in.
    pub identity: String,
    /// The Deployment that owns the pods, so that Kubernetes deletes them with it.
    pub owner: Option<String>,
    /// The ticket keys that all builders accept.
    pub ticket_keys: Arc<TicketKeys>,
}

/// The pods of a router's instance in one namespace.
pub(crate) struct Pods {
    api: Api<Pod>,
    view: View,
    template: Template,
    places: usize,
    identity: String,
    own: Own,
    /// The pods that this router has asked for.
    wishes: FirstSeen,
    /// The pods in which other routers run, if they are being deleted.
    ending: FirstSeen,
    surroundings: watch::Receiver<Surroundings>,
}

impl Pods {
    /// Connects to the API server. `places` is the number of pod names.
    pub(crate) async fn connect(config: &KubernetesConfig, places: usize) -> Result<Self, SpawnError> {
        let settings = kube::Config::infer().await.map_err(|error| {
            let hint = "Outside a cluster, KUBECONFIG names the file that says where the API server is.";
            SpawnError::lasting(format!("no Kubernetes to be found: {error}"), hint)
        })?;
        let namespace = config.namespace.clone().unwrap_or_else(|| settings.default_namespace.clone());
        let client = client(settings).map_err(|error| spawn_error("connect to Kubernetes", &error))?;
        let mut template = Template::read(&config.template, &config.instance, &config.identity)
            .map_err(|error| SpawnError::lasting(error.to_string(), ""))?;
        if let Some(name) = &config.owner {
            let owner = Api::<Deployment>::namespaced(client.clone(), &namespace).get(name).await;
            template.set_owner(&owner.map_err(|error| spawn_error(&format!("get deployment {name}"), &error))?);
        }
        let api = Api::<Pod>::namespaced(client, &namespace);
        let view = View::start(api.clone(), template.selector()).await;
        let (own, identity) = (Own::default(), config.identity.clone());
        let (tell, surroundings) = watch::channel(surroundings::look(view.last().pods(), &identity, &own));
        tokio::spawn(surroundings::follow(view.subscribe(), identity.clone(), own.clone(), tell));
        Ok(Self {
            api,
            view,
            template,
            places,
            identity,
            own,
            wishes: FirstSeen::default(),
            ending: FirstSeen::default(),
            surroundings,
        })
    }

    async fn start_one(&self, order: Order) -> Result<Arc<dyn Builder>, SpawnError> {
        let until = Instant::now() + order.limit;
        let made = self.create(order.memory, until).await?;
        let ready = timeout_at(until, self.ready(&made, &order)).await.unwrap_or_else(|_| {
            let last = order.tell.borrow().clone();
            Err(SpawnError::passing(format!("{last} (waited {} s)", order.limit.as_secs())))
        });
        match ready {
            Ok(builder) => Ok(Arc::new(builder)),
            Err(error) => {
                let seconds_left = until.saturating_duration_since(Instant::now()).as_secs();
                tracing::warn!(pod = made.name, %error, seconds_left, "pod is of no use");
                self.remove(&made).await;
                Err(error)
            }
        }
    }

    /// Creates a pod with a name that is free in the last list. Tries no other name after `until`; an unanswered request is not dropped,
    /// since its pod may exist.
    async fn create(&self, memory: u64, until: Instant) -> Result<Identity, SpawnError> {
        // If this request fails, so does the creation, which reports the cause.
        let pods = self.view.list().await.unwrap_or_else(|_| self.view.last().pods().cloned().collect());
        let taken: HashSet<String> = pods.iter().map(ResourceExt::name_any).collect();
        for name in (1..=self.places).map(|place| self.template.name(place)).filter(|name| !taken.contains(name)) {
            let pod = self.template.pod(&name, memory).map_err(|error| SpawnError::lasting(error.to_string(), ""))?;
            self.own.begin(&name);
            let made = self.api.create(&PostParams::default(), &pod).await;
            self.own.made(&name, made.as_ref().ok().and_then(ResourceExt::uid));
            match made {
                Ok(made) => return Ok(Identity::of(&made)),
                Err(error) if is_taken(&error) && Instant::now() < until => {}
                // The builders of another router use up the quota, and one of them may end or be handed over.
                Err(error) if is_over_quota(&error) && pods.iter().any(|pod| !self.own.has(pod)) => {
                    self.ask_others(&pods, memory).await;
                    let error = spawn_error(&format!("create pod {name}"), &error);
                    return Err(SpawnError { outlook: Outlook::Shared, ..error });
                }
                Err(error) => {
                    let is_new = self.view.last().is_server_new();
                    let why = if is_new { spawn_error_of_new } else { spawn_error };
                    return Err(why(&format!("create pod {name}"), &error));
                }
            }
        }
        self.ask_others(&pods, memory).await;
        Err(SpawnError::full(format!("all {} places for pods are taken, also by other routers", self.places)))
    }

    /// Requests an idle builder from another router, which releases it unless the builder gets a build first.
    async fn ask_others(&self, pods: &[Pod], memory: u64) {
        let others = pods.iter().filter(|pod| template::is_idle(pod) && !self.own.has(pod));
        let idle: Vec<&Pod> = others.filter(|pod| matches!(state(pod), State::Ready)).collect();
        if idle.iter().any(|pod| template::wanted_by(pod) == Some(&self.identity) && self.may_be_granted(pod)) {
            return;
        }
        // The smallest that is large enough; else the smallest of all, whose end makes room.
        let best = idle.into_iter().filter(|pod| template::wanted_by(pod).is_none());
        let Some(pod) = best.min_by_key(|pod| (template::memory(pod) < memory, template::memory(pod))) else { return };
        let (name, how) = (pod.name_any(), Patch::Merge(template::want(pod, &self.identity)));
        match self.api.patch(&name, &PatchParams::default(), &how).await {
            Ok(_) => tracing::info!(pod = name, router = template::router_of(pod), "asked for an idle builder"),
            Err(error) => tracing::debug!(pod = name, %error, "another router's builder cannot be asked for"),
        }
    }

    /// Whether another router may still release the pod, for which this one asked.
    fn may_be_granted(&self, pod: &Pod) -> bool {
        self.wishes.forget(FORGOTTEN);
        self.wishes.ago(pod) < WISH
    }

    /// Waits until the pod accepts builds, and reports what it is waiting for.
    async fn ready(&self, made: &Identity, order: &Order) -> Result<PodBuilder, SpawnError> {
        let mut view = self.view.subscribe();
        let name = &made.name;
        loop {
            let seen = view.borrow_and_update().clone();
            match seen.pod(&made.uid, made.since) {
                Presence::TooEarly => _ = order.tell.send_replace(format!("pod {name} was created")),
                Presence::Gone => {
                    return Err(SpawnError::passing(format!("pod {name} was deleted before it took a build")));
                }
                Presence::Here(pod) => match state(pod) {
                    State::Waiting(why) => _ = order.tell.send_replace(format!("pod {name} {why}")),
                    State::Hopeless(error) => {
                        return Err(SpawnError { text: format!("pod {name} {}", error.text), ..error });
                    }
                    State::Ended(why) => {
                        return Err(SpawnError::passing(format!("pod {name} {why} before it took a build")));
                    }
                    State::Ready => {
                        if let Some(builder) = self.builder(pod, order.memory)
                            && health::is_ready(&builder.facts().place).await
                        {
                            return Ok(builder);
                        }
                        order.tell.send_replace(format!("pod {name} runs, but is not ready yet"));
                        sleep(view::SOON).await;
                        continue;
                    }
                },
            }
            if made.since.elapsed() < EAGER {
                self.view.hurry();
            }
            if view.changed().await.is_err() {
                return Err(SpawnError::passing("the router is ending"));
            }
        }
    }

    /// The builder in a pod; `None` while the pod has no address.
    fn builder(&self, pod: &Pod, memory: u64) -> Option<PodBuilder> {
        let outdated = self.template.is_outdated(pod);
        PodBuilder::new(pod, memory, outdated, self.api.clone(), self.view.clone(), self.own.clone())
    }

    /// Deletes a pod at once and waits until it is gone.
    async fn remove(&self, pod: &Identity) {
        pod::delete(&self.api, pod, DeleteParams::default().grace_period(0), CLEAN_UP).await;
        self.own.remove(&pod.uid);
    }

    async fn adopt_leftovers(&self) -> Result<Vec<Arc<dyn Builder>>, SpawnError> {
        let failed = |error| spawn_error("look for pods", &error);
        let mut found: Vec<Arc<dyn Builder>> = Vec::new();
        for pod in self.view.list().await.map_err(failed)? {
            if self.own.has(&pod) || pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let name = pod.name_any();
            let pod = match adopt::adopt(&self.api, pod, &self.identity, &self.ending).await {
                Ok(Some(pod)) => pod,
                Ok(None) => continue,
                // The next search tries again. Pods taken over so far must not be lost with this error.
                Err(error) => {
                    tracing::warn!(pod = name, %error, "pod of an earlier router cannot be taken over");
                    continue;
                }
            };
            let identity = Identity::of(&pod);
            self.own.add(identity.uid.clone());
            match self.builder(&pod, template::memory(&pod)) {
                Some(builder) => found.push(Arc::new(builder)),
                None => {
                    // It has no build, and the clients for which it was started are gone.
                    tracing::info!(pod = identity.name, "pod of an earlier router has not started and is deleted");
                    self.remove(&identity).await;
                }
            }
        }
        Ok(found)
    }
}

/// A client that reports each failure soon: the router itself tries again, tells waiting clients the reason, and keeps to their time limits.
fn client(mut settings: kube::Config) -> Result<Client, kube::Error> {
    // Without a limit, a request on a connection that the network has dropped would hold up a start for many minutes.
    (settings.read_timeout, settings.reset_reader_on_write) = (Some(ANSWER), true);
    settings.default_retry = false;
    Client::try_from(settings)
}

impl Spawner for Pods {
    fn start(&self, order: Order) -> Boxed<'_, Result<Arc<dyn Builder>, SpawnError>> {
        Box::pin(self.start_one(order))
    }

    fn outlives_router(&self) -> bool {
        true
    }

    fn leftovers(&self) -> Boxed<'_, Result<Vec<Arc<dyn Builder>>, SpawnError>> {
        Box::pin(self.adopt_leftovers())
    }

    fn surroundings(&self) -> watch::Receiver<Surroundings> {
        self.surroundings.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use k8s_openapi::api::core::v1::Pod;
    use kube::Client;
    use kube::api::{Api, ListParams};
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::{FirstSeen, Own, Pods, Template, View, client, watch};

    const EMPTY: (&str, &str) = ("200 OK", r#"{"metadata": {}, "items": []}"#);

    /// A client of an API server that answers each request line with a status and a body.
    async fn server(mut answer: impl FnMut(&str) -> (&'static str, &'static str) + Send + 'static) -> Client {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut request, mut head) = (BufReader::new(&mut stream), String::new());
                while !head.ends_with("\r\n\r\n") {
                    request.read_line(&mut head).await.unwrap();
                }
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length = length.map_or(0, |length| length.parse().unwrap());
                request.read_exact(&mut vec![0; length]).await.unwrap();
                let (status, body) = answer(&head);
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                stream.write_all((head + body).as_bytes()).await.unwrap();
            }
        });
        client(kube::Config::new(url)).unwrap()
    }

    #[tokio::test]
    async fn an_overloaded_server_is_reported_at_once() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let server = server(move |_| match count.fetch_add(1, Ordering::Relaxed) {
            0 => ("429 Too Many Requests", ""),
            1 => ("503 Service Unavailable", ""),
            _ => EMPTY,
        });
        let pods = Api::<Pod>::default_namespaced(server.await);
        for (requests, is_answered) in [(1, false), (2, false), (3, true)] {
            assert_eq!(pods.list(&ListParams::default()).await.is_ok(), is_answered);
            assert_eq!(asked.load(Ordering::Relaxed), requests);
        }
    }

    #[tokio::test]
    async fn no_other_name_is_tried_after_the_time_limit() {
        let tried = Arc::new(AtomicU32::new(0));
        let count = tried.clone();
        let server = server(move |request| match request.starts_with("POST") {
            true => {
                count.fetch_add(1, Ordering::Relaxed);
                (
                    "409 Conflict",
                    r#"{"status": "Failure", "message": "it exists", "reason": "AlreadyExists", "code": 409}"#,
                )
            }
            false => EMPTY,
        });
        let api = Api::<Pod>::default_namespaced(server.await);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"{"spec": {"containers": [{"name": "builder"}]}}"#).unwrap();
        let pods = Pods {
            view: View::start(api.clone(), String::new()).await,
            api,
            template: Template::read(file.path(), "lantern", "router-1").unwrap(),
            places: 3,
            identity: "router-1".to_owned(),
            own: Own::default(),
            wishes: FirstSeen::default(),
            ending: FirstSeen::default(),
            surroundings: watch::channel(Default::default()).1,
        };
        let error = pods.create(0, Instant::now()).await.unwrap_err();
        assert_eq!(error.text, "cannot create pod lantern-builder-1: Kubernetes says: it exists");
        assert_eq!(tried.load(Ordering::Relaxed), 1);
    }
}
