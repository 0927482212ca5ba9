//! Commands of a daemon's operator.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use protocol::{BuilderMessage, Hello};
use rustix::process::Signal;
use support::{Daemon, hello, said};
use tempfile::TempDir;

const BUILD: &str = "0123456789abcdef";

fn start(dir: &Path) -> Daemon {
    Daemon::start(&["--admin-socket", "admin.sock"], dir)
}

fn run(arguments: &[&str], dir: &Path) -> Output {
    support::run(&[arguments, &["--socket", "admin.sock"]].concat(), dir)
}

#[test]
fn builds_are_listed_and_cancelled() {
    let dir = TempDir::new().unwrap();
    let daemon = start(dir.path());
    let mut client = daemon.connect();
    client.admitted(Hello { build_id: BUILD.to_owned(), ..hello(8) });
    let listed = said(&run(&["builds"], dir.path()));
    assert!(listed.starts_with(&format!("{BUILD}  127.0.0.1  ")) && listed.contains("vector(8)"), "{listed}");
    let other = run(&["cancel", "fedcba9876543210"], dir.path());
    assert_eq!(other.status.code(), Some(1));
    assert!(said(&other).contains("there is no build fedcba9876543210"), "{}", said(&other));
    assert!(run(&["cancel", BUILD], dir.path()).status.success());
    loop {
        match client.next() {
            Some(BuilderMessage::Error(error)) => {
                assert_eq!(error.sqlstate.as_str(), "57014");
                assert_eq!(error.message, "build cancelled by the builder's operator");
                break;
            }
            Some(_) => {}
            None => panic!("the connection ends without an error report"),
        }
    }
    daemon.settle();
    daemon.wait_for_line(&["build ended", BUILD, "outcome=\"cancelled\""]);
    assert_eq!(said(&run(&["builds"], dir.path())), "");
}

#[test]
fn a_drained_daemon_refuses_new_builds_and_finishes_running_ones() {
    let dir = TempDir::new().unwrap();
    let daemon = start(dir.path());
    let mut before = daemon.connect();
    before.admitted(hello(8));
    assert!(run(&["drain"], dir.path()).status.success());
    assert_eq!(daemon.metric("lantern_index_ready"), 0);
    let refuse = daemon.connect().refused(hello(8));
    assert_eq!(
        (refuse.report.sqlstate.as_str(), refuse.report.message.as_str()),
        ("57P03", "builder takes no builds at the moment")
    );
    before.rows(&support::Rows::new(10, 8), 10);
    before.end_of_rows(10);
    assert_eq!(before.done(), 10);
    assert!(run(&["drain", "--undo"], dir.path()).status.success());
    daemon.connect().small_build();
}

#[test]
fn the_admin_socket_is_private_and_removed_at_the_end() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("admin.sock");
    let mut daemon = start(dir.path());
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    daemon.signal(Signal::KILL);
    daemon.child.wait().unwrap();
    assert!(socket.exists(), "a killed daemon leaves it");
    let nobody = run(&["builds"], dir.path());
    assert_eq!(nobody.status.code(), Some(1));
    assert!(said(&nobody).contains("cannot reach a daemon on admin.sock"), "{}", said(&nobody));
    let mut daemon = start(dir.path());
    assert!(run(&["builds"], dir.path()).status.success(), "the next one replaces it");
    daemon.signal(Signal::TERM);
    daemon.child.wait().unwrap();
    assert!(!socket.exists());
}
