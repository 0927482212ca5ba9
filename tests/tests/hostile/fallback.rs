//! `hnsw.external_index` and `hnsw.external_index_fallback`.

use std::time::Duration;

use harness::{Builder, BuilderOptions, Notice, inspect};
use protocol::{BuilderMessage, ErrorReport, Greeting, SqlState};

use crate::answer::honest;
use crate::fake::Peer;
use crate::scene::{CLUSTER, CREATE, Scene};

const PLAIN: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops)";
const WARNING: &str = "building the index in the database, because no builder is available";

fn refuse(peer: &mut Peer) -> std::io::Result<()> {
    peer.hello()?;
    let report = ErrorReport::new(SqlState::TOO_MANY_CONNECTIONS, "64 builds are running").detail("Not one more.");
    peer.say(&BuilderMessage::Refuse(*report.refuse(0)))
}

/// Checks that the index exists and returns rows, and drops it. Returns the warnings.
fn expect_index(scene: &mut Scene) -> Vec<Notice> {
    let mut warnings = scene.session.take_notices();
    warnings.retain(|notice| notice.severity == "WARNING");
    scene.session.execute("SET enable_seqscan = off").unwrap();
    let nearest = "SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = 17) LIMIT 1";
    scene.session.expect_index_scan("items_idx", nearest).unwrap();
    assert_eq!(scene.session.value::<u32>(nearest).unwrap(), 17);
    inspect(&CLUSTER, &mut scene.session, "items_idx").unwrap();
    scene.session.execute("DROP INDEX items_idx").unwrap();
    scene.expect_clean();
    warnings
}

#[test]
fn without_a_builder_the_database_builds() {
    let mut scene = Scene::new("fallback");
    let expect_reason = |scene: &mut Scene, words: &str| {
        let warnings = expect_index(scene);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        println!("{warning} ({})\n", warning.sqlstate);
        assert_eq!(warning.message, WARNING);
        assert!(warning.detail.contains(words), "{warning}");
    };
    scene.point_at(1);
    // By default, the statement fails.
    assert_eq!(scene.session.execute(CREATE).unwrap_err().server().sqlstate, "08001");
    scene.expect_clean();
    scene.session.execute("SET hnsw.external_index_fallback = local").unwrap();
    scene.session.execute(CREATE).unwrap();
    expect_reason(&mut scene, "could not connect to external indexing server");
    scene.run(CREATE, refuse).unwrap();
    expect_reason(&mut scene, "64 builds are running: Not one more.");
    scene.run(CREATE, |peer| peer.send(&Greeting { version: 1, server_type: 3 }.to_bytes())).unwrap();
    expect_reason(&mut scene, "type 3");
    scene.run(CREATE, |peer| peer.hello().map(drop)).unwrap();
    expect_reason(&mut scene, "lost connection");
    scene.session.execute("SET hnsw.external_index_connect_timeout = 1").unwrap();
    scene.run(CREATE, |peer| peer.message().map(drop)).unwrap();
    expect_reason(&mut scene, "sent no greeting");
    scene.session.execute("RESET hnsw.external_index_connect_timeout").unwrap();
    // If a builder is available, it is used.
    scene.run(CREATE, honest).unwrap();
    assert!(expect_index(&mut scene).is_empty());
}

#[test]
fn there_is_no_fallback_once_rows_were_sent() {
    let mut scene = Scene::new("fallback_late");
    scene.session.execute("SET hnsw.external_index_fallback = local").unwrap();
    let report = || BuilderMessage::Error(ErrorReport::new(SqlState::OUT_OF_MEMORY, "out of memory"));
    scene.fails_with("an error", ("53200", "out of memory"), move |peer| {
        peer.accept()?;
        peer.rows()?;
        peer.say(&report())
    });
    scene.fails_with("no answer", ("08006", "lost connection"), |peer| {
        peer.accept()?;
        peer.rows().map(drop)
    });
    scene.fails_with("no index", ("08P01", "unexpected Wait"), |peer| {
        peer.accept()?;
        peer.rows()?;
        peer.say(&BuilderMessage::Wait(protocol::Wait { position: 1, reason: String::new() }))
    });
}

#[test]
fn a_cancelled_statement_does_not_fall_back() {
    let mut scene = Scene::new("fallback_cancel");
    scene.session.execute("SET hnsw.external_index_fallback = local").unwrap();
    let scripts: [fn(&mut Peer) -> std::io::Result<()>; 2] = [
        |peer| {
            peer.reached();
            peer.message().map(drop)
        },
        |peer| {
            peer.hello()?;
            peer.reached();
            peer.message().map(drop)
        },
    ];
    for script in scripts {
        scene.cancelled(script, Duration::from_millis(100));
    }
}

