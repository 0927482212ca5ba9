//! A daemon that runs out of file descriptors.

mod support;

use std::fs;
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, prlimit, setrlimit};
use support::{Daemon, Rows, hello};
use tempfile::TempDir;

#[test]
fn builds_succeed_without_free_descriptors() {
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
    // Clients that only connect make room.
    daemon.connect().small_build();
    daemon.wait_for_line(&["too many connections, and this one has no request"]);
    drop(idle);
    daemon.settle();
    assert_eq!(daemon.metric("lantern_index_builds_total{outcome=\"succeeded\"}"), 2);
    // Attempts back off, so that failures do not fill the log.
    let lines = daemon.log().matches("cannot accept a connection").count();
    assert!(lines < 100, "{lines} lines");
}

#[test]
fn the_soft_limit_of_files_is_raised_to_the_hard_one() {
    let dir = TempDir::new().unwrap();
    let own = getrlimit(Resource::Nofile);
    // The daemon inherits it.
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..own }).unwrap();
    let daemon = Daemon::start(&[], dir.path());
    setrlimit(Resource::Nofile, own).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.child.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|at| files.split_whitespace().nth(at).unwrap());
    assert_eq!(soft, hard);
}
