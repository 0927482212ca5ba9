//! `pg_upgrade` keeps the index; it needs the library, but no builder.

use harness::{Builder, Cluster, Column, Session, copy_rows, data_set, inspect};

#[test]
fn pg_upgrade_keeps_the_index() {
    let (mut old, mut new) = (Cluster::start().unwrap(), Cluster::start().unwrap());
    let search = |session: &mut Session| -> String {
        let sql = "SELECT string_agg(id::text, ' ') FROM
                       (SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = 77) LIMIT 10) nearest";
        session.execute("SET enable_seqscan = off").unwrap();
        session.expect_index_scan("items_v", sql).unwrap();
        session.value(sql).unwrap()
    };
    let mut session = old.database("upgraded").unwrap();
    copy_rows(&mut session, "items", Column::Vector, &data_set("glove-100").unwrap().0.truncated(500)).unwrap();
    let mut builder = Builder::start().unwrap();
    builder.attach(&mut session).unwrap();
    session.execute("CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops) WITH (external = true)").unwrap();
    let before = search(&mut session);
    drop(session);
    builder.kill();

    old.stop().unwrap();
    new.stop().unwrap();
    let programs = old.config().program("postgres");
    let programs = programs.parent().unwrap().display().to_string();
    let (data, sockets) = (old.data().display().to_string(), new.dir().display().to_string());
    let places = ["-b", &programs, "-B", &programs, "-d", &data, "-s", &sockets, "-U", "postgres"];
    new.program("pg_upgrade", &places).unwrap();
    new.restart().unwrap();

    let mut session = new.session("upgraded").unwrap();
    assert_eq!(search(&mut session), before);
    inspect(&new, &mut session, "items_v").unwrap();
    let options = "SELECT reloptions FROM pg_class WHERE relname = 'items_v'";
    assert_eq!(session.value::<String>(options).unwrap(), "{external=true}");
}
