//! The server is killed at random bytes of the page phase and after it: the index is whole or absent, and the next build works.
//!
//! `LANTERN_INDEX_CRASH_ROUNDS=100` runs many rounds of each test, with other moments each time. `LANTERN_INDEX_CRASH_SEED` repeats
//! those of a run before, as far as a machine's timing can be repeated.

use std::env;
use std::fmt;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use harness::{Cluster, Direction, PgConfig, Random, SqlError};

use crate::scene::{DATABASE, Scene};

const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";
const REINDEX: &str = "REINDEX INDEX items_idx";

/// Rounds of a test in a normal run.
const ROUNDS: u64 = 2;

/// The longest time from the last pages to the crash.
const AFTER: Duration = Duration::from_millis(60);

#[test]
fn at_random_bytes() {
    rounds("shared_preload_libraries = 'lantern_index'");
}

/// The pages are not logged, but written out before the commit, or logged at the commit.
#[test]
fn at_random_bytes_without_logging() {
    for threshold in ["0", "1GB"] {
        rounds(&format!(
            "shared_preload_libraries = 'lantern_index'\nwal_level = minimal\nmax_wal_senders = 0\nwal_skip_threshold = {threshold}"
        ));
    }
}

/// When the server is killed.
#[derive(Debug)]
enum Moment {
    /// The builder's stream is stopped at this byte, so that the backend has processed all bytes before it.
    Stopped(u64),
    /// This byte passes, and the stream goes on.
    Passing(u64),
    /// This long after the last pages have passed.
    After(Duration),
}

/// What is left of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Absent,
    Whole,
}

/// One crash.
struct Crash {
    moment: Moment,
    reindex: bool,
    /// A checkpoint runs while the stream is stopped.
    checkpoint: bool,
    /// The postmaster alone is killed, which its backends notice.
    postmaster_alone: bool,
}

impl Crash {
    /// `last` is a byte near the end of the builder's stream.
    fn draw(random: &mut Random, last: u64) -> Self {
        let byte = |random: &mut Random| random.below(last as usize) as u64;
        let moment = match random.below(5) {
            0 | 1 => Moment::Stopped(byte(random)),
            2 | 3 => Moment::Passing(byte(random)),
            _ => Moment::After(AFTER.mul_f32(random.unit())),
        };
        let [reindex, checkpoint, postmaster_alone] = [(); 3].map(|()| random.below(2) == 0);
        Self { moment, reindex, checkpoint, postmaster_alone }
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", if self.reindex { "REINDEX" } else { "CREATE" }, self.moment)?;
        if self.checkpoint && matches!(self.moment, Moment::Stopped(_)) {
            write!(f, ", checkpoint")?;
        }
        if self.postmaster_alone { write!(f, ", postmaster alone") } else { Ok(()) }
    }
}

fn rounds(settings: &str) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let rounds = number("LANTERN_INDEX_CRASH_ROUNDS");
    // A normal run draws the same moments every time.
    let clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_secs());
    let seed = number("LANTERN_INDEX_CRASH_SEED").unwrap_or_else(|| rounds.map_or(1, |_| clock()));
    println!("LANTERN_INDEX_CRASH_SEED={seed}, {settings}");
    let mut random = Random::new(seed);
    let mut scene = Scene::new(Cluster::start_with(PgConfig::require().unwrap(), settings).unwrap());
    let last = end_of_stream(&mut scene);
    let start = Instant::now();
    let (mut absent, mut new, mut old, mut unheard) = (0, 0, 0, 0);
    for round in 1..=rounds.unwrap_or(ROUNDS) {
        let crash = Crash::draw(&mut random, last);
        let (heard, left, renewed) = play(&mut scene, &crash, last);
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{seconds:4.0} s, round {round} of seed {seed}: {crash}: {left:?}, renewed {renewed}, statement succeeded {heard}"
        );
        match (left, renewed) {
            (Left::Absent, _) => absent += 1,
            (Left::Whole, true) => new += 1,
            (Left::Whole, false) => old += 1,
        }
        unheard += u32::from(renewed && !heard);
    }
    println!("{absent} absent, {old} old, {new} new, {unheard} of them committed without an answer");
}

