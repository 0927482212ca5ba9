//! Builds that wait in the builder's queue report their position and can be cancelled; a builder with little memory uses its spool.

use std::time::Duration;

use harness::{
    Builder, BuilderOptions, Building, Cluster, Column, Direction, Notice, Proxy, copy_rows, data_set, inspect,
    wait_for_phase,
};

/// The phase of a build in the builder's queue.
const WAITING: &str = "waiting for a place on the builder";
const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";

/// A build in its own database.
struct Build {
    pid: u32,
    building: Building,
}

impl Build {
    fn start(cluster: &Cluster, builder: &Builder, port: u16, name: &str) -> Self {
        let mut session = cluster.database(name).unwrap();
        copy_rows(&mut session, "items", Column::Vector, &data_set("minilm-384").unwrap().0.truncated(3000)).unwrap();
        builder.attach_through(&mut session, port).unwrap();
        session.take_notices();
        let pid = session.pid();
        Self { pid, building: session.start(CREATE) }
    }

    /// Expects the build to succeed, and returns its notices about the queue.
    fn expect_index(self, cluster: &Cluster) -> Vec<Notice> {
        let (mut session, result) = self.building.join().unwrap();
        result.unwrap();
        let mut said = session.take_notices();
        said.retain(|notice| notice.message.starts_with("waiting for external indexing server"));
        inspect(cluster, &mut session, "items_idx").unwrap();
        said
    }
}

#[test]
fn builds_wait_their_turn() {
    let cluster = Cluster::start().unwrap();
    let builder = Builder::start_with(&BuilderOptions::serve(&["--max-builds", "1"])).unwrap();
    let proxy = Proxy::start(builder.address()).unwrap();
    proxy.stop_after(Direction::ToBuilder, 1 << 20);
    let port = builder.address().port();

    let first = Build::start(&cluster, &builder, proxy.port(), "queue_first");
    proxy.wait_until_stopped(Direction::ToBuilder).unwrap();
    let second = Build::start(&cluster, &builder, port, "queue_second");
    wait_for_phase(&mut cluster.session("queue_second").unwrap(), WAITING).unwrap();
    let third = Build::start(&cluster, &builder, port, "queue_third");
    wait_for_phase(&mut cluster.session("queue_third").unwrap(), WAITING).unwrap();

    cluster.session("postgres").unwrap().execute(&format!("SELECT pg_cancel_backend({})", third.pid)).unwrap();
    let (mut session, result) = third.building.join().unwrap();
    assert_eq!(result.unwrap_err().server().sqlstate, "57014");
    let said: Vec<String> = session.take_notices().iter().map(ToString::to_string).collect();
    println!("{}", said.join("\n"));
    assert!(said.iter().any(|line| line.contains("position 2 in its queue")), "{said:?}");

    proxy.reset();
    assert!(first.expect_index(&cluster).is_empty());
    let said = second.expect_index(&cluster);
    assert!(said[0].message.ends_with("position 1 in its queue") && !said[0].detail.is_empty(), "{said:?}");
    builder.expect_idle(Duration::from_secs(60)).unwrap();
}

#[test]
fn a_build_that_needs_the_spool_says_so() {
    let cluster = Cluster::start().unwrap();
    let dir = std::env::temp_dir();
    let dir = dir.to_str().unwrap();
    let arguments = ["--threads", "2", "--memory-limit", "18MB", "--spool-dir", dir];
    let builder = Builder::start_with(&BuilderOptions::serve(&arguments)).unwrap();
    let mut session = cluster.database("spool").unwrap();
    copy_rows(&mut session, "items", Column::Vector, &data_set("minilm-384").unwrap().0.truncated(3000)).unwrap();
    session.execute("ANALYZE items").unwrap();
    builder.attach(&mut session).unwrap();
    session.take_notices();
    session.execute(CREATE).unwrap();
    let said = session.take_notices();
    let notice = said.iter().find(|notice| notice.message.contains("values are kept in a file")).expect("a notice");
    println!("{notice}");
    assert!(notice.severity == "NOTICE" && notice.message.ends_with("the limit is 18 MB"), "{notice}");
    inspect(&cluster, &mut session, "items_idx").unwrap();
}
