//! A stand-in for a node's kubelet: it runs the containers of pods as processes of this machine, each with its own address in 127.0.0.0/8.
//! Images are names of programs. Mounted volumes are directories of this machine, whose paths replace the mount paths in arguments. A
//! container with a service account of its own gets a kubeconfig file for the API server.

mod given;
mod probe;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::{Scratch, binary};
use probe::is_ready;

/// The only image that can be run; others fail to be pulled.
pub const IMAGE: &str = "lantern-index";

/// The longest grace period of a container, whatever its pod asks for.
const LONGEST_GRACE: Duration = Duration::from_secs(120);

/// Makes the text of a kubeconfig file from a token and a namespace.
pub type Access = Arc<dyn Fn(&str, &str) -> String + Send + Sync>;

/// A simulated node.
pub struct Machine {
    /// The end of its name, and the second byte of its pods' addresses.
    pub number: u8,
    /// Memory in MiB.
    pub memory: u32,
    /// If set, only pods that select this label run there.
    pub apart: Option<String>,
}

/// Runs the containers of a node.
pub struct Kubelet {
    client: Client,
    node: String,
    kubeconfig: Access,
    files: Arc<Scratch>,
    next_address: u32,
    pods: HashMap<String, Running>,
}

struct Running {
    pod: Pod,
    address: String,
    child: Option<Child>,
    ready: bool,
    ending: bool,
    /// Phase and state that have not been reported to the API server yet.
    news: Option<(&'static str, Value)>,
    /// Ends the process if this one is killed.
    guard: Option<Scratch>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.start_kill();
        }
        if let Some(guard) = &self.guard {
            guard.unguard();
        }
    }
}

impl Kubelet {
    /// Runs a node. Its pods live as long as the future and its runtime.
    pub async fn run(client: Client, kubeconfig: Access, machine: Machine) -> Result<()> {
        let Machine { number, memory, apart } = machine;
        let node = format!("node-{number}");
        let nodes = Api::<Node>::all(client.clone());
        let mut made = json!({ "metadata": { "name": node } });
        if let Some(name) = apart {
            made["metadata"]["labels"] = json!({ "apart": name });
            made["spec"]["taints"] = json!([{ "key": "apart", "value": name, "effect": "NoSchedule" }]);
        }
        let made: Node = serde_json::from_value(made)?;
        let _ = nodes.create(&PostParams::default(), &made).await;
        let room = json!({ "cpu": "64", "memory": format!("{memory}Mi"), "pods": "110" });
        let files = Arc::new(Scratch::new("kubelet", 0o700)?);
        let next_address = u32::from(number) << 16;
        let mut kubelet = Self { client, node, kubeconfig, files, next_address, pods: HashMap::new() };
        loop {
            // Both requests may fail while the API server is down; containers continue to run.
            let condition =
                json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now() });
            let status = json!({ "status": { "capacity": room, "allocatable": room, "conditions": [condition] } });
            let _ = nodes.patch_status(&kubelet.node, &PatchParams::default(), &Patch::Strategic(status)).await;
            for _ in 0..50 {
                let _ = kubelet.look().await;
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    async fn look(&mut self) -> Result<()> {
        let mine = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let pods = Api::<Pod>::all(self.client.clone()).list(&mine).await?.items;
        let by_uid: BTreeMap<String, Pod> = pods.into_iter().map(|pod| (pod.uid().unwrap_or_default(), pod)).collect();
        // Pods that were deleted with grace period 0.
        self.pods.retain(|uid, _| by_uid.contains_key(uid));
        for (uid, pod) in by_uid {
            // A pod whose API request or volume fails is retried, and must not affect other pods.
            let _ = self.attend(&uid, pod).await;
        }
        Ok(())
    }

    async fn attend(&mut self, uid: &str, pod: Pod) -> Result<()> {
        let ending = pod.metadata.deletion_timestamp.is_some();
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
        if !self.pods.contains_key(uid) {
            if ending {
                // The pod has never run here, and its volumes may be gone.
                let api = Api::<Pod>::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
                api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
                return Ok(());
            }
            self.start(uid, pod).await?;
        }
        if ending { self.end(uid, grace).await } else { self.update(uid).await }
    }

    async fn start(&mut self, uid: &str, pod: Pod) -> Result<()> {
        self.next_address += 1;
        let [_, b, c, d] = self.next_address.to_be_bytes();
        let address = format!("127.{}.{c}.{d}", b + 1);
        let spec = pod.spec.clone().context("a pod without spec")?;
        let container = spec.containers.first().context("a pod without container")?.clone();
        let image = container.image.as_deref().unwrap_or_default();
        let (child, guard) = if image.split(':').next() == Some(IMAGE) {
            let mounts = self.mounts(uid, &pod, &container).await?;
            let access = self.access(uid, &pod).await?;
            let (child, guard) = Self::spawn(&pod, &container, &address, &mounts, access)?;
            (Some(child), Some(guard))
        } else {
            (None, None)
        };
        let news = match child {
            Some(_) => ("Running", json!({ "running": { "startedAt": now() } })),
            None => {
                let image = container.image.unwrap_or_default();
                let message = format!("Back-off pulling image {image:?}");
                ("Pending", json!({ "waiting": { "reason": "ImagePullBackOff", "message": message } }))
            }
        };
        let running = Running { pod, address, child, ready: false, ending: false, news: Some(news), guard };
        self.pods.insert(uid.to_owned(), running);
        Ok(())
    }

    fn spawn(
        pod: &Pod,
        container: &Container,
        address: &str,
        mounts: &[(String, PathBuf)],
        access: Option<PathBuf>,
    ) -> Result<(Child, Scratch)> {
        let in_files = |text: &str| {
            mounts.iter().fold(text.to_owned(), |text, (path, real)| text.replace(path, &real.display().to_string()))
        };
        let mut variables: Vec<(String, String)> = Vec::new();
        for variable in container.env.iter().flatten() {
            let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
            let value = match field.map(|field| field.field_path.as_str()) {
                Some("status.podIP") => address.to_owned(),
                Some("metadata.uid") => pod.uid().unwrap_or_default(),
                Some("metadata.name") => pod.name_any(),
                Some("metadata.namespace") => pod.namespace().unwrap_or_default(),
                _ => in_files(variable.value.as_deref().unwrap_or_default()),
            };
            variables.push((variable.name.clone(), value));
        }
        let expand = |text: &String| {
            variables.iter().fold(in_files(text), |text, (name, value)| text.replace(&format!("$({name})"), value))
        };
        let guard = Scratch::new("pod", 0o700)?;
        let log = fs::File::create(guard.path().join("log"))?;
        let mut command = Command::new(binary()?);
        command.args(container.args.iter().flatten().map(expand));
        command.env_clear().envs(variables.iter().cloned()).envs(access.map(|file| ("KUBECONFIG", file)));
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let child = command.spawn()?;
        guard.guard(child.id().context("a child without a number")?)?;
        Ok((child, guard))
    }

    /// Checks the state of a container, and reports changes to the API server.
    async fn update(&mut self, uid: &str) -> Result<()> {
        let client = self.client.clone();
        let Some(running) = self.pods.get_mut(uid) else { return Ok(()) };
        running.look().await?;
        let Some((phase, state)) = running.news.clone() else { return Ok(()) };
        say(client, running, phase, &state).await?;
        running.news = None;
        Ok(())
    }

    async fn end(&mut self, uid: &str, grace: i64) -> Result<()> {
        let Some(running) = self.pods.get_mut(uid).filter(|running| !running.ending) else { return Ok(()) };
        running.ending = true;
        let (child, guard) = (running.child.take(), running.guard.take());
        let grace = Duration::from_secs(grace.unsigned_abs()).min(LONGEST_GRACE);
        let api = Api::<Pod>::namespaced(self.client.clone(), &running.pod.namespace().unwrap_or_default());
        let name = running.pod.name_any();
        tokio::spawn(async move {
            if let Some(mut child) = child {
                if let Some(pid) = child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed())) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                }
                if timeout(grace, wait(&mut child)).await.is_err() {
                    let _ = child.kill().await;
                }
            }
            if let Some(guard) = guard {
                guard.unguard();
            }
            // Retry while the API server is down.
            while let Err(kube::Error::HyperError(_) | kube::Error::Service(_)) =
                api.delete(&name, &DeleteParams::default().grace_period(0)).await
            {
                sleep(Duration::from_millis(200)).await;
            }
        });
        Ok(())
    }
}