/// A byte near the end of the builder's stream: the number of bytes of pages, the same in every build. Progress messages add some bytes.
fn end_of_stream(scene: &mut Scene) -> u64 {
    scene.proxy.reset();
    scene.session.execute(CREATE).unwrap();
    let sent = scene.proxy.passed(Direction::ToClient);
    let pages: u64 = scene.session.value("SELECT pg_relation_size('items_idx')").unwrap();
    scene.session.execute("DROP INDEX items_idx").unwrap();
    assert!(pages < sent && sent < pages + pages / 50, "{sent} bytes for {pages} of pages");
    pages
}

/// One crash in a build, and a build after it. Returns whether the statement succeeded, what is left, and whether that is the new file.
fn play(scene: &mut Scene, crash: &Crash, last: u64) -> (bool, Left, bool) {
    if crash.reindex {
        scene.session.execute(CREATE).unwrap();
    }
    let file = file_number(scene);
    let orphans = scene.cluster.orphaned_files(DATABASE).unwrap();
    let building = start(scene, crash, last);
    if crash.checkpoint && matches!(crash.moment, Moment::Stopped(_)) {
        scene.session.execute("CHECKPOINT").unwrap();
    }
    if crash.postmaster_alone {
        scene.cluster.lose_postmaster().unwrap();
    } else {
        scene.cluster.crash().unwrap();
    }
    scene.proxy.reset();
    let heard = building.join().unwrap().is_ok();
    scene.reconnect();

    let file_now = file_number(scene);
    let renewed = file_now.is_some() && file_now != file;
    assert!(renewed || !heard, "a committed index is lost");
    let left = match file_now {
        Some(_) => {
            scene.expect_whole("items_idx");
            Left::Whole
        }
        None => Left::Absent,
    };
    assert!(left == Left::Whole || !crash.reindex, "the old index is lost");
    // At most the one file of the build, and none once it is committed.
    let now = scene.cluster.orphaned_files(DATABASE).unwrap();
    let added: Vec<_> = now.iter().filter(|file| !orphans.contains(*file)).collect();
    assert!(added.len() <= usize::from(!renewed), "{added:?}");

    scene.session.execute(if left == Left::Whole { REINDEX } else { CREATE }).unwrap();
    scene.expect_whole("items_idx");
    scene.session.execute("DROP INDEX items_idx").unwrap();
    (heard, left, renewed)
}

/// Starts the build, and returns at the moment of the crash.
fn start(scene: &Scene, crash: &Crash, last: u64) -> JoinHandle<Result<(), SqlError>> {
    let sql = if crash.reindex { REINDEX } else { CREATE };
    if let Moment::Stopped(byte) = crash.moment {
        return scene.stop_in(sql, Direction::ToClient, byte);
    }
    scene.proxy.reset();
    let mut session = scene.cluster.session(DATABASE).unwrap();
    scene.builder.attach_through(&mut session, scene.proxy.port()).unwrap();
    let building = thread::spawn(move || session.execute(sql));
    let (byte, pause) = match crash.moment {
        Moment::Stopped(byte) | Moment::Passing(byte) => (byte, Duration::ZERO),
        Moment::After(pause) => (last, pause),
    };
    while !building.is_finished() && scene.proxy.passed(Direction::ToClient) < byte {
        thread::sleep(Duration::from_micros(200));
    }
    thread::sleep(pause);
    building
}

/// The number of the index's file, if there is an index.
fn file_number(scene: &mut Scene) -> Option<String> {
    let sql = "SELECT pg_relation_filenode(oid) FROM pg_class WHERE relname = 'items_idx'";
    scene.session.query(sql).unwrap().pop().map(|row| row[0].clone().unwrap())
}
