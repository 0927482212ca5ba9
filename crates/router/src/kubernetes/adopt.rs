use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};

use super::refusal::{is_absent, is_taken};
use super::template::{router_of, take};

/// Takes over a pod whose router is gone or has released it. `None` if another router owns it or took it over first.
pub(super) async fn adopt(api: &Api<Pod>, pod: Pod, identity: &str) -> Result<Option<Pod>, kube::Error> {
    let router = router_of(&pod);
    let is_taken_care_of = !router.is_empty() && router != identity;
    if is_taken_care_of && api.get_opt(router).await?.is_some_and(|router| runs(&router)) {
        return Ok(None);
    }
    // Patch even if this router owned it before: it may have been released to another router since.
    match api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(take(&pod, identity))).await {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if is_taken(&error) || is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a router's pod is running. An evicted pod remains for a while in phase `Failed`, without a process.
fn runs(router: &Pod) -> bool {
    let phase = router.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Failed" | "Succeeded"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, PodStatus};

    use super::runs;

    #[test]
    fn a_router_that_was_evicted_does_not_run() {
        let in_phase = |phase: &str| {
            let status = PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() };
            runs(&Pod { status: Some(status), ..Pod::default() })
        };
        assert!(in_phase("Running") && in_phase("Pending") && in_phase("Unknown") && runs(&Pod::default()));
        assert!(!in_phase("Failed") && !in_phase("Succeeded"));
    }
}
