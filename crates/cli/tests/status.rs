//! `lantern-index status` against a status server, and against other programs.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use protocol::Done;
use service::report::Subject;
use service::{Activity, Outcome, Queued, Readiness, Refusal, Role, Running, Stage, StatusServer};
use support::command;

fn run(arguments: &[&str]) -> Output {
    command().arg("status").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A status server that reports [`builds`].
struct Daemon {
    activity: Arc<Activity>,
    server: StatusServer,
    _builds: (Running, Queued),
}

fn subject(id: u64, label: &str) -> Subject {
    Subject {
        id,
        build: "4f9a7c01d2e3b586".to_owned(),
        client: "tenant-a (10.0.0.9)".to_owned(),
        peer: "10.0.0.9:5432".to_owned(),
        label: Some(label.to_owned()),
        value_type: "halfvec".to_owned(),
        metric: "cosine".to_owned(),
        dims: 384,
        m: 16,
        ef_construction: 64,
        expected_rows: 200_000,
    }
}

fn stage() -> Stage {
    let spent = [4, 0, 0, 0, 0].map(Duration::from_secs);
    Stage { phase: protocol::Phase::Rows, done: 50_000, total: 200_000, spent }
}

/// A running, a waiting, a successful and a refused build.
fn builds() -> (Arc<Activity>, (Running, Queued)) {
    let activity = Arc::new(Activity::new(Role::Builder, "0.1.0", true).unwrap());
    activity.set_readiness(Readiness::Ready);
    activity.set_threads(8);
    activity.set_memory(8 << 30, || 2 << 30);
    let ended = activity.queue(subject(1, "s.first")).begin(1 << 20, stage);
    ended.add_rows(1000);
    ended.add_pages(128);
    ended.set_graph(&Done { self_recall_ppm: 998_000, recall_ppm: Some(973_000), ..Done::default() });
    ended.end(Outcome::Succeeded, None);
    activity.queue(subject(2, "s.second")).refuse(Refusal::Memory, "needs 9 GiB, 8 GiB is the limit".to_owned());
    let running = activity.queue(subject(3, "s.third\u{1b}[31m")).begin(2 << 30, stage);
    running.add_rows(50_000);
    let queued = activity.queue(subject(4, "s.fourth"));
    queued.place(1, 7 << 30);
    (activity, (running, queued))
}

impl Daemon {
    fn start() -> Self {
        let (activity, builds) = builds();
        let server = StatusServer::start("127.0.0.1", 0, activity.clone()).unwrap();
        Self { activity, server, _builds: builds }
    }

    fn address(&self) -> String {
        self.server.local_addr().to_string()
    }
}

#[test]
fn status_prints_running_waiting_and_ended_builds() {
    // A status server would sample these builds, which do not advance, and would soon report a rate of 0.
    let (activity, _builds) = builds();
    let report = serde_json::to_string(&activity.report()).unwrap();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{report}", report.len());
    let output = run(&[&other_program(answer.into_bytes().leak(), false).to_string()]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    for part in [
        "builder 0.1.0 at 127.0.0.1:",
        ": ready, up ",
        ", 8 threads, 0 connections",
        "memory: 2.0 GiB reserved (of 8.0 GiB)",
        "\nrunning\n  #3 s.third\u{fffd}[31m  halfvec(384) cosine, m 16, ef 64, from tenant-a (10.0.0.9)\n",
        "rows 50,000 of 200,000, 12,500/s, 2.0 GiB, ~",
        " left\n",
        "\nwaiting\n  1. #4 s.fourth ",
        "needs 7.0 GiB",
        "succeeded ",
        ": 1,000 rows, 1.0 MiB in 0.",
        " s, recall 0.973 at ef_search 40, self-recall 0.998\n",
        "refused ",
        ": needs 9 GiB, 8 GiB is the limit\n",
    ] {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
    assert!(!said.contains('\u{1b}'), "no client's text commands the terminal");
}

#[test]
fn one_is_singular() {
    let daemon = Daemon::start();
    daemon.activity.set_threads(1);
    let connection = daemon.activity.metrics().connection();
    let output = run(&[&daemon.address()]);
    assert!(text(&output.stdout).contains(", 1 thread, 1 connection\n"), "{}", text(&output.stdout));
    drop(connection);
}

#[test]
fn json_prints_the_daemon_s_answer() {
    let daemon = Daemon::start();
    let output = run(&["--json", &format!("http://{}/", daemon.address())]);
    assert_eq!(output.status.code(), Some(0));
    let report: service::report::Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.builds[0].subject.id, 3);
    assert_eq!(report.queue[0].memory_bytes, 7 << 30);
}

#[test]
fn the_exit_code_tells_whether_builds_are_accepted() {
    let daemon = Daemon::start();
    daemon.activity.set_readiness(Readiness::Draining);
    let output = run(&[&daemon.address()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).contains(": draining, "));
    let address = daemon.address();
    drop(daemon);
    let output = run(&[&address]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("no status from {address}")) && said.contains("refused"), "{said}");
    assert_eq!(run(&["https://localhost"]).status.code(), Some(64));
}

/// Answers every connection with these bytes, again and again if `endless`.
fn other_program(answer: &'static [u8], endless: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            while stream.write_all(answer).is_ok() && endless {}
        }
    });
    address
}

#[test]
fn other_programs_are_recognised() {
    const ENDLESS: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n                                        ";
    for (answer, endless, words) in [
        (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], false, "no status from"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false, "it answers 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"status\": 1}", false, "is no daemon of lantern-index"),
        (ENDLESS, true, "length limit exceeded"),
    ] {
        let output = run(&[&other_program(answer, endless).to_string()]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{words:?} is missing in {said}");
    }
}

#[test]
fn watch_continues_while_the_daemon_is_away() {
    let daemon = Daemon::start();
    let address = daemon.address();
    let mut command = command();
    command.args(["status", "--watch", "--json", &address]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    for _ in 0..2 {
        assert!(lines.next().unwrap().unwrap().starts_with("{\"version\":1,\"role\":\"builder\""));
    }
    drop(daemon);
    let mut errors = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    for _ in 0..2 {
        assert!(errors.next().unwrap().unwrap().contains("no status from"));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
