//! A failure while parallel workers read ends the statement with its reason, and has no other effect.

use std::thread;
use std::time::Duration;

use harness::{Building, Direction, Proxy, SqlError, diagnose, make_diagnose, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{CLUSTER, Scene};

/// An expression that takes the backend long, so that workers read nearly all rows.
const LONG: &str =
    "CREATE INDEX items_idx ON items USING hnsw ((long(v)::vector(32)) vector_l2_ops) WITH (external = true)";

fn scene(database: &str) -> Scene {
    slow_scene(Scene::new(database))
}

fn slow_scene(mut scene: Scene) -> Scene {
    scene.workers(2);
    scene
        .session
        .execute(
            "CREATE FUNCTION long(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
                 $$ BEGIN PERFORM pg_sleep(0.05); RETURN v; END $$",
        )
        .unwrap();
    scene
}

/// Starts a build in another session and waits until two workers read. Returns the process ids of the backend and of the workers.
fn reading(scene: &Scene) -> (Building, u32, Vec<u32>) {
    let mut session = scene.watcher();
    scene.builder.attach(&mut session).unwrap();
    session.execute("SET max_parallel_maintenance_workers = 2").unwrap();
    let backend = session.pid();
    let building = session.start(LONG);
    let workers = scene.wait_for_workers(backend, "wait_event = 'PgSleep'");
    (building, backend, workers)
}

#[test]
fn a_worker_is_terminated() {
    let mut scene = scene("worker_terminated");
    let (building, _, workers) = reading(&scene);
    scene.session.execute(&format!("SELECT pg_terminate_backend({})", workers[0])).unwrap();
    let (mut session, result) = building.join().unwrap();
    let error = result.unwrap_err();
    assert_eq!(error.server().sqlstate, "57P01", "{error}");
    assert_eq!(session.value::<u32>("SELECT 1").unwrap(), 1);
    scene.expect_next_build();
}

#[test]
fn the_statement_is_cancelled() {
    let mut scene = scene("worker_cancelled");
    for of_worker in [false, true] {
        let (building, backend, workers) = reading(&scene);
        let pid = if of_worker { workers[1] } else { backend };
        scene.session.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
        let (mut session, result) = building.join().unwrap();
        let error = result.unwrap_err();
        assert_eq!(error.server().sqlstate, "57014", "{error}");
        assert_eq!(error.server().message, "canceling statement due to user request");
        assert_eq!(session.value::<u32>("SELECT 1").unwrap(), 1);
    }
    scene.expect_next_build();
}

#[test]
fn the_builder_is_lost() {
    let mut scene = scene("worker_lost");
    let (building, ..) = reading(&scene);
    scene.builder.kill();
    let (_, result) = building.join().unwrap();
    let error = result.unwrap_err();
    assert_eq!(error.server().sqlstate, "08006", "{error}");
    scene.builder = harness::Builder::start().unwrap();
    scene.builder.attach(&mut scene.session).unwrap();
    scene.expect_next_build();
}

/// When a worker is killed, the postmaster ends all sessions and recovers.
#[test]
fn a_worker_is_killed() {
    let mut scene = slow_scene(Scene::alone(""));
    let (building, _, workers) = reading(&scene);
    kill_process(Pid::from_raw(workers[0].cast_signed()).unwrap(), Signal::KILL).unwrap();
    let (_, result) = building.join().unwrap();
    match result.unwrap_err() {
        SqlError::Server(error) => assert_eq!(error.sqlstate, "57P02", "{error}"),
        SqlError::Connection(_) => {}
    }
    // The builder notices that the client is gone.
    scene.builder.expect_idle(Duration::from_secs(60)).unwrap();
    scene.reconnect();
    scene.expect_next_build();
}

/// The backend's thread sends from memory that is freed with the transaction.
#[test]
fn the_backend_is_terminated() {
    let mut scene = Scene::new("backend_terminated");
    let proxy = Proxy::start(scene.builder.address()).unwrap();
    scene
        .session
        .execute(
            "CREATE TABLE large (v vector(300)) WITH (parallel_workers = 2);
             INSERT INTO large SELECT (ARRAY[i] || array_fill(i % 7, ARRAY[299]))::real[]::vector FROM generate_series(1, 20000) i",
        )
        .unwrap();
    for round in 0..10u32 {
        // Release the 24 MB of rows.
        proxy.reset();
        proxy.slow(Direction::ToBuilder, 4_000_000 + round * 1_000_000);
        let mut session = scene.watcher();
        scene.builder.attach_through(&mut session, proxy.port()).unwrap();
        session.execute("SET max_parallel_maintenance_workers = 2").unwrap();
        let pid = session.pid();
        let building = thread::spawn(move || {
            session.execute("CREATE INDEX ON large USING hnsw (v vector_l2_ops) WITH (external = true)").unwrap_err()
        });
        wait_for("rows", Duration::from_secs(60), || {
            Ok((proxy.passed(Direction::ToBuilder) > 500_000 * u64::from(round + 1)).then_some(()))
        })
        .unwrap();
        scene.session.execute(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
        building.join().unwrap();
    }
    // No process was lost: otherwise this session would be lost too.
    scene.expect_next_build();
    let log = CLUSTER.log();
    assert!(!log.contains("was terminated by signal"), "{log}");
}

/// The functions raise errors only in workers, and slow the backend down so that workers have rows to read.
#[test]
fn errors_of_workers_are_the_same() {
    let mut scene = scene("worker_errors");
    let session = &mut scene.session;
    make_diagnose(session).unwrap();
    session
        .execute(
            "CREATE FUNCTION picky(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN
                 IF public.is_worker() THEN
                     RAISE EXCEPTION 'no 100 %%' USING ERRCODE = 'ZZ123', DETAIL = 'a detail', HINT = 'a hint', COLUMN = 'a column',
                         CONSTRAINT = 'a constraint', DATATYPE = 'a type', TABLE = 'a table', SCHEMA = 'a schema';
                 END IF;
                 PERFORM pg_sleep(0.05);
                 RETURN v;
             END $$;
             CREATE FUNCTION divides(v vector) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
                 $$ SELECT pg_sleep(0.05) IS NOT NULL AND 1 / (CASE WHEN public.is_worker() THEN 0 ELSE 1 END) = 1 $$",
        )
        .unwrap();
    for statement in [
        "CREATE INDEX i ON items USING hnsw ((picky(v)::vector(32)) vector_l2_ops)",
        "CREATE INDEX i ON items USING hnsw (v vector_l2_ops) WHERE divides(v)",
    ] {
        let mut diagnosed = |external: &str| -> String {
            session.execute(&format!("SET hnsw.external_index = {external}")).unwrap();
            diagnose(session, statement).unwrap()
        };
        let (local, external) = (diagnosed("off"), diagnosed("on"));
        println!("{external}\n");
        assert!(local.contains("parallel worker"), "pgvector's own build had no workers: {local}");
        assert_eq!(external, local, "{statement}");
        let error = session.execute(statement).unwrap_err();
        assert!(local.starts_with(&format!("{} | {}", error.server().sqlstate, error.server().message)), "{error}");
    }
    session.execute("SET hnsw.external_index = off").unwrap();

    scene.expect_next_build();
}
