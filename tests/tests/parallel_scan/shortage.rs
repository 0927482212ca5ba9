//! If no parallel workers are available, the backend reads alone.

use std::thread;
use std::time::Duration;

use harness::wait_for;

use crate::scene::{CREATE, Scene, build, taken_part};

#[test]
fn the_backend_reads_alone_without_worker_processes() {
    let mut scene = Scene::alone("max_worker_processes = 0");
    scene.workers(2);
    assert_eq!(taken_part(&build(&mut scene.session, CREATE).unwrap()), 0);
}

/// The limit on workers applies to all sessions, so this test has its own cluster.
#[test]
fn max_parallel_workers_limits_the_workers() {
    let mut scene = Scene::alone("");
    scene.workers(2);
    for most in [0, 1, 2] {
        scene.session.execute(&format!("SET max_parallel_workers = {most}; DROP INDEX IF EXISTS items_idx")).unwrap();
        assert_eq!(taken_part(&build(&mut scene.session, CREATE).unwrap()), most);
    }
}

/// Another session's query uses all dynamic shared memory segments that the server allows, until its end.
#[test]
fn the_backend_reads_alone_without_dynamic_shared_memory() {
    let mut scene = Scene::alone("max_connections = 10\nmax_wal_senders = 0\nmax_worker_processes = 4");
    scene.workers(2);
    let mut greedy = scene.watcher();
    let pid = greedy.pid();
    let parts: Vec<String> = (0..400).map(|at| format!("(SELECT count(*) FROM items WHERE id > {at})")).collect();
    greedy
        .execute(
            "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; \
             SET max_parallel_workers_per_gather = 1; SET max_parallel_workers = 0",
        )
        .unwrap();
    let query = format!("SELECT {}, pg_sleep(600)", parts.join(", "));
    let eating = thread::spawn(move || greedy.execute(&query).unwrap_err());
    let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'");
    wait_for("the other query", Duration::from_secs(60), || Ok((scene.session.value::<u32>(&sql)? == 1).then_some(())))
        .unwrap();
    assert_eq!(taken_part(&build(&mut scene.session, CREATE).unwrap()), 0);

    scene.session.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
    assert_eq!(eating.join().unwrap().server().sqlstate, "57014");
    scene.session.execute("DROP INDEX items_idx").unwrap();
    scene.expect_next_build();
}
