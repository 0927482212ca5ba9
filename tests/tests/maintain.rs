//! `lantern-index maintain`: what was bad is good, nothing else is touched, and writers notice nothing.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use harness::{Builder, Cluster, Session, binary, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster all of whose sessions know a builder.
struct Scene {
    cluster: Cluster,
    builder: Builder,
}

impl Scene {
    fn new() -> Self {
        let (cluster, builder) = (Cluster::start().unwrap(), Builder::start().unwrap());
        let certificate = builder.certificate();
        cluster
            .configure(&format!(
                "hnsw.external_index_host = 'localhost'\nhnsw.external_index_port = {}\nhnsw.external_index_sslrootcert = '{}'",
                builder.address().port(),
                certificate.display()
            ))
            .unwrap();
        cluster.reload().unwrap();
        Self { cluster, builder }
    }

    fn database(&self, name: &str) -> Session {
        let mut session = self.cluster.database(name).unwrap();
        session.execute("CREATE EXTENSION lantern_index").unwrap();
        session
    }

    fn command(&self, database: &str, arguments: &[&str]) -> Command {
        let dir = self.cluster.dir().display();
        let mut command = Command::new(binary().unwrap());
        command.arg("maintain").arg(format!("host={dir} user=postgres dbname={database}")).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs to the end: exit code, and what it said on stdout.
    fn maintain(&self, database: &str, arguments: &[&str]) -> (i32, String) {
        told(self.command(database, arguments).output().unwrap())
    }
}

fn told(output: Output) -> (i32, String) {
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), text)
}

/// A table of 600 rows of which two thirds are dead, and an index of it that is scanned now and then.
fn worn(session: &mut Session, table: &str, index: &str, options: &str) {
    session
        .execute(&format!(
            "CREATE TABLE {table} (id int, v vector(8)) WITH (autovacuum_enabled = off); \
             INSERT INTO {table} SELECT i, ARRAY[i, i % 7, i % 11, i % 13, 1, 2, 3, 4]::vector FROM generate_series(1, 600) i; \
             CREATE INDEX {index} ON {table} USING hnsw (v vector_l2_ops) {options}"
        ))
        .unwrap();
    kill_rows(session, table, 400);
}

fn kill_rows(session: &mut Session, table: &str, count: u32) {
    session.execute(&format!("DELETE FROM {table} WHERE id <= {count}")).unwrap();
}

/// Waits until the view has the advice: statistics come a little later.
fn wait_for_advice(scene: &Scene, database: &str, index: &str, advice: &str) {
    let mut session = scene.cluster.session(database).unwrap();
    let sql = format!("SELECT advice FROM lantern_index.indexes WHERE index_name = '{index}'::regclass");
    wait_for("the statistics", PATIENCE, || Ok((session.value::<String>(&sql)? == advice).then_some(()))).unwrap();
}

/// The files of all hnsw indexes, by name.
fn files(session: &mut Session) -> Vec<(String, String)> {
    let sql = "SELECT c.relname, c.relfilenode FROM pg_class c JOIN pg_am a ON a.oid = c.relam \
               WHERE a.amname = 'hnsw' AND c.relkind = 'i' ORDER BY 1";
    let rows = session.query(sql).unwrap();
    rows.into_iter().map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
}

