use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use thiserror::Error;

/// Which router answers for a pod.
pub(super) const ROUTER_LABEL: &str = "lantern-index/router";
/// Which set of routers a pod belongs to.
const INSTANCE_LABEL: &str = "lantern-index/instance";
/// The memory that a builder was made for, in bytes.
const MEMORY_ANNOTATION: &str = "lantern-index/memory";
/// What a builder needs besides its limit for builds: it keeps an eighth and 128 MB.
const OWN_SHARE: u64 = 8;
const OWN_BYTES: u64 = 128 << 20;

/// Why a template is none.
#[derive(Debug, Error)]
pub enum TemplateError {
    /// It cannot be read.
    #[error("cannot read the builders' template {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is not a pod.
    #[error("the builders' template {path} is not a pod: {source}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// It has no container.
    #[error("the builders' template {0} has no container")]
    Empty(PathBuf),
}

/// A pod for builders, as operators write it.
///
/// The router sets the pod's name and labels, its owner and `restartPolicy: Never`; of the first container the memory, request and
/// limit alike, if builders have sizes, and the variable by which the builder knows its tickets.
#[derive(Debug)]
pub(super) struct Template {
    pod: Pod,
    prefix: String,
    labels: BTreeMap<String, String>,
    instance: String,
}

impl Template {
    pub(super) fn read(path: &Path, instance: &str, identity: &str) -> Result<Self, TemplateError> {
        let text = fs::read(path).map_err(|source| TemplateError::Read { path: path.to_owned(), source })?;
        let pod: Pod =
            serde_json::from_slice(&text).map_err(|source| TemplateError::Parse { path: path.to_owned(), source })?;
        if pod.spec.as_ref().is_none_or(|spec| spec.containers.is_empty()) {
            return Err(TemplateError::Empty(path.to_owned()));
        }
        let labels = [(INSTANCE_LABEL, instance), (ROUTER_LABEL, identity)];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Ok(Self { pod, prefix: format!("{instance}-builder"), labels, instance: instance.to_owned() })
    }

    /// Pods are deleted with this one.
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

    /// Selects the pods of all routers of this name.
    pub(super) fn selector(&self) -> String {
        format!("{INSTANCE_LABEL}={}", self.instance)
    }

    /// The name of a place, from 1.
    pub(super) fn name(&self, place: usize) -> String {
        format!("{}-{place}", self.prefix)
    }

    /// The pod of a place, for builds of `memory` bytes; 0 leaves its memory as the template has it.
    pub(super) fn pod(&self, name: &str, memory: u64) -> Result<Pod, TemplateError> {
        let mut pod = self.pod.clone();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = None;
        pod.labels_mut().extend(self.labels.clone());
        pod.annotations_mut().insert(MEMORY_ANNOTATION.to_owned(), memory.to_string());
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

/// The memory that a pod was made for.
pub(super) fn memory(pod: &Pod) -> u64 {
    pod.annotations().get(MEMORY_ANNOTATION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Names are used again; a pod's uid is not.
fn ticket_name() -> EnvVar {
    let field = ObjectFieldSelector { field_path: "metadata.uid".to_owned(), ..ObjectFieldSelector::default() };
    EnvVar {
        name: "LANTERN_INDEX_TICKET_NAME".to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}

fn set_memory(container: &mut Container, memory: u64) {
    let bytes = (memory + OWN_BYTES).saturating_add(memory / (OWN_SHARE - 1));
    let quantity = Quantity(format!("{}Mi", bytes.div_ceil(1 << 20)));
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
    fn what_the_router_says_is_added_to_what_the_operator_says() {
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
        assert_eq!(container["resources"]["limits"]["memory"], "8320Mi");
        assert_eq!(container["resources"]["requests"]["cpu"], "4");
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], "metadata.uid");
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
