//! Rows that arrive slowly or not at all: both sides detect whether the peer is alive.

use std::thread;
use std::time::{Duration, Instant};

use harness::{Builder, BuilderOptions, Session, inspect, wait_for, within};
use protocol::{BuilderMessage, ErrorReport, SqlState};

use crate::fake::FakeBuilder;
use crate::scene::{CLUSTER, SOON};

const ON_EXPRESSION: &str = "CREATE INDEX items_idx ON items USING hnsw ((slow(v)::vector(3)) vector_l2_ops)
                             WITH (external = true)";
const PARTIAL: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops)
                       WITH (external = true) WHERE never(v)";

/// Makes a database with rows that each take `seconds` to evaluate.
fn database(name: &str, rows: u32, seconds: f64) -> Session {
    let mut session = CLUSTER.database(name).unwrap();
    session
        .execute(&format!(
            "CREATE FUNCTION slow(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS
                 $$ BEGIN PERFORM pg_sleep({seconds}); RETURN v; END $$;
             CREATE FUNCTION never(v vector) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS
                 $$ BEGIN PERFORM pg_sleep({seconds}); RETURN false; END $$;
             CREATE TABLE items (id int, v vector(3));
             INSERT INTO items SELECT i, ARRAY[i, 1, 2]::vector FROM generate_series(1, {rows}) i"
        ))
        .unwrap();
    session
}

/// A builder with a short idle timeout. The gap between two heartbeats is up to 1.5 s on an idle machine.
fn builder(session: &mut Session, tls: bool) -> Builder {
    let options = BuilderOptions::serve(&["--idle-timeout", "5s"]);
    let builder = Builder::start_with(&BuilderOptions { tls, ..options }).unwrap();
    builder.attach(session).unwrap();
    builder
}

fn rows_received(builder: &Builder) -> f64 {
    builder.metric("lantern_index_tuples_received_total").unwrap()
}

/// Waits until a session evaluates a row.
fn wait_for_row(pid: u32) {
    let mut watcher = CLUSTER.session("postgres").unwrap();
    let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'");
    wait_for("a row", SOON, || Ok((watcher.value::<u32>(&sql)? == 1).then_some(()))).unwrap();
}

fn expect_no_index(session: &mut Session) {
    assert_eq!(session.value::<u32>("SELECT count(*) FROM pg_class WHERE relname = 'items_idx'").unwrap(), 0);
}

#[test]
fn rows_that_trickle_are_indexed() {
    let mut session = database("slow", 20, 0.4);
    let builder = builder(&mut session, false);
    within("the build", Duration::from_secs(30), || session.execute(ON_EXPRESSION)).unwrap();
    inspect(&CLUSTER, &mut session, "items_idx").unwrap();
    assert_eq!(rows_received(&builder), 20.0);
}

#[test]
fn heartbeats_bridge_a_row_that_takes_long() {
    let mut session = database("slow_row", 1, 8.0);
    let builder = builder(&mut session, true);
    session.execute(ON_EXPRESSION).unwrap();
    inspect(&CLUSTER, &mut session, "items_idx").unwrap();
    assert_eq!(rows_received(&builder), 1.0);
}

#[test]
fn heartbeats_bridge_a_predicate_that_rejects_every_row() {
    for (name, tls) in [("slow_partial", false), ("slow_partial_tls", true)] {
        let mut session = database(name, 20, 0.4);
        let builder = builder(&mut session, tls);
        session.execute(PARTIAL).unwrap();
        inspect(&CLUSTER, &mut session, "items_idx").unwrap();
        assert_eq!(rows_received(&builder), 0.0);
    }
}

#[test]
fn a_killed_builder_ends_a_slow_scan() {
    let mut session = database("slow_killed", 1, 60.0);
    let pid = session.pid();
    for tls in [false, true] {
        let mut builder = builder(&mut session, tls);
        let (error, took) = thread::scope(|scope| {
            let building = scope.spawn(|| (session.execute(PARTIAL).unwrap_err(), Instant::now()));
            wait_for_row(pid);
            let since = Instant::now();
            builder.kill();
            let (error, ended) = building.join().unwrap();
            (error, ended - since)
        });
        println!("{error}");
        assert!(took < SOON, "after {:.1} s: {error}", took.as_secs_f64());
        assert_eq!(error.server().sqlstate, "08006", "{error}");
        expect_no_index(&mut session);
    }
}

#[test]
fn errors_of_the_builder_end_a_slow_scan() {
    let mut session = database("slow_report", 1, 60.0);
    let report = || {
        BuilderMessage::Error(ErrorReport {
            sqlstate: SqlState::OUT_OF_MEMORY,
            message: "out of memory".into(),
            detail: "Nothing \u{7}is left.".into(),
            hint: String::new(),
        })
    };
    let fake = FakeBuilder::play(move |peer| {
        peer.accept()?;
        // The client's first message is a heartbeat.
        peer.message()?;
        peer.say(&report())
    });
    session
        .execute(&format!("SET hnsw.external_index_port = {}; SET hnsw.external_index_secure = off", fake.port()))
        .unwrap();
    let error = within("the build", SOON, || session.execute(PARTIAL)).unwrap_err();
    fake.expect_left();
    assert_eq!(error.server().sqlstate, "53200", "{error}");
    assert_eq!(error.server().detail, "Nothing ?is left.");
    expect_no_index(&mut session);
}

#[test]
fn a_block_that_catches_the_error_goes_on() {
    let mut session = database("slow_caught", 1, 60.0);
    let fake = FakeBuilder::play(|peer| peer.accept().map(|_| peer.hang_up()));
    session
        .execute(&format!("SET hnsw.external_index_port = {}; SET hnsw.external_index_secure = off", fake.port()))
        .unwrap();
    let block = format!(
        "DO $$ BEGIN
             EXECUTE '{PARTIAL}';
         EXCEPTION WHEN connection_failure THEN
             PERFORM pg_sleep(0.1);
             RAISE NOTICE 'caught';
         END $$"
    );
    session.execute(&block).unwrap();
    fake.expect_left();
    assert!(session.take_notices().iter().any(|notice| notice.message == "caught"));
    expect_no_index(&mut session);
}

#[test]
fn a_slow_scan_can_be_cancelled_and_terminated() {
    for (name, function, sqlstate) in
        [("slow_cancelled", "pg_cancel_backend", "57014"), ("slow_terminated", "pg_terminate_backend", "57P01")]
    {
        let mut session = database(name, 1, 60.0);
        let builder = builder(&mut session, true);
        let pid = session.pid();
        let building = thread::spawn(move || (session.execute(PARTIAL).unwrap_err(), Instant::now()));
        wait_for_row(pid);
        let since = Instant::now();
        CLUSTER.session("postgres").unwrap().execute(&format!("SELECT {function}({pid})")).unwrap();
        let (error, ended) = building.join().unwrap();
        assert!(ended - since < SOON, "{error}");
        assert_eq!(error.server().sqlstate, sqlstate, "{error}");
        builder.expect_idle(Duration::from_secs(60)).unwrap();
        expect_no_index(&mut CLUSTER.session(name).unwrap());
    }
}
