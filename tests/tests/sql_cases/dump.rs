//! Dump and restore: with the library, the builder builds the restored index; without it, restoring works once the option is removed.

use std::path::PathBuf;
use std::process::{Command, Output};

use harness::{Builder, Cluster, Column, PgConfig, Session, copy_rows, data_set, inspect};

use super::CLUSTER;

const INDEXES: u32 = 3;

/// Runs a client program of PostgreSQL as superuser.
fn client(cluster: &Cluster, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(cluster.config().program(program));
    command.arg("--host").arg(cluster.dir()).args(["--port", "5432", "--username", "postgres"]).args(arguments);
    command.output().unwrap()
}

fn expect_success(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// A database with indexes that have the option, and one without it.
fn original(builder: &Builder, name: &str) -> Session {
    let mut session = CLUSTER.database(name).unwrap();
    builder.attach(&mut session).unwrap();
    copy_rows(&mut session, "items", Column::Vector, &data_set("glove-100").unwrap().0.truncated(800)).unwrap();
    session
        .execute(
            "CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops) WITH (m = 12, external = true); \
             CREATE INDEX items_half ON items USING hnsw ((v::halfvec(100)) halfvec_cosine_ops) \
             WITH (external = on) WHERE id >= 400; \
             CREATE UNLOGGED TABLE others AS SELECT * FROM items WHERE id < 300; \
             CREATE INDEX others_v ON others USING hnsw (v vector_ip_ops) WITH (external = 1); \
             CREATE INDEX others_own ON others USING hnsw (v vector_l2_ops)",
        )
        .unwrap();
    session
}

/// The definitions of all hnsw indexes, and the results of searches.
fn answers(session: &mut Session) -> Vec<String> {
    let definitions = session.query("SELECT indexdef FROM pg_indexes WHERE indexdef LIKE '%hnsw%' ORDER BY 1").unwrap();
    let mut answers: Vec<String> = definitions.into_iter().flatten().flatten().collect();
    assert_eq!(answers.len() as u32, INDEXES + 1);
    session.execute("SET enable_seqscan = off; SET enable_sort = off; SET hnsw.ef_search = 400").unwrap();
    for (index, search) in [
        ("items_v", "items ORDER BY v <-> (SELECT v FROM items WHERE id = 77)"),
        (
            "items_half",
            "items WHERE id >= 400 ORDER BY v::halfvec(100) <=> (SELECT v::halfvec(100) FROM items WHERE id = 477)",
        ),
        ("others_v", "others ORDER BY v <#> (SELECT v FROM items WHERE id = 77)"),
    ] {
        let search = format!("SELECT string_agg(id::text, ' ') FROM (SELECT id FROM {search} LIMIT 10) x");
        session.expect_index_scan(index, &search).unwrap();
        answers.push(session.value(&search).unwrap());
    }
    answers
}

fn path(name: &str) -> (PathBuf, String) {
    let path = CLUSTER.dir().join(name);
    let text = path.display().to_string();
    (path, text)
}

#[test]
fn a_restored_index_is_built_by_the_builder() {
    let builder = Builder::start().unwrap();
    let mut session = original(&builder, "dump_from");
    let before = answers(&mut session);
    let (_, plain) = path("plain.sql");
    let (_, directory) = path("directory");
    expect_success(&client(&CLUSTER, "pg_dump", &["--file", &plain, "dump_from"]));
    expect_success(&client(&CLUSTER, "pg_dump", &["-Fd", "-j2", "--file", &directory, "dump_from"]));

    let mut ended = INDEXES;
    for (database, program, arguments) in [
        ("dump_to_plain", "psql", vec!["-X", "-v", "ON_ERROR_STOP=1", "-f", &plain, "-d", "dump_to_plain"]),
        ("dump_to_directory", "pg_restore", vec!["--exit-on-error", "-j2", "-d", "dump_to_directory", &directory]),
    ] {
        let mut admin = CLUSTER.session("postgres").unwrap();
        admin.execute(&format!("CREATE DATABASE {database}")).unwrap();
        let port = builder.address().port();
        admin.execute(&format!("ALTER DATABASE {database} SET hnsw.external_index_port = {port}")).unwrap();
        expect_success(&client(&CLUSTER, program, &arguments));
        ended += INDEXES;
        builder.expect_builds(ended).unwrap();
        let mut session = CLUSTER.session(database).unwrap();
        assert_eq!(answers(&mut session), before, "{database}");
        for index in ["items_v", "items_half"] {
            inspect(&CLUSTER, &mut session, index).unwrap();
        }
    }
}

#[test]
fn a_dump_without_the_option_restores_without_the_library() {
    let builder = Builder::start().unwrap();
    let mut session = original(&builder, "leave_from");
    let stock = Cluster::start_with(PgConfig::require().unwrap(), "").unwrap();
    let restore = |file: &str, database: &str| {
        stock.session("postgres").unwrap().execute(&format!("CREATE DATABASE {database}")).unwrap();
        client(&stock, "psql", &["-X", "-v", "ON_ERROR_STOP=1", "-f", file, "-d", database])
    };

    let (_, with_option) = path("with_option.sql");
    expect_success(&client(&CLUSTER, "pg_dump", &["--file", &with_option, "leave_from"]));
    let refused = restore(&with_option, "leave_refused");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("unrecognized parameter \"external\""), "{said}");

    // The statement of docs/recipes.md; \gexec is a command of psql.
    let recipes = std::fs::read_to_string(harness::root().join("docs/recipes.md")).unwrap();
    let (_, rest) = recipes.split_once("```sql\nSELECT format('ALTER INDEX").unwrap();
    let reset = format!("SELECT format('ALTER INDEX{}", rest.split_once("```").unwrap().0);
    let (script, script_text) = path("reset.sql");
    std::fs::write(script, reset).unwrap();
    let arguments = ["-X", "-v", "ON_ERROR_STOP=1", "-f", &script_text, "-d", "leave_from"];
    expect_success(&client(&CLUSTER, "psql", &arguments));
    let before = answers(&mut session);
    assert!(before.iter().all(|line| !line.contains("external")), "{before:?}");

    let (_, without_option) = path("without_option.sql");
    expect_success(&client(&CLUSTER, "pg_dump", &["--file", &without_option, "leave_from"]));
    expect_success(&restore(&without_option, "leave_to"));
    assert_eq!(answers(&mut stock.session("leave_to").unwrap()), before);
}
