//! Whatever fails, and whenever: the statement ends soon with a helpful message, and nothing is left on either side.

mod scene;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use harness::{Builder, Column, Direction, Phase, SqlError, copy_rows, data_set, inspect, within};
use scene::{CLUSTER, CREATE, SOON, Scene};

fn expect_words(error: &SqlError, sqlstate: &str) {
    let notice = error.server();
    assert!(notice.sqlstate.starts_with(sqlstate), "{error}");
    assert!(!notice.hint.is_empty(), "what should the user do? {error}");
}

#[test]
fn a_refused_connection_is_reported() {
    let mut scene = Scene::new("no_builder");
    scene.builder.kill();
    let session = scene.session.as_mut().unwrap();
    let port = scene.builder.address().port();
    session.execute(&format!("SET hnsw.external_index_port = {port}")).unwrap();
    let error = session.execute(CREATE).unwrap_err();
    expect_words(&error, "08");
    assert!(error.server().detail.contains("refused"), "nothing is waited for: {error}");
    assert!(error.server().message.contains(&format!("127.0.0.1:{port}")), "{error}");
    scene.expect_clean();
}

#[test]
fn the_builder_is_killed() {
    let mut scene = Scene::new("killed");
    for phase in Phase::ALL {
        let (building, _) = scene.build_until(phase);
        let start = Instant::now();
        scene.builder.kill();
        // Release the bytes on their way, and then the end of the connection.
        scene.proxy.reset();
        let error = scene.expect_failure(building, start);
        expect_words(&error, "08");
        scene.expect_clean();
    }
}

#[test]
fn the_connection_breaks() {
    let mut scene = Scene::new("cut");
    for phase in Phase::ALL {
        let (building, _) = scene.build_until(phase);
        let start = Instant::now();
        scene.proxy.cut();
        let error = scene.expect_failure(building, start);
        expect_words(&error, "08");
        scene.expect_clean();
    }
}

#[test]
fn the_user_cancels() {
    let mut scene = Scene::new("cancelled");
    for phase in Phase::ALL {
        let (building, pid) = scene.build_until(phase);
        let start = Instant::now();
        let cancel = format!("SELECT pg_cancel_backend({pid})");
        CLUSTER.session("postgres").unwrap().execute(&cancel).unwrap();
        let error = scene.expect_failure(building, start);
        assert_eq!(error.server().message, "canceling statement due to user request");
        scene.expect_clean();
    }
}

#[test]
fn the_statement_takes_too_long() {
    let timed_out = |database: &str, phase| {
        let mut scene = Scene::new(database);
        scene.session.as_mut().unwrap().execute("SET statement_timeout = '45s'").unwrap();
        let start = Instant::now();
        let (building, _) = scene.build_until(phase);
        // Pages trickle: after 30 seconds without a byte, the silence would end the statement.
        scene.proxy.slow(Direction::ToClient, 32 << 10);
        scene.proxy.stop_after(Direction::ToClient, u64::MAX);
        let error = scene.expect_failure(building, start + Duration::from_secs(45));
        assert_eq!(error.server().message, "canceling statement due to statement timeout");
        scene.session.as_mut().unwrap().execute("RESET statement_timeout").unwrap();
        scene.expect_clean();
    };
    thread::scope(|scope| {
        scope.spawn(|| timed_out("timeout_rows", Phase::Rows));
        scope.spawn(|| timed_out("timeout_graph", Phase::Graph));
        scope.spawn(|| timed_out("timeout_pages", Phase::Pages));
    });
}

#[test]
fn the_backend_is_terminated() {
    let mut scene = Scene::new("terminated");
    for phase in Phase::ALL {
        let (building, pid) = scene.build_until(phase);
        let terminate = format!("SELECT pg_terminate_backend({pid})");
        CLUSTER.session("postgres").unwrap().execute(&terminate).unwrap();
        let (_, result) = building.join().unwrap();
        assert_eq!(result.unwrap_err().server().sqlstate, "57P01");
        let mut session = CLUSTER.session("terminated").unwrap();
        scene.builder.attach_through(&mut session, scene.proxy.port()).unwrap();
        scene.session = Some(session);
        scene.expect_clean();
    }
}

