//! Obstacles to a step, and indexes that change between plan and step.

use harness::{Direction, wait_for};
use serde_json::Value;

use crate::scene::{PATIENCE, Running, Scene, files, finished, wait_for_advice, worn};

#[test]
fn obstacles_postpone_a_step() {
    let mut scene = Scene::new();
    scene.cluster.configure("max_prepared_transactions = 5").unwrap();
    scene.cluster.restart().unwrap();
    let mut session = scene.database("guarded");
    worn(&mut session, "a", "a_worn", "WITH (external = true)");
    drop(session);
    wait_for_advice(&scene, "guarded", "a_worn", "rebuild");
    let mut session = scene.session("guarded");
    let before = files(&mut session);
    let mut expect = |arguments: &[&str], code: i32, words: &str| {
        let output = scene.command("guarded", &[&["--rebuild"][..], arguments].concat()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let (found, _) = finished(output);
        assert!(found == code && text.contains(words), "{arguments:?}: {found} {text}");
        assert_eq!(files(&mut session), before, "{arguments:?}");
    };
    let hour = "SELECT to_char(localtime + interval '2 hours', 'HH24:MI') || '-' || to_char(localtime + interval '3 hours', 'HH24:MI')";
    let later: String = scene.session("guarded").value(hour).unwrap();
    expect(&["--window", &later], 3, "the window is closed");
    let mut other = scene.session("guarded");
    other.execute("SELECT pg_advisory_lock(1818846328, 1835100526)").unwrap();
    expect(&[], 3, "another maintain is at work");
    other.execute("SELECT pg_advisory_unlock_all(); BEGIN; SELECT txid_current(); SELECT pg_sleep(1.1)").unwrap();
    expect(&["--max-transaction", "1s", "--patience", "1s"], 3, "is open for");
    other.execute("ROLLBACK").unwrap();
    // A prepared transaction has no process.
    other
        .execute("BEGIN; LOCK TABLE a IN ROW EXCLUSIVE MODE; PREPARE TRANSACTION 'forgotten'; SELECT pg_sleep(1.1)")
        .unwrap();
    for words in ["the prepared transaction \"forgotten\" is open for", " s, and a rebuild would wait for it"] {
        expect(&["--max-transaction", "1s", "--patience", "1s"], 3, words);
    }
    other.execute("ROLLBACK PREPARED 'forgotten'").unwrap();
    // Every snapshot of this database keeps the rows that died after a transaction of any other one began.
    let mut elsewhere = scene.session("postgres");
    elsewhere.execute("BEGIN; SELECT txid_current(); SELECT pg_sleep(1.1)").unwrap();
    for words in [" in database \"postgres\" is open for", " s, and VACUUM removes no row that it may still see"] {
        expect(&["--max-transaction", "1s", "--patience", "1s"], 3, words);
    }
    elsewhere.execute("PREPARE TRANSACTION 'elsewhere'").unwrap();
    let words = "the prepared transaction \"elsewhere\" in database \"postgres\" is open for";
    elsewhere.execute("SELECT pg_sleep(1.1)").unwrap();
    expect(&["--max-transaction", "1s", "--patience", "1s"], 3, words);
    elsewhere.execute("ROLLBACK PREPARED 'elsewhere'").unwrap();
    // The lock of CREATE INDEX CONCURRENTLY and REINDEX CONCURRENTLY: an invalid index may belong to a build under way.
    other.execute("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE").unwrap();
    expect(&["--patience", "1s"], 3, "another session builds an index of the table");
    other.execute("ROLLBACK").unwrap();
    expect(&["--window", "1-2"], 64, "is no window");
    // The step fails and leaves nothing.
    scene.configure("hnsw.external_index_port = 1");
    expect(&[], 1, "could not connect to external indexing server");
}

#[test]
fn steps_follow_changes_made_since_the_plan() {
    let scene = Scene::new();
    let mut session = scene.database("changed");
    let tables = ["gone", "renamed", "no_table", "other_table", "made_anew", "same"];
    for table in tables {
        worn(&mut session, table, &format!("{table}_v"), "");
    }
    for table in tables {
        wait_for_advice(&scene, "changed", &format!("{table}_v"), "rebuild");
    }
    let before = files(&mut session);
    let locks: Vec<String> = tables.map(|table| format!("LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE;")).into();
    session.execute(&format!("BEGIN; {}", locks.concat())).unwrap();
    let running = scene.begin("changed", &["--rebuild", "--json"]);
    running.wait_for_words("waiting: another session builds an index of the table");
    session
        .execute(
            "DROP INDEX gone_v; ALTER INDEX renamed_v RENAME TO \"New name\"; DROP TABLE no_table; \
             ALTER TABLE other_table RENAME TO other; DROP INDEX made_anew_v; \
             CREATE INDEX made_anew_v ON made_anew USING hnsw (v vector_cosine_ops); COMMIT",
        )
        .unwrap();
    let made = files(&mut session);
    let (code, said) = running.end();
    assert_eq!(code, 0, "{said}");
    let outcome = |table: &str| {
        let line = said.lines().rfind(|line| line.starts_with(&format!("changed: public.{table}_v: "))).unwrap();
        line.rsplit(": ").next().unwrap().to_owned()
    };
    let outcomes = tables.map(outcome);
    assert_eq!(outcomes, ["good", "done", "good", "done", "good", "done"], "{said}");
    let after = files(&mut session);
    let file = |files: &[(String, String)], name: &str| files.iter().find(|(own, _)| own == name).cloned();
    for name in ["New name", "other_table_v", "same_v"] {
        assert!(file(&after, name) != file(&made, name), "{name} is made anew");
    }
    assert_eq!(file(&after, "made_anew_v"), file(&made, "made_anew_v"));
    assert_eq!(after.len(), before.len() - 2, "{after:?}");
}

#[test]
fn names_without_a_schema_are_those_of_the_catalog() {
    let scene = Scene::new();
    let mut session = scene.database("names");
    worn(&mut session, "a", "a_worn", "");
    let calls = |function: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION same(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS \
             'BEGIN RETURN {function}(v); END'"
        )
    };
    session
        .execute(&format!(
            "CREATE FUNCTION inner_one(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN v; END'; \
             {}; DROP INDEX a_worn; CREATE INDEX a_worn ON a USING hnsw ((same(v)::vector(8)) vector_l2_ops); \
             CREATE SCHEMA other; CREATE FUNCTION other.pg_is_in_recovery() RETURNS bool LANGUAGE sql AS 'SELECT true'; \
             ALTER DATABASE names SET search_path = other, pg_catalog, public",
            calls("public.inner_one")
        ))
        .unwrap();
    wait_for_advice(&scene, "names", "a_worn", "rebuild");
    let before = files(&mut session);
    session.execute(&calls("inner_one")).unwrap();
    let output = scene.command("names", &["--rebuild"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (code, _) = finished(output);
    assert!(code == 1 && text.contains("function inner_one(public.vector) does not exist"), "{code} {text}");
    assert_eq!(files(&mut session), before);
    session.execute(&calls("public.inner_one")).unwrap();
    assert_eq!(
        scene.maintain("names", &["--rebuild"]).0,
        0,
        "a function of another schema says that this is a standby"
    );
    assert_ne!(files(&mut session), before);
}

#[test]
fn an_index_that_cannot_be_read_at_its_turn_is_left_to_do() {
    let (scene, mut session) = Scene::worn("locked");
    session.execute("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE").unwrap();
    let running = scene.begin("locked", &["--rebuild"]);
    running.wait_for_words("waiting: another session builds an index of the table");
    let mut other = scene.session("locked");
    other.execute("BEGIN; ALTER INDEX a_worn SET TABLESPACE pg_default").unwrap();
    session.execute("COMMIT").unwrap();
    let (code, said) = running.end();
    let words = "postponed: its advice is \"unknown\" by now: the index is locked";
    assert!(code == 3 && said.contains(words), "{code} {said}");
}

#[test]
fn only_a_role_with_the_rights_rebuilds() {
    let scene = Scene::new();
    let mut session = scene.database("owned");
    worn(&mut session, "a", "a_worn", "");
    session
        .execute(
            "CREATE ROLE nobody LOGIN; CREATE ROLE stranger LOGIN; CREATE ROLE reader LOGIN; GRANT SELECT ON a TO reader; \
             CREATE ROLE keeper LOGIN IN ROLE pg_monitor; ALTER TABLE a OWNER TO keeper; \
             GRANT USAGE ON SCHEMA lantern_index TO stranger, reader, keeper",
        )
        .unwrap();
    wait_for_advice(&scene, "owned", "a_worn", "rebuild");
    let before = files(&mut session);
    let run = |role: &str| {
        let mut command =
            crate::scene::command(scene.cluster.dir(), &format!("user={role} dbname=owned"), &["--rebuild"]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let (code, plan) = finished(output);
        (code, plan, text)
    };
    let (code, _, text) = run("nobody");
    assert!(code == 1 && text.contains("permission denied for schema lantern_index"), "{text}");
    let (code, plan, _) = run("stranger");
    assert!(code == 0 && plan.contains("you may not read the table"), "{plan}");
    let (code, plan, text) = run("reader");
    let refused = ["must be owner of index a_worn", "permission denied for index a_worn"];
    assert!(code == 1 && refused.iter().any(|words| text.contains(words)), "{text}");
    assert!(plan.contains("GRANT pg_monitor"), "{plan}");
    assert_eq!(files(&mut session), before);
    let (code, plan, text) = run("keeper");
    assert!(code == 0 && !plan.contains("GRANT"), "{plan}{text}");
    assert_ne!(files(&mut session), before);
}

#[test]
fn the_role_of_the_session_may_be_another_one() {
    let (scene, mut session) = Scene::worn("roles");
    session
        .execute(
            "CREATE ROLE owns; ALTER TABLE a OWNER TO owns; GRANT USAGE ON SCHEMA lantern_index TO owns; \
             CREATE ROLE logs_in LOGIN IN ROLE owns; ALTER ROLE logs_in SET role = owns",
        )
        .unwrap();
    // The rebuild waits for this transaction, so that its progress is looked at: such a role sees none.
    let mut other = scene.session("roles");
    other.execute("BEGIN; SELECT count(*) FROM a").unwrap();
    let mut command = crate::scene::command(scene.cluster.dir(), "user=logs_in dbname=roles", &["--rebuild"]);
    let running = Running::of(&mut command, scene.cluster.dir());
    running.wait_for_words(": rebuild, vacuum …");
    let reads = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'logs_in' AND query LIKE '%pg_stat_progress_vacuum%' AND state = 'idle'";
    wait_for("a look at the progress", PATIENCE, || Ok((session.value::<u32>(reads)? > 0).then_some(()))).unwrap();
    other.execute("ROLLBACK").unwrap();
    let (code, said) = running.end();
    assert!(code == 0 && said.contains(": done\n"), "{code} {said}");
}

#[test]
fn a_database_without_the_extension_is_listed_beside_locks() {
    let scene = Scene::new();
    let mut session = scene.cluster.database("plain").unwrap();
    session
        .execute(
            "CREATE TABLE a AS SELECT '[1,2]'::vector(2) AS v; ALTER TABLE a ALTER v TYPE vector(2); \
             CREATE INDEX U&\"red\\001B[31m\" ON a USING hnsw (v vector_l2_ops)",
        )
        .unwrap();
    session.execute("BEGIN; DROP INDEX U&\"red\\001B[31m\"").unwrap();
    // An index that another session is building is no leftover.
    let mut other = scene.session("plain");
    other.execute("CREATE TABLE b AS SELECT '[1,2]'::vector(2) AS v; ALTER TABLE b ALTER v TYPE vector(2)").unwrap();
    other.execute("CREATE INDEX b_ccnew ON b USING hnsw (v vector_l2_ops)").unwrap();
    other.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'b_ccnew'::regclass").unwrap();
    other.execute("BEGIN; LOCK TABLE b IN SHARE UPDATE EXCLUSIVE MODE").unwrap();
    let (code, said) = scene.begin("plain", &[]).end();
    assert!(said.contains("building  wait"), "{said}");
    assert!(code == 0 && said.contains("CREATE EXTENSION lantern_index is missing here"), "{code} {said}");
    assert!(
        said.contains("red\u{fffd}[31m") && !said.contains('\u{1b}'),
        "a name must not change the terminal: {said}"
    );
}

#[test]
fn warnings_of_a_rebuild_are_reported() {
    let (scene, _) = Scene::worn("warned");
    scene.configure("hnsw.external_index_port = 1\nhnsw.external_index_fallback = 'local'");
    let output = scene.command("warned", &["--rebuild", "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (code, text) = finished(output);
    let warning = "WARNING: building the index in the database, because no builder is available (";
    assert!(code == 0 && said.contains(&format!("warned: public.a_worn: {warning}")), "{code} {said}");
    let report: Value = serde_json::from_str(&text).unwrap();
    let warnings = report["steps"][0]["warnings"].as_array().unwrap();
    assert!(warnings.len() == 1 && warnings[0].as_str().unwrap().starts_with(warning), "{text}");
}

#[test]
fn a_rebuild_does_not_wait_for_vacuum_or_builds_of_other_tables() {
    let scene = Scene::new();
    let mut session = scene.database("busy");
    worn(&mut session, "a", "a_v", "");
    wait_for_advice(&scene, "busy", "a_v", "rebuild");
    // Without dead rows VACUUM does not follow the rebuild.
    session.execute("VACUUM a").unwrap();
    session
        .execute(
            "CREATE TABLE b AS SELECT * FROM a; \
             CREATE TABLE c WITH (autovacuum_enabled = off) AS SELECT repeat('x', 1000) FROM generate_series(1, 20000)",
        )
        .unwrap();
    let few_dead = "SELECT count(*) FROM lantern_index.indexes WHERE advice = 'rebuild' AND dead_share < 0.1";
    wait_for("the statistics", PATIENCE, || Ok((session.value::<u32>(few_dead)? == 1).then_some(()))).unwrap();
    let begin = |sql: String| {
        let mut other = scene.session("busy");
        let pid = other.pid();
        // Slow enough for VACUUM to last longer than the test.
        other.execute("SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1").unwrap();
        (pid, std::thread::spawn(move || other.execute(&sql).unwrap_err()))
    };
    let mut wait_for_age = |pid: u32| {
        let old = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND backend_xmin IS NOT NULL AND now() - xact_start > '2 s'"
        );
        wait_for("an old transaction", PATIENCE, || Ok((session.value::<u32>(&old)? == 1).then_some(()))).unwrap();
    };
    let end = |(pid, other): (u32, std::thread::JoinHandle<_>)| {
        scene.session("busy").execute(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
        other.join().unwrap();
    };
    let mut elsewhere = scene.session("postgres");
    elsewhere.execute("BEGIN; SELECT txid_current()").unwrap();
    let vacuum = begin("VACUUM c".to_owned());
    wait_for_age(vacuum.0);
    // The condition of an index may read other tables.
    for (condition, code) in [("WHERE id > 1", 3), ("", 0)] {
        scene.network.reset();
        scene.network.stop_after(Direction::ToBuilder, 4 << 10);
        let sql = "CREATE INDEX CONCURRENTLY b_v ON b USING hnsw (v vector_l2_ops) WITH (external = true)";
        let build = begin(format!("{sql} {condition}"));
        wait_for_age(build.0);
        let (found, plan) = scene.maintain("busy", &["--rebuild", "--max-transaction", "1s", "--patience", "1s"]);
        assert_eq!(found, code, "{condition} {plan}");
        end(build);
        scene.session("busy").execute("DROP INDEX b_v").unwrap();
    }
    end(vacuum);
}

#[test]
fn an_index_whose_drop_did_not_end_is_not_rebuilt() {
    let (scene, mut session) = Scene::worn("dropped");
    // Of no interest: only its own session can rebuild it.
    let mut other = scene.session("dropped");
    other.execute("CREATE TEMP TABLE t (v vector(3)); CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops)").unwrap();
    let interrupted = "UPDATE pg_index SET indisvalid = false, indisready = false, indislive = false \
                       WHERE indexrelid = 'a_worn'::regclass";
    session.execute(interrupted).unwrap();
    let before = files(&mut session);
    let (code, plan) = scene.maintain("dropped", &["--rebuild"]);
    assert!(code == 3 && plan.contains("1 indexes, 1 need something."), "{code} {plan}");
    assert!(plan.contains("left by a DROP INDEX CONCURRENTLY that failed: no search uses it"), "{plan}");
    assert_eq!(files(&mut session), before);
    assert_eq!(scene.maintain("dropped", &["--rebuild", "--drop-leftovers"]).0, 0);
    assert_eq!(files(&mut session).len(), before.len() - 1);
}
