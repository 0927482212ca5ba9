//! Builds through a router whose builders are processes of this machine.

mod access;
mod lantern;
mod operator;
mod readers;
mod redirect;
mod renewals;
mod scene;
mod sent;
mod throughput;

// The simulated Lantern client of the builder's own tests.
#[allow(dead_code)]
#[path = "../../../crates/server/tests/lantern/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../../../crates/server/tests/lantern/index.rs"]
mod index;
#[allow(dead_code)]
#[path = "../../../crates/server/tests/lantern/table.rs"]
mod table;

use std::thread;
use std::time::Duration;

use harness::{Builder, BuilderOptions, Direction, Phase, Proxy, Scratch, inspect, is_running, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use scene::{CLUSTER, CREATE, CREATE_QUICKLY, PATIENCE, Scene, builders, wait_for_builders};

/// The router's count of ended builds with this outcome.
fn ended(router: &Builder, outcome: &str) -> f64 {
    router.metric(&format!("lantern_index_builds_total{{outcome=\"{outcome}\"}}")).unwrap()
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn builders_come_for_a_build_and_go_after_it() {
    let mut scene = Scene::new("come_and_go", &["--idle-ttl", "1s"]);
    assert_eq!(builders(&scene.router), Vec::<u32>::new(), "none before it is needed");
    for _ in 0..2 {
        scene.build_and_drop();
        assert!(builders(&scene.router).len() <= 1, "the second build finds the first one's builder, or another");
        wait_for_builders(&scene.router, 0);
    }
    let (code, status) = scene.router.get("/status").unwrap();
    assert!(
        code == 200 && status.contains("\"role\":\"router\"") && status.contains("\"outcome\":\"succeeded\""),
        "{status}"
    );
}

#[test]
fn eight_at_once_take_turns_on_three_builders() {
    let mut scene = Scene::new("eight", &["--max-builders", "3", "--idle-ttl", "1s", "--builder-arg=--threads=1"]);
    // Three builds stop in the middle of their rows until all three are there.
    let proxies = [(); 3].map(|()| Proxy::start(scene.router.address()).unwrap());
    proxies.iter().for_each(|proxy| proxy.stop_after(Direction::ToBuilder, 64 << 10));
    let session = scene.session.as_mut().unwrap();
    for table in 0..8 {
        let sql = format!("CREATE TABLE t{table} AS SELECT * FROM items WHERE id % 8 = {table}");
        session.execute(&sql).unwrap();
    }
    let threads: Vec<_> = (0..8)
        .map(|table| {
            let mut session = scene.another_session();
            let proxy = proxies.get(table).unwrap_or(&scene.proxy);
            scene.router.attach_through(&mut session, proxy.port()).unwrap();
            thread::spawn(move || {
                let sql = format!(
                    "CREATE INDEX t{table}_idx ON t{table} USING hnsw (v vector_l2_ops) WITH (external = true)"
                );
                session.execute(&sql).unwrap();
                inspect(&CLUSTER, &mut session, &format!("t{table}_idx")).unwrap();
            })
        })
        .collect();
    proxies.iter().for_each(|proxy| proxy.wait_until_stopped(Direction::ToBuilder).unwrap());
    let mut most = builders(&scene.router).len();
    proxies.iter().for_each(Proxy::reset);
    while threads.iter().any(|thread| !thread.is_finished()) {
        most = most.max(builders(&scene.router).len());
        thread::sleep(Duration::from_millis(5));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(most, 3, "builders at a time");
    scene.router.expect_builds(8).unwrap();
    assert_eq!(ended(&scene.router, "succeeded"), 8.0);
    wait_for_builders(&scene.router, 0);
}

#[test]
fn a_builder_that_dies_is_named_and_the_next_build_works() {
    // With room for more builders, the router might start another one while the last one returns to the pool.
    let mut scene = Scene::new("builder_dies", &["--max-builders", "1"]);
    for phase in Phase::ALL {
        let building = scene.build_until(phase);
        let [pid] = builders(&scene.router)[..] else { panic!("one builder is expected") };
        let status = scene.router.get("/status").unwrap().1;
        assert!(status.contains("\"builder\":\"builder-"), "{status}");
        kill(pid);
        scene.proxy.reset();
        let (session, result) = building.join().unwrap();
        scene.session = Some(session);
        let error = result.unwrap_err();
        let notice = error.server();
        println!("{phase:?}: {error}\n");
        assert_eq!(notice.sqlstate, "08006", "{error}");
        if phase == Phase::Graph {
            assert!(notice.message.contains("builder-") && notice.detail.contains("signal 9"), "{error}");
        }
        scene.build_and_drop();
    }
}

#[test]
fn a_builder_that_dies_before_it_takes_a_build_is_replaced() {
    let mut scene = Scene::new("replaced", &["--min-builders", "1"]);
    scene.router.expect_builders("idle", 1).unwrap();
    let [pid] = builders(&scene.router)[..] else { panic!("one builder is expected") };
    // A stopped process still accepts connections, in the kernel's queue, but does not answer; then it is killed.
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::STOP).unwrap();
    let building = scene.start(CREATE_QUICKLY);
    scene.router.expect_builders("building", 1).unwrap();
    kill(pid);
    building.join().unwrap().1.unwrap();
    // The log says how the builder ended, not that its connection broke.
    let log = scene.router.log();
    let losses = log.lines().filter(|line| line.contains("builder lost before it took the build"));
    let losses: Vec<&str> = losses.collect();
    assert!(losses.len() == 1 && losses[0].contains("signal 9"), "{log}");
}

#[test]
fn builders_end_with_their_router() {
    for signal in [Signal::KILL, Signal::TERM] {
        let folder = Scratch::new("router-files", 0o700).unwrap();
        let mut options = BuilderOptions::router(&["--min-builders", "2"]);
        options.environment.push(("TMPDIR".to_owned(), folder.path().display().to_string()));
        let router = Builder::start_with(&options).unwrap();
        wait_for_builders(&router, 2);
        let pids = builders(&router);
        kill_process(Pid::from_raw(router.pid().unwrap().cast_signed()).unwrap(), signal).unwrap();
        wait_for("the builders' end", PATIENCE, || Ok(pids.iter().all(|&pid| !is_running(pid)).then_some(()))).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files are left after {signal:?}");
    }
}

#[test]
fn a_router_that_dies_ends_the_statement() {
    let mut scene = Scene::new("router_dies", &[]);
    let building = scene.build_until(Phase::Graph);
    let pids = builders(&scene.router);
    scene.router.kill();
    scene.proxy.cut();
    let error = building.join().unwrap().1.unwrap_err();
    assert_eq!(error.server().sqlstate, "08006", "{error}");
    wait_for("the builders' end", PATIENCE, || Ok(pids.iter().all(|&pid| !is_running(pid)).then_some(()))).unwrap();
}

#[test]
fn a_queued_statement_can_be_cancelled() {
    let mut scene = Scene::new("leave", &["--max-builders", "1"]);
    let first = scene.build_until(Phase::Rows);
    let mut second = scene.another_session();
    second.execute("CREATE TABLE other AS SELECT * FROM items LIMIT 10").unwrap();
    let pid = second.pid();
    let waiting = thread::spawn(move || {
        let sql = "CREATE INDEX ON other USING hnsw (v vector_l2_ops) WITH (external = true)";
        let result = second.execute(sql);
        (second, result)
    });
    wait_for("a build in the queue", PATIENCE, || {
        Ok((scene.router.metric("lantern_index_queue_depth")? == 1.0).then_some(()))
    })
    .unwrap();
    let mut watcher = scene.another_session();
    let phase = format!("SELECT phase FROM pg_stat_progress_create_index WHERE pid = {pid}");
    wait_for("the client to know that it waits", PATIENCE, || {
        Ok(watcher.value::<String>(&phase)?.contains("waiting for a place").then_some(()))
    })
    .unwrap();
    watcher.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
    let (mut second, result) = waiting.join().unwrap();
    assert_eq!(result.unwrap_err().server().sqlstate, "57014");
    let notices: Vec<_> = second.take_notices().into_iter().map(|notice| notice.detail).collect();
    assert!(notices.iter().any(|detail| detail.contains("All 1 builders are busy")), "{notices:?}");
    wait_for("an empty queue", PATIENCE, || {
        Ok((scene.router.metric("lantern_index_queue_depth")? == 0.0).then_some(()))
    })
    .unwrap();
    scene.proxy.reset();
    drop(scene.proxy);
    first.join().unwrap().1.unwrap();
}

#[test]
fn builders_that_do_not_start_are_an_error_at_once() {
    let mut scene = Scene::new("no_start", &["--builder-arg=--engine=none"]);
    let session = scene.session.as_mut().unwrap();
    let error = session.execute(CREATE).unwrap_err();
    let notice = error.server();
    println!("{error}\n");
    assert_eq!(notice.sqlstate, "57000", "{error}");
    assert!(notice.message.contains("router cannot start a builder"), "{error}");
    assert!(notice.detail.contains("exit code 64") && notice.hint.contains("log"), "{error}");
    assert_eq!(builders(&scene.router), Vec::<u32>::new());
}

#[test]
fn listed_builders_are_used_and_verified() {
    let (first, second) = (Builder::start().unwrap(), Builder::start().unwrap());
    let address =
        |builder: &Builder| format!("127.0.0.1:{}/{}", builder.address().port(), builder.status_address().port());
    let certificate = first.certificate().display().to_string();
    let arguments =
        ["--builders", "static", "--builder", &address(&first), "--builder", &address(&second), "--builder-ca"];
    let mut scene = Scene::new("list", &[&arguments[..], &[&certificate, "--builder-name", "localhost"]].concat());
    scene.build_and_drop();
    first.expect_builds(1).unwrap();
    drop(first);
    // The other builder uses another certificate, which no trusted authority has signed.
    let error = scene.session.as_mut().unwrap().execute(CREATE).unwrap_err();
    println!("{error}\n");
    assert_eq!(error.server().sqlstate, "57000", "{error}");
}
