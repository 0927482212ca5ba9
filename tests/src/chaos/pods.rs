//! Kubernetes for rigs whose builders are pods: one control plane and one node for all rigs, and a namespace for each.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use harness::kubernetes::{Cluster, Machine, Namespace, template};
use harness::{BuilderOptions, connections_to, make_certificate, with_variable};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// The memory of the node in MiB. It is fictitious: containers are processes of this machine.
const MEMORY: u32 = 64 << 10;
/// The variable that marks the processes of a namespace, which must be found even while the API server is down.
const MARK: &str = "CHAOS_NAMESPACE";
/// Where the certificate is mounted in builders.
const CERTIFICATE: &str = "/etc/builder-tls";
/// The name in the builders' certificate.
const NAME: &str = "localhost";
/// Kinds of objects that must not remain in a namespace. Not events: they expire after an hour.
const KINDS: &str = "pods,secrets,configmaps,services,serviceaccounts,persistentvolumeclaims,leases,deployments,jobs";

/// A control plane, for all rounds.
pub struct Kubernetes {
    // The first field, so that containers end before the control plane is dropped.
    _node: Runtime,
    cluster: RefCell<Cluster>,
    namespaces: Cell<u32>,
}

impl Kubernetes {
    pub fn start() -> Result<Rc<Self>> {
        let cluster = Cluster::start()?;
        let node = cluster.play(Machine { number: 1, memory: MEMORY, apart: None })?;
        Ok(Rc::new(Self { _node: node, cluster: RefCell::new(cluster), namespaces: Cell::new(0) }))
    }

    /// Kills the API server and restarts it after `time`.
    pub fn lose_api_server(&self, time: Duration) -> Result<()> {
        let mut cluster = self.cluster.borrow_mut();
        cluster.kill("kube-apiserver");
        thread::sleep(time);
        cluster.start_part("kube-apiserver")?;
        cluster.wait_until_ready()
    }
}

/// The namespace of a rig's builders, and the configuration of its routers.
pub struct Pods {
    pub kubernetes: Rc<Kubernetes>,
    namespace: Namespace,
    template: Value,
    /// Arguments of routers for builders' certificates.
    tls: Vec<String>,
    certificate: Option<PathBuf>,
    /// Objects that existed before the first build.
    first: BTreeSet<String>,
}

impl Pods {
    /// Makes a namespace for builders with these arguments and variables.
    pub fn make(kubernetes: &Rc<Kubernetes>, arguments: &[&str], variables: &[(String, String)]) -> Result<Self> {
        kubernetes.namespaces.set(kubernetes.namespaces.get() + 1);
        let name = format!("chaos-{}", kubernetes.namespaces.get());
        let namespace = Namespace::make(&kubernetes.cluster.borrow(), &name)?;
        let mut template = template(arguments);
        let given = variables.iter().map(|(name, value)| json!({ "name": name, "value": value }));
        let marked = json!({ "name": MARK, "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } });
        append(&mut template["spec"]["containers"][0]["env"], given.chain([marked]));
        // Longer than the builders' drain timeout.
        template["spec"]["terminationGracePeriodSeconds"] = 8.into();
        let kubernetes = Rc::clone(kubernetes);
        Ok(Self { kubernetes, namespace, template, tls: Vec::new(), certificate: None, first: BTreeSet::new() })
    }

    /// Gives the builders a certificate, which routers and clients trust.
    pub fn encrypt(&mut self) -> Result<()> {
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| self.namespace.path(name));
        make_certificate(&cert, &key)?;
        let [cert_text, key_text] = [&cert, &key].map(|path| path.display().to_string());
        self.kubectl(&["create", "secret", "tls", "builder-tls", "--cert", &cert_text, "--key", &key_text])?;
        let spec = &mut self.template["spec"];
        let files = [("--cert", "tls.crt"), ("--key", "tls.key")];
        let arguments = files.map(|(flag, file)| json!(format!("{flag}={CERTIFICATE}/{file}")));
        append(&mut spec["containers"][0]["args"], arguments);
        append(&mut spec["containers"][0]["volumeMounts"], [json!({ "name": "tls", "mountPath": CERTIFICATE })]);
        append(&mut spec["volumes"], [json!({ "name": "tls", "secret": { "secretName": "builder-tls" } })]);
        self.tls = ["--builder-ca", &cert_text, "--builder-name", NAME].map(str::to_owned).into();
        self.certificate = Some(cert);
        Ok(())
    }

    /// The builders' certificate, if they have one.
    pub fn certificate(&self) -> Option<PathBuf> {
        self.certificate.clone()
    }

    /// Options of a router that runs under this identity.
    pub fn router(&self, identity: &str, arguments: &[&str]) -> Result<BuilderOptions> {
        let tls = self.tls.iter().map(String::as_str);
        let arguments: Vec<&str> = arguments.iter().copied().chain(tls).collect();
        self.namespace.router(&self.kubernetes.cluster.borrow(), identity, &self.template, &arguments)
    }

    /// Deletes a router's pod.
    pub fn forget(&self, identity: &str) -> Result<()> {
        self.kubectl(&["delete", "pod", identity, "--wait=false", "--grace-period=0"]).map(drop)
    }

    /// The process ids of all builders.
    pub fn pids(&self) -> Vec<u32> {
        with_variable(MARK, self.namespace.name())
    }

    /// The names of builders' pods.
    pub fn builders(&self) -> Result<Vec<String>> {
        self.namespace.pods(&self.kubernetes.cluster.borrow())
    }

    /// Deletes the builder pod with this number, counted from 0, if it exists. Its grace period is that of the template, or a second.
    pub fn delete_one(&self, number: usize, is_hurried: bool) -> Result<()> {
        let name = format!("lantern-index-builder-{}", number + 1);
        let grace = if is_hurried { "--grace-period=1" } else { "--grace-period=-1" };
        self.kubectl(&["delete", "pod", &name, "--wait=false", "--ignore-not-found", grace]).map(drop)
    }

    /// The number of a router's connections to the API server; its client keeps idle ones for later requests.
    pub fn connections(&self, router: u32) -> usize {
        connections_to(router, self.kubernetes.cluster.borrow().port())
    }

    /// Records the present objects as the expected ones.
    pub fn settle(&mut self) -> Result<()> {
        self.first = self.objects()?;
        Ok(())
    }

    /// Objects that are not among the recorded ones.
    pub fn new_objects(&self) -> Result<Vec<String>> {
        Ok(self.objects()?.difference(&self.first).cloned().collect())
    }

    /// The output of `kubectl get pods`.
    pub fn describe(&self) -> String {
        let pods = self.kubectl(&["get", "pods", "-o", "wide", "--show-labels"]);
        pods.unwrap_or_else(|error| format!("{error:#}"))
    }

    fn objects(&self) -> Result<BTreeSet<String>> {
        Ok(self.kubectl(&["get", KINDS, "-o", "name"])?.lines().map(str::to_owned).collect())
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.namespace.kubectl(&self.kubernetes.cluster.borrow(), arguments)
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        let name = self.namespace.name().to_owned();
        let _ = self.kubernetes.cluster.borrow().kubectl(&["delete", "namespace", &name, "--wait=false"]);
    }
}

fn append(list: &mut Value, items: impl IntoIterator<Item = Value>) {
    list.as_array_mut().expect("the template has such a list").extend(items);
}
