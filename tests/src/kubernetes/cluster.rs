//! A Kubernetes control plane on loopback: the real etcd, API server, controllers and scheduler.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::json;
use tokio::runtime::Runtime;

use super::kubelet::{Access, Kubelet, Machine};
use super::parts::Parts;
use crate::{Scratch, control_plane, helm, wait_for};

const PATIENCE: Duration = Duration::from_secs(120);
const ADMIN: &str = "admin-of-a-test";

/// A control plane. On drop its parts are killed.
pub struct Cluster {
    program: PathBuf,
    port: u16,
    etcd: u16,
    files: Scratch,
    parts: Parts,
}

impl Cluster {
    /// Starts a control plane and waits until it accepts requests.
    pub fn start() -> Result<Self> {
        let files = Scratch::new("kubernetes", 0o700)?;
        let [port, etcd] = free_ports()?;
        let mut cluster = Self { program: control_plane()?, port, etcd, files, parts: Parts::start() };
        cluster.make_certificates()?;
        cluster.write("tokens.csv", &format!("{ADMIN},admin,admin,\"system:masters\"\nkcm,system:kube-controller-manager,kcm\nsch,system:kube-scheduler,sch\n"))?;
        for (name, token) in [("admin", ADMIN), ("kcm", "kcm"), ("sch", "sch")] {
            cluster.kubeconfig(name, token, "default")?;
        }
        cluster.start_part("etcd")?;
        cluster.start_part("kube-apiserver")?;
        cluster.wait_until_ready()?;
        cluster.start_part("kube-controller-manager")?;
        cluster.start_part("kube-scheduler")?;
        wait_for("the controllers", PATIENCE, || {
            Ok(cluster.kubectl(&["-n", "default", "get", "serviceaccount", "default"]).ok())
        })?;
        Ok(cluster)
    }

    /// Kills a part.
    pub fn kill(&mut self, name: &str) {
        self.parts.kill(name);
    }

    /// Starts a part that does not run. It is restarted if it ends by itself.
    pub fn start_part(&mut self, name: &'static str) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.arg(name).args(self.arguments(name));
        self.parts.add(name, command, self.path(&format!("{name}.log")))
    }

    /// Waits until the API server answers.
    pub fn wait_until_ready(&self) -> Result<()> {
        wait_for("the API server", PATIENCE, || Ok(self.kubectl(&["get", "--raw", "/readyz"]).ok()))?;
        Ok(())
    }

