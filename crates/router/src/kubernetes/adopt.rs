use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::exists;
use super::refusal::is_taken;
use super::template::ROUTER_LABEL;

/// Takes over a pod whose router is gone. `None`: it is another's, or another was faster.
pub(super) async fn adopt(api: &Api<Pod>, pod: Pod, identity: &str) -> Result<Option<Pod>, kube::Error> {
    let router = pod.labels().get(ROUTER_LABEL).cloned().unwrap_or_default();
    if router == identity {
        return Ok(Some(pod));
    }
    if !router.is_empty() && exists(api, &router).await? {
        return Ok(None);
    }
    // The version makes it fail if anybody has changed the pod since.
    let patch = json!({
        "metadata": { "resourceVersion": pod.resource_version(), "labels": { ROUTER_LABEL: identity } }
    });
    match api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if is_taken(&error) || super::is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
