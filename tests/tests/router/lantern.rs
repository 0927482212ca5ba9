//! Lantern's clients connect to a relaying router as to a builder.

use std::io::Write;
use std::thread;

use harness::{Builder, BuilderOptions, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::{Client, END, Failure, connect};
use crate::operator::Socket;
use crate::scene::{PATIENCE, builders, wait_for_builders};
use crate::table::{Opclass, Table};
use crate::{ended, kill};

fn router(arguments: &[&str]) -> Builder {
    let options = BuilderOptions::router(&[&["--idle-ttl", "1s"], arguments].concat());
    Builder::start_with(&BuilderOptions { tls: false, ..options }).unwrap()
}

/// A router with an idle builder: the clients do not wait for long.
fn ready(arguments: &[&str]) -> Builder {
    let router = router(&[&["--min-builders", "1"], arguments].concat());
    router.expect_builders("idle", 1).unwrap();
    router
}

fn table(rows: usize) -> Table {
    Table::random(Opclass::L2, rows, 32, 7)
}

#[test]
fn clients_of_lantern_get_their_indexes() {
    let router = router(&["--max-builders", "2"]);
    let tables = [table(2000), Table::random(Opclass::Cosine, 3000, 16, 9)];
    thread::scope(|scope| {
        for table in &tables {
            scope.spawn(|| {
                let index = table.build(connect(router.address())).unwrap();
                assert!(table.recall(&index, 20) >= 0.98);
            });
        }
    });
    router.expect_builds(2).unwrap();
    assert_eq!(ended(&router, "succeeded"), 2.0);
    wait_for_builders(&router, 0);
}

#[test]
fn a_lost_builder_resets_the_connection() {
    let router = ready(&[]);
    // The builder is lost while the client sends rows, and while it waits for the file: without a reset the client would take
    // the end of the stream for the end of the file.
    for waits in [false, true] {
        let table = table(2000);
        let mut client = Client::open(connect(router.address()), table.init());
        client.acknowledged().unwrap();
        table.send(&mut client).unwrap();
        let pids = builders(&router);
        let pid = *pids.first().expect("a builder");
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::STOP).unwrap();
        if waits {
            client.stream.write_all(&END).unwrap();
        }
        kill(pid);
        let failure = match client.finish() {
            Err(failure) => failure,
            Ok(_) => panic!("an index of a dead builder"),
        };
        assert_eq!(failure, Failure::Broken, "after the rows: {waits}");
        wait_for("another builder", PATIENCE, || Ok(builders(&router).iter().any(|other| *other != pid).then_some(())))
            .unwrap();
    }
    router.expect_builds(2).unwrap();
    assert_eq!(ended(&router, "failed"), 2.0);
    table(500).build(connect(router.address())).unwrap();
}

#[test]
fn a_client_that_leaves_frees_its_builder() {
    let router = ready(&["--max-builders", "1"]);
    let mut client = Client::open(connect(router.address()), table(10).init());
    client.acknowledged().unwrap();
    table(10).send(&mut client).unwrap();
    drop(client);
    router.expect_builds(1).unwrap();
    assert_eq!(ended(&router, "cancelled"), 1.0);
    table(500).build(connect(router.address())).unwrap();
}

#[test]
fn refusals_are_reported_as_text() {
    let router = ready(&["--max-builders", "1"]);
    let mut init = table(10).init();
    init.metric = 77;
    let Err(Failure::Reported(text)) = Client::open(connect(router.address()), init).acknowledged() else {
        panic!("taken")
    };
    assert!(text.contains("metric 77"), "{text}");
    // While one client builds, the next one gets an answer before it gives up after 10 seconds.
    let mut first = Client::open(connect(router.address()), table(10).init());
    first.acknowledged().unwrap();
    let Err(Failure::Reported(text)) = Client::open(connect(router.address()), table(10).init()).acknowledged() else {
        panic!("two builds at a time")
    };
    assert!(text.contains("try again"), "{text}");
    assert_eq!(ended(&router, "refused"), 1.0);
}

#[test]
fn the_operator_cancels_builds() {
    let socket = Socket::new();
    let router = ready(&["--max-builders", "1", "--admin-socket", &socket.path()]);
    let cancel = |which: &str| {
        let builds = socket.run(&["builds"]);
        let line = builds.lines().find(|line| line.contains(which)).unwrap_or_else(|| panic!("{which}: {builds}"));
        socket.run(&["cancel", line.split_once(' ').unwrap().0]);
    };
    let mut running = Client::open(connect(router.address()), table(10).init());
    running.acknowledged().unwrap();
    table(10).send(&mut running).unwrap();
    let mut waiting = Client::open(connect(router.address()), table(10).init());
    let queued = || Ok((router.metric("lantern_index_queue_depth")? == 1.0).then_some(()));
    wait_for("a build in the queue", PATIENCE, queued).unwrap();
    cancel("waiting");
    let Err(Failure::Reported(text)) = waiting.acknowledged() else { panic!("a cancelled build begins") };
    assert_eq!(text, "build cancelled by the router's operator");
    assert!(router.get("/status").unwrap().1.contains("\"builder\":\"builder-"));
    cancel("");
    router.expect_builds(2).unwrap();
    assert_eq!(ended(&router, "cancelled"), 2.0);
    assert!(matches!(running.finish(), Err(Failure::Broken)), "an index of a cancelled build");
    table(500).build(connect(router.address())).unwrap();
}

#[test]
fn the_routers_time_limit_holds_for_their_builds() {
    // A listed builder has no limit of its own; those that the router starts get its limit.
    let builder = Builder::start_with(&BuilderOptions { tls: false, ..BuilderOptions::default() }).unwrap();
    let address = format!("127.0.0.1:{}/{}", builder.address().port(), builder.status_address().port());
    let router = ready(&["--builders", "static", "--builder", &address, "--max-build-time", "5s"]);
    let mut client = Client::open(connect(router.address()), table(10).init());
    client.acknowledged().unwrap();
    router.expect_builds(1).unwrap();
    assert_eq!(ended(&router, "failed"), 1.0);
    assert!(matches!(client.finish(), Err(Failure::Broken)));
}
