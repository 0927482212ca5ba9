//! Routers that are killed, and several at once: what they know they know from Kubernetes.

use std::thread;
use std::time::Duration;

use harness::wait_for;

use crate::scene::{CREATE, PATIENCE, Scene};

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_router_that_is_killed_leaves_nothing_for_ever() {
    let mut scene = Scene::new("router-killed");
    let template = Scene::template(|_| {});
    let mut first = scene.router("router-a", &template, &["--min-builders", "2"]);
    wait_for("ready builders", PATIENCE, || {
        Ok((first.get("/status")?.1.matches("\"state\":\"idle\"").count() == 2).then_some(()))
    })
    .unwrap();
    first.kill();
    assert_eq!(scene.pods().len(), 2);
    // The same pod again, as when its container was restarted.
    let mut again = scene.router("router-a", &template, &["--min-builders", "1", "--max-builders", "2"]);
    scene.build_and_drop(&again);
    scene.wait_for_pods(1);
    again.kill();
    // Another one, since that pod is gone.
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
    let threads = (0..6)
        .map(|table: usize| {
            let mut session = scene.another_session();
            routers[table % 2].attach(&mut session).unwrap();
            thread::spawn(move || {
                let sql = format!("CREATE INDEX ON t{table} USING hnsw (v vector_l2_ops) WITH (external = true)");
                session.execute(&sql).unwrap();
            })
        })
        .collect();
    let most = scene.most_pods(threads);
    assert!(most <= 2, "{most} pods at a time");
    scene.wait_for_pods(0);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_client_that_leaves_while_its_pod_starts() {
    let mut scene = Scene::new("client-leaves");
    let sizes = ["--builder-min-memory", "4TB", "--builder-max-memory", "8TB", "--start-timeout", "5s"];
    let router = scene.router("router-a", &Scene::template(|_| {}), &sizes);
    router.attach(&mut scene.session).unwrap();
    let pid = scene.session.pid();
    let mut watcher = scene.another_session();
    let another = scene.another_session();
    let mut session = std::mem::replace(&mut scene.session, another);
    let waiting = thread::spawn(move || {
        let result = session.execute(CREATE);
        (session, result)
    });
    scene.wait_for_pods(1);
    thread::sleep(Duration::from_millis(1500));
    watcher.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
    let (mut session, result) = waiting.join().unwrap();
    assert_eq!(result.unwrap_err().server().sqlstate, "57014");
    let told: Vec<_> = session.take_notices().into_iter().map(|notice| notice.detail).collect();
    assert!(told.iter().any(|detail| detail.contains("has no node")), "{told:?}");
    scene.wait_for_pods(0);
}
