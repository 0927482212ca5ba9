//! Which servers and databases are examined, and how failures are reported.

use std::fs;
use std::process::Command;

use harness::{Session, binary, may_damage_indexes};
use serde_json::Value;

use crate::scene::{Scene, command, finished, wait_for_advice, worn};

#[test]
fn unusable_connections_end_with_their_exit_code() {
    let scene = Scene::new();
    let mut session = scene.cluster.database("plain").unwrap();
    session.execute("CREATE TABLE t (v vector(3)); CREATE INDEX ON t USING hnsw (v vector_l2_ops)").unwrap();
    let (code, text) = scene.maintain("plain", &[]);
    assert!(code == 0 && text.contains("CREATE EXTENSION lantern_index is missing here"), "{code} {text}");
    assert_eq!(scene.maintain("none_such", &[]).0, 1);
    let run = |dsn: &str| finished(Command::new(binary().unwrap()).args(["maintain", dsn]).output().unwrap()).0;
    assert_eq!(run("host=/nowhere user=postgres"), 1);
    let wrong = ["host='x", "service=none_such", "port=x", "host=db sslmode=perhaps", "host=db sslrootcert=/nowhere"];
    for dsn in wrong {
        assert_eq!(run(dsn), 64, "{dsn}");
    }
    // All databases of the server that the environment names.
    let mut command = Command::new(binary().unwrap());
    command.arg("maintain").env("PGHOST", scene.cluster.dir()).env("PGUSER", "postgres");
    let (code, text) = finished(command.output().unwrap());
    assert!(code == 0 && text.contains("plain"), "{code} {text}");
    // A file that cannot be written is one more error.
    let (code, text) = scene.maintain("plain", &["--json", "--textfile", "/nowhere/maintain.prom"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert!(code == 1 && report["plan"][0]["database"] == "plain", "{code} {text}");
    assert!(report["errors"][0].as_str().unwrap().contains("cannot write /nowhere/maintain.prom"), "{text}");
    // DROP DATABASE leaves this mark when it is interrupted.
    session.execute("CREATE DATABASE half_dropped").unwrap();
    session.execute("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'half_dropped'").unwrap();
    assert_eq!(finished(command.output().unwrap()).0, 0);
    // PostgreSQL's own tools take template1 then, too.
    session.execute("ALTER DATABASE postgres RENAME TO other").unwrap();
    let (code, text) = finished(command.output().unwrap());
    assert!(code == 0 && text.contains("plain"), "{code} {text}");
}

#[test]
fn a_database_that_cannot_be_looked_at_keeps_nobody_from_the_others() {
    let scene = Scene::new();
    let mut session = scene.database("worn_out");
    worn(&mut session, "a", "a_worn", "WITH (external = true)");
    scene
        .database("broken")
        .execute(
            "ALTER EXTENSION lantern_index DROP VIEW lantern_index.indexes; DROP VIEW lantern_index.indexes; \
             CREATE VIEW lantern_index.indexes AS SELECT 1 AS one; \
             ALTER EXTENSION lantern_index ADD VIEW lantern_index.indexes",
        )
        .unwrap();
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

/// Functions of a role without rights that would make it a superuser if a superuser called them.
const PLANTED: [(&str, &str); 3] = [
    ("lantern_index.told()", "text"),
    ("lantern_index.check_and_remember(regclass)", "text"),
    ("lantern_index.quote_ident(name)", "text"),
];

fn plant(session: &mut Session, (name, answer): (&str, &str)) {
    let body = "BEGIN EXECUTE 'ALTER ROLE tenant SUPERUSER'; RETURN 'ok'; END";
    session.execute(&format!("CREATE FUNCTION {name} RETURNS {answer} LANGUAGE plpgsql AS $${body}$$")).unwrap();
}

#[test]
fn what_others_have_planted_is_not_called() {
    let scene = Scene::new();
    let is_superuser = |session: &mut Session| {
        session.value::<String>("SELECT rolsuper FROM pg_roles WHERE rolname = 'tenant'").unwrap() == "t"
    };
    // A view of the extension's name, of an owner of a database without the extension.
    let mut session = scene.cluster.database("planted").unwrap();
    session
        .execute(
            "CREATE TABLE t (v vector(3)); CREATE INDEX t_v ON t USING hnsw (v vector_l2_ops); \
             CREATE ROLE tenant; GRANT CREATE ON DATABASE planted TO tenant; SET ROLE tenant; CREATE SCHEMA lantern_index",
        )
        .unwrap();
    plant(&mut session, PLANTED[0]);
    session
        .execute(
            "CREATE VIEW lantern_index.indexes AS SELECT 'public.t_v'::regclass AS index_name, 0::bigint AS size, \
             0::float8 AS dead_share, 0::float8 AS deleted_share, lantern_index.told() AS advice, ''::text AS reason; RESET ROLE",
        )
        .unwrap();
    let (code, text) = scene.maintain("planted", &[]);
    assert!(code == 0 && text.contains("CREATE EXTENSION lantern_index is missing here"), "{code} {text}");
    assert!(!is_superuser(&mut session));
    // Functions in the extension's schema, of a role that may create there.
    let mut session = scene.cluster.database("granted").unwrap();
    session
        .execute("CREATE SCHEMA lantern_index; GRANT ALL ON SCHEMA lantern_index TO tenant; SET ROLE tenant")
        .unwrap();
    PLANTED[1..].iter().for_each(|planted| plant(&mut session, *planted));
    session.execute("RESET ROLE; CREATE EXTENSION lantern_index").unwrap();
    worn(&mut session, "a", "a_v", "");
    for statement in ["REINDEX INDEX a_v", "VACUUM a", "DELETE FROM a WHERE id <= 410", "VACUUM a"] {
        session.execute(statement).unwrap();
    }
    let suspected = may_damage_indexes(&mut session).unwrap();
    wait_for_advice(&scene, "granted", "a_v", if suspected { "check" } else { "unused" });
    let (code, text) = scene.maintain("granted", &["--rebuild"]);
    assert_eq!(code, 0, "{text}");
    assert!(!is_superuser(&mut session));
    let checked = session.value::<i64>("SELECT count(*) FROM lantern_index.checks").unwrap();
    assert_eq!(checked, i64::from(suspected), "the extension's own function has checked it");
}

#[test]
fn settings_of_a_database_do_not_change_what_is_called() {
    let scene = Scene::new();
    let mut session = scene.database("slanted");
    // With this setting, a backslash in a literal quotes the character after it.
    session
        .execute(
            "ALTER DATABASE slanted SET standard_conforming_strings = off; CREATE TABLE a (v vector(3)); \
             INSERT INTO a SELECT ARRAY[i, 1, 2]::vector FROM generate_series(1, 300) i; \
             CREATE INDEX \"\\'||f())--\" ON a USING hnsw (v vector_l2_ops); \
             SELECT lantern_index.check_and_remember(indexrelid) FROM pg_index WHERE indrelid = 'a'::regclass; \
             UPDATE lantern_index.checks SET advice = 'reindex: it was said so'",
        )
        .unwrap();
    let output = scene.command("slanted", &["--rebuild"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(finished(output).0, 0, "{said}");
    assert!(said.contains(": done\n") && !said.contains("could not be checked"), "{said}");
    let found = "SELECT check_result FROM lantern_index.indexes";
    assert_eq!(session.value::<String>(found).unwrap(), "ok");
}

#[test]
fn a_missing_or_wrong_password_is_reported() {
    let scene = Scene::new();
    let mut session = scene.cluster.database("closed").unwrap();
    session.execute("CREATE ROLE asked LOGIN PASSWORD 'open sesame'").unwrap();
    let rules = scene.cluster.data().join("pg_hba.conf");
    let usual = fs::read_to_string(&rules).unwrap();
    fs::write(&rules, format!("local all asked scram-sha-256\n{usual}")).unwrap();
    scene.cluster.reload().unwrap();
    let file = scene.cluster.dir().join("passwords");
    fs::write(&file, "*:*:closed:asked:open sesame\n").unwrap();
    let run = |dsn: &str, variable: Option<(&str, &str)>| {
        let mut command = command(scene.cluster.dir(), &format!("user=asked dbname=closed {dsn}"), &[]);
        command.env("HOME", "/nowhere").env_remove("PGPASSWORD").env_remove("PGPASSFILE").envs(variable);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (finished(output).0, text)
    };
    let refused = run("", None);
    assert!(refused.0 == 1 && refused.1.contains("/closed: the server asks for a password: PGPASSWORD"), "{refused:?}");
    let wrong = run("password=sesame", None);
    assert!(wrong.0 == 1 && wrong.1.contains("password authentication failed for user \"asked\""), "{wrong:?}");
    assert_eq!(run("password='open sesame'", None).0, 0);
    assert_eq!(run("", Some(("PGPASSWORD", "open sesame"))).0, 0);
    assert_eq!(run(&format!("passfile={}", file.display()), None).0, 0);
}
