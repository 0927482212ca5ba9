//! However a rebuild is interrupted, no index is left over and no writer fails.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use anyhow::Result;
use harness::{Direction, Session, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{Killed, PATIENCE, Running, Scene, Writers, command, files, wait_for_advice, worn};

/// What a rebuild waits for when it is interrupted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// A transaction that wrote to the table before the rebuild.
    Writer,
    /// The builder.
    Builder,
    /// A transaction that wrote to the table during the build.
    LateWriter,
    /// A transaction whose snapshot would miss rows in the new index.
    Snapshot,
    /// A transaction that may still use the replaced index.
    Reader,
}

impl Held {
    const ALL: [Self; 5] = [Self::Writer, Self::Builder, Self::LateWriter, Self::Snapshot, Self::Reader];

    /// PostgreSQL's name for the phase.
    fn phase(self) -> &'static str {
        match self {
            Self::Writer => "waiting for writers before build",
            Self::Builder => "building index%",
            Self::LateWriter => "waiting for writers before validation",
            Self::Snapshot => "waiting for old snapshots",
            Self::Reader => "waiting for readers before marking dead",
        }
    }

    /// Begins a rebuild and returns when it waits, with the session that it waits for.
    fn reach(self, scene: &Scene, database: &str, watcher: &mut Session) -> (Running, Session) {
        let mut other = scene.session(database);
        // Reset the byte counts of earlier builds.
        scene.network.reset();
        let writes = "BEGIN; INSERT INTO a VALUES (1000, '[1,2,3,4,5,6,7,8]')";
        match self {
            Self::Writer => other.execute(writes).unwrap(),
            // In the middle of the rows: pages that are already in flight would arrive even if the builder dies.
            Self::Builder => scene.network.stop_after(Direction::ToBuilder, 4 << 10),
            Self::LateWriter => scene.network.stop_after(Direction::ToClient, 16 << 10),
            Self::Snapshot => other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM pg_class").unwrap(),
            Self::Reader => other.execute("BEGIN; SELECT count(*) FROM a").unwrap(),
        }
        let running = scene.begin(database, &["--rebuild"]);
        if self == Self::Builder {
            scene.network.wait_until_stopped(Direction::ToBuilder).unwrap();
        }
        if self == Self::LateWriter {
            scene.network.wait_until_stopped(Direction::ToClient).unwrap();
            other.execute(writes).unwrap();
            scene.network.reset();
        }
        self.wait(watcher).unwrap_or_else(|error| panic!("{error}: {}", running.said()));
        (running, other)
    }

    /// Waits until a rebuild waits here.
    fn wait(self, watcher: &mut Session) -> Result<()> {
        let sql = format!("SELECT count(*) FROM pg_stat_progress_create_index WHERE phase LIKE '{}'", self.phase());
        wait_for(self.phase(), PATIENCE, || Ok((watcher.value::<u32>(&sql)? == 1).then_some(())))
    }
}

/// How the rebuild is interrupted.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Signal,
    HangUp,
    Cancelled,
    Terminated,
}

impl Fault {
    /// Causes the fault; returns the expected exit code.
    fn happen(self, running: &Running, watcher: &mut Session) -> i32 {
        let of_rebuild = |function: &str| format!("SELECT {function}(pid) FROM pg_stat_progress_create_index");
        match self {
            Self::Signal => {
                running.terminate();
                3
            }
            Self::HangUp => {
                running.signal(Signal::HUP);
                3
            }
            Self::Cancelled => {
                watcher.execute(&of_rebuild("pg_cancel_backend")).unwrap();
                1
            }
            Self::Terminated => {
                watcher.execute(&of_rebuild("pg_terminate_backend")).unwrap();
                1
            }
        }
    }
}

/// Waits until the server executes no rebuild, whether its client is there or not.
fn wait_for_no_rebuild(session: &mut Session) {
    let none = || Ok((session.value::<u32>("SELECT count(*) FROM pg_stat_progress_create_index")? == 0).then_some(()));
    wait_for("the end of the rebuild", PATIENCE, none).unwrap();
}

/// Checks that there is no further hnsw index, and that all can be searched.
fn expect_nothing_left(session: &mut Session, what: &str) {
    let names: Vec<String> = files(session).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a_worn"], "{what}");
    let invalid: u32 = session.value("SELECT count(*) FROM pg_index WHERE NOT indisvalid").unwrap();
    assert_eq!(invalid, 0, "{what}");
}

