use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kube::Resource;

use crate::spawner::{Outlook, SpawnError};

/// Reasons why a container waits in vain, and whether another pod may do better: a registry or a container runtime may have been away.
const HOPELESS: [(&str, Outlook); 6] = [
    ("CreateContainerConfigError", Outlook::Lasting),
    ("CreateContainerError", Outlook::Passing),
    ("ErrImageNeverPull", Outlook::Lasting),
    ("ImagePullBackOff", Outlook::Passing),
    ("InvalidImageName", Outlook::Lasting),
    ("RunContainerError", Outlook::Passing),
];

/// What the kubelet says, as a `CreateContainerConfigError`, before it has read a container's environment. It tries again itself.
const NOT_READ_YET: [&str; 3] =
    ["failed to sync secret cache", "failed to sync configmap cache", "services have not yet been read"];

/// The state of a pod. The text completes a sentence that begins with the pod's name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not ready yet.
    Waiting(String),
    /// It accepts builds, according to Kubernetes.
    Ready,
    /// Its container cannot start.
    Hopeless(SpawnError),
    /// Its process has ended.
    Ended(String),
}

/// The state according to a pod's status.
pub(super) fn state(pod: &Pod) -> State {
    let status = pod.status.clone().unwrap_or_default();
    if let Some(why) = ended(pod, &status) {
        return State::Ended(why);
    }
    for container in containers(&status) {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let Some(waiting) = waiting else { continue };
        let reason = waiting.reason.clone().unwrap_or_default();
        let text = format!("waits: {reason} {}", waiting.message.as_deref().unwrap_or_default()).trim_end().to_owned();
        let is_early = NOT_READ_YET.iter().any(|said| text.contains(said));
        if let Some(&(_, outlook)) = HOPELESS.iter().find(|(name, _)| *name == reason && !is_early) {
            let hint = "Look at the image and the secrets of the builders' template.".to_owned();
            return State::Hopeless(SpawnError { text, hint, outlook });
        }
        if !reason.is_empty() {
            return State::Waiting(text);
        }
    }
    if condition(&status, "PodScheduled").is_some_and(|(holds, _)| !holds) {
        let why = condition(&status, "PodScheduled").map(|(_, why)| why).unwrap_or_default();
        return State::Waiting(format!("has no node: {why}"));
    }
    match (condition(&status, "Ready"), &status.pod_ip) {
        (Some((true, _)), Some(_)) => State::Ready,
        _ => State::Waiting(format!("is {}", status.phase.as_deref().unwrap_or("Pending").to_lowercase())),
    }
}

/// Why a pod has ended.
fn ended(pod: &Pod, status: &PodStatus) -> Option<String> {
    for container in containers(status) {
        let terminated = container.state.as_ref().and_then(|state| state.terminated.as_ref());
        if let Some(terminated) = terminated {
            let reason = terminated.reason.as_deref().unwrap_or("terminated");
            return Some(format!("ended: {reason}, exit code {}", terminated.exit_code));
        }
    }
    let said = || {
        let reason = status.reason.as_deref().unwrap_or_default();
        format!("{reason} {}", status.message.as_deref().unwrap_or_default()).trim().to_owned()
    };
    match status.phase.as_deref() {
        Some("Failed" | "Succeeded") => Some(format!("ended: {}", said()).trim_end_matches([':', ' ']).to_owned()),
        Some("Unknown") => Some("is lost with its node".to_owned()),
        _ if pod.meta().deletion_timestamp.is_some() => Some("is being deleted".to_owned()),
        _ => None,
    }
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status.container_statuses.iter().flatten()
}

/// Whether the condition `name` is true, and its message.
fn condition(status: &PodStatus, name: &str) -> Option<(bool, String)> {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == name)?;
    Some((found.status == "True", found.message.clone().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{State, state};
    use crate::spawner::Outlook;

    fn of(status: Value) -> State {
        state(&serde_json::from_value(json!({ "metadata": { "name": "b" }, "status": status })).unwrap())
    }

    #[test]
    fn states_contain_the_reasons_of_kubernetes() {
        let waiting = |text: &str| State::Waiting(text.to_owned());
        assert_eq!(of(json!({ "phase": "Pending" })), waiting("is pending"));
        let conditions = json!([{ "type": "PodScheduled", "status": "False", "message": "0/1 nodes: no memory" }]);
        assert_eq!(
            of(json!({ "phase": "Pending", "conditions": conditions })),
            waiting("has no node: 0/1 nodes: no memory")
        );
        let container = |state: Value| json!([{ "name": "b", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state }]);
        let pulling = container(json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } }));
        assert_eq!(of(json!({ "containerStatuses": pulling })), waiting("waits: ErrImagePull not found"));
        let config = "CreateContainerConfigError";
        for message in ["failed to sync secret cache: timed out", "services have not yet been read at least once"] {
            let early = container(json!({ "waiting": { "reason": config, "message": message } }));
            assert_eq!(of(json!({ "containerStatuses": early })), waiting(&format!("waits: {config} {message}")));
        }
        for (reason, outlook) in [("ImagePullBackOff", Outlook::Passing), (config, Outlook::Lasting)] {
            let bad = container(json!({ "waiting": { "reason": reason, "message": "not found" } }));
            let State::Hopeless(error) = of(json!({ "containerStatuses": bad })) else { panic!() };
            assert_eq!((error.outlook, &*error.text), (outlook, &*format!("waits: {reason} not found")));
        }
        let killed = container(json!({ "terminated": { "reason": "OOMKilled", "exitCode": 137 } }));
        assert_eq!(
            of(json!({ "containerStatuses": killed })),
            State::Ended("ended: OOMKilled, exit code 137".to_owned())
        );
        let failed = json!({ "phase": "Failed", "reason": "Evicted", "message": "the node was low on memory" });
        assert_eq!(of(failed), State::Ended("ended: Evicted the node was low on memory".to_owned()));
        let conditions = json!([{ "type": "Ready", "status": "True" }]);
        assert_eq!(of(json!({ "phase": "Running", "podIP": "10.0.0.7", "conditions": conditions })), State::Ready);
    }
}
