//! The memory that a builder takes, compared with its reservation and with the output of `lantern-index estimate`.

mod support;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use protocol::ClientMessage;
use protocol::ValueType::{self, Bit, HalfVec, Vector};
use support::{Daemon, Made};
use tempfile::TempDir;

const THREADS: u32 = 2;

const fn made(value_type: ValueType, dims: u32, m: u16, rows: u64) -> Made {
    Made { value_type, dims, m, rows }
}

/// The peak of resident memory during a build: in all, and without mapped files.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    all: u64,
    anonymous: u64,
}

/// Runs a build and samples the daemon's memory until it ends.
fn measure(daemon: &Daemon, build: &Made) -> Peak {
    fs::write(format!("/proc/{}/clear_refs", daemon.child.id()), "5").unwrap();
    let over = AtomicBool::new(false);
    /// Also ends the watch if the build fails.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    thread::scope(|scope| {
        let ends = Ends(&over);
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(daemon.memory("RssAnon:"));
                thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let mut client = daemon.connect();
        client.admitted(build.hello());
        build.send(&mut client);
        assert_eq!(client.done(), build.rows);
        drop(ends);
        Peak { all: daemon.memory("VmHWM:"), anonymous: watch.join().unwrap() }
    })
}

fn start(dir: &Path, more: &[&str]) -> Daemon {
    Daemon::start(&[&["--threads", &THREADS.to_string(), "--log-level", "warn"], more].concat(), dir)
}

fn name(build: &Made) -> String {
    let Made { value_type, dims, m, rows } = build;
    format!("{rows} {}({dims}), m = {m}", value_type.name())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Mapped pages of the program's file count as resident; an unoptimised binary has more of them than a release.
const UNOPTIMISED: u64 = 2 << 20;

#[test]
fn peak_memory_is_near_the_estimate() {
    for build in [
        made(Vector, 384, 16, 6000),
        made(HalfVec, 512, 8, 6000),
        made(Vector, 1536, 16, 6000),
        made(Bit, 1024, 32, 4000),
        made(Vector, 64, 2, 20_000),
    ] {
        let dir = TempDir::new().unwrap();
        let daemon = start(dir.path(), &[]);
        let idle = daemon.memory("RssAnon:");
        let peak = measure(&daemon, &build);
        let reserved = build.estimate().build_memory_bytes(THREADS);
        assert!(peak.anonymous - idle <= reserved + reserved / 10, "{build:?}: {peak:?}, reserved {reserved}");
        let estimate = build.estimate().builder_memory_bytes(THREADS);
        assert!(peak.all <= estimate + estimate / 10 + UNOPTIMISED, "{build:?}: {peak:?}, estimated {estimate}");
        // An estimate far too high would make other builds wait without need.
        assert!(peak.all >= estimate * 6 / 10, "{build:?}: {peak:?}, estimated {estimate}");
    }
}

/// Eight concurrent builds that need three times the memory limit.
fn eight(build: Made) -> (Peak, u64) {
    let dir = TempDir::new().unwrap();
    let need = build.estimate().build_memory_bytes(THREADS);
    let limit = (need * 8 / 3) & !1023;
    let daemon = start(dir.path(), &["--memory-limit", &format!("{}kB", limit >> 10)]);
    // Memory that running builds have reserved, now and at most, and the order in which builds were admitted.
    let (reserved, order) = (Mutex::new((0, 0)), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for number in 0..8 {
            let mut client = daemon.connect();
            client.send(&ClientMessage::Hello(build.hello()));
            // One after the other, so that their order in the queue is known.
            daemon.eventually("it is let in or queued", || {
                let of = |name: &str| daemon.metric(&format!("lantern_index_{name}"));
                of("build_active") + of("queue_depth") + of("builds_total{outcome=\"succeeded\"}") > number
            });
            let (daemon, reserved, order) = (&daemon, &reserved, &order);
            scope.spawn(move || {
                let memory = client.accepted();
                assert_eq!(memory, need);
                let shown = daemon.metric("lantern_index_memory_reserved_bytes");
                assert!((need..=limit).contains(&shown), "{shown} of {limit}");
                order.lock().unwrap().push(number);
                let mut sum = reserved.lock().unwrap();
                *sum = (sum.0 + memory, sum.1.max(sum.0 + memory));
                drop(sum);
                build.send_rows(&mut client);
                // Once all rows are sent, the build may end and its memory may go to another one.
                reserved.lock().unwrap().0 -= memory;
                client.end_of_rows(build.rows);
                assert_eq!(client.done(), build.rows);
            });
        }
    });
    let (_, most) = reserved.into_inner().unwrap();
    assert!(most <= limit, "{most} of {limit}");
    let order = order.into_inner().unwrap();
    // Builds may be admitted so shortly after one another that their threads get here in another order.
    assert!(order.windows(2).all(|pair| pair[1] + 3 > pair[0]), "{order:?}");
    (Peak { all: daemon.memory("VmHWM:"), ..Peak::default() }, limit)
}

