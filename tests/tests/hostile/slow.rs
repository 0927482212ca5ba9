//! Rows that are slow to come: the builder knows by heartbeats that there is somebody.

use std::time::Duration;

use harness::{Builder, BuilderOptions, Session, inspect, within};

use crate::scene::CLUSTER;

fn database(name: &str, rows: u32, seconds: f64) -> (Session, Builder) {
    let arguments = ["--idle-timeout", "2s"].map(str::to_owned).to_vec();
    let builder = Builder::start_with(&BuilderOptions { tls: false, arguments, ..BuilderOptions::default() }).unwrap();
    let mut session = CLUSTER.database(name).unwrap();
    session
        .execute(&format!(
            "CREATE FUNCTION slow(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS
                 $$ BEGIN PERFORM pg_sleep({seconds}); RETURN v; END $$;
             CREATE TABLE items (id int, v vector(3));
             INSERT INTO items SELECT i, ARRAY[i, 1, 2]::vector FROM generate_series(1, {rows}) i"
        ))
        .unwrap();
    builder.attach(&mut session).unwrap();
    (session, builder)
}

const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw ((slow(v)::vector(3)) vector_l2_ops)
                      WITH (external = true)";

#[test]
fn heartbeats_keep_the_builder_waiting() {
    let (mut session, builder) = database("slow", 30, 0.2);
    within("the build", Duration::from_secs(20), || session.execute(CREATE)).unwrap();
    inspect(&CLUSTER, &mut session, "items_idx").unwrap();
    assert_eq!(builder.metric("lantern_index_tuples_received_total").unwrap(), 30.0);
}

#[test]
fn a_scan_that_stands_still_is_given_up() {
    let (mut session, _builder) = database("slow_still", 2, 5.0);
    let error = within("the build", Duration::from_secs(15), || session.execute(CREATE)).unwrap_err();
    println!("{error}");
    let found = error.server();
    assert_eq!(found.sqlstate, "08006", "{error}");
    assert!(found.message.starts_with("external index build failed: "), "the builder's own words: {error}");
    assert_eq!(session.value::<u32>("SELECT count(*) FROM pg_class WHERE relname = 'items_idx'").unwrap(), 0);
}