#[test]
fn a_build_that_the_operator_of_the_builder_cancels_does_not_fall_back() {
    let mut scene = Scene::new("fallback_operator");
    scene.session.execute("SET hnsw.external_index_fallback = local").unwrap();
    scene.fails_with("cancelled while it waits", ("57014", "cancelled by the builder's operator"), |peer| {
        peer.hello()?;
        let cancelled = "build cancelled by the builder's operator";
        peer.say(&BuilderMessage::Error(ErrorReport::new(SqlState::QUERY_CANCELED, cancelled)))
    });
}

#[test]
fn a_setting_makes_every_build_external() {
    let builder = Builder::start_with(&BuilderOptions { tls: false, ..BuilderOptions::default() }).unwrap();
    let mut scene = Scene::new("by_default");
    builder.attach(&mut scene.session).unwrap();
    // The INFO lines of a statement, after which the builder has finished this many builds.
    let external = |scene: &mut Scene, sql: &str, ended: u32| {
        scene.session.take_notices();
        scene.session.execute(sql).unwrap();
        let said: Vec<String> = scene.session.take_notices().iter().map(Notice::headline).collect();
        inspect(&CLUSTER, &mut scene.session, "items_idx").unwrap();
        builder.expect_builds(ended).unwrap();
        said
    };
    let lines = [
        format!("INFO:  connecting to external indexing server on {}", builder.address()),
        "INFO:  successfully connected to external indexing server".to_owned(),
        "INFO:  indexed 24 elements".to_owned(),
    ];
    assert_eq!(external(&mut scene, PLAIN, 0), [""; 0]);
    scene.session.execute("SET hnsw.external_index = on").unwrap();
    assert_eq!(external(&mut scene, "REINDEX INDEX items_idx", 1), lines);
    scene.session.execute("DROP INDEX items_idx").unwrap();
    assert_eq!(external(&mut scene, PLAIN, 2), lines);
    let options: u32 =
        scene.session.value("SELECT count(reloptions) FROM pg_class WHERE relname = 'items_idx'").unwrap();
    assert_eq!(options, 0, "the setting leaves no trace in the index");
    scene.session.execute("SET hnsw.external_index = off").unwrap();
    assert_eq!(external(&mut scene, "REINDEX INDEX items_idx", 2), [""; 0]);
    scene.session.execute("DROP INDEX items_idx").unwrap();
    assert_eq!(external(&mut scene, CREATE, 3), lines);
    scene.session.execute("DROP INDEX items_idx").unwrap();
    scene.expect_clean();
}

#[test]
fn the_reason_for_a_local_build_is_true() {
    let mut scene = Scene::new("fallback_reason");
    scene.point_at(1);
    scene.session.execute("SET hnsw.external_index_fallback = local; SET hnsw.external_index = on").unwrap();
    // pgvector cannot index it either.
    scene.session.execute("CREATE TABLE bare (v vector); INSERT INTO bare VALUES ('[1,2]')").unwrap();
    let error = scene.session.execute("CREATE INDEX ON bare USING hnsw (v vector_l2_ops)").unwrap_err();
    assert_eq!(error.server().message, "column does not have dimensions");
    assert!(scene.session.take_notices().iter().all(|notice| notice.severity != "WARNING"));
    scene
        .session
        .execute(
            "CREATE FUNCTION l2_squared_distance(vector, vector) RETURNS float8 LANGUAGE sql IMMUTABLE
                 AS 'SELECT 1 - public.vector_l2_squared_distance($1, $2)';
             CREATE OPERATOR CLASS own_ops FOR TYPE vector USING hnsw AS
                 OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops, FUNCTION 1 l2_squared_distance(vector, vector)",
        )
        .unwrap();
    let own = "CREATE INDEX items_idx ON items USING hnsw (v own_ops)";
    scene.session.execute(own).unwrap();
    let notices = scene.session.take_notices();
    let warning = notices.iter().find(|notice| notice.severity == "WARNING").expect("a warning");
    assert!(warning.message.ends_with("because external builds do not support it"), "{warning}");
    scene.session.execute("DROP INDEX items_idx; SET hnsw.external_index_fallback = error").unwrap();
    let error = scene.session.execute(own).unwrap_err();
    assert_eq!(error.server().sqlstate, "0A000", "a function that only has pgvector's name: {error}");
    assert!(error.server().hint.contains("hnsw.external_index to off"), "{error}");
}
