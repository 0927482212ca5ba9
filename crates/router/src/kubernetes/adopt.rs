use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};

use super::refusal::{is_absent, is_taken};
use super::template::{router_of, take};

/// How long after the end of its grace period a router's pod may still be there. Clocks may differ by as much.
const OVERDUE: Duration = Duration::from_secs(300);

/// Takes over a pod whose router is gone or has released it. `None` if another router owns it or took it over first.
pub(super) async fn adopt(api: &Api<Pod>, pod: Pod, identity: &str) -> Result<Option<Pod>, kube::Error> {
    let router = router_of(&pod);
    let is_taken_care_of = !router.is_empty() && router != identity;
    if is_taken_care_of && api.get_opt(router).await?.is_some_and(|router| runs(&router, SystemTime::now())) {
        return Ok(None);
    }
    // Patch even if this router owned it before: it may have been released to another router since.
    match api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(take(&pod, identity))).await {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if is_taken(&error) || is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a router's pod may be running. An evicted pod remains for a while in phase `Failed`, without a process. If its node is dead,
/// Kubernetes deletes the pod after some minutes, but it remains in phase `Running` when the grace period of the deletion has passed.
fn runs(router: &Pod, now: SystemTime) -> bool {
    let phase = router.status.as_ref().and_then(|status| status.phase.as_deref());
    let until = router.metadata.deletion_timestamp.as_ref().map(|until| SystemTime::from(until.0));
    let is_overdue = until.is_some_and(|until| until + OVERDUE < now);
    !matches!(phase, Some("Failed" | "Succeeded")) && !is_overdue
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use k8s_openapi::api::core::v1::{Pod, PodStatus};
    use serde_json::json;

    use super::{OVERDUE, runs};

    #[test]
    fn a_router_that_was_evicted_does_not_run() {
        let in_phase = |phase: &str| {
            let status = PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() };
            runs(&Pod { status: Some(status), ..Pod::default() }, SystemTime::now())
        };
        assert!(in_phase("Running") && in_phase("Pending") && in_phase("Unknown"));
        assert!(!in_phase("Failed") && !in_phase("Succeeded"));
        assert!(runs(&Pod::default(), SystemTime::now()));
    }

    #[test]
    fn a_router_that_outlasts_its_deletion_is_lost_with_its_node() {
        let pod =
            json!({ "metadata": { "deletionTimestamp": "1970-01-01T01:00:00Z" }, "status": { "phase": "Running" } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let at = |since: Duration| runs(&pod, SystemTime::UNIX_EPOCH + Duration::from_secs(3600) + since);
        assert!(at(Duration::ZERO) && at(OVERDUE) && !at(OVERDUE + Duration::from_secs(1)));
    }
}
