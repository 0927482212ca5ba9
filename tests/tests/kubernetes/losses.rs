//! Losses during a build, or while its pod starts: the client gets an error, nothing is left over, and the next build works.

use std::thread;
use std::time::Duration;

use harness::kubernetes::Machine;
use harness::{Builder, Building, Phase, Proxy, SqlError, inspect, wait_for, with_variable};
use serde_json::{Value, json};

use crate::scene::{KUBERNETES, PATIENCE, POSTGRES, Scene};

/// A build that takes a while.
const SLOW: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) \
                    WITH (m = 100, ef_construction = 1000, external = true)";
/// The time limit for controllers to notice that a node is gone.
const COLLECTED: Duration = Duration::from_secs(150);

impl Scene {
    /// Starts a build through `proxy` and returns when it is stopped in the middle of a phase.
    fn build_until(&self, phase: Phase, router: &Builder, proxy: &Proxy) -> Building {
        let (mut session, mut watcher) = (self.another_session(), self.another_session());
        router.attach_through(&mut session, proxy.port()).unwrap();
        phase.reach(proxy, session, &mut watcher, SLOW).unwrap()
    }
}

fn failed(building: Building) -> SqlError {
    let error = building.join().unwrap().1.unwrap_err();
    println!("{error}\n");
    error
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_lost_pod_ends_the_build_in_each_phase() {
    let mut scene = Scene::new("pod-lost");
    let router = scene.router("router-a", &Scene::template(|_| {}), &["--idle-ttl", "1m"]);
    let proxy = Proxy::start(router.address()).unwrap();
    for phase in Phase::ALL {
        for delete in [false, true] {
            let building = scene.build_until(phase, &router, &proxy);
            let pod = scene.pods().remove(0);
            if delete {
                scene.kubectl(&["delete", &pod, "--wait=false", "--grace-period=1"]);
            } else {
                kill_builder_of(&scene, &pod);
            }
            wait_for("the pod's end", PATIENCE, || {
                let state = scene.kubectl(&["get", &pod, "--ignore-not-found", "-o", "jsonpath={.status.phase}"]);
                Ok(["", "Failed"].contains(&state.as_str()).then_some(()))
            })
            .unwrap();
            proxy.reset();
            let (mut session, result) = building.join().unwrap();
            let error = match result {
                // All pages were in flight before the loss.
                Ok(()) if phase == Phase::Pages => {
                    inspect(&POSTGRES, &mut session, "items_idx").unwrap();
                    session.execute("DROP INDEX items_idx").unwrap();
                    continue;
                }
                result => result.unwrap_err(),
            };
            println!("{error}\n");
            let (state, text) = (error.server().sqlstate.as_str(), error.to_string());
            // A builder that is asked to end sends a reason, if its client reads.
            let expected: &[&str] = if delete { &["08006", "57000"] } else { &["08006"] };
            assert!(expected.contains(&state), "{phase:?}, deleted: {delete}: {text}");
            // In the middle of a page the builder cannot send a message.
            assert!(delete || phase == Phase::Pages || text.contains("OOMKilled"), "{phase:?}: {text}");
            scene.build_and_drop(&router);
        }
    }
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_killed_router_ends_the_build_in_each_phase() {
    let mut scene = Scene::new("router-lost");
    let template = Scene::template(|_| {});
    for phase in Phase::ALL {
        let mut router = scene.router("router-a", &template, &[]);
        let proxy = Proxy::start(router.address()).unwrap();
        let building = scene.build_until(phase, &router, &proxy);
        router.kill();
        proxy.cut();
        assert_eq!(failed(building).server().sqlstate, "08006", "{phase:?}");
        // The router restarts with the same pod name, as after a container restart: it takes the builder over, which is soon idle.
        let again = scene.router("router-a", &template, &[]);
        scene.build_and_drop(&again);
        scene.wait_for_pods(0);
    }
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_build_and_a_starting_pod_outlast_a_lost_api_server() {
    let mut scene = Scene::new("api-away-busy");
    let _alone = scene.alone();
    let builds = scene.router("router-a", &Scene::template(|_| {}), &[]);
    let proxy = Proxy::start(builds.address()).unwrap();
    let starts = scene.router("router-b", &apart("late"), &["--instance", "late"]);
    let building = scene.build_until(Phase::Rows, &builds, &proxy);
    let mut session = scene.another_session();
    session.execute("CREATE TABLE other AS SELECT * FROM items LIMIT 1000").unwrap();
    starts.attach(&mut session).unwrap();
    let starting = session.start("CREATE INDEX other_idx ON other USING hnsw (v vector_l2_ops) WITH (external = true)");
    scene.wait_for_pods(2);

    let mut kubernetes = KUBERNETES.write().unwrap();
    kubernetes.kill("kube-apiserver");
    proxy.reset();
    let (mut session, result) = building.join().unwrap();
    result.unwrap();
    inspect(&POSTGRES, &mut session, "items_idx").unwrap();
    thread::sleep(Duration::from_secs(30));
    assert!(!starting.is_finished(), "it waits for a node");
    kubernetes.start_part("kube-apiserver").unwrap();
    kubernetes.wait_until_ready().unwrap();
    let late = kubernetes.play(Machine { number: 9, memory: 8 << 10, apart: Some("late".to_owned()) }).unwrap();
    drop(kubernetes);
    let (mut session, result) = starting.join().unwrap();
    result.unwrap();
    inspect(&POSTGRES, &mut session, "other_idx").unwrap();
    scene.wait_for_pods(0);
    scene.kubectl(&["delete", "node", "node-9"]);
    late.shutdown_timeout(Duration::from_secs(5));
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_lost_node_ends_the_build() {
    let mut scene = Scene::new("node-gone");
    let machine = |number| Machine { number, memory: 8 << 10, apart: Some("fragile".to_owned()) };
    let node = KUBERNETES.read().unwrap().play(machine(2)).unwrap();
    let router = scene.router("router-a", &apart("fragile"), &["--max-builders", "2"]);
    let proxy = Proxy::start(router.address()).unwrap();
    let building = scene.build_until(Phase::Graph, &router, &proxy);
    // The node disappears without notice, as in a power failure.
    node.shutdown_timeout(Duration::from_secs(5));
    proxy.reset();
    let error = failed(building);
    assert_eq!(error.server().sqlstate, "08006", "{error}");
    assert!(error.to_string().contains("lost its connection to builder"), "{error}");
    // Administrators delete lost nodes; controllers delete their pods a little later.
    scene.kubectl(&["delete", "node", "node-2"]);
    let other = KUBERNETES.read().unwrap().play(machine(3)).unwrap();
    scene.build_and_drop(&router);
    wait_for("the lost pod's end", COLLECTED, || Ok(scene.pods().is_empty().then_some(()))).unwrap();
    scene.build_and_drop(&router);
    scene.wait_for_pods(0);
    scene.kubectl(&["delete", "node", "node-3"]);
    other.shutdown_timeout(Duration::from_secs(5));
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_build_outlasts_a_silent_kubelet() {
    let scene = Scene::new("kubelet-silent");
    let router = scene.router("router-a", &Scene::template(|_| {}), &[]);
    let proxy = Proxy::start(router.address()).unwrap();
    let building = scene.build_until(Phase::Rows, &router, &proxy);
    // As the node controller does with all pods of such a node. The build goes on.
    let status =
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "NodeNotReady" }] } });
    let pods = scene.pods();
    for pod in &pods {
        scene.kubectl(&["patch", pod, "--subresource=status", "--type=strategic", "--patch", &status.to_string()]);
    }
    // Longer than a pod without a build may be unready.
    thread::sleep(Duration::from_secs(80));
    assert_eq!(scene.pods(), pods);
    proxy.reset();
    let (mut session, result) = building.join().unwrap();
    result.unwrap();
    inspect(&POSTGRES, &mut session, "items_idx").unwrap();
    scene.wait_for_pods(0);
}

/// A pod template that selects dedicated nodes.
fn apart(name: &str) -> Value {
    Scene::template(|pod| {
        pod["spec"]["nodeSelector"] = json!({ "apart": name });
        pod["spec"]["tolerations"] =
            json!([{ "key": "apart", "operator": "Equal", "value": name, "effect": "NoSchedule" }]);
    })
}

/// Kills the process of a pod's container with SIGKILL, as the kernel does when memory runs out.
fn kill_builder_of(scene: &Scene, pod: &str) {
    let uid = scene.kubectl(&["get", pod, "-o", "jsonpath={.metadata.uid}"]);
    for pid in with_variable("LANTERN_INDEX_TICKET_NAME", &uid) {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}
