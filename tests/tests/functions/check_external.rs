//! `lantern_index.check(index, sample, external)`: by a builder, by a router's builder, and without a builder.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use harness::{Builder, BuilderOptions, Column, Session, copy_rows, data_set, wait_for};
use protocol::{Accept, BuilderMessage, ErrorReport, Greeting, SqlState};

use crate::check::{Checked, check, make_larger_than_memory};
use crate::check_live::while_rows_change;
use crate::{BUILDER, CLUSTER, database, failure, vectors};

/// The results by the builder and by the backend. All counts must be equal, and the recall nearly so.
fn by_both(session: &mut Session, index: &str) -> [Checked; 2] {
    let both = ["true", "false"].map(|external| check(session, &format!("'{index}', 200, {external}")));
    let [builder, database] = &both;
    let counts = |c: &Checked| (c.elements, c.rows, c.duplicates, c.deleted, c.unreachable, c.not_full, c.errors);
    assert_eq!(counts(builder), counts(database));
    assert_eq!(builder.advice, database.advice);
    both
}

#[test]
fn a_builder_finds_what_the_backend_finds() {
    let mut session = database("check_builder");
    let (base, _) = data_set("minilm-384").unwrap();
    copy_rows(&mut session, "t", Column::Vector, &base.truncated(4000)).unwrap();
    session.execute("ALTER TABLE t SET (autovacuum_enabled = off)").unwrap();
    for external in ["false", "true"] {
        session
            .execute(&format!("CREATE INDEX i ON t USING hnsw (v vector_cosine_ops) WITH (external = {external})"))
            .unwrap();
        let [builder, database] = by_both(&mut session, "i");
        assert!((builder.recall.unwrap() - database.recall.unwrap()).abs() < 0.03);
        session.execute("SET hnsw.ef_search = 2").unwrap();
        assert!(check(&mut session, "'i', 200, true").recall.unwrap() < builder.recall.unwrap() - 0.2);
        session.execute("RESET hnsw.ef_search; DROP INDEX i").unwrap();
    }
    session.execute("CREATE INDEX i ON t USING hnsw (v vector_cosine_ops) WITH (external = true)").unwrap();
    session.execute("DELETE FROM t WHERE id % 3 = 0").unwrap();
    session.execute("VACUUM (INDEX_CLEANUP ON) t").unwrap();
    let [builder, _] = by_both(&mut session, "i");
    assert!(builder.deleted > 1000 && builder.recall.unwrap() > 0.9, "{builder:?}");
}

#[test]
fn an_index_is_checked_as_it_was_built() {
    let mut session = database("check_built_with");
    session
        .execute(&format!("CREATE TABLE t AS SELECT {}::vector(8) AS v FROM generate_series(1, 500) i", vectors(8)))
        .unwrap();
    session.execute("CREATE INDEX i ON t USING hnsw ((v::vector(8)) vector_l2_ops)").unwrap();
    // For the next build, which would fail: `ef_construction` is 64.
    session.execute("ALTER INDEX i SET (m = 50)").unwrap();
    by_both(&mut session, "i");
}

#[test]
fn a_builder_checks_every_operator_class() {
    let mut session = database("check_builder_classes");
    session
        .execute(&format!(
            "CREATE TABLE t AS SELECT i AS id, {0} AS v, {0}::halfvec(16) AS h, ({0}::sparsevec(16)) AS s, \
             binary_quantize({0})::bit(16) AS b FROM generate_series(1, 600) i",
            vectors(16)
        ))
        .unwrap();
    for (column, class) in [
        ("v::vector(16)", "vector_l2_ops"),
        ("v::vector(16)", "vector_ip_ops"),
        ("v::vector(16)", "vector_cosine_ops"),
        ("v::vector(16)", "vector_l1_ops"),
        ("h::halfvec(16)", "halfvec_cosine_ops"),
        ("s::sparsevec(16)", "sparsevec_l2_ops"),
        ("b::bit(16)", "bit_hamming_ops"),
        ("b::bit(16)", "bit_jaccard_ops"),
    ] {
        session.execute(&format!("CREATE INDEX i ON t USING hnsw (({column}) {class})")).unwrap();
        let [builder, _] = by_both(&mut session, "i");
        assert!(builder.recall.unwrap() > 0.7, "{class}: {builder:?}");
        session.execute("DROP INDEX i").unwrap();
    }
    session.execute("CREATE TABLE empty (v vector(3)); CREATE INDEX e ON empty USING hnsw (v vector_l2_ops)").unwrap();
    by_both(&mut session, "e");
}

