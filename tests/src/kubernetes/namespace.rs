//! A namespace in which routers and their pods run.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Cluster, IMAGE};
use crate::{BuilderOptions, Scratch, root, wait_for};

/// Long enough for slow machines.
const PATIENCE: Duration = Duration::from_secs(60);
/// The validity of tokens, longer than any test.
const VALID: &str = "--duration=48h";

/// A namespace with what routers need: the role of `deploy/kubernetes`, and the ticket key, for routers and pods.
pub struct Namespace {
    name: String,
    files: Scratch,
}

impl Namespace {
    /// Makes a namespace.
    pub fn make(cluster: &Cluster, name: &str) -> Result<Self> {
        let namespace = Self { name: name.to_owned(), files: Scratch::new("namespace", 0o755)? };
        cluster.kubectl(&["create", "namespace", name])?;
        // A controller makes this account; without it no pod can be created.
        let account = ["get", "serviceaccount", "default"];
        wait_for("the service account", PATIENCE, || Ok(namespace.kubectl(cluster, &account).ok()))?;
        cluster.apply(name, &fs::read_to_string(root().join("deploy/kubernetes/rbac.yaml"))?)?;
        let key = "0123456789abcdef".repeat(4);
        namespace.file("ticket-key", &key)?;
        namespace.kubectl(cluster, &["create", "secret", "generic", "ticket", &format!("--from-literal=key={key}")])?;
        Ok(namespace)
    }

    /// The name of the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs kubectl in this namespace and returns its output.
    pub fn kubectl(&self, cluster: &Cluster, arguments: &[&str]) -> Result<String> {
        cluster.kubectl(&[&["-n", &self.name], arguments].concat())
    }

    /// The path of a file of this name, which may not exist yet.
    pub fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Writes a file that PostgreSQL can read, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.display().to_string())
    }

    /// The names of builders' pods.
    pub fn pods(&self, cluster: &Cluster) -> Result<Vec<String>> {
        let names = self.kubectl(cluster, &["get", "pods", "-l", "lantern-index/instance", "-o", "name"])?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// Options of a router with a pod's name and only the rights of its service account.
    pub fn router(
        &self,
        cluster: &Cluster,
        identity: &str,
        template: &Value,
        arguments: &[&str],
    ) -> Result<BuilderOptions> {
        // The router runs outside of Kubernetes, but its builders' pods need an owner.
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": identity },
            "spec": { "containers": [{ "name": "router", "image": "stand-in" }], "terminationGracePeriodSeconds": 0 },
        });
        cluster.apply(&self.name, &pod.to_string())?;
        let token = self.kubectl(cluster, &["create", "token", "lantern-index-router", VALID])?;
        let name = format!("{}-{identity}", self.name);
        let kubeconfig = cluster.kubeconfig(&name, token.trim(), &self.name)?;
        let template = self.file(&format!("{identity}.json"), &template.to_string())?;
        let key = self.path("ticket-key").display().to_string();
        let always =
            ["--builders", "kubernetes", "--identity", identity, "--builder-template", &template, "--ticket-key", &key];
        let mut options = BuilderOptions::router(&[&always[..], arguments].concat());
        options.environment.push(("KUBECONFIG".to_owned(), kubeconfig.display().to_string()));
        Ok(options)
    }
}

/// A pod template of a builder with the common arguments and these.
pub fn template(arguments: &[&str]) -> Value {
    let always = ["serve", "--host", "$(POD_IP)", "--ticket-key", "/etc/lantern-index/key", "--stop-at-eof"];
    let arguments = [&always[..], arguments].concat();
    let container = json!({
        "name": "builder", "image": IMAGE, "args": arguments,
        "env": [{ "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }],
        "readinessProbe": { "httpGet": { "path": "/readyz", "port": 8999 } },
        "volumeMounts": [{ "name": "ticket", "mountPath": "/etc/lantern-index" }],
    });
    let volume = json!({ "name": "ticket", "secret": { "secretName": "ticket" } });
    json!({ "spec": {
        "terminationGracePeriodSeconds": 5, "containers": [container], "volumes": [volume],
    }})
}
