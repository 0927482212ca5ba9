//! Replicas that lag, and replicas that retain dead rows on the primary.

use std::fs;
use std::process::{Command, Stdio};

use harness::{Cluster, Session, wait_for};

use crate::scene::{Killed, PATIENCE, Scene, command, files, finished, wait_for_advice, worn};

/// Runs `maintain` on the primary, and checks that it leaves all indexes alone.
fn expect(scene: &Scene, arguments: &[&str], words: &str) {
    let mut session = scene.session("copied");
    let before = files(&mut session);
    let output = scene.command("copied", &[&["--rebuild"][..], arguments].concat()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (code, _) = finished(output);
    assert!(code == 3 && text.contains(words), "{arguments:?}: {code} {text}");
    assert_eq!(files(&mut session), before, "{arguments:?}");
}

/// Begins a query on the standby with a snapshot of the present rows, then runs transactions on the primary.
fn old_query(standby: &Cluster, primary: &mut Session) -> Session {
    standby.catch_up(primary).unwrap();
    let mut query = standby.session("copied").unwrap();
    query.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM a").unwrap();
    for _ in 0..5 {
        primary.execute("INSERT INTO noise VALUES (1)").unwrap();
    }
    query
}

#[test]
fn replicas_that_are_behind_or_keep_dead_rows_postpone_a_rebuild() {
    let scene = Scene::new();
    let mut session = scene.database("copied");
    worn(&mut session, "a", "a_worn", "WITH (external = true)");
    session.execute("CREATE TABLE noise (n int); INSERT INTO noise VALUES (1)").unwrap();
    wait_for_advice(&scene, "copied", "a_worn", "rebuild");
    let standby = scene.cluster.standby().unwrap();
    standby.configure("wal_receiver_status_interval = 1s").unwrap();
    standby.reload().unwrap();
    let on_standby =
        |arguments: &[&str]| -> Command { command(standby.dir(), "user=postgres dbname=copied", arguments) };
    assert_eq!(finished(on_standby(&[]).output().unwrap()).0, 0, "a standby has statistics of its own");

    // An index that is invalid on the primary is so on the standby, where it cannot be repaired.
    session.execute("SET hnsw.external_index_port = 1").unwrap();
    session.execute("CREATE INDEX CONCURRENTLY failed ON noise USING hnsw ((ARRAY[n]::vector(1)) vector_l2_ops) WITH (external = true)").unwrap_err();
    standby.catch_up(&mut session).unwrap();
    let output = on_standby(&["--rebuild"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("postponed: this is a standby: rebuild on the primary"));
    assert_eq!(finished(output).0, 3);
    session.execute("DROP INDEX failed").unwrap();

    let lag = "SELECT coalesce(max(extract(epoch FROM replay_lag)), 0)::float8 > 1 FROM pg_stat_replication";
    let mut wait_for_lag = |wanted: &str| {
        wait_for("the replica's lag", PATIENCE, || {
            session.execute("INSERT INTO noise VALUES (1)")?;
            Ok((session.value::<String>(lag)? == wanted).then_some(()))
        })
        .unwrap();
    };
    let mut replay = standby.session("copied").unwrap();
    replay.execute("SELECT pg_wal_replay_pause()").unwrap();
    wait_for_lag("t");
    expect(&scene, &["--max-lag", "1s", "--patience", "1s"], "postponed: a replica is ");
    replay.execute("SELECT pg_wal_replay_resume()").unwrap();
    wait_for_lag("f");

    // VACUUM on the primary retains the rows that the query can see.
    standby.configure("hot_standby_feedback = on").unwrap();
    standby.reload().unwrap();
    let mut query = old_query(&standby, &mut session);
    let kept = "SELECT count(*) FROM pg_stat_replication WHERE age(backend_xmin) > 1";
    wait_for("the standby's feedback", PATIENCE, || Ok((session.value::<u32>(kept)? == 1).then_some(()))).unwrap();
    expect(&scene, &["--patience", "1s"], "(hot_standby_feedback) keeps VACUUM from removing dead rows");
    query.execute("ROLLBACK").unwrap();

    // Likewise for the replication slot of a disconnected standby.
    session.execute("SELECT pg_create_physical_replication_slot('away')").unwrap();
    standby.configure("primary_slot_name = 'away'").unwrap();
    standby.reload().unwrap();
    let _query = old_query(&standby, &mut session);
    let kept = "SELECT count(*) FROM pg_replication_slots WHERE age(xmin) > 1";
    wait_for("the slot's horizon", PATIENCE, || Ok((session.value::<u32>(kept)? == 1).then_some(()))).unwrap();
    drop(standby);
    let away = "SELECT count(*) FROM pg_replication_slots WHERE NOT active AND age(xmin) > 1";
    wait_for("the standby's end", PATIENCE, || Ok((session.value::<u32>(away)? == 1).then_some(()))).unwrap();
    let (_, plan) = scene.maintain("copied", &[]);
    assert!(plan.contains("replication slot \"away\" is not in use: the server keeps all WAL for it"), "{plan}");
    expect(&scene, &["--patience", "1s"], "replication slot \"away\", which is not in use, keeps VACUUM");
    session.execute("SELECT pg_drop_replication_slot('away')").unwrap();
    let before = files(&mut session);
    assert_eq!(scene.maintain("copied", &["--rebuild"]).0, 0);
    assert_ne!(files(&mut session), before);
    // The dead rows are gone, and it is not rebuilt again.
    wait_for_advice(&scene, "copied", "a_worn", "unused");
}

#[test]
fn an_archive_of_wal_is_no_replica_that_is_behind() {
    let (scene, mut session) = Scene::worn("archived");
    session.execute("CREATE TABLE noise (n int)").unwrap();
    let archive = scene.cluster.dir().join("archive");
    fs::create_dir(&archive).unwrap();
    let mut receiver = Command::new(scene.cluster.config().program("pg_receivewal"));
    receiver.args(["--no-loop", "--no-sync", "--status-interval=1", "--username=postgres", "--host"]);
    receiver.arg(scene.cluster.dir()).arg("--directory").arg(&archive).stderr(Stdio::null());
    let _receiver = Killed(receiver.spawn().unwrap());
    // It reports no position up to which it has replayed, and PostgreSQL lets the lag grow.
    let lag = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn IS NULL AND replay_lag > interval '2 s'";
    wait_for("the lag of the receiver", PATIENCE, || {
        session.execute("INSERT INTO noise VALUES (1)")?;
        Ok((session.value::<u32>(lag)? == 1).then_some(()))
    })
    .unwrap();
    assert_eq!(scene.maintain("archived", &["--rebuild", "--max-lag", "1s", "--patience", "1s"]).0, 0);
}