/// A check that exceeds the backend's memory works on a builder.
#[test]
fn an_index_too_large_for_the_backend_is_checked_by_a_builder() {
    let mut session = database("check_builder_large");
    make_larger_than_memory(&mut session);
    let by = "SELECT checked_by FROM lantern_index.check('t_idx', 20)";
    assert_eq!(session.value::<String>(by).unwrap(), "builder", "it is large enough for one");
    session.execute("SET hnsw.external_index_port = 1").unwrap();
    let error = session.execute("SELECT lantern_index.check('t_idx', 0)").unwrap_err();
    assert_eq!(error.server().sqlstate, "53200");
    assert!(error.server().hint.contains("could not connect to external indexing server"), "{error}");
    session.execute("RESET maintenance_work_mem").unwrap();
    assert_eq!(session.value::<String>(by).unwrap(), "database");
    assert_eq!(failure(&mut session, "SELECT lantern_index.check('t_idx', 0, true)").0, "08001");
    assert_eq!(session.query("SELECT lantern_index.check(NULL)").unwrap().len(), 0);
}

#[test]
fn a_router_passes_checks_on() {
    for mode in ["relay", "redirect"] {
        let mut session = database(&format!("check_{mode}"));
        session
            .execute(&format!(
                "CREATE TABLE t (id int, v vector(16)); INSERT INTO t SELECT i, {} FROM generate_series(1, 800) i; \
                 CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops)",
                vectors(16)
            ))
            .unwrap();
        let router = Builder::start_with(&BuilderOptions::router(&["--mode", mode])).unwrap();
        router.attach(&mut session).unwrap();
        by_both(&mut session, "t_idx");
        router.expect_idle(Duration::from_secs(60)).unwrap();
        if mode == "relay" {
            let ended = router.metric("lantern_index_builds_total{outcome=\"succeeded\"}").unwrap();
            assert!((ended - 1.0).abs() < f64::EPSILON, "{ended}");
        }
    }
}

/// A builder that takes the Hello of a check for that of a build, as releases without checks do.
pub(crate) fn older_builder() -> u16 {
    let accept = Accept {
        protocol: 2,
        session: 1,
        threads: 1,
        builder_version: "lantern-index 0.1.0".into(),
        ..Accept::default()
    };
    builder_that_answers(BuilderMessage::Accept(accept))
}

/// A builder with one answer to every Hello.
fn builder_that_answers(answer: BuilderMessage) -> u16 {
    let mut bytes = BytesMut::new();
    answer.encode(&mut bytes);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(&Greeting::builder().to_bytes()).unwrap();
            let mut some = [0; 4096];
            assert!(stream.read(&mut some).unwrap() > 0);
            stream.write_all(&bytes).unwrap();
            while stream.read(&mut some).is_ok_and(|read| read > 0) {}
        }
    });
    port
}

#[test]
fn the_database_checks_if_the_builder_cannot() {
    let mut session = database("check_older");
    session
        .execute(&format!(
            "CREATE TABLE t (id int, v vector(3)); INSERT INTO t SELECT i, ARRAY[i, i % 7, 2]::vector FROM generate_series(1, 30000) i; \
             CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true); \
             SET hnsw.external_index_secure = off; SET hnsw.external_index_port = {}",
            older_builder()
        ))
        .unwrap();
    let (sqlstate, message) = failure(&mut session, "SELECT lantern_index.check('t_idx', 0, true)");
    assert_eq!((sqlstate.as_str(), message.as_str()), ("0A000", "external indexing server does not check indexes"));
    let checked = check(&mut session, "'t_idx', 0");
    assert_eq!((checked.rows, checked.errors), (30_000, 0));
    let notices = session.take_notices();
    let told = |notice: &harness::Notice| {
        notice.message == "checking the index in the database, not by a builder"
            && notice.detail == "external indexing server does not check indexes"
    };
    assert_eq!(notices.iter().filter(|notice| told(notice)).count(), 1, "{notices:?}");
    let by = "SELECT checked_by FROM lantern_index.check('t_idx', 0)";
    assert_eq!(session.value::<String>(by).unwrap(), "database");
}

