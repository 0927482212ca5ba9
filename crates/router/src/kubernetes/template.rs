use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use thiserror::Error;

/// The name of the router that owns a pod.
const ROUTER_LABEL: &str = "lantern-index/router";
/// The instance name of the routers that a pod belongs to.
const INSTANCE_LABEL: &str = "lantern-index/instance";
/// The builder's state: `starting`, `idle` or `building`.
const STATE_LABEL: &str = "lantern-index/state";
/// The memory in bytes that a builder was created with.
const MEMORY_ANNOTATION: &str = "lantern-index/memory";
/// The hash of the template that a pod was created from.
const TEMPLATE_ANNOTATION: &str = "lantern-index/template";
/// The name of another router that waits for the builder.
const WANTED_ANNOTATION: &str = "lantern-index/wanted-by";
/// Keeps the cluster autoscaler from evicting a builder during a build.
const EVICT_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// Why a template cannot be used.
#[derive(Debug, Error)]
pub enum TemplateError {
    /// The file cannot be read.
    #[error("cannot read the builders' template {path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not a pod in JSON.
    #[error("the builders' template {path} is not a pod: {source}")]
    Parse {
        /// Path of the file.
        path: PathBuf,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The pod has no container.
    #[error("the builders' template {0} has no container")]
    Empty(PathBuf),
}

/// The operator's template for builders' pods.
///
/// The router sets the pod's name, its own labels and annotations, the owner and `restartPolicy: Never`. In the first container it sets the
/// variable with the builder's name in tickets and, if builders have sizes, memory requests and limits.
#[derive(Debug)]
pub(super) struct Template {
    pod: Pod,
    prefix: String,
    labels: BTreeMap<String, String>,
    instance: String,
    /// A hash of the template, stable within one release of the router.
    hash: String,
}

/// Whether the file has a template of pods.
///
/// # Errors
/// It cannot be read, is no pod in JSON, or has no container.
pub fn check_template(path: &Path) -> Result<(), TemplateError> {
    Template::read(path, "", "").map(drop)
}

impl Template {
    pub(super) fn read(path: &Path, instance: &str, identity: &str) -> Result<Self, TemplateError> {
        let text = fs::read(path).map_err(|source| TemplateError::Read { path: path.to_owned(), source })?;
        let pod: Pod =
            serde_json::from_slice(&text).map_err(|source| TemplateError::Parse { path: path.to_owned(), source })?;
        if pod.spec.as_ref().is_none_or(|spec| spec.containers.is_empty()) {
            return Err(TemplateError::Empty(path.to_owned()));
        }
        let labels = [(INSTANCE_LABEL, instance), (ROUTER_LABEL, identity), (STATE_LABEL, "starting")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let mut hasher = DefaultHasher::new();
        json!(pod).to_string().hash(&mut hasher);
        let hash = format!("{:016x}", hasher.finish());
        Ok(Self { pod, prefix: format!("{instance}-builder"), labels, instance: instance.to_owned(), hash })
    }

    /// Whether a pod was created from another template than this one.
    pub(super) fn is_outdated(&self, pod: &Pod) -> bool {
        pod.annotations().get(TEMPLATE_ANNOTATION) != Some(&self.hash)
    }

    /// Sets the Deployment as owner, so that Kubernetes deletes the pods with it.
    pub(super) fn set_owner(&mut self, owner: &Deployment) {
        self.pod.metadata.owner_references = Some(vec![OwnerReference {
            api_version: Deployment::api_version(&()).into_owned(),
            kind: Deployment::kind(&()).into_owned(),
            name: owner.name_any(),
            uid: owner.uid().unwrap_or_default(),
            controller: None,
            block_owner_deletion: None,
        }]);
    }

    /// The label selector for pods of all routers of this instance.
    pub(super) fn selector(&self) -> String {
        format!("{INSTANCE_LABEL}={}", self.instance)
    }

    /// The name of the pod with the number `place`, which counts from 1.
    pub(super) fn name(&self, place: usize) -> String {
        format!("{}-{place}", self.prefix)
    }

    /// A pod of this name with `memory` bytes; 0 leaves the memory of the template.
    pub(super) fn pod(&self, name: &str, memory: u64) -> Result<Pod, TemplateError> {
        let mut pod = self.pod.clone();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = None;
        pod.labels_mut().extend(self.labels.clone());
        let annotations = [(MEMORY_ANNOTATION, memory.to_string()), (TEMPLATE_ANNOTATION, self.hash.clone())];
        pod.annotations_mut().extend(annotations.map(|(name, value)| (name.to_owned(), value)));
        pod.annotations_mut().insert(EVICT_ANNOTATION.to_owned(), "false".to_owned());
        let spec = pod.spec.get_or_insert_default();
        spec.restart_policy = Some("Never".to_owned());
        let Some(container) = spec.containers.first_mut() else { return Err(TemplateError::Empty(PathBuf::new())) };
        container.env.get_or_insert_default().push(ticket_name());
        if memory > 0 {
            set_memory(container, memory);
        }
        Ok(pod)
    }
}

/// The memory in bytes that a pod was created with.
pub(super) fn memory(pod: &Pod) -> u64 {
    pod.annotations().get(MEMORY_ANNOTATION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The router that owns a pod; empty if none does.
pub(super) fn router_of(pod: &Pod) -> &str {
    pod.labels().get(ROUTER_LABEL).map_or("", String::as_str)
}

/// Whether the pod is labelled as having a build.
pub(super) fn is_building(pod: &Pod) -> bool {
    pod.labels().get(STATE_LABEL).is_some_and(|state| state == "building")
}

/// Whether the pod is labelled as idle and could accept a build.
pub(super) fn is_idle(pod: &Pod) -> bool {
    pod.labels().get(STATE_LABEL).is_some_and(|state| state == "idle")
}

/// The other router that waits for the pod, if any.
pub(super) fn wanted_by(pod: &Pod) -> Option<&str> {
    pod.annotations().get(WANTED_ANNOTATION).map(String::as_str).filter(|router| !router.is_empty())
}

/// The patch that labels a pod as building or idle. It has the uid, so that Kubernetes rejects it for another pod of the same name.
pub(super) fn show_building(uid: &str, building: bool) -> Value {
    let state = if building { "building" } else { "idle" };
    json!({ "metadata": {
        "uid": uid,
        "labels": { STATE_LABEL: state },
        "annotations": { EVICT_ANNOTATION: (!building).to_string() },
    }})
}

/// The patch that releases an idle pod to another router, or with an empty name to any router.
pub(super) fn leave_to(uid: &str, router: &str) -> Value {
    json!({ "metadata": {
        "uid": uid,
        "labels": { ROUTER_LABEL: router, STATE_LABEL: "idle" },
        "annotations": { WANTED_ANNOTATION: null, EVICT_ANNOTATION: "true" },
    }})
}

/// The patch that asks the owner for a pod; it fails if the pod has changed since it was read.
pub(super) fn want(pod: &Pod, router: &str) -> Value {
    json!({ "metadata": {
        "uid": pod.uid(), "resourceVersion": pod.resource_version(), "annotations": { WANTED_ANNOTATION: router },
    }})
}

/// The patch that takes over a pod; it fails if the pod has changed since it was read.
pub(super) fn take(pod: &Pod, router: &str) -> Value {
    json!({ "metadata": {
        "uid": pod.uid(), "resourceVersion": pod.resource_version(), "labels": { ROUTER_LABEL: router },
        "annotations": { WANTED_ANNOTATION: null },
    }})
}

/// The variable with the pod's uid, which tickets name since pod names are reused.
fn ticket_name() -> EnvVar {
    let field = ObjectFieldSelector { field_path: "metadata.uid".to_owned(), ..ObjectFieldSelector::default() };
    EnvVar {
        name: "LANTERN_INDEX_TICKET_NAME".to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}

fn set_memory(container: &mut Container, memory: u64) {
    let quantity = Quantity(format!("{}Mi", memory.div_ceil(1 << 20)));
    let resources = container.resources.get_or_insert_with(ResourceRequirements::default);
    for list in [&mut resources.requests, &mut resources.limits] {
        list.get_or_insert_default().insert("memory".to_owned(), quantity.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::Template;

    const POD: &str = r#"{"metadata": {"labels": {"mine": "yes"}}, "spec": {"priorityClassName": "low",
        "containers": [{"name": "builder", "image": "lantern-index", "resources": {"requests": {"cpu": "4"}}}]}}"#;

    fn template(text: &str) -> Result<Template, super::TemplateError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Template::read(file.path(), "lantern", "router-1")
    }

    #[test]
    fn the_router_adds_its_fields_to_the_operators_template() {
        let template = template(POD).unwrap();
        let pod = serde_json::to_value(template.pod(&template.name(3), 7 << 30).unwrap()).unwrap();
        assert_eq!(pod["metadata"]["name"], "lantern-builder-3");
        assert_eq!(pod["metadata"]["labels"]["mine"], "yes");
        assert_eq!(pod["metadata"]["labels"]["lantern-index/router"], "router-1");
        assert_eq!(
            (&pod["spec"]["restartPolicy"], &pod["spec"]["priorityClassName"]),
            (&"Never".into(), &"low".into())
        );
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"]["memory"], "7168Mi");
        assert_eq!(container["resources"]["requests"]["cpu"], "4");
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], "metadata.uid");
    }

    #[test]
    fn pods_of_another_template_are_outdated() {
        let [one, same, other] =
            [POD, &POD.replace('\n', " "), &POD.replace("low", "high")].map(|text| template(text).unwrap());
        let pod = one.pod("lantern-builder-1", 7 << 30).unwrap();
        assert!(!one.is_outdated(&pod) && !same.is_outdated(&pod) && other.is_outdated(&pod));
        assert!(one.is_outdated(&Default::default()), "a pod without a hash");
    }

    #[test]
    fn errors_name_the_file() {
        for bad in ["", "{}", "[]", r#"{"spec": {"containers": []}}"#, r#"{"spec": {"containers": {}}}"#] {
            let error = template(bad).unwrap_err().to_string();
            assert!(error.contains("template /"), "{error}");
        }
        assert!(Template::read(Path::new("/absent"), "", "").is_err());
    }
}