    /// The port of the API server on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs kubectl as the administrator and returns its output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_with(arguments, "")
    }

    /// Applies manifests in a namespace.
    pub fn apply(&self, namespace: &str, manifests: &str) -> Result<()> {
        self.kubectl_with(&["-n", namespace, "apply", "-f", "-"], manifests).map(drop)
    }

    /// Creates objects outside of any namespace.
    pub fn create(&self, manifests: &str) -> Result<()> {
        self.kubectl_with(&["create", "-f", "-"], manifests).map(drop)
    }

    /// Makes the API server validate manifests strictly without applying them; returns kubectl's output.
    pub fn check(&self, namespace: &str, manifests: &str) -> Result<String> {
        self.kubectl_with(&["-n", namespace, "apply", "--dry-run=server", "--validate=strict", "-f", "-"], manifests)
    }

    /// Posts an object to a path of the API; returns the server's answer.
    pub fn create_raw(&self, path: &str, object: &str) -> Result<String> {
        self.kubectl_with(&["create", "--raw", path, "-f", "-"], object)
    }

    fn kubectl_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        self.run(Command::new(&self.program).arg("kubectl").args(arguments), input)
    }

    /// Runs helm as the administrator and returns its output.
    pub fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.run(Command::new(helm()?).args(arguments), "")
    }

    fn run(&self, command: &mut Command, input: &str) -> Result<String> {
        let mut child = command
            .env("KUBECONFIG", self.path("admin.json"))
            .env("HOME", self.files.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // The input fits into a pipe's buffer; if kubectl does not read it, it reports why.
        let _ = child.stdin.take().context("kubectl has no stdin")?.write_all(input.as_bytes());
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(said)
    }

    /// A kubeconfig file for the owner of `token`.
    pub fn kubeconfig(&self, name: &str, token: &str, namespace: &str) -> Result<PathBuf> {
        self.write(&format!("{name}.json"), &self.access()(token, namespace))
    }

    /// A function that returns the text of a kubeconfig file.
    pub fn access(&self) -> Access {
        let cluster = json!({ "server": format!("https://127.0.0.1:{}", self.port), "certificate-authority": self.path("ca.crt") });
        Arc::new(move |token, namespace| {
            let config = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "test",
                "clusters": [{ "name": "test", "cluster": cluster }],
                "users": [{ "name": "user", "user": { "token": token } }],
                "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "user", "namespace": namespace } }],
            });
            config.to_string()
        })
    }

    /// A client with all rights.
    pub async fn client(&self) -> Result<kube::Client> {
        let config = Kubeconfig::read_from(self.path("admin.json"))?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        Ok(kube::Client::try_from(config)?)
    }

    /// Runs a kubelet stand-in for a node until the returned runtime is dropped, which has the effect of a power failure.
    pub fn play(&self, machine: Machine) -> Result<Runtime> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(self.client())?;
        runtime.spawn(Kubelet::run(client, self.access(), machine));
        Ok(runtime)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        fs::write(self.path(name), text)?;
        Ok(self.path(name))
    }

    fn make_certificates(&self) -> Result<()> {
        let (authority, key) = (KeyPair::generate()?, KeyPair::generate()?);
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&authority)?;
        let names = ["localhost", "kubernetes.default.svc", "127.0.0.1"].map(str::to_owned);
        let server = CertificateParams::new(names)?.signed_by(&key, &Issuer::new(params, &authority))?;
        self.write("ca.crt", &certificate.pem())?;
        self.write("server.crt", &server.pem())?;
        self.write("server.key", &key.serialize_pem())?;
        self.write("accounts.key", &KeyPair::generate()?.serialize_pem())?;
        self.write(
            "accounts.pub",
            &KeyPair::from_pem(&fs::read_to_string(self.path("accounts.key"))?)?.public_key_pem(),
        )?;
        Ok(())
    }

    fn arguments(&self, part: &str) -> Vec<String> {
        let file = |name: &str| self.path(name).display().to_string();
        let etcd = format!("http://127.0.0.1:{}", self.etcd);
        let (key, public, ca, port) = (file("accounts.key"), file("accounts.pub"), file("ca.crt"), self.port);
        let words = match part {
            "etcd" => format!(
                "--data-dir={} --listen-client-urls={etcd} --advertise-client-urls={etcd} \
                 --listen-peer-urls=http://127.0.0.1:0 --unsafe-no-fsync=true --log-level=warn",
                file("etcd")
            ),
            "kube-apiserver" => format!(
                "--etcd-servers={etcd} --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port={port} \
                 --tls-cert-file={} --tls-private-key-file={} --token-auth-file={} --authorization-mode=RBAC \
                 --service-account-issuer=https://kubernetes.default.svc --service-account-key-file={public} \
                 --service-account-signing-key-file={key} --service-cluster-ip-range=10.0.0.0/24 \
                 --endpoint-reconciler-type=none --cert-dir={}",
                file("server.crt"),
                file("server.key"),
                file("tokens.csv"),
                file("certificates")
            ),
            "kube-controller-manager" => format!(
                "--kubeconfig={} --use-service-account-credentials=true --leader-elect=false \
                 --service-account-private-key-file={key} --root-ca-file={ca} --secure-port=0",
                file("kcm.json")
            ),
            _ => format!("--kubeconfig={} --leader-elect=false --secure-port=0", file("sch.json")),
        };
        words.split_whitespace().map(str::to_owned).collect()
    }
}

fn free_ports() -> Result<[u16; 2]> {
    let listeners = [TcpListener::bind(("127.0.0.1", 0))?, TcpListener::bind(("127.0.0.1", 0))?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}