#[test]
fn a_check_that_the_operator_of_the_builder_cancels_is_not_done_by_the_database() {
    let mut session = database("check_cancelled_by_operator");
    make_larger_than_memory(&mut session);
    let cancelled = ErrorReport::new(SqlState::QUERY_CANCELED, "build cancelled by the builder's operator");
    session
        .execute(&format!(
            "RESET maintenance_work_mem; SET hnsw.external_index_secure = off; SET hnsw.external_index_port = {}",
            builder_that_answers(BuilderMessage::Error(cancelled))
        ))
        .unwrap();
    assert_eq!(failure(&mut session, "SELECT lantern_index.check('t_idx', 0)").0, "57014");
}

/// The pauses that the rate demands are longer than the builder's patience.
#[test]
fn slow_clients_send_heartbeats() {
    let options = BuilderOptions::serve(&["--idle-timeout", "5s"]);
    let builder = Builder::start_with(&options).unwrap();
    let mut session = database("check_heartbeats");
    session
        .execute(&format!(
            "CREATE TABLE t (id int, v vector(16)); INSERT INTO t SELECT i, {} FROM generate_series(1, 800) i; \
             CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true); \
             SET hnsw.external_index_max_rate = '40kB'",
            vectors(16)
        ))
        .unwrap();
    builder.attach(&mut session).unwrap();
    assert_eq!(check(&mut session, "'t_idx', 0, true").errors, 0);
    builder.expect_idle(Duration::from_secs(60)).unwrap();
    let phases = builder.metric("lantern_index_build_phase_seconds_count").unwrap();
    assert!(phases < 0.5, "a check is no build: {phases}");
}

#[test]
fn no_false_errors_while_pages_are_sent() {
    while_rows_change("check_builder_live", |session| {
        for _ in 0..20 {
            assert_eq!(check(session, "'t_idx', 5, true").errors, 0);
        }
    });
}

/// A table `t` with an index that is checked for seconds at the session's rate, in bytes per second.
fn slowly_checked(session: &mut Session, rate: &str) {
    session
        .execute(&format!(
            "CREATE TABLE t (i int, v vector(3)); \
             INSERT INTO t SELECT i, ARRAY[i, i % 7, 2]::vector FROM generate_series(1, 30000) i; \
             CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true); \
             SET hnsw.external_index_max_rate = '{rate}'"
        ))
        .unwrap();
}

/// Waits until a session sends pages to the builder.
fn wait_for_pages(other: &mut Session, pid: u32) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_progress_create_index WHERE pid = {pid} AND blocks_done > 0 \
         AND phase = 'building index: sending pages to builder' AND index_relid = 't_idx'::regclass AND relid = 't'::regclass"
    );
    wait_for("pages to be sent", Duration::from_secs(60), || Ok((other.value::<u32>(&sql)? > 0).then_some(())))
        .unwrap();
}

/// Waits until a session waits for a lock.
pub(crate) fn wait_for_lock(other: &mut Session, pid: u32) {
    let sql = format!("SELECT count(*) FROM pg_locks WHERE pid = {pid} AND NOT granted");
    wait_for("the lock", Duration::from_secs(60), || Ok((other.value::<u32>(&sql)? > 0).then_some(()))).unwrap();
}