#[test]
fn a_fault_in_any_phase_leaves_nothing() {
    let (mut scene, mut session) = Scene::worn("faulty");
    let writers = Writers::start(
        &scene,
        "faulty",
        Some(20),
        "\\set n random(1001, 1000000)\n\
         INSERT INTO a VALUES (:n, ARRAY[random()*9, 2, 3, 4, 5, 6, 7, 8]::real[]::vector);\n\
         UPDATE a SET v = ARRAY[random()*9, 2, 3, 4, 5, 6, 7, 8]::real[]::vector WHERE id = :n;\n\
         DELETE FROM a WHERE id = :n;\n",
    );
    for held in Held::ALL {
        for fault in [Fault::Signal, Fault::HangUp, Fault::Cancelled, Fault::Terminated] {
            let what = format!("{held:?}, {fault:?}");
            println!("{what}");
            let (mut running, mut other) = held.reach(&scene, "faulty", &mut session);
            let code = fault.happen(&running, &mut session);
            // The leftovers are dropped once no transaction uses the table.
            let waits = "SELECT count(*) FROM pg_stat_activity \
                         WHERE query LIKE 'DROP INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'";
            let ended = || Ok((running.is_over() || session.value::<u32>(waits)? > 0).then_some(()));
            wait_for("the end, or what it waits for", PATIENCE, ended).unwrap();
            other.execute("ROLLBACK").unwrap();
            let (found, said) = running.end();
            assert_eq!(found, code, "{what}: {said}");
            scene.network.reset();
            expect_nothing_left(&mut session, &what);
        }
    }
    // Dropping does not wait forever for an open transaction; the next run drops the leftovers.
    let (running, mut other) = Held::Reader.reach(&scene, "faulty", &mut session);
    drop(running);
    other.execute("ROLLBACK").unwrap();
    wait_for_no_rebuild(&mut session);
    expect_nothing_left(&mut session, "killed");

    let mut other = scene.session("faulty");
    other.execute("BEGIN; SELECT count(*) FROM a").unwrap();
    let running = scene.begin("faulty", &["--rebuild", "--patience", "1s"]);
    running.wait_for_words("rebuild, vacuum …");
    Held::Reader.wait(&mut session).unwrap();
    running.terminate();
    let (code, said) = running.end();
    assert!(code == 3 && said.contains("its leftovers remain, for --drop-leftovers"), "{said}");
    other.execute("ROLLBACK").unwrap();
    let (_, plan) = scene.maintain("faulty", &[]);
    assert!(plan.contains("left by a REINDEX CONCURRENTLY that failed"), "{plan}");
    assert_eq!(scene.maintain("faulty", &["--rebuild", "--drop-leftovers"]).0, 0);
    expect_nothing_left(&mut session, "the next run");

    session.execute("UPDATE a SET v = '[1,2,3,4,5,6,7,8]'; UPDATE a SET v = '[8,7,6,5,4,3,2,1]'").unwrap();
    session.flush_statistics().unwrap();
    wait_for_advice(&scene, "faulty", "a_worn", "rebuild");
    let (running, _other) = Held::Builder.reach(&scene, "faulty", &mut session);
    scene.builder.kill();
    scene.network.reset();
    let (code, said) = running.end();
    assert!(code == 1 && said.contains("lost connection to external indexing server"), "{said}");
    assert!(said.contains("its leftovers have been dropped"), "{said}");
    expect_nothing_left(&mut session, "a lost builder");
    scene.replace_builder();
    drop(_other);
    assert_eq!(scene.maintain("faulty", &["--rebuild"]).0, 0);
    writers.expect_no_error();
    let writing = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'";
    let ended = || Ok((session.value::<u32>(writing)? == 0).then_some(()));
    wait_for("the end of the writers' sessions, and their statistics", PATIENCE, ended).unwrap();
    // The rows that the writers deleted after the rebuild could make another one advisable.
    assert_eq!(scene.maintain("faulty", &["--rebuild"]).0, 0);
    let good = "SELECT count(*) FROM lantern_index.indexes WHERE advice IN ('ok', 'unused', 'check')";
    wait_for("good advice", PATIENCE, || Ok((session.value::<u32>(good)? == 1).then_some(()))).unwrap();
}

#[test]
fn leftovers_that_cannot_be_dropped_are_named() {
    let (scene, mut session) = Scene::worn("kept");
    let (running, mut other) = Held::Reader.reach(&scene, "kept", &mut session);
    let mut next = scene.session("kept");
    let said = std::thread::scope(|scope| {
        let begins = scope.spawn(|| next.execute("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE").unwrap());
        let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'a'::regclass AND NOT granted";
        wait_for("the other session", PATIENCE, || Ok((session.value::<u32>(waits)? == 1).then_some(()))).unwrap();
        running.terminate();
        let (code, said) = running.end();
        assert_eq!(code, 3, "{said}");
        begins.join().unwrap();
        said
    });
    assert!(said.contains("another session uses the table: leftovers may remain"), "{said}");
    next.execute("ROLLBACK").unwrap();
    other.execute("ROLLBACK").unwrap();
    assert_eq!(scene.maintain("kept", &["--rebuild", "--drop-leftovers"]).0, 0);
    expect_nothing_left(&mut session, "the next run");
}