#[test]
fn the_builder_falls_silent() {
    let silent = |database: &str, phase| {
        let mut scene = Scene::new(database);
        let (building, _) = scene.build_until(phase);
        scene.proxy.stop_after(Direction::ToClient, 0);
        let start = Instant::now();
        let (session, result) = building.join().unwrap();
        scene.session = Some(session);
        let error = result.unwrap_err();
        println!("{phase:?}, after {:.0} s: {error}", start.elapsed().as_secs_f64());
        expect_words(&error, "08");
        assert!(start.elapsed() < Duration::from_secs(90), "{phase:?}: {error}");
        scene.expect_clean();
    };
    thread::scope(|scope| {
        scope.spawn(|| silent("silent_rows", Phase::Rows));
        scope.spawn(|| silent("silent_graph", Phase::Graph));
        scope.spawn(|| silent("silent_pages", Phase::Pages));
    });
}

#[test]
fn answers_of_another_server_are_reported() {
    let mut scene = Scene::new("stranger");
    for (secure, says) in
        [("on", &b""[..]), ("off", b""), ("on", b"HTTP/1.1 400 Bad Request\r\n\r\n"), ("off", &[255; 4096])]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(says);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let session = scene.session.as_mut().unwrap();
        session
            .execute(&format!(
                "SET hnsw.external_index_port = {port}; SET hnsw.external_index_secure = {secure}; \
                 SET hnsw.external_index_connect_timeout = 2"
            ))
            .unwrap();
        let error = within("the statement", SOON, || session.execute(CREATE)).unwrap_err();
        println!("{error}\n");
        expect_words(&error, "08");
    }
    let port = scene.proxy.port();
    let session = scene.session.as_mut().unwrap();
    session.execute("RESET hnsw.external_index_connect_timeout").unwrap();
    scene.builder.attach_through(session, port).unwrap();
    scene.expect_clean();
}

#[test]
fn a_builder_that_shuts_down_says_so() {
    let mut scene = Scene::new("shutdown");
    let (building, _) = scene.build_until(Phase::Rows);
    // The builder lets builds continue for three seconds, then stops them.
    let code = scene.builder.terminate(SOON).unwrap();
    assert_eq!(code, Some(0));
    let start = Instant::now();
    let error = scene.expect_failure(building, start);
    let error = error.server();
    assert_eq!(error.sqlstate, "57000", "{error}");
    assert!(error.message.ends_with("builder is shutting down"), "{error}");
    scene.expect_clean();
}

#[test]
fn cancelled_builds_leak_no_memory() {
    let mut scene = Scene::new("memory");
    let spend = |scene: &mut Scene| {
        let (building, pid) = scene.build_until(Phase::Pages);
        let cancel = format!("SELECT pg_cancel_backend({pid})");
        let start = Instant::now();
        CLUSTER.session("postgres").unwrap().execute(&cancel).unwrap();
        scene.expect_failure(building, start);
        scene.proxy.reset();
        scene.builder.expect_idle(SOON).unwrap();
    };
    // The allocator caches some memory, so check only that usage does not grow.
    (0..3).for_each(|_| spend(&mut scene));
    let before = scene.builder.resident_bytes();
    (0..8).for_each(|_| spend(&mut scene));
    let after = scene.builder.resident_bytes();
    println!("resident: {} MB, after eight more builds {} MB", before >> 20, after >> 20);
    // A build holds 5 MB of values, and about as much for the graph.
    assert!(after < before + (25 << 20), "{before} bytes before, {after} after");
    scene.expect_clean();
}

#[test]
fn four_builds_run_at_once() {
    let builder = Builder::start().unwrap();
    let (base, _) = data_set("glove-100").unwrap();
    thread::scope(|scope| {
        for number in 0..4 {
            let (builder, base) = (&builder, &base);
            scope.spawn(move || {
                let mut session = CLUSTER.database(&format!("several_{number}")).unwrap();
                copy_rows(&mut session, "items", Column::Vector, base).unwrap();
                builder.attach(&mut session).unwrap();
                session.execute(CREATE).unwrap();
                inspect(&CLUSTER, &mut session, "items_idx").unwrap();
            });
        }
    });
    builder.expect_builds(4).unwrap();
}
