//! `lantern_index.check(index, sample)` while the index is being changed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::{Session, may_damage_indexes, wait_for};

use crate::check::check;
use crate::{CLUSTER, database, failure, vectors};

/// Runs `work` in a session of a new database, while other sessions insert rows into its table `t`, delete some, and vacuum it.
pub fn while_rows_change(name: &str, work: impl FnOnce(&mut Session)) -> Session {
    let mut session = database(name);
    session
        .execute(&format!(
            "CREATE TABLE t (id serial, v vector(32)); \
             INSERT INTO t (v) SELECT {} FROM generate_series(1, 3000) i; \
             CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (m = 8, external = true)",
            vectors(32)
        ))
        .unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Where an insert beside VACUUM may raise an error, or leave links to removed elements, the two take turns.
        let insert = format!(
            "INSERT INTO t (v) SELECT {} FROM (SELECT 1e4 * random() AS i FROM generate_series(1, 5)) r",
            vectors(32)
        );
        let delete = "DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY random() LIMIT 2)".to_owned();
        let vacuum = "VACUUM (INDEX_CLEANUP ON) t".to_owned();
        let writers = match may_damage_indexes(&mut session).unwrap() {
            true => vec![vec![insert, vacuum], vec![delete]],
            false => vec![vec![insert], vec![vacuum], vec![delete]],
        };
        for statements in writers {
            let mut writer = CLUSTER.session(name).unwrap();
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    statements.iter().for_each(|statement| writer.execute(statement).unwrap());
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut session)));
        done.store(true, Ordering::Relaxed);
        result.unwrap();
    });
    session
}

#[test]
fn no_false_errors_while_rows_come_and_go() {
    let mut session = while_rows_change("check_live", |session| {
        session.execute("SET client_min_messages = debug1").unwrap();
        let start = Instant::now();
        let mut checks = 0;
        while checks < 8 || (start.elapsed() < Duration::from_secs(6) && checks < 60) {
            let checked = check(session, "'t_idx', 5");
            assert_eq!(checked.errors, 0, "{checked:?}");
            // Until VACUUM removes them, deleted rows take places in the results.
            assert!(checked.recall.is_some_and(|recall| recall > 0.1), "{checked:?}");
            checks += 1;
        }
    });
    let torn = session.take_notices().into_iter().filter(|notice| notice.message.contains("read first")).count();
    println!("{torn} checks had to read the index twice");
    session.execute("RESET client_min_messages").unwrap();
    session.execute("VACUUM (INDEX_CLEANUP ON) t").unwrap();
    // Where pgvector itself repairs the lists, many times on a slow machine, some rows are hard to find with a small ef_search.
    session.execute("SET hnsw.ef_search = 200").unwrap();
    let settled = check(&mut session, "'t_idx', 100");
    let rows: u64 = session.value("SELECT count(*) FROM t").unwrap();
    assert_eq!((settled.rows, settled.errors), (rows, 0));
    assert!(settled.recall.unwrap() > 0.9, "{settled:?}");
}

#[test]
fn a_check_can_be_cancelled_and_blocks_nobody() {
    let mut session = database("check_cancel");
    session
        .execute(&format!(
            "CREATE TABLE t (id serial, v vector(32)); INSERT INTO t (v) SELECT {} FROM generate_series(1, 15000) i; \
             CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true)",
            vectors(32)
        ))
        .unwrap();
    let pid = session.pid();
    std::thread::scope(|scope| {
        // Ten thousand searches take a while.
        let checking =
            scope.spawn(move || failure(&mut session, "SELECT lantern_index.check('t_idx', 10000, false)").0);
        let mut other = CLUSTER.session("check_cancel").unwrap();
        wait_for("the check to run", Duration::from_secs(60), || {
            let sql = format!(
                "SELECT count(*) FROM pg_locks WHERE pid = {pid} AND mode = 'AccessShareLock' AND relation = 't_idx'::regclass"
            );
            Ok((other.value::<u32>(&sql)? > 0).then_some(()))
        })
        .unwrap();
        other.execute("INSERT INTO t (v) SELECT v FROM t LIMIT 1").unwrap();
        other.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
        assert_eq!(checking.join().unwrap(), "57014");
    });
}
