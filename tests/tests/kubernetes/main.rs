//! Builders as pods, with a real control plane. Routers have the role of `deploy/kubernetes`.

mod chart;
mod cloudnative_pg;
mod faults;
mod losses;
mod manifests;
mod routers;
mod scene;

use std::thread;
use std::time::Instant;

use harness::{Proxy, inspect};
use scene::{POSTGRES, Scene, held};

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn eight_at_once_take_turns_on_three_pods() {
    let mut scene = Scene::new("eight-at-once");
    let router = scene.router("router-a", &Scene::template(|_| {}), &["--max-builders", "3"]);
    let started = Instant::now();
    scene.build_and_drop(&router);
    println!("the first build, with its pod's start, took {:.2} s", started.elapsed().as_secs_f64());
    for table in 0..8 {
        let sql = format!("CREATE TABLE t{table} AS SELECT * FROM items WHERE id % 8 = {table}");
        scene.session.execute(&sql).unwrap();
    }
    let proxies = [(); 3].map(|()| held(router.address()));
    let threads = (0..8)
        .map(|table| {
            let mut session = scene.another_session();
            let port = proxies.get(table).map_or(router.address().port(), Proxy::port);
            router.attach_through(&mut session, port).unwrap();
            thread::spawn(move || {
                let sql = format!(
                    "CREATE INDEX t{table}_idx ON t{table} USING hnsw (v vector_l2_ops) WITH (external = true)"
                );
                session.execute(&sql).unwrap();
                inspect(&POSTGRES, &mut session, &format!("t{table}_idx")).unwrap();
            })
        })
        .collect();
    assert_eq!(scene.most_pods(&proxies, threads), 3, "pods at a time");
    router.expect_builds(9).unwrap();
    assert_eq!(router.metric("lantern_index_builds_total{outcome=\"succeeded\"}").unwrap(), 9.0);
    scene.wait_for_pods(0);
}