#[test]
fn a_closed_stderr_does_not_prevent_the_clean_up() {
    let (scene, mut session) = Scene::worn("unread");
    let mut other = scene.session("unread");
    other.execute("BEGIN; SELECT count(*) FROM a").unwrap();
    let textfile = scene.cluster.dir().join("unread.prom");
    let mut maintain = scene.command("unread", &["--rebuild", "--textfile", textfile.to_str().unwrap()]);
    let mut maintain = Killed(maintain.spawn().unwrap());
    let maintain = &mut maintain.0;
    let mut line = String::new();
    while !line.contains("rebuild, vacuum …") {
        line.clear();
        let read = BufReader::with_capacity(1, maintain.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(read > 0, "it has ended");
    }
    drop(maintain.stderr.take());
    Held::Reader.wait(&mut session).unwrap();
    kill_process(Pid::from_child(maintain), Signal::TERM).unwrap();
    wait_for_no_rebuild(&mut session);
    other.execute("ROLLBACK").unwrap();
    let status = wait_for("the end of the run", PATIENCE, || Ok(maintain.try_wait()?)).unwrap();
    assert_eq!(status.code(), Some(3));
    assert!(textfile.is_file());
    expect_nothing_left(&mut session, "unread");
}

#[test]
fn a_closed_stdout_is_an_error_after_the_work() {
    let (scene, mut session) = Scene::worn("unread_plan");
    let before = files(&mut session);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = scene.command("unread_plan", &["--rebuild"]).stdout(writer).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("cannot write to stdout: "), "{said}");
    assert!(said.contains(": done\n") && files(&mut session) != before, "{said}");
}

#[test]
fn a_restart_of_the_server_leaves_nothing() {
    let (mut scene, mut session) = Scene::worn("restarted");
    let before = files(&mut session);
    for crashes in [false, true] {
        let (running, _other) = Held::Builder.reach(&scene, "restarted", &mut session);
        if crashes {
            scene.cluster.crash().unwrap();
        } else {
            scene.cluster.stop().unwrap();
            running.wait_for_words("the connection was lost; cannot connect again yet: ");
            scene.cluster.restart().unwrap();
        }
        scene.network.reset();
        let (code, said) = running.end();
        assert_eq!(code, 1, "{said}");
        session = scene.session("restarted");
        expect_nothing_left(&mut session, "a restart");
        assert_eq!(files(&mut session), before, "{said}");
        // A crash resets statistics.
        if !crashes {
            wait_for_advice(&scene, "restarted", "a_worn", "rebuild");
        }
    }
    scene.builder.expect_idle(Duration::from_secs(60)).unwrap();
}

#[test]
fn a_signal_ends_a_rebuild_while_another_run_keeps_away() {
    let (scene, mut session) = Scene::worn("stopped");
    let before = files(&mut session);
    let (running, mut other) = Held::Builder.reach(&scene, "stopped", &mut session);
    let (code, plan) = scene.maintain("stopped", &["--rebuild"]);
    assert!(code == 3 && plan.contains("building  wait"), "{plan}");
    running.terminate();
    let (code, said) = running.end();
    assert!(code == 3 && said.contains("stopped: told to stop"), "{said}");
    assert_eq!(files(&mut session), before);
    scene.builder.expect_idle(Duration::from_secs(60)).unwrap();
    // A waiting step does not begin either.
    other.execute("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE").unwrap();
    let running = scene.begin("stopped", &["--rebuild"]);
    running.wait_for_words("waiting: another session");
    running.terminate();
    let (code, said) = running.end();
    assert!(code == 3 && said.contains("stopped: told to stop"), "{said}");
    assert_eq!(files(&mut session), before);
}