fn pgbench(scene: &Scene, database: &str, script: &str) -> Child {
    let path = scene.cluster.dir().join("script.sql");
    std::fs::write(&path, script).unwrap();
    Command::new(scene.cluster.config().program("pgbench"))
        .args(["-n", "-c", "2", "-T", "600", "-U", "postgres", "-h"])
        .arg(scene.cluster.dir())
        .arg("-f")
        .arg(path)
        .arg(database)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn what_was_bad_is_good_and_nothing_else_is_touched() {
    let scene = Scene::new();
    let mut session = scene.database("shop");
    worn(&mut session, "a", "a_worn", "WITH (external = true)");
    worn(&mut session, "b", "\"B worn\"", "");
    // Two indexes of a table, which cannot be rebuilt at the same time.
    session.execute("CREATE INDEX b_other ON b USING hnsw (v vector_cosine_ops)").unwrap();
    session
        .execute(
            "CREATE TABLE parts (id int, v vector(8)) PARTITION BY RANGE (id); \
             CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000) WITH (autovacuum_enabled = off); \
             CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (1000) TO (2000) WITH (autovacuum_enabled = off); \
             INSERT INTO parts SELECT i, ARRAY[i, i % 7, i % 11, i % 13, 1, 2, 3, 4]::vector FROM generate_series(1, 1600) i; \
             CREATE INDEX parts_idx ON parts USING hnsw (v vector_l2_ops); \
             CREATE TABLE fine (id serial, v vector(8)) WITH (autovacuum_enabled = off); \
             INSERT INTO fine (v) SELECT ARRAY[i, i % 7, i % 11, i % 13, 1, 2, 3, 4]::vector FROM generate_series(1, 800) i; \
             CREATE INDEX fine_idx ON fine USING hnsw (v vector_l2_ops) WITH (external = true); \
             CREATE INDEX fine_left ON fine USING hnsw (v vector_ip_ops) WITH (external = true)",
        )
        .unwrap();
    kill_rows(&mut session, "part_1", 700);
    session.execute("SET hnsw.external_index_port = 1").unwrap();
    session
        .execute("CREATE INDEX CONCURRENTLY failed ON fine USING hnsw (v vector_l1_ops) WITH (external = true)")
        .unwrap_err();
    session.execute("REINDEX INDEX CONCURRENTLY fine_left").unwrap_err();
    drop(session);
    let mut session = scene.cluster.session("shop").unwrap();
    for index in ["a_worn", "\"B worn\"", "part_1_v_idx"] {
        wait_for_advice(&scene, "shop", index, "rebuild");
    }
    let before = files(&mut session);
    assert!(before.iter().any(|(name, _)| name == "fine_left_ccnew"), "{before:?}");

    let (code, plan) = scene.maintain("shop", &[]);
    assert_eq!(code, 3, "a plan that was not carried out");
    for (index, action) in [("a_worn", "rebuild, vacuum"), ("failed", "rebuild"), ("fine_left_ccnew", "drop")] {
        let line = plan.lines().find(|line| line.contains(&format!("public.{index} "))).unwrap();
        assert!(line.contains(&format!("  {action} ")), "{line}");
    }
    assert_eq!(files(&mut session), before, "a dry run touches nothing");

    let mut writers = pgbench(
        &scene,
        "shop",
        "INSERT INTO fine (v) VALUES (ARRAY[random()*9, 2, 3, 4, 5, 6, 7, 8]::real[]::vector);\n\
         INSERT INTO a VALUES (7, ARRAY[random()*9, 2, 3, 4, 5, 6, 7, 8]::real[]::vector);\n\
         INSERT INTO parts VALUES (3, ARRAY[random()*9, 2, 3, 4, 5, 6, 7, 8]::real[]::vector);\n",
    );
    let textfile = scene.cluster.dir().join("lantern_index.prom");
    let (code, text) = scene.maintain(
        "shop",
        &[
            "--rebuild",
            "--drop-leftovers",
            "--external",
            "--jobs",
            "3",
            "--json",
            "--textfile",
            textfile.to_str().unwrap(),
        ],
    );
    assert!(writers.try_wait().unwrap().is_none(), "pgbench writes still");
    kill_process(Pid::from_child(&writers), Signal::INT).unwrap();
    let writers = writers.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&writers.stderr);
    assert!(!errors.contains("ERROR") && !errors.contains("aborted"), "{errors}");
    assert_eq!(code, 0);
    let report: Value = serde_json::from_str(&text).unwrap();
    let steps = report["steps"].as_array().unwrap();
    let mut done: Vec<&str> = steps.iter().map(|step| step["index"].as_str().unwrap()).collect();
    done.sort_unstable();
    assert!(steps.iter().all(|step| step["outcome"] == "done"), "{steps:?}");
    assert_eq!(
        done,
        [
            "public.\"B worn\"",
            "public.a_worn",
            "public.b_other",
            "public.failed",
            "public.fine_left_ccnew",
            "public.part_1_v_idx"
        ]
    );
    let after = files(&mut session);
    let kept = |files: &[(String, String)], name: &str| files.iter().find(|(other, _)| other == name).cloned();
    for name in ["fine_idx", "fine_left", "part_2_v_idx"] {
        assert_eq!(kept(&before, name), kept(&after, name), "{name} is touched");
    }
    for name in ["a_worn", "B worn", "b_other", "failed", "part_1_v_idx"] {
        assert_ne!(kept(&before, name), kept(&after, name), "{name} is not made anew");
    }
    assert_eq!(kept(&after, "fine_left_ccnew"), None);
    assert_eq!(after.len(), before.len() - 1, "{after:?}");
    let bad = "SELECT count(*) FROM lantern_index.indexes WHERE advice NOT IN ('ok', 'unused', 'check')";
    let advice = "SELECT string_agg(concat_ws(' ', index_name, advice, reason), '; ') FROM lantern_index.indexes";
    let good = wait_for("good advice", PATIENCE, || Ok((session.value::<u32>(bad)? == 0).then_some(())));
    good.unwrap_or_else(|error| panic!("{error}: {}", session.value::<String>(advice).unwrap()));
    scene.builder.expect_builds(5).unwrap_or_else(|error| println!("{error}"));
    let metrics = std::fs::read_to_string(&textfile).unwrap();
    assert!(metrics.contains("lantern_index_maintain_steps{outcome=\"done\"} 6\n"), "{metrics}");
    assert!(metrics.contains("lantern_index_maintain_left 0\n"), "{metrics}");
}

