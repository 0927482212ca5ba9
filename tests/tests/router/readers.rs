//! Clients that read slowly or not at all.

use harness::{BuilderOptions, Direction, Phase, inspect, wait_for};

use crate::scene::{CLUSTER, CREATE_QUICKLY, PATIENCE, Scene};

#[test]
fn a_slow_client_gets_its_whole_index() {
    let mut scene = Scene::new("slow_reader", &[]);
    // The builder finishes long before the client has read what the buffers on the way contain.
    scene.proxy.slow(Direction::ToClient, 300 << 10);
    let session = scene.session.as_mut().unwrap();
    session.execute("CREATE TABLE few AS SELECT * FROM items WHERE id <= 1500").unwrap();
    session.execute("CREATE INDEX items_idx ON few USING hnsw (v vector_l2_ops) WITH (external = true)").unwrap();
    inspect(&CLUSTER, session, "items_idx").unwrap();
    // The router has seen the result of the relayed build.
    scene.router.expect_builds(1).unwrap();
    let (_, status) = scene.router.get("/status").unwrap();
    let rows = session.value::<u64>("SELECT count(*) FROM few").unwrap();
    assert!(status.contains(&format!("\"rows\":{rows},\"elements\":")), "{status}");
    let pages: u64 = session.value("SELECT pg_relation_size('items_idx') / 8192").unwrap();
    assert!(status.contains(&format!("\"pages\":{pages}")), "{pages}: {status}");
    assert_eq!(scene.router.metric("lantern_index_pages_sent_total").unwrap(), pages as f64);
    assert!(scene.router.metric("lantern_index_received_bytes_total").unwrap() > 1500.0 * 384.0 * 4.0);
}

#[test]
fn a_client_that_does_not_read_is_given_up() {
    let mut scene = Scene::with("no_reader", &BuilderOptions::router(&["--max-builders", "1", "--idle-timeout", "3s"]));
    let building = scene.build_until(Phase::Pages);
    let given_up = || Ok((scene.router.metric("lantern_index_build_active")? == 0.0).then_some(()));
    wait_for("the router to give the client up", PATIENCE, given_up).unwrap();
    let mut other = scene.another_session();
    other.execute("CREATE TABLE other AS SELECT * FROM items LIMIT 100").unwrap();
    other.execute("CREATE INDEX ON other USING hnsw (v vector_l2_ops) WITH (external = true)").unwrap();
    scene.proxy.cut();
    assert_eq!(building.join().unwrap().1.unwrap_err().server().sqlstate, "08006");
}

#[test]
fn a_build_that_takes_too_long_is_ended() {
    let mut scene = Scene::with("overdue", &BuilderOptions::router(&["--max-build-time", "10s"]));
    // A client that sends its rows slowly, with heartbeats in between.
    let session = scene.session.as_mut().unwrap();
    session.execute("SET hnsw.external_index_max_rate = '200kB'").unwrap();
    let error = session.execute(CREATE_QUICKLY).unwrap_err();
    assert_eq!(error.server().sqlstate, "54000", "{error}");
    assert!(error.server().hint.contains("--max-build-time"), "{error}");
    // A new table: deleted rows are indexed as long as any session of the cluster might see them.
    let few =
        "CREATE TABLE few AS SELECT * FROM items WHERE id <= 100; DROP TABLE items; ALTER TABLE few RENAME TO items";
    session.execute(&format!("RESET hnsw.external_index_max_rate; {few}")).unwrap();
    scene.build_and_drop();
}
