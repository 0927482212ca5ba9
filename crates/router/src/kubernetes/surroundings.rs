use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use super::own::Own;
use super::state::{State, state};
use super::template::{is_building, router_of, wanted_by};
use super::view::PodList;
use crate::spawner::Surroundings;

/// Publishes the state of other routers, according to the pods' labels, as long as there is a receiver.
pub(super) async fn follow(
    mut view: watch::Receiver<PodList>,
    identity: String,
    own: Own,
    tell: watch::Sender<Surroundings>,
) {
    loop {
        tokio::select! {
            changed = view.changed() => if changed.is_err() { return },
            () = tell.closed() => return,
        }
        let now = look(view.borrow_and_update().pods(), &identity, &own);
        tell.send_if_modified(|last| {
            let differs = *last != now;
            *last = now;
            differs
        });
    }
}

/// The state of other routers according to the pods' labels.
pub(super) fn look<'a>(pods: impl Iterator<Item = &'a Pod>, identity: &str, own: &Own) -> Surroundings {
    let mut now = Surroundings::default();
    for pod in pods {
        let router = router_of(pod);
        if own.has(pod) {
            if wanted_by(pod).is_some_and(|wanting| wanting != identity) {
                now.wanted.extend(pod.metadata.uid.clone());
            }
            continue;
        }
        // Pods of an earlier run of this router count as released until they are taken over.
        let may_be_taken = pod.metadata.deletion_timestamp.is_none();
        now.left |= may_be_taken && (router == identity || router.is_empty());
        now.others.all += 1;
        // An ended pod keeps its name occupied until it is deleted.
        if matches!(state(pod), State::Ended(_)) {
            continue;
        }
        let (ready, before) = (!is_building(pod), !router.is_empty() && router < identity);
        now.others.ready += usize::from(ready);
        now.others.all_before += usize::from(before);
        now.others.idle_before += usize::from(ready && before);
    }
    now.wanted.sort_unstable();
    now
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::{Own, look};
    use crate::scheduler::Others;
    use crate::spawner::Surroundings;

    /// A pod with this uid, owner, state label, router that waits for it, and phase.
    fn pod(uid: &str, router: &str, state: &str, wanted: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("name-of-{uid}"), "uid": uid,
                "labels": { "lantern-index/router": router, "lantern-index/state": state },
                "annotations": { "lantern-index/wanted-by": wanted },
            },
            "status": { "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn builders_of_other_routers_are_counted_by_their_labels() {
        let own = Own::default();
        own.add("1".to_owned());
        own.add("2".to_owned());
        own.begin("name-of-3");
        let pods = [
            pod("1", "b", "idle", "", "Running"),
            pod("2", "b", "building", "c", "Running"),
            pod("3", "b", "starting", "", "Pending"),
            pod("4", "a", "idle", "", "Running"),
            pod("5", "a", "building", "", "Running"),
            pod("6", "a", "idle", "", "Failed"),
            pod("7", "c", "starting", "b", "Pending"),
            pod("8", "b", "idle", "", "Running"),
        ];
        let others = Others { all: 5, ready: 3, all_before: 2, idle_before: 1 };
        let expected = Surroundings { others, wanted: vec!["2".to_owned()], left: true };
        assert_eq!(look(pods.iter(), "b", &own), expected);
    }

    #[test]
    fn pods_without_a_router_can_be_taken_over() {
        let own = Own::default();
        let left = |router| look([pod("1", router, "idle", "", "Running")].iter(), "b", &own).left;
        assert_eq!([left("b"), left(""), left("a")], [true, true, false]);
        own.begin("name-of-1");
        assert!(!look([pod("1", "b", "starting", "", "Pending")].iter(), "b", &own).left, "it is being made");
        own.made("name-of-1", Some("1".to_owned()));
        assert!(!look([pod("1", "b", "starting", "", "Pending")].iter(), "b", &own).left, "it was made");
        own.remove("1");
        let mut left_behind = pod("1", "b", "starting", "", "Pending");
        assert!(look([left_behind.clone()].iter(), "b", &own).left);
        // The deleted pod of a lost node may remain for long.
        left_behind.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(!look([left_behind].iter(), "b", &own).left);
    }
}