#[test]
fn a_step_is_finished_when_its_window_ends() {
    let scene = Scene::new();
    scene.configure("timezone = 'UTC'");
    let mut session = scene.database("nightly");
    worn(&mut session, "a", "a_worn", "");
    session.execute("CREATE INDEX a_more ON a USING hnsw (v vector_cosine_ops)").unwrap();
    worn(&mut session, "b", "b_worn", "");
    for index in ["a_worn", "a_more", "b_worn"] {
        wait_for_advice(&scene, "nightly", index, "rebuild");
    }
    let hours = "SELECT to_char(localtime - interval '2 hours', 'HH24:MI') || '-' || to_char(localtime + interval '2 hours', 'HH24:MI')";
    let window: String = scene.session("nightly").value(hours).unwrap();
    session
        .execute("BEGIN; INSERT INTO a VALUES (1, '[1,2,3,4,5,6,7,8]'); INSERT INTO b SELECT * FROM a LIMIT 1")
        .unwrap();
    let running = scene.begin("nightly", &["--rebuild", "--window", &window]);
    running.wait_for_words(": rebuild, vacuum …");
    scene.configure("timezone = '<+06>-06'");
    running.wait_for_words("what has begun is finished, nothing else begins");
    session.execute("COMMIT").unwrap();
    let (code, said) = running.end();
    assert_eq!(code, 3, "{said}");
    for (words, count) in [
        ("what has begun is finished", 1),
        (": done\n", 1),
        (": stopped: the window is closed, it is ", 2),
        ("VACUUM of the table", 0),
    ] {
        assert_eq!(said.matches(words).count(), count, "{words}: {said}");
    }
    assert!(said.contains(" in time zone <+06>-06\n"), "{said}");
}

/// Processes of PostgreSQL that take connections or statements, and do not answer.
struct Silent(Vec<Pid>);

impl Silent {
    fn new(scene: &Scene) -> Self {
        Self::of([scene.cluster.postmaster().unwrap()])
    }

    fn of(pids: impl IntoIterator<Item = u32>) -> Self {
        let pids = pids.into_iter().map(|pid| Pid::from_raw(pid.cast_signed()).unwrap());
        let silent = Self(pids.collect());
        silent.0.iter().for_each(|&pid| kill_process(pid, Signal::STOP).unwrap());
        silent
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.iter().for_each(|&pid| _ = kill_process(pid, Signal::CONT));
    }
}

#[test]
fn a_signal_before_anything_is_known_is_no_success() {
    let scene = Scene::new();
    drop(scene.database("unseen"));
    let silent = Silent::new(&scene);
    let textfile = scene.cluster.dir().join("unseen.prom");
    let running = scene.begin("unseen", &["--json", "--textfile", textfile.to_str().unwrap()]);
    running.wait_for_handlers();
    running.terminate();
    let (code, said) = running.end();
    drop(silent);
    assert!(code == 3 && said.matches("were examined").count() == 2, "{code} {said}");
    let numbers = std::fs::read_to_string(textfile).unwrap();
    assert!(numbers.contains("lantern_index_maintain_errors 1\n"), "{numbers}");
}

#[test]
fn a_second_signal_ends_a_run_whose_sessions_are_silent() {
    let (scene, mut session) = Scene::worn("frozen");
    let (mut running, _other) = Held::Reader.reach(&scene, "frozen", &mut session);
    let pids = "SELECT pid FROM pg_stat_activity WHERE application_name = 'lantern-index maintain'";
    let pids = session.query(pids).unwrap().into_iter().map(|row| row[0].clone().unwrap().parse().unwrap());
    let silent = Silent::of(pids.collect::<Vec<u32>>());
    // Until the second signal has been seen: two may be taken for one.
    wait_for("the end of the run", PATIENCE, || {
        running.terminate();
        std::thread::sleep(Duration::from_millis(200));
        Ok(running.is_over().then_some(()))
    })
    .unwrap();
    let (code, said) = running.end();
    drop(silent);
    assert!(code == 3 && said.contains("stopped by a second signal"), "{code} {said}");
}

#[test]
fn a_signal_ends_a_run_that_waits_for_a_silent_server() {
    let scene = Scene::new();
    let mut session = scene.database("silent");
    for table in ["a", "b"] {
        worn(&mut session, table, &format!("{table}_worn"), "");
    }
    wait_for_advice(&scene, "silent", "b_worn", "rebuild");
    session.execute("BEGIN; LOCK TABLE a, b IN SHARE UPDATE EXCLUSIVE MODE").unwrap();
    let mut other = scene.database("silent_too");
    worn(&mut other, "c", "c_worn", "");
    wait_for_advice(&scene, "silent_too", "c_worn", "rebuild");
    drop(other);
    let worker = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lantern-index maintain' \
                  AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')";
    // In one run the session of a step is lost, in the other one the next database has its turn.
    for (loses, words, code) in [(true, "_worn: failed: ", 1), (false, "b_worn: postponed: ", 3)] {
        let dir = scene.cluster.dir();
        let mut command = command(dir, "user=postgres", &["--rebuild", "--patience", if loses { "1h" } else { "5s" }]);
        let running = Running::of(&mut command, dir);
        running.wait_for_words("_worn: waiting: another session");
        let silent = Silent::new(&scene);
        if loses {
            session.execute(worker).unwrap();
        }
        running.wait_for_words(words);
        running.terminate();
        let (found, said) = running.end();
        drop(silent);
        assert!(found == code && said.contains("_worn: stopped: told to stop"), "{found} {said}");
    }
}
