//! A namespace, a router with only the rights of its role, and a table.

use std::net::SocketAddr;
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use harness::kubernetes::{Cluster, Machine, Namespace, template};
use harness::{Builder, Column, Direction, Proxy, Session, copy_rows, data_set, wait_for};
use serde_json::Value;

/// A PostgreSQL cluster for all tests; each test has its own database.
pub static POSTGRES: LazyLock<harness::Cluster> = LazyLock::new(|| harness::Cluster::start().unwrap());

/// Every scene holds it for reading; a test that stops parts of Kubernetes holds it for writing.
static WHOLE: RwLock<()> = RwLock::new(());

/// A control plane for all tests; each test has its own namespace.
pub static KUBERNETES: LazyLock<RwLock<Cluster>> = LazyLock::new(|| {
    let cluster = Cluster::start().unwrap();
    std::mem::forget(cluster.play(Machine { number: 1, memory: 64 << 10, apart: None }).unwrap());
    RwLock::new(cluster)
});

/// Long enough for slow machines.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";

pub struct Scene {
    pub namespace: String,
    pub session: Session,
    here: Namespace,
    shared: Option<RwLockReadGuard<'static, ()>>,
}

/// A network in which a build stops in the middle of its rows.
pub fn held(router: SocketAddr) -> Proxy {
    let proxy = Proxy::start(router).unwrap();
    proxy.stop_after(Direction::ToBuilder, 64 << 10);
    proxy
}

impl Scene {
    /// `name` is the namespace and, with underscores, the database.
    pub fn new(name: &str) -> Self {
        let shared = Some(WHOLE.read().unwrap_or_else(PoisonError::into_inner));
        let database = name.replace('-', "_");
        let mut session = POSTGRES.database(&database).unwrap();
        let (base, _) = data_set("glove-100").unwrap();
        copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
        let here = Namespace::make(&KUBERNETES.read().unwrap(), name).unwrap();
        Self { namespace: name.to_owned(), session, here, shared }
    }

    /// Waits until no other scene exists, and prevents new ones.
    pub fn alone(&mut self) -> RwLockWriteGuard<'static, ()> {
        self.shared = None;
        WHOLE.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs kubectl in this namespace and returns its output.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.here.kubectl(&KUBERNETES.read().unwrap(), arguments).unwrap()
    }

    /// Applies a manifest.
    pub fn apply(&self, manifest: &Value) {
        KUBERNETES.read().unwrap().apply(&self.namespace, &manifest.to_string()).unwrap();
    }

    /// A pod template of a builder, after `change`.
    pub fn template(change: impl FnOnce(&mut Value)) -> Value {
        let mut pod = template(&["--threads", "1"]);
        change(&mut pod);
        pod
    }

    /// Starts a router with a pod's name and only the rights of its service account.
    pub fn router(&self, identity: &str, template: &Value, arguments: &[&str]) -> Builder {
        let idle: &[&str] = if arguments.contains(&"--idle-ttl") { &[] } else { &["--idle-ttl", "1s"] };
        let options = {
            let kubernetes = KUBERNETES.read().unwrap();
            self.here.router(&kubernetes, identity, template, &[idle, arguments].concat()).unwrap()
        };
        Builder::start_with(&options).unwrap()
    }

    /// Writes a file that PostgreSQL can read, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        self.here.file(name, text).unwrap()
    }

    /// Another session with the same database.
    pub fn another_session(&self) -> Session {
        POSTGRES.session(&self.namespace.replace('-', "_")).unwrap()
    }

    /// Builds an index, verifies its pages and drops it.
    pub fn build_and_drop(&mut self, router: &Builder) {
        router.attach(&mut self.session).unwrap();
        self.session.execute(CREATE).unwrap();
        harness::inspect(&POSTGRES, &mut self.session, "items_idx").unwrap();
        self.session.execute("DROP INDEX items_idx").unwrap();
    }

    /// Runs a build that must fail; returns SQLSTATE and message.
    pub fn build_and_fail(&mut self, router: &Builder) -> (String, String) {
        router.attach(&mut self.session).unwrap();
        let error = self.session.execute(CREATE).unwrap_err();
        println!("{error}\n");
        (error.server().sqlstate.clone(), error.to_string())
    }

    /// The names of builders' pods.
    pub fn pods(&self) -> Vec<String> {
        self.here.pods(&KUBERNETES.read().unwrap()).unwrap()
    }

    /// Waits for concurrent builds, of which those through `held` go on once all of these are there; returns the largest number of pods
    /// meanwhile.
    pub fn most_pods(&self, held: &[Proxy], builds: Vec<JoinHandle<()>>) -> usize {
        held.iter().for_each(|proxy| proxy.wait_until_stopped(Direction::ToBuilder).unwrap());
        let mut most = self.pods().len();
        held.iter().for_each(Proxy::reset);
        while builds.iter().any(|build| !build.is_finished()) {
            most = most.max(self.pods().len());
            thread::sleep(Duration::from_millis(50));
        }
        builds.into_iter().for_each(|build| build.join().unwrap());
        most
    }

    /// Waits until there are `count` builders' pods.
    pub fn wait_for_pods(&self, count: usize) {
        wait_for("the pods to come or go", PATIENCE, || Ok((self.pods().len() == count).then_some(()))).unwrap();
    }
}