impl Running {
    /// Checks whether the container has ended or become ready.
    async fn look(&mut self) -> Result<()> {
        // Another task waits for the end of the process.
        let Some(child) = self.child.as_mut().filter(|_| !self.ending) else { return Ok(()) };
        if let Some(status) = child.try_wait()? {
            // SIGKILL comes only from the kernel here, when memory runs out.
            let reason = if status.signal() == Some(9) { "OOMKilled" } else { "Error" };
            let code = status.code().unwrap_or(128 + status.signal().unwrap_or(0));
            let state = json!({ "terminated": { "exitCode": code, "reason": reason } });
            self.news = Some((if code == 0 { "Succeeded" } else { "Failed" }, state));
            self.ready = false;
            self.child = None;
            self.guard.iter().for_each(Scratch::unguard);
        } else if !self.ready && is_ready(self).await {
            self.ready = true;
            self.news = Some(("Running", json!({ "running": { "startedAt": now() } })));
        }
        Ok(())
    }
}

/// Reports the state of a container to the API server.
async fn say(client: Client, running: &Running, phase: &str, state: &Value) -> Result<()> {
    let ready = if running.ready { "True" } else { "False" };
    let container = running.pod.spec.as_ref().and_then(|spec| spec.containers.first()).context("no container")?;
    let status = json!({ "status": {
        "phase": phase,
        "podIP": running.address,
        "podIPs": [{ "ip": running.address }],
        "conditions": [{ "type": "Ready", "status": ready }, { "type": "ContainersReady", "status": ready }],
        "containerStatuses": [{
            "name": container.name, "image": container.image, "imageID": "", "ready": running.ready,
            "restartCount": 0, "state": state,
        }],
    }});
    let api = Api::<Pod>::namespaced(client, &running.pod.namespace().unwrap_or_default());
    api.patch_status(&running.pod.name_any(), &PatchParams::default(), &Patch::Strategic(status)).await?;
    Ok(())
}

/// Waits without closing the child's standard input, which would end it.
async fn wait(child: &mut Child) {
    while child.try_wait().is_ok_and(|status| status.is_none()) {
        sleep(Duration::from_millis(20)).await;
    }
}

fn now() -> String {
    k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
