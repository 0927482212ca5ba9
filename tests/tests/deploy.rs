//! The files of `deploy/` that run without containers.

use harness::{Builder, Cluster, inspect, root};

#[test]
fn the_demo_job_builds_an_index_externally() {
    let (cluster, builder) = (Cluster::start().unwrap(), Builder::start().unwrap());
    let mut session = cluster.database("demo_job").unwrap();
    builder.attach(&mut session).unwrap();
    let script = std::fs::read_to_string(root().join("deploy/demo.sql")).unwrap();
    // The job runs at each start of the services.
    for runs in 1..=2 {
        session.execute(&script).unwrap();
        // The builder builds the index, and checks it.
        builder.expect_builds(2 * runs).unwrap();
    }
    inspect(&cluster, &mut session, "demo_embedding_idx").unwrap();
    let distinct: i64 = session.value("SELECT count(DISTINCT embedding) FROM demo").unwrap();
    assert_eq!(distinct, 20_000);
}
