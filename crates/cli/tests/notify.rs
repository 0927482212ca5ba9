//! Notifications for the service manager (`sd_notify`).

mod support;

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;
use support::Daemon;
use tempfile::TempDir;

#[test]
fn the_manager_is_notified_of_ready_reloading_and_stopping() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let message = || {
        let mut bytes = [0; 200];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut daemon = Daemon::with(&[], dir.path(), |command| _ = command.env("NOTIFY_SOCKET", &path));
    assert_eq!(message(), "READY=1");
    daemon.connect().small_build();
    for _ in 0..2 {
        daemon.signal(Signal::HUP);
        let (reloading, time) = message().split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert_eq!(reloading, "RELOADING=1");
        let micros = time.strip_prefix("MONOTONIC_USEC=").unwrap();
        assert!(micros.parse::<u64>().unwrap() > 0);
        assert_eq!(message(), "READY=1");
    }
    daemon.signal(Signal::TERM);
    assert_eq!(message(), "STOPPING=1");
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
}