#[test]
fn dropping_an_index_waits_for_its_check() {
    let mut session = database("check_builder_drop");
    slowly_checked(&mut session, "1MB");
    let mut others = [(); 2].map(|()| CLUSTER.session("check_builder_drop").unwrap());
    thread::scope(|scope| {
        let pid = session.pid();
        let session = &mut session;
        let checking = scope.spawn(move || check(session, "'t_idx', 0, true"));
        let [watcher, dropper] = &mut others;
        wait_for_pages(watcher, pid);
        let pid = dropper.pid();
        let dropping = scope.spawn(move || dropper.execute("DROP INDEX t_idx"));
        wait_for_lock(watcher, pid);
        let checked = checking.join().unwrap();
        assert_eq!((checked.rows, checked.errors), (30_000, 0));
        dropping.join().unwrap().unwrap();
    });
    // Before the check begins it is an error, and nothing of the check is shown any more.
    assert_eq!(failure(&mut session, "SELECT lantern_index.check('t_idx', 0, true)").0, "42P01");
    let shown = format!("SELECT count(*) FROM pg_stat_progress_create_index WHERE pid = {}", session.pid());
    assert_eq!(session.value::<u32>(&shown).unwrap(), 0);
}

#[test]
fn a_check_that_a_builder_has_begun_is_not_repeated_in_the_database() {
    let mut session = database("check_builder_lost");
    let mut builder = Builder::start().unwrap();
    builder.attach(&mut session).unwrap();
    slowly_checked(&mut session, "1MB");
    let mut watcher = CLUSTER.session("check_builder_lost").unwrap();
    session.take_notices();
    let failed = thread::scope(|scope| {
        let pid = session.pid();
        let session = &mut session;
        let checking = scope.spawn(move || failure(session, "SELECT lantern_index.check('t_idx', 0)"));
        wait_for_pages(&mut watcher, pid);
        builder.kill();
        checking.join().unwrap()
    });
    assert_eq!(failed.0, "08006", "{failed:?}");
    let notices = session.take_notices();
    assert!(notices.iter().all(|notice| !notice.message.contains("in the database")), "{notices:?}");
}

#[test]
fn a_standby_conflict_ends_a_check() {
    let cluster = harness::Cluster::start().unwrap();
    let mut primary = cluster.database("conflict").unwrap();
    primary.execute("CREATE EXTENSION lantern_index").unwrap();
    BUILDER.attach(&mut primary).unwrap();
    slowly_checked(&mut primary, "100kB");
    let standby = cluster.standby().unwrap();
    standby.configure("max_standby_streaming_delay = '100ms'").unwrap();
    standby.reload().unwrap();
    standby.catch_up(&mut primary).unwrap();
    let [mut reader, mut watcher] = [(); 2].map(|()| standby.session("conflict").unwrap());
    BUILDER.attach(&mut reader).unwrap();
    reader.execute("SET hnsw.external_index_max_rate = '100kB'").unwrap();
    thread::scope(|scope| {
        let pid = reader.pid();
        let reader = &mut reader;
        let checking = scope.spawn(move || failure(reader, "SELECT lantern_index.check('t_idx', 0, true)"));
        wait_for_pages(&mut watcher, pid);
        primary.execute("DROP INDEX t_idx").unwrap();
        let (sqlstate, message) = checking.join().unwrap();
        assert_eq!(sqlstate, "40001");
        assert_eq!(message, "canceling statement due to conflict with recovery");
    });
    // Recovery goes on, and the index is gone. (PostgreSQL may end the reader's whole session: recovery repeats its
    // signal every 5 ms, and one that arrives while the statement aborts counts against the idle session.)
    standby.catch_up(&mut primary).unwrap();
    BUILDER.attach(&mut watcher).unwrap();
    assert_eq!(failure(&mut watcher, "SELECT lantern_index.check('t_idx', 0, true)").0, "42P01");
    assert_eq!(watcher.value::<u32>("SELECT count(*) FROM t").unwrap(), 30_000);
}

#[test]
fn a_slow_check_can_be_cancelled() {
    let mut session = database("check_builder_cancel");
    slowly_checked(&mut session, "100kB");
    let pid = session.pid();
    thread::scope(|scope| {
        let checking = scope.spawn(move || failure(&mut session, "SELECT lantern_index.check('t_idx', 0, true)").0);
        let mut other = CLUSTER.session("check_builder_cancel").unwrap();
        wait_for_pages(&mut other, pid);
        // The check blocks no writer.
        other.execute("INSERT INTO t VALUES (0, '[1,2,3]')").unwrap();
        other.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
        assert_eq!(checking.join().unwrap(), "57014");
    });
}
