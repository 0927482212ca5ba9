//! A daemon that runs out of file descriptors.

mod support;

use std::fs;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, prlimit};
use support::{Daemon, Rows, hello};
use tempfile::TempDir;

#[test]
fn running_builds_go_on_and_others_wait() {
    let dir = TempDir::new().unwrap();
    let daemon = Daemon::start(&[], dir.path());
    let mut running = daemon.connect();
    running.admitted(hello(8));
    let rows = Rows::new(2000, 8);
    running.rows(&rows, 100);
    // Leaves four free descriptors, as an administrator's limit could, during a build.
    let open = || fs::read_dir(format!("/proc/{}/fd", daemon.child.id())).unwrap().count() as u64;
    let limit = Some(open() + 4);
    prlimit(Some(daemon.pid()), Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
    let idle: Vec<_> = (0..20).map(|_| TcpStream::connect(&daemon.address).unwrap()).collect();
    daemon.wait_for_line(&["WARN", "cannot accept a connection", "Too many open files"]);
    running.rows(&rows, 100);
    running.end_of_rows(4000);
    assert_eq!(running.done(), 4000);
    drop(running);
    // No further connection is accepted as long as the clients stay.
    let late = thread::scope(|scope| {
        let late = scope.spawn(|| daemon.connect().small_build());
        thread::sleep(Duration::from_millis(300));
        assert!(!late.is_finished());
        drop(idle);
        late.join()
    });
    late.unwrap();
    daemon.settle();
    assert_eq!(daemon.metric("lantern_index_builds_total{outcome=\"succeeded\"}"), 2);
    // The failure is not logged at every attempt.
    let lines = daemon.log().matches("cannot accept a connection").count();
    assert!(lines < 100, "{lines} lines");
}
