//! Worn indexes are rebuilt, no other index is touched, and no writer fails.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use harness::{Session, may_damage_indexes, skipped, wait_for};
use serde_json::Value;

use crate::scene::{PATIENCE, Scene, Writers, files, finished, kill_rows, wait_for_advice, worn};

#[test]
fn worn_indexes_are_rebuilt_and_no_others_touched() {
    let scene = Scene::new();
    let mut session = scene.database("shop");
    worn(&mut session, "a", "a_worn", "WITH (external = true)");
    worn(&mut session, "b", "\"B worn\"", "");
    // Two indexes of one table, which must not be rebuilt at the same time.
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
    // Ten more indexes in good condition, and one that is not used.
    let used = ["more_1", "more_2", "more_3", "more_4", "more_5", "more_6", "more_7", "more_8", "more_9", "more_10"];
    for table in used.into_iter().chain(["idle"]) {
        let make = format!(
            "CREATE TABLE {table} (v vector(8)) WITH (autovacuum_enabled = off); \
             INSERT INTO {table} SELECT v FROM fine; CREATE INDEX {table}_v ON {table} USING hnsw (v vector_l2_ops)"
        );
        session.execute(&make).unwrap();
    }
    session.execute("SET enable_seqscan = off").unwrap();
    for table in used {
        session.execute(&format!("SELECT * FROM {table} ORDER BY v <-> '[1,2,3,4,5,6,7,8]' LIMIT 1")).unwrap();
    }
    drop(session);
    let mut session = scene.session("shop");
    for table in used {
        wait_for_advice(&scene, "shop", &format!("{table}_v"), "ok");
    }
    wait_for_advice(&scene, "shop", "idle_v", "unused");
    for index in ["a_worn", "\"B worn\"", "part_1_v_idx"] {
        wait_for_advice(&scene, "shop", index, "rebuild");
    }
    let before = files(&mut session);
    assert!(before.iter().any(|(name, _)| name == "fine_left_ccnew"), "{before:?}");
    assert_eq!(before.len(), 20, "{before:?}");

    let (code, plan) = scene.maintain("shop", &[]);
    assert_eq!(code, 3, "a plan that was not carried out");
    for (index, action) in [("a_worn", "rebuild, vacuum"), ("failed", "rebuild"), ("fine_left_ccnew", "drop")] {
        let line = plan.lines().find(|line| line.contains(&format!("public.{index} "))).unwrap();
        assert!(line.contains(&format!("  {action} ")), "{line}");
    }
    assert_eq!(files(&mut session), before, "a dry run touches nothing");

    let writers = Writers::start(
        &scene,
        "shop",
        None,
        "INSERT INTO fine (v) VALUES (ARRAY[random()*9, 2, 3, 4, 5, 6, 7, 8]::real[]::vector);\n\
         INSERT INTO a VALUES (7, ARRAY[random()*9, 2, 3, 4, 5, 6, 7, 8]::real[]::vector);\n\
         INSERT INTO parts VALUES (3, ARRAY[random()*9, 2, 3, 4, 5, 6, 7, 8]::real[]::vector);\n",
    );
    let textfile = scene.cluster.dir().join("lantern_index.prom");
    let builds = scene.builder.metric("lantern_index_builds_total").unwrap() as u32;
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
    writers.expect_no_error();
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
    let mended = ["a_worn", "B worn", "b_other", "failed", "part_1_v_idx"];
    for name in mended {
        assert_ne!(kept(&before, name), kept(&after, name), "{name} is not made anew");
    }
    for (name, file) in before.iter().filter(|(name, _)| !mended.contains(&name.as_str()) && name != "fine_left_ccnew")
    {
        assert_eq!(kept(&after, name), Some((name.clone(), file.clone())), "{name} is touched");
    }
    assert_eq!(kept(&after, "fine_left_ccnew"), None);
    assert_eq!(after.len(), before.len() - 1, "{after:?}");
    let bad = "SELECT count(*) FROM lantern_index.indexes WHERE advice NOT IN ('ok', 'unused', 'check')";
    let advice = "SELECT string_agg(concat_ws(' ', index_name, advice, reason), '; ') FROM lantern_index.indexes";
    let good = wait_for("good advice", PATIENCE, || Ok((session.value::<u32>(bad)? == 0).then_some(())));
    good.unwrap_or_else(|error| panic!("{error}: {}", session.value::<String>(advice).unwrap()));
    scene.builder.expect_builds(builds + 5).unwrap();
    let metrics = std::fs::read_to_string(&textfile).unwrap();
    assert!(metrics.contains("lantern_index_maintain_steps{outcome=\"done\"} 6\n"), "{metrics}");
    assert!(metrics.contains("lantern_index_maintain_left 0\n"), "{metrics}");
}

