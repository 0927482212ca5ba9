//! A namespace, a router that has nothing but its role, and a table.

use std::fs;
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use harness::{Builder, BuilderOptions, Column, Scratch, Session, copy_rows, data_set, root, wait_for};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::cluster::Cluster;
use crate::kubelet::{IMAGE, Kubelet, Machine};

/// PostgreSQL; each test has its own database.
pub static POSTGRES: LazyLock<harness::Cluster> = LazyLock::new(|| harness::Cluster::start().unwrap());

/// Every scene reads it; who takes parts of Kubernetes away writes.
static WHOLE: RwLock<()> = RwLock::new(());

/// Kubernetes; each test has its own namespace.
pub static KUBERNETES: LazyLock<RwLock<Cluster>> = LazyLock::new(|| {
    let cluster = Cluster::start().unwrap();
    std::mem::forget(play(&cluster, Machine { number: 1, memory: 64 << 10, apart: None }));
    RwLock::new(cluster)
});

/// Plays a node until the runtime is dropped, which is as if it lost its power.
pub fn play(cluster: &Cluster, machine: Machine) -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = runtime.block_on(cluster.client()).unwrap();
    runtime.spawn(Kubelet::run(client, cluster.access(), machine));
    runtime
}

/// Long enough for any machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";

pub struct Scene {
    pub namespace: String,
    pub session: Session,
    files: Scratch,
    shared: Option<RwLockReadGuard<'static, ()>>,
}

impl Scene {
    /// `name` is one for a namespace and, with underscores, for a database.
    pub fn new(name: &str) -> Self {
        let shared = Some(WHOLE.read().unwrap_or_else(PoisonError::into_inner));
        let database = name.replace('-', "_");
        let mut session = POSTGRES.database(&database).unwrap();
        let (base, _) = data_set("glove-100").unwrap();
        copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
        let scene = Self { namespace: name.to_owned(), session, files: Scratch::new("scene", 0o755).unwrap(), shared };
        let kubernetes = KUBERNETES.read().unwrap();
        kubernetes.kubectl(&["create", "namespace", name]).unwrap();
        // Without this account there are no pods; a controller makes it.
        wait_for("the service account", PATIENCE, || {
            Ok(kubernetes.kubectl(&["-n", name, "get", "serviceaccount", "default"]).ok())
        })
        .unwrap();
        let rbac = fs::read_to_string(root().join("deploy/kubernetes/rbac.yaml")).unwrap();
        kubernetes.apply(name, &rbac).unwrap();
        let key = "0123456789abcdef".repeat(4);
        fs::write(scene.files.path().join("ticket-key"), &key).unwrap();
        scene.kubectl(&["create", "secret", "generic", "ticket", &format!("--from-literal=key={key}")]);
        drop(kubernetes);
        scene
    }

    /// Waits until there is no other scene, and keeps others away.
    pub fn alone(&mut self) -> RwLockWriteGuard<'static, ()> {
        self.shared = None;
        WHOLE.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What kubectl says in this namespace.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let kubernetes = KUBERNETES.read().unwrap();
        kubernetes.kubectl(&[&["-n", &self.namespace], arguments].concat()).unwrap()
    }

    /// Applies a manifest.
    pub fn apply(&self, manifest: &Value) {
        KUBERNETES.read().unwrap().apply(&self.namespace, &manifest.to_string()).unwrap();
    }

    /// A pod that runs a builder, as `change` has it.
    pub fn template(change: impl FnOnce(&mut Value)) -> Value {
        let arguments = [
            "serve",
            "--host",
            "$(POD_IP)",
            "--ticket-key",
            "/etc/lantern-index/key",
            "--threads",
            "1",
            "--stop-at-eof",
        ];
        let container = json!({
            "name": "builder", "image": IMAGE, "args": arguments,
            "env": [{ "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }],
            "readinessProbe": { "httpGet": { "path": "/readyz", "port": 8999 } },
            "volumeMounts": [{ "name": "ticket", "mountPath": "/etc/lantern-index" }],
        });
        let volume = json!({ "name": "ticket", "secret": { "secretName": "ticket" } });
        let mut pod = json!({ "spec": {
            "terminationGracePeriodSeconds": 5, "containers": [container], "volumes": [volume],
        }});
        change(&mut pod);
        pod
    }

    /// A router with a pod's name, and with no more rights than its service account.
    pub fn router(&self, identity: &str, template: &Value, arguments: &[&str]) -> Builder {
        // It is no pod, but its pods' place in the world is that of one.
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": identity },
            "spec": { "containers": [{ "name": "router", "image": "stand-in" }], "terminationGracePeriodSeconds": 0 },
        }));
        let token = self.kubectl(&["create", "token", "lantern-index-router", "--duration=1h"]);
        let name = format!("{}-{identity}", self.namespace);
        let kubeconfig = KUBERNETES.read().unwrap().kubeconfig(&name, token.trim(), &self.namespace).unwrap();
        let file = self.files.path().join(format!("{identity}.json"));
        fs::write(&file, template.to_string()).unwrap();
        let (file, key) = (file.display().to_string(), self.files.path().join("ticket-key").display().to_string());
        let always =
            ["--builders", "kubernetes", "--identity", identity, "--builder-template", &file, "--ticket-key", &key];
        let idle: &[&str] = if arguments.contains(&"--idle-ttl") { &[] } else { &["--idle-ttl", "1s"] };
        let mut options = BuilderOptions::router(&[&always[..], idle, arguments].concat());
        options.environment.push(("KUBECONFIG".to_owned(), kubeconfig.display().to_string()));
        Builder::start_with(&options).unwrap()
    }

    /// A file that PostgreSQL can read.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.files.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Another session of the same database.
    pub fn another_session(&self) -> Session {
        POSTGRES.session(&self.namespace.replace('-', "_")).unwrap()
    }

    /// Builds an index, looks at every page of it and drops it.
    pub fn build_and_drop(&mut self, router: &Builder) {
        router.attach(&mut self.session).unwrap();
        self.session.execute(CREATE).unwrap();
        harness::inspect(&POSTGRES, &mut self.session, "items_idx").unwrap();
        self.session.execute("DROP INDEX items_idx").unwrap();
    }

    /// A build that must fail: SQLSTATE, and what the user reads.
    pub fn build_and_fail(&mut self, router: &Builder) -> (String, String) {
        router.attach(&mut self.session).unwrap();
        let error = self.session.execute(CREATE).unwrap_err();
        println!("{error}\n");
        (error.server().sqlstate.clone(), error.to_string())
    }

    /// The names of builders' pods.
    pub fn pods(&self) -> Vec<String> {
        let names = self.kubectl(&["get", "pods", "-l", "lantern-index/instance", "-o", "name"]);
        names.lines().map(str::to_owned).collect()
    }

    /// Waits for builds that go on at the same time: how many pods there were at most.
    pub fn most_pods(&self, builds: Vec<JoinHandle<()>>) -> usize {
        let mut most = 0;
        while builds.iter().any(|build| !build.is_finished()) {
            most = most.max(self.pods().len());
            thread::sleep(Duration::from_millis(50));
        }
        builds.into_iter().for_each(|build| build.join().unwrap());
        most
    }

    /// Waits until there are this many.
    pub fn wait_for_pods(&self, count: usize) {
        wait_for("the pods to come or go", PATIENCE, || Ok((self.pods().len() == count).then_some(()))).unwrap();
    }
}