#[test]
fn eight_builds_stay_within_the_limit() {
    let (peak, limit) = eight(made(Vector, 384, 16, 3000));
    assert!(peak.all <= limit + limit / 10, "{} MiB of {} MiB", mib(peak.all), mib(limit));
}

#[test]
#[ignore = "takes minutes; prints a table"]
fn many_shapes() {
    println!("| build | estimate, MiB | peak, MiB | | peak − 1.5 × raw values, bytes per row |\n|---|---|---|---|---|");
    for build in [
        made(Vector, 64, 2, 100_000),
        made(Vector, 32, 16, 200_000),
        made(Vector, 128, 16, 100_000),
        made(Vector, 384, 8, 50_000),
        made(Vector, 384, 16, 50_000),
        made(Vector, 384, 48, 20_000),
        made(Vector, 1536, 16, 30_000),
        made(Vector, 2000, 16, 20_000),
        made(HalfVec, 384, 16, 50_000),
        made(HalfVec, 1536, 16, 30_000),
        made(HalfVec, 3072, 16, 20_000),
        made(Bit, 384, 8, 50_000),
        made(Bit, 1536, 16, 50_000),
        made(Bit, 1536, 48, 20_000),
    ] {
        let dir = TempDir::new().unwrap();
        let peak = measure(&start(dir.path(), &[]), &build);
        let estimate = build.estimate().builder_memory_bytes(THREADS);
        let raw = build.rows * build.value_len() as u64;
        println!(
            "| {} | {:.0} | {:.0} | {:+.0} % | {:+.0} |",
            name(&build),
            mib(estimate),
            mib(peak.all),
            100.0 * (peak.all as f64 / estimate as f64 - 1.0),
            (peak.all as f64 - 1.5 * raw as f64) / build.rows as f64,
        );
    }
    let (peak, limit) = eight(made(Vector, 384, 16, 30_000));
    println!("\neight builds: limit {:.0} MiB, peak {:.0} MiB", mib(limit), mib(peak.all));
}

#[test]
#[ignore = "takes minutes; prints a table"]
fn many_shapes_with_the_spool() {
    println!("| build | raw values, MiB | estimate | anonymous, MiB | of raw values |\n|---|---|---|---|---|");
    for build in [
        made(Vector, 768, 16, 50_000),
        made(Vector, 768, 32, 50_000),
        made(Vector, 1024, 16, 40_000),
        made(Vector, 1536, 16, 30_000),
        made(Vector, 1536, 48, 30_000),
        made(Vector, 2000, 16, 25_000),
        made(HalfVec, 768, 16, 80_000),
        made(HalfVec, 1536, 16, 50_000),
        made(HalfVec, 3072, 16, 25_000),
    ] {
        let dir = TempDir::new().unwrap();
        let need = build.estimate().spooled_memory_bytes(THREADS);
        let limit = format!("{}kB", (need + (1 << 20)) >> 10);
        let spool = dir.path().display().to_string();
        let daemon = start(dir.path(), &["--memory-limit", &limit, "--spool-dir", &spool]);
        let (peak, raw) = (measure(&daemon, &build), build.rows * build.value_len() as u64);
        let share = 100.0 * peak.anonymous as f64 / raw as f64;
        println!(
            "| {} | {:.0} | {:.0} | {:.0} | {share:.0} % |",
            name(&build),
            mib(raw),
            mib(need),
            mib(peak.anonymous)
        );
    }
}