/// How often a table was vacuumed by hand.
fn vacuums(session: &mut Session, table: &str) -> u32 {
    session.value(&format!("SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = '{table}'")).unwrap()
}

#[test]
fn a_table_is_vacuumed_once_even_if_its_last_step_fails() {
    let scene = Scene::new();
    let mut session = scene.database("twice");
    for (table, options) in [("a", "WITH (external = true)"), ("b", "")] {
        worn(&mut session, table, &format!("{table}_first"), "");
        let second = format!("CREATE INDEX {table}_second ON {table} USING hnsw (v vector_cosine_ops) {options}");
        session.execute(&second).unwrap();
    }
    drop(session);
    for index in ["a_first", "a_second", "b_first", "b_second"] {
        wait_for_advice(&scene, "twice", index, "rebuild");
    }
    scene.configure("hnsw.external_index_port = 1");
    let (code, text) = scene.maintain("twice", &["--rebuild", "--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let outcome = |index: &str| {
        let mut steps = report["steps"].as_array().unwrap().iter();
        let at = steps.position(|step| step["index"] == format!("public.{index}")).unwrap();
        (at, report["steps"][at]["outcome"].as_str().unwrap().to_owned())
    };
    let [first, last] = ["a_first", "a_second"].map(outcome);
    assert!(code == 1 && first.0 < last.0, "the index that fails is the last: {text}");
    assert_eq!((first.1.as_str(), last.1.as_str()), ("done", "failed"), "{text}");
    let mut session = scene.session("twice");
    for table in ["a", "b"] {
        let vacuumed = || Ok((vacuums(&mut session, table) > 0).then_some(()));
        wait_for("VACUUM in the statistics", Duration::from_secs(60), vacuumed).unwrap();
        assert_eq!(vacuums(&mut session, table), 1, "{table}");
    }
    // The next run does not rebuild the index again.
    let advice = "SELECT advice FROM lantern_index.indexes WHERE index_name = 'a_first'::regclass";
    assert_ne!(session.value::<String>(advice).unwrap(), "rebuild");
}

#[test]
fn every_rebuild_of_a_table_with_many_dead_rows_is_followed_by_vacuum() {
    let mut scene = Scene::new();
    let mut session = scene.database("each");
    for table in ["a", "b"] {
        worn(&mut session, table, &format!("{table}_v"), "");
    }
    // An index whose build has failed, and one with a page that PostgreSQL cannot read.
    session.execute("DROP INDEX a_v; SET hnsw.external_index_port = 1").unwrap();
    let failed = "CREATE INDEX CONCURRENTLY a_v ON a USING hnsw (v vector_l2_ops) WITH (external = true)";
    session.execute(failed).unwrap_err();
    let path = scene.cluster.relation_file(&mut session, "b_v").unwrap();
    drop(session);
    File::options().write(true).open(path).unwrap().write_all_at(&[0xff; 8], 8192 + 12).unwrap();
    scene.cluster.restart().unwrap();
    for (index, advice) in [("a_v", "invalid"), ("b_v", "check")] {
        wait_for_advice(&scene, "each", index, advice);
    }
    let mut session = scene.session("each");
    let dead = "SELECT count(*) FROM lantern_index.indexes WHERE dead_share > 0.2";
    wait_for("the statistics", PATIENCE, || Ok((session.value::<u32>(dead)? == 2).then_some(()))).unwrap();
    assert_eq!(scene.maintain("each", &["--rebuild"]).0, 0);
    for table in ["a", "b"] {
        let vacuumed = || Ok((vacuums(&mut session, table) > 0).then_some(()));
        wait_for("VACUUM in the statistics", PATIENCE, vacuumed).unwrap();
        wait_for_advice(&scene, "each", &format!("{table}_v"), "unused");
    }
}

#[test]
fn patience_may_be_longer_than_the_longest_timeout_of_postgresql() {
    let (scene, _) = Scene::worn("patient");
    assert_eq!(scene.maintain("patient", &["--rebuild", "--patience", "1000h"]).0, 0);
    wait_for_advice(&scene, "patient", "a_worn", "unused");
}

/// How often the view has read pages of indexes in a database. All other sessions must have disconnected from it.
fn reads(scene: &Scene, database: &str) -> u32 {
    let mut session = scene.session(database);
    let others = "SELECT count(*) FROM pg_stat_activity \
                  WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    wait_for("the other sessions to end", PATIENCE, || Ok((session.value::<u32>(others)? == 0).then_some(()))).unwrap();
    session.value("SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = 'index_state'").unwrap()
}

#[test]
fn each_index_is_read_for_the_plan_and_for_its_step() {
    let scene = Scene::new();
    scene.configure("track_functions = 'all'");
    let mut session = scene.database("many");
    const COUNT: u32 = 12;
    for n in 0..COUNT {
        worn(&mut session, &format!("t{n}"), &format!("t{n}_v"), "");
    }
    drop(session);
    for n in 0..COUNT {
        wait_for_advice(&scene, "many", &format!("t{n}_v"), "rebuild");
    }
    let before = reads(&scene, "many");
    assert_eq!(scene.maintain("many", &["--rebuild"]).0, 0);
    let read = reads(&scene, "many") - before;
    println!("{COUNT} indexes were read {read} times");
    assert!((COUNT..=2 * COUNT).contains(&read), "{COUNT} indexes were read {read} times");
}

#[test]
fn a_suspected_index_is_checked_and_left_if_it_is_good() {
    let scene = Scene::new();
    let mut session = scene.database("suspected");
    worn(&mut session, "a", "a_v", "");
    for statement in ["REINDEX INDEX a_v", "VACUUM a", "DELETE FROM a WHERE id <= 410", "VACUUM a"] {
        session.execute(statement).unwrap();
    }
    let checked = may_damage_indexes(&mut session).unwrap();
    wait_for_advice(&scene, "suspected", "a_v", if checked { "check" } else { "unused" });
    let before = files(&mut session);
    let (code, text) = scene.maintain("suspected", &["--rebuild", "--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert!(code == 0 && report["steps"][0]["outcome"].as_str() == checked.then_some("good"), "{text}");
    assert_eq!(files(&mut session), before);
    let (code, plan) = scene.maintain("suspected", &["--rebuild"]);
    assert!(code == 0 && plan.contains("1 indexes, 0 need something."), "it is not checked again: {plan}");
}

#[test]
fn a_rebuild_that_does_not_help_is_not_repeated() {
    let scene = Scene::new();
    let mut session = scene.database("in_vain");
    if !may_damage_indexes(&mut session).unwrap() {
        return skipped(
            "a rebuild that does not help: from pgvector 0.8.4 on, VACUUM does not make an index suspected",
        );
    }
    // With so few links, pgvector strands many elements of any rows.
    session
        .execute(
            "CREATE TABLE a (id int, v vector(8)) WITH (autovacuum_enabled = off); \
             INSERT INTO a SELECT i, ARRAY(SELECT random() + 0 * i FROM generate_series(1, 8))::vector FROM generate_series(1, 3000) i; \
             CREATE INDEX a_v ON a USING hnsw (v vector_l2_ops) WITH (m = 2, ef_construction = 4)",
        )
        .unwrap();
    let mut rebuilt = Vec::new();
    for night in 0..2 {
        session.execute(&format!("DELETE FROM a WHERE id % 100 = {night}")).unwrap();
        session.execute("VACUUM a").unwrap();
        let before = files(&mut session);
        let output = scene.command("in_vain", &["--rebuild"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(finished(output).0, 0, "{said}");
        rebuilt.push((files(&mut session) != before, said.contains("a rebuild did not help: ")));
    }
    assert_eq!(rebuilt, [(true, true), (false, false)]);
    let remembered = "SELECT check_result FROM lantern_index.indexes";
    let remembered: String = session.value(remembered).unwrap();
    assert!(
        remembered.starts_with("a rebuild did not help: ") && remembered.contains(" elements cannot be found"),
        "{remembered}"
    );
}

#[test]
fn a_rebuilt_index_with_damaged_pages_is_a_failure_each_time() {
    let scene = Scene::new();
    let mut session = scene.database("damaged");
    // Storage that damages every file: whatever a check finds, it finds errors.
    session
        .execute(
            "CREATE TABLE a (id int, v vector(3)); INSERT INTO a SELECT i, ARRAY[i, 1, 2]::vector FROM generate_series(1, 300) i; \
             CREATE INDEX a_v ON a USING hnsw (v vector_l2_ops); \
             CREATE FUNCTION damage() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 NEW.errors := 3; IF TG_OP = 'INSERT' THEN NEW.advice := 'reindex: 3 errors in its pages, the first: x'; END IF; RETURN NEW; \
             END $$; \
             CREATE TRIGGER damage BEFORE INSERT OR UPDATE ON lantern_index.checks FOR EACH ROW EXECUTE FUNCTION damage(); \
             SELECT lantern_index.check_and_remember('a_v')",
        )
        .unwrap();
    for _ in 0..2 {
        let before = files(&mut session);
        let output = scene.command("damaged", &["--rebuild"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(finished(output).0, 1, "{said}");
        assert!(said.contains("a_v: failed: a rebuild did not help: 3 errors in its pages"), "{said}");
        assert!(files(&mut session) != before, "{said}");
    }
}
