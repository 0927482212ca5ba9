//! `pg_stat_progress_create_index` advances in every phase.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use harness::{Builder, Cluster, Column, Direction, Proxy, copy_rows, data_set, root};

/// Phase, tuples done, tuples total, blocks done, blocks total.
type Sight = (String, u64, u64, u64, u64);

#[test]
fn phases_are_seen_and_move() {
    let cluster = Cluster::start().unwrap();
    let builder = Builder::start().unwrap();
    let proxy = Proxy::start(builder.address()).unwrap();
    let mut session = cluster.database("progress").unwrap();
    let (base, _) = data_set("minilm-384").unwrap();
    copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
    // Twice the rows, the second half with noise added, so that the build takes a while.
    session
        .execute(
            "INSERT INTO items SELECT id + 7000, v + (
                SELECT array_agg(random() * 0.1)::vector(384) FROM generate_series(1, 384) WHERE items.id IS NOT NULL
            ) FROM items",
        )
        .unwrap();
    builder.attach_through(&mut session, proxy.port()).unwrap();
    // So slow that rows and pages are seen to pass, then faster.
    proxy.slow(Direction::ToBuilder, 2_000_000);
    proxy.slow(Direction::ToClient, 2_000_000);

    let mut watcher = cluster.session("progress").unwrap();
    let building = thread::spawn(move || {
        session
            .execute(
                "CREATE INDEX ON items USING hnsw (v vector_cosine_ops) \
                 WITH (m = 32, ef_construction = 300, external = true)",
            )
            .unwrap();
    });
    let mut seen: Vec<Sight> = Vec::new();
    let mut waits = BTreeSet::new();
    while !building.is_finished() {
        let rows = watcher
            .query(
                "SELECT phase, wait_event_type || ' ' || wait_event, tuples_done, tuples_total, blocks_done, blocks_total
                 FROM pg_stat_progress_create_index JOIN pg_stat_activity USING (pid)",
            )
            .unwrap();
        if let Some([Some(phase), wait, numbers @ ..]) = rows.first().map(Vec::as_slice) {
            waits.extend(wait.clone());
            let number = |at: usize| numbers[at].as_ref().map_or(0, |number| number.parse().unwrap());
            let sight = (phase.clone(), number(0), number(1), number(2), number(3));
            if seen.last() != Some(&sight) {
                seen.push(sight);
            }
            let moves = |phase: &str| seen.iter().filter(|sight| sight.0.ends_with(phase)).count() > 1;
            if moves("loading tuples") {
                proxy.slow(Direction::ToBuilder, 25_000_000);
            }
            if moves("writing pages") {
                proxy.slow(Direction::ToClient, 16_000_000);
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
    building.join().unwrap();

    let phases = ["loading tuples", "building graph", "choosing neighbors", "writing pages"];
    let of = |phase: &str| -> Vec<&Sight> { seen.iter().filter(|sight| sight.0.ends_with(phase)).collect() };
    for phase in phases {
        let sights = of(phase);
        assert!(sights.len() >= 2, "{phase:?} was seen {} times in {seen:#?}", sights.len());
        let pairs = sights.windows(2);
        assert!(pairs.clone().all(|pair| pair[0].1 <= pair[1].1), "tuples run backwards: {sights:#?}");
        assert!(
            sights.iter().all(|sight| (sight.2 == 0 || sight.1 <= sight.2) && (sight.4 == 0 || sight.3 <= sight.4)),
            "{sights:#?}"
        );
    }
    let first = |phase| seen.iter().position(|sight| sight.0.ends_with(phase)).unwrap();
    assert!(phases.is_sorted_by_key(first), "{seen:#?}");
    assert!(of(phases[3]).last().unwrap().4 > 1000, "the blocks of the index are not told: {seen:#?}");
    let wait = if cluster.config().major >= 17 { "Extension ExternalIndexBuilder" } else { "Extension Extension" };
    assert!(waits.contains(wait), "{waits:?}");
}

#[test]
fn rows_beyond_the_estimate_raise_the_total() {
    let cluster = Cluster::start().unwrap();
    let builder = Builder::start().unwrap();
    let proxy = Proxy::start(builder.address()).unwrap();
    let mut session = cluster.database("estimate").unwrap();
    // The planner goes by the rows on a page, which were few.
    session
        .execute(
            "CREATE TABLE items (v vector(64), pad text) WITH (autovacuum_enabled = off); \
             ALTER TABLE items ALTER pad SET STORAGE PLAIN; \
             INSERT INTO items SELECT ARRAY(SELECT random() + 0 * row FROM generate_series(1, 64))::real[], repeat('x', 1800) \
             FROM generate_series(1, 2000) row; \
             ANALYZE items; \
             INSERT INTO items SELECT ARRAY(SELECT random() + 0 * row FROM generate_series(1, 64))::real[] \
             FROM generate_series(1, 58000) row",
        )
        .unwrap();
    builder.attach_through(&mut session, proxy.port()).unwrap();
    // More than half of the rows may fit into the queues between the table and the builder. The others pass slowly until a time to go has been
    // seen: less than a second would be shown as 0.
    proxy.slow(Direction::ToBuilder, 200_000);
    // What the document has its readers copy.
    let document = std::fs::read_to_string(root().join("docs/operate.md")).unwrap();
    let (_, watch) = document.split_once("```sql\n").unwrap();
    let (watch, _) = watch.split_once("\\watch 1").unwrap();

    let mut watcher = cluster.session("estimate").unwrap();
    let building = thread::spawn(move || {
        let options = "m = 4, ef_construction = 8, external = true";
        session.execute(&format!("CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH ({options})")).unwrap();
    });
    let is_some_time = |time: &str| time.starts_with("00:00:") && time != "00:00:00";
    let (mut seen, mut to_go) = (BTreeSet::new(), BTreeSet::new());
    while !building.is_finished() {
        let sql =
            "SELECT tuples_done, tuples_total FROM pg_stat_progress_create_index WHERE phase LIKE '%loading tuples'";
        for row in watcher.query(sql).unwrap() {
            let number = |at: usize| row[at].as_ref().unwrap().parse::<u64>().unwrap();
            seen.insert((number(0), number(1)));
        }
        for row in watcher.query(watch).unwrap() {
            to_go.extend(row[3].clone());
        }
        if to_go.iter().any(|time| is_some_time(time)) {
            proxy.slow(Direction::ToBuilder, 4_000_000);
        }
        thread::sleep(Duration::from_millis(10));
    }
    building.join().unwrap();
    // The first rows pass faster than the view is read, so the estimate is taken from the builder's log.
    let log = builder.log();
    let (_, expected) = log.split_once("expected_rows=").unwrap();
    let expected: u64 = expected.split(' ').next().unwrap().parse().unwrap();
    assert!(expected < 20_000, "the estimate is not low: {expected}");
    assert!(seen.last().unwrap().0 > 30_000, "{seen:?}");
    assert!(seen.iter().all(|(done, total)| done <= total), "{seen:?}");
    assert!(to_go.iter().any(|time| is_some_time(time)), "{to_go:?}");
}
