//! One daemon and 200 builds of random shapes and endings, after which no memory, threads or files may be left. `cargo xtask soak` runs it.

mod support;

use std::thread;
use std::time::{Duration, Instant};

use harness::{Builder, BuilderOptions};
use protocol::{ClientMessage, Hello};
use support::{Client, Rows, connect, hello};

/// Concurrent clients.
const CLIENTS: usize = 4;
/// Builds before the first measurement, so that caches and thread stacks have their full size.
const WARM_UP: usize = 40;
/// Memory is measured after these numbers of further builds.
const LOOKS: [usize; 3] = [50, 100, 200];

fn start(binary: &str) -> Builder {
    let arguments = ["--threads", "2", "--memory-limit", "512MB", "--idle-timeout", "2s", "--log-level", "error"];
    Builder::start_with(&BuilderOptions { tls: false, ..BuilderOptions::serve(&arguments).by(binary) }).unwrap()
}

fn metric(daemon: &Builder, name: &str) -> u64 {
    support::metric(daemon.status_address(), &format!("lantern_index_{name}"))
}

/// A line of `/proc/PID/status`, in kB.
fn kilobytes(daemon: &Builder, name: &str) -> u64 {
    let bytes = harness::proc_bytes(&format!("/proc/{}/status", daemon.pid().unwrap()), name);
    assert!(bytes > 0, "{name} cannot be read");
    bytes / 1024
}

fn open_files(daemon: &Builder) -> usize {
    let files = harness::open_files(daemon.pid().unwrap());
    assert!(files > 0, "the open files cannot be read");
    files
}

/// Waits until no client is served, and the connections for status are closed.
fn settle(daemon: &Builder) {
    let until = Instant::now() + Duration::from_secs(60);
    while metric(daemon, "build_active") + metric(daemon, "queue_depth") + metric(daemon, "connections") > 0 {
        assert!(Instant::now() < until, "builds or connections are left");
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(Duration::from_millis(500));
}

/// A build whose shape and ending are derived from its number.
fn build(daemon: &Builder, number: usize) {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut random = |below: u64| random.u64(..below);
    let (dims, count) = (8 + random(250) as u32, 100 + random(3000) as usize);
    let (m, ending) = (4 + random(20) as u16, number % 10);
    let rows = Rows::new(count, dims);
    let mut client = Client::opened(connect(daemon.address()));
    let known = random(2) * count as u64;
    client.admitted(Hello { m, estimated_rows: known, ..hello(dims) });
    client.rows(&rows, 1 + random(500) as usize);
    match ending {
        // Reports another number of rows than it has sent.
        6 => {
            client.end_of_rows(1);
            assert_eq!(client.error().sqlstate.as_str(), "XX001");
        }
        // Cancels: while rows are due, or while the graph is built.
        7 => {
            if random(2) == 0 {
                client.end_of_rows(count as u64);
            }
            client.send(&ClientMessage::Cancel);
            while client.next().is_some() {}
        }
        // Disconnects.
        8 => client.end_of_rows(count as u64),
        // Sends nothing more.
        9 => while client.next().is_some() {},
        _ => {
            client.end_of_rows(count as u64);
            let built = client.pages();
            assert_eq!((built.done.rows, built.done.unreachable), (count as u64, 0), "build {number}");
        }
    }
}

fn builds(daemon: &Builder, numbers: std::ops::Range<usize>) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let numbers = numbers.clone();
            scope.spawn(move || numbers.skip(client).step_by(CLIENTS).for_each(|number| build(daemon, number)));
        }
    });
    settle(daemon);
}

#[test]
#[ignore = "takes a minute or more, and wants a daemon"]
fn nothing_is_left_of_two_hundred_builds() {
    let binary = std::env::var("LANTERN_INDEX_BINARY").expect("cargo xtask soak names the daemon");
    let daemon = start(&binary);
    builds(&daemon, 0..WARM_UP);
    let (memory, files) = (kilobytes(&daemon, "VmRSS"), open_files(&daemon));
    let mut done = 0;
    let looks = LOOKS.map(|look| {
        builds(&daemon, WARM_UP + done..WARM_UP + look);
        done = look;
        kilobytes(&daemon, "VmRSS")
    });
    let (memory_after, files_after, peak) = (looks[LOOKS.len() - 1], open_files(&daemon), kilobytes(&daemon, "VmHWM"));
    let of = |outcome: &str| metric(&daemon, &format!("builds_total{{outcome=\"{outcome}\"}}"));
    println!("builds             {done} after {WARM_UP} to warm up");
    println!("  succeeded        {}", of("succeeded"));
    println!("  failed           {} on purpose", of("failed"));
    println!("  cancelled        {} on purpose", of("cancelled"));
    println!("rows               {}", metric(&daemon, "tuples_received_total"));
    println!("bytes received     {}", metric(&daemon, "received_bytes_total"));
    println!("bytes sent         {}", metric(&daemon, "sent_bytes_total"));
    println!("resident at first  {memory} kB");
    for (builds, memory) in LOOKS.iter().zip(looks) {
        println!("  after {builds:<12} {memory} kB");
    }
    println!("  at the peak      {peak} kB");
    println!("open files         {files}, then {files_after}");
    let all = (WARM_UP + done) as u64;
    assert_eq!([of("succeeded"), of("failed")], [all / 10 * 6, all / 10], "no build affects another");
    assert_eq!(of("succeeded") + of("failed") + of("cancelled"), all);
    assert_eq!(metric(&daemon, "memory_reserved_bytes"), 0);
    assert_eq!(files_after, files);
    assert!(memory_after <= memory + memory / 20, "{memory} kB became {memory_after} kB");
}
