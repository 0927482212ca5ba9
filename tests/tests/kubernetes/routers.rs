//! Routers that are killed, and several routers at once: their only shared state is in Kubernetes.

use std::thread;
use std::time::Duration;

use harness::{Direction, Proxy, inspect, wait_for};
use serde_json::json;

use crate::scene::{CREATE, PATIENCE, POSTGRES, Scene, held};

impl Scene {
    /// Waits until this many builders' pods have the label.
    fn wait_for_label(&self, label: &str, count: usize) {
        wait_for(label, PATIENCE, || {
            Ok((self.kubectl(&["get", "pods", "-l", label, "-o", "name"]).lines().count() == count).then_some(()))
        })
        .unwrap();
    }
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn builders_of_a_killed_router_are_taken_over() {
    let mut scene = Scene::new("router-killed");
    let template = Scene::template(|_| {});
    let mut first = scene.router("router-a", &template, &["--min-builders", "2"]);
    first.expect_builders("idle", 2).unwrap();
    first.kill();
    assert_eq!(scene.pods().len(), 2);
    // With the same pod name, as after a container restart.
    let mut again = scene.router("router-a", &template, &["--min-builders", "1", "--max-builders", "2"]);
    scene.build_and_drop(&again);
    scene.wait_for_pods(1);
    again.kill();
    // Now with another name, since the first pod is deleted.
    scene.kubectl(&["delete", "pod", "router-a"]);
    let other = scene.router("router-b", &template, &[]);
    scene.wait_for_pods(0);
    scene.build_and_drop(&other);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn two_routers_share_the_places() {
    let mut scene = Scene::new("two-routers");
    let template = Scene::template(|_| {});
    let routers = ["router-a", "router-b"].map(|name| scene.router(name, &template, &["--max-builders", "2"]));
    for table in 0..6 {
        let sql = format!("CREATE TABLE t{table} AS SELECT * FROM items WHERE id % 6 = {table}");
        scene.session.execute(&sql).unwrap();
    }
    let proxies = [0, 1].map(|router: usize| held(routers[router].address()));
    let threads = (0..6)
        .map(|table: usize| {
            let mut session = scene.another_session();
            let router = &routers[table % 2];
            let port = proxies.get(table).map_or(router.address().port(), Proxy::port);
            router.attach_through(&mut session, port).unwrap();
            thread::spawn(move || {
                let sql = format!("CREATE INDEX ON t{table} USING hnsw (v vector_l2_ops) WITH (external = true)");
                session.execute(&sql).unwrap();
            })
        })
        .collect();
    assert_eq!(scene.most_pods(&proxies, threads), 2, "pods at a time");
    scene.wait_for_pods(0);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_starting_pod_is_deleted_when_its_client_leaves() {
    let mut scene = Scene::new("client-leaves");
    let sizes = ["--builder-min-memory", "4TB", "--builder-max-memory", "8TB", "--start-timeout", "5s"];
    let router = scene.router("router-a", &Scene::template(|_| {}), &sizes);
    router.attach(&mut scene.session).unwrap();
    let pid = scene.session.pid();
    let mut watcher = scene.another_session();
    let another = scene.another_session();
    let waiting = std::mem::replace(&mut scene.session, another).start(CREATE);
    scene.wait_for_pods(1);
    thread::sleep(Duration::from_millis(1500));
    watcher.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
    let (mut session, result) = waiting.join().unwrap();
    assert_eq!(result.unwrap_err().server().sqlstate, "57014");
    let details: Vec<_> = session.take_notices().into_iter().map(|notice| notice.detail).collect();
    assert!(details.iter().any(|detail| detail.contains("has no node")), "{details:?}");
    scene.wait_for_pods(0);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn builders_of_a_router_that_was_evicted_are_taken_over() {
    let scene = Scene::new("router-evicted");
    let template = Scene::template(|_| {});
    let mut evicted = scene.router("router-a", &template, &["--min-builders", "1"]);
    evicted.expect_builders("idle", 1).unwrap();
    evicted.kill();
    // An evicted pod remains until it is deleted.
    let status = json!({ "status": { "phase": "Failed", "reason": "Evicted" } }).to_string();
    scene.kubectl(&["patch", "pod", "router-a", "--subresource=status", "--type=merge", "-p", &status]);
    let _other = scene.router("router-b", &template, &[]);
    scene.wait_for_pods(0);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn routers_keep_builders_together() {
    let scene = Scene::new("kept-together");
    let template = Scene::template(|_| {});
    let kept = ["--min-builders", "2", "--spare-builders", "2", "--max-builders", "4", "--idle-ttl", "1s"];
    let first = scene.router("router-a", &template, &kept);
    first.expect_builders("idle", 2).unwrap();
    let second = scene.router("router-b", &template, &kept);
    // Longer than a start takes, and than surplus builders stay idle.
    thread::sleep(Duration::from_secs(5));
    assert_eq!(scene.pods().len(), 2, "{}", second.log());
    first.expect_builders("idle", 2).unwrap();
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_router_lends_its_idle_builder_to_another_whose_client_waits() {
    let mut scene = Scene::new("lent");
    let template = Scene::template(|_| {});
    let one = ["--max-builders", "1", "--spare-builders", "1", "--idle-ttl", "1m"];
    let lender = scene.router("router-a", &template, &one);
    lender.expect_builders("idle", 1).unwrap();
    let pod = scene.pods();
    let other = scene.router("router-b", &template, &["--max-builders", "1", "--idle-ttl", "1m"]);
    scene.session.execute("SET statement_timeout = '30s'").unwrap();
    scene.build_and_drop(&other);
    assert_eq!(scene.pods(), pod, "the same one");
    // The first router borrows it back.
    scene.build_and_drop(&lender);
    assert_eq!(scene.pods(), pod, "the same one");
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_router_lends_its_idle_builder_if_the_quota_has_room_for_one() {
    let mut scene = Scene::new("lent-by-quota");
    let template = Scene::template(|_| {});
    let settings = ["--max-builders", "4", "--idle-ttl", "1m"];
    let lender = scene.router("router-a", &template, &settings);
    scene.build_and_drop(&lender);
    let pods = scene.kubectl(&["get", "pods", "-o", "name"]).lines().count();
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "one" },
        "spec": { "hard": { "pods": (pods + 1).to_string() } },
    }));
    let pod = scene.pods();
    assert_eq!(pod.len(), 1);
    let other = scene.router("router-b", &template, &settings);
    // Until Kubernetes has counted the pods, the quota holds nobody back.
    wait_for("the quota to be used up", PATIENCE, || {
        let used = scene.kubectl(&["get", "resourcequota", "one", "-o", "jsonpath={.status.used.pods}"]);
        Ok((used.trim() == (pods + 1).to_string()).then_some(()))
    })
    .unwrap();
    scene.session.execute("SET statement_timeout = '30s'").unwrap();
    scene.build_and_drop(&other);
    assert_eq!(scene.pods(), pod, "the same one");
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_router_that_ends_leaves_its_idle_builders_to_others() {
    let scene = Scene::new("drained");
    let template = Scene::template(|_| {});
    let mut ending =
        scene.router("router-a", &template, &["--spare-builders", "1", "--idle-ttl", "1m", "--grace", "1m"]);
    ending.expect_builders("idle", 1).unwrap();
    let proxy = Proxy::start(ending.address()).unwrap();
    proxy.stop_after(Direction::ToBuilder, 200 << 10);
    let mut session = scene.another_session();
    ending.attach_through(&mut session, proxy.port()).unwrap();
    let building = session.start(CREATE);
    proxy.wait_until_stopped(Direction::ToBuilder).unwrap();
    scene.wait_for_label("lantern-index/state=building", 1);
    // It starts another spare builder for the busy one.
    ending.expect_builders("idle", 1).unwrap();
    assert_eq!(scene.pods().len(), 2);
    let terminated = thread::spawn(move || ending.terminate(Duration::from_secs(60)).unwrap());
    scene.wait_for_label("lantern-index/router=,lantern-index/state=idle", 1);
    let other = scene.router("router-b", &template, &["--idle-ttl", "1m"]);
    scene.wait_for_label("lantern-index/router=router-b,lantern-index/state=idle", 1);
    other.expect_builders("idle", 1).unwrap();
    assert!(!building.is_finished() && !terminated.is_finished(), "the build is in the middle of its rows");
    assert_eq!(scene.pods().len(), 2, "no other spare one");
    proxy.reset();
    let (mut session, built) = building.join().unwrap();
    built.unwrap();
    inspect(&POSTGRES, &mut session, "items_idx").unwrap();
    terminated.join().unwrap();
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_pod_that_nobody_waits_for_any_more_is_deleted_before_it_starts() {
    let mut scene = Scene::new("never-started");
    let nowhere = Scene::template(|pod| pod["spec"]["nodeSelector"] = json!({ "no": "node" }));
    let mut first = scene.router("router-a", &nowhere, &[]);
    first.attach(&mut scene.session).unwrap();
    let another = scene.another_session();
    let waiting = std::mem::replace(&mut scene.session, another).start(CREATE);
    scene.wait_for_pods(1);
    first.kill();
    waiting.join().unwrap().1.unwrap_err();
    // With the same pod name, as after a container restart.
    let again = scene.router("router-a", &Scene::template(|_| {}), &["--max-builders", "1"]);
    scene.wait_for_pods(0);
    scene.build_and_drop(&again);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn idle_builders_of_an_earlier_template_are_replaced() {
    let scene = Scene::new("earlier-template");
    let kept = ["--min-builders", "1"];
    let mut before = scene.router("router-a", &Scene::template(|_| {}), &kept);
    before.expect_builders("idle", 1).unwrap();
    before.kill();
    let changed = Scene::template(|pod| pod["metadata"] = json!({ "labels": { "mine": "new" } }));
    let after = scene.router("router-a", &changed, &kept);
    scene.wait_for_label("mine=new,lantern-index/state=idle", 1);
    after.expect_builders("idle", 1).unwrap();
    scene.wait_for_pods(1);
}