#[test]
fn a_signal_ends_a_rebuild_and_nothing_is_left() {
    let scene = Scene::new();
    let mut session = scene.database("stopped");
    worn(&mut session, "a", "a_worn", "WITH (external = true)");
    session.execute("ALTER DATABASE stopped SET hnsw.external_index_max_rate = '1kB'").unwrap();
    drop(session);
    wait_for_advice(&scene, "stopped", "a_worn", "rebuild");
    let mut session = scene.cluster.session("stopped").unwrap();
    let before = files(&mut session);
    let child = scene.command("stopped", &["--rebuild"]).spawn().unwrap();
    let building = "SELECT count(*) FROM pg_stat_progress_create_index WHERE phase LIKE 'building index%'";
    wait_for("the rebuild", PATIENCE, || Ok((session.value::<u32>(building)? == 1).then_some(()))).unwrap();
    // Another one keeps away meanwhile.
    let (code, plan) = scene.maintain("stopped", &["--rebuild"]);
    assert!(code == 3 && plan.contains("building  wait"), "{plan}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let (code, _) = told(child.wait_with_output().unwrap());
    assert_eq!(code, 3);
    assert_eq!(files(&mut session), before);
    scene.builder.expect_idle(Duration::from_secs(20)).unwrap();
}

#[test]
fn steps_that_may_not_begin() {
    let scene = Scene::new();
    let mut session = scene.database("guarded");
    worn(&mut session, "a", "a_worn", "WITH (external = true)");
    drop(session);
    wait_for_advice(&scene, "guarded", "a_worn", "rebuild");
    let mut session = scene.cluster.session("guarded").unwrap();
    let before = files(&mut session);
    let mut expect = |arguments: &[&str], code: i32, words: &str| {
        let output = scene.command("guarded", &[&["--rebuild"][..], arguments].concat()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let (found, _) = told(output);
        assert!(found == code && text.contains(words), "{arguments:?}: {found} {text}");
        assert_eq!(files(&mut session), before, "{arguments:?}");
    };
    let hour = "SELECT to_char(localtime + interval '2 hours', 'HH24:MI') || '-' || to_char(localtime + interval '3 hours', 'HH24:MI')";
    let later: String = scene.cluster.session("guarded").unwrap().value(hour).unwrap();
    expect(&["--window", &later], 3, "the window is closed");
    let mut other = scene.cluster.session("guarded").unwrap();
    other.execute("SELECT pg_advisory_lock(1818846328, 1835100526)").unwrap();
    expect(&[], 3, "another maintain is at work");
    other.execute("SELECT pg_advisory_unlock_all(); BEGIN; SELECT txid_current(); SELECT pg_sleep(1.1)").unwrap();
    expect(&["--max-transaction", "1s", "--patience", "1s"], 3, "is open for");
    other.execute("ROLLBACK").unwrap();
    // As CREATE INDEX CONCURRENTLY and REINDEX CONCURRENTLY lock it: an index that is invalid then may be theirs.
    other.execute("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE").unwrap();
    expect(&["--patience", "1s"], 3, "another session builds an index of the table");
    other.execute("ROLLBACK").unwrap();
    expect(&["--window", "1-2"], 64, "is no window");
    // The step fails, and leaves nothing.
    scene.cluster.configure("hnsw.external_index_port = 1").unwrap();
    scene.cluster.reload().unwrap();
    expect(&[], 1, "could not connect to external indexing server");
    let standby = scene.cluster.standby().unwrap();
    let mut command = Command::new(binary().unwrap());
    command.arg("maintain").arg(format!("host={} user=postgres dbname=guarded", standby.dir().display()));
    assert_eq!(told(command.output().unwrap()).0, 0, "a standby has statistics of its own");
}

#[test]
fn connections_that_cannot_be() {
    let scene = Scene::new();
    let mut session = scene.cluster.database("plain").unwrap();
    session.execute("CREATE TABLE t (v vector(3)); CREATE INDEX ON t USING hnsw (v vector_l2_ops)").unwrap();
    let (code, text) = scene.maintain("plain", &[]);
    assert!(code == 0 && text.contains("CREATE EXTENSION lantern_index is missing here"), "{code} {text}");
    assert_eq!(scene.maintain("none_such", &[]).0, 1);
    let run = |dsn: &str| told(Command::new(binary().unwrap()).args(["maintain", dsn]).output().unwrap()).0;
    assert_eq!(run("host=/nowhere user=postgres"), 1);
    assert_eq!(run("host='x"), 64);
    assert_eq!(run("service=none_such"), 64);
    // All databases of the server, by the environment.
    let mut command = Command::new(binary().unwrap());
    command.arg("maintain").env("PGHOST", scene.cluster.dir()).env("PGUSER", "postgres");
    let (code, text) = told(command.output().unwrap());
    assert!(code == 0 && text.contains("plain"), "{code} {text}");
}

#[test]
fn a_database_that_cannot_be_looked_at_keeps_nobody_from_the_others() {
    let scene = Scene::new();
    let mut session = scene.database("worn_out");
    worn(&mut session, "a", "a_worn", "WITH (external = true)");
    let mut broken = scene.cluster.database("broken").unwrap();
    broken.execute("CREATE SCHEMA lantern_index; CREATE VIEW lantern_index.indexes AS SELECT 1 AS one").unwrap();
    drop(session);
    wait_for_advice(&scene, "worn_out", "a_worn", "rebuild");
    let numbers = scene.cluster.dir().join("maintain.prom");
    let dir = scene.cluster.dir().display();
    let output = Command::new(binary().unwrap())
        .arg("maintain")
        .arg(format!("host={dir} user=postgres"))
        .args(["--rebuild", "--textfile", &numbers.display().to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && text.contains("database \"broken\": "), "{text}");
    let numbers = std::fs::read_to_string(numbers).unwrap();
    assert!(numbers.contains("lantern_index_maintain_errors 1\n"), "{numbers}");
    assert!(numbers.contains("lantern_index_maintain_steps{outcome=\"done\"} 1\n"), "{numbers}");
    wait_for_advice(&scene, "worn_out", "a_worn", "unused");
}
