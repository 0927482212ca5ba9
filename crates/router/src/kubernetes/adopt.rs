use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};

use super::first_seen::FirstSeen;
use super::refusal::{is_absent, is_taken};
use super::template::{router_of, take};

/// How long after the end of its grace period a router's pod may still be there.
const OVERDUE: Duration = Duration::from_secs(300);

/// Takes over a pod whose router is gone or has released it. `None` if another router owns it or took it over first. `ending` has the pods
/// in which routers run, if they are being deleted.
pub(super) async fn adopt(
    api: &Api<Pod>,
    pod: Pod,
    identity: &str,
    ending: &FirstSeen,
) -> Result<Option<Pod>, kube::Error> {
    let router = router_of(&pod);
    let is_taken_care_of = !router.is_empty() && router != identity;
    if is_taken_care_of && api.get_opt(router).await?.is_some_and(|router| runs(&router, ending)) {
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
fn runs(router: &Pod, ending: &FirstSeen) -> bool {
    let phase = router.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Failed" | "Succeeded")) {
        return false;
    }
    let Some(grace) = router.metadata.deletion_grace_period_seconds else { return true };
    ending.ago(router) <= Duration::from_secs(grace.unsigned_abs()) + OVERDUE
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::{Pod, PodStatus};
    use serde_json::json;

    use super::{FirstSeen, OVERDUE, runs};

    #[test]
    fn a_router_that_was_evicted_does_not_run() {
        let in_phase = |phase: &str| {
            let status = PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() };
            runs(&Pod { status: Some(status), ..Pod::default() }, &FirstSeen::default())
        };
        assert!(in_phase("Running") && in_phase("Pending") && in_phase("Unknown"));
        assert!(!in_phase("Failed") && !in_phase("Succeeded"));
        assert!(runs(&Pod::default(), &FirstSeen::default()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_router_that_outlasts_its_deletion_is_lost_with_its_node() {
        let router = |uid: &str| -> Pod {
            let metadata = json!({
                "uid": uid, "deletionTimestamp": "1970-01-01T01:00:00Z", "deletionGracePeriodSeconds": 3600,
            });
            serde_json::from_value(json!({ "metadata": metadata, "status": { "phase": "Running" } })).unwrap()
        };
        let ending = FirstSeen::default();
        assert!(runs(&router("lost"), &ending));
        tokio::time::sleep(Duration::from_secs(3600) + OVERDUE).await;
        assert!(runs(&router("lost"), &ending));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!runs(&router("lost"), &ending) && runs(&router("later"), &ending));
    }
}
