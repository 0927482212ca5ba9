//! Redirects of PostgreSQL: the backend connects to the builder itself, with the ticket of the router.

use std::time::{Duration, Instant};

use harness::{Builder, BuilderOptions, Building, Direction, Scratch, Session, inspect, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{CLUSTER, CREATE, CREATE_QUICKLY, PATIENCE, Scene, builders, wait_for_builders};
use crate::{ended, kill};

/// A scene with a redirecting router.
fn scene(database: &str, arguments: &[&str]) -> Scene {
    Scene::new(database, &[&["--mode", "redirect"], arguments].concat())
}

/// A router with one listed builder, whose ports for builds and status these are, and whose certificate it checks.
fn router_of(builder: &Builder, ports: [u16; 2], arguments: &[&str]) -> Builder {
    let (place, ca) = (format!("127.0.0.1:{}/{}", ports[0], ports[1]), builder.certificate().display().to_string());
    let listed = ["--builders", "static", "--builder", &place, "--builder-ca", &ca, "--builder-name", "localhost"];
    Builder::start_with(&BuilderOptions::router(&[&listed[..], arguments].concat())).unwrap()
}

fn ports(builder: &Builder) -> [u16; 2] {
    [builder.address(), builder.status_address()].map(|address| address.port())
}

/// Starts a build that takes seconds, and returns when its builder gets rows.
fn build_slowly(scene: &mut Scene) -> Building {
    scene.session.as_mut().unwrap().execute("SET hnsw.external_index_max_rate = '4MB'").unwrap();
    let mut watcher = scene.another_session();
    let building = scene.start(CREATE);
    let sent =
        "SELECT coalesce(max(tuples_done), 0) FROM pg_stat_progress_create_index WHERE datname = current_database()";
    wait_for("rows to be sent", PATIENCE, || Ok((watcher.value::<u32>(sent)? > 0).then_some(()))).unwrap();
    building
}

/// The ports that the session has connected to since the last call.
fn connected(session: &mut Session) -> Vec<u16> {
    let notices = session.take_notices();
    let ports = notices.iter().filter_map(|notice| {
        notice.message.strip_prefix("connecting to external indexing server on 127.0.0.1:")?.parse().ok()
    });
    ports.collect()
}

#[test]
fn every_form_of_the_statement_is_sent() {
    let mut scene = scene("sent", &["--idle-ttl", "1s"]);
    let session = scene.session.as_mut().unwrap();
    // For partitions, connections are reported at DEBUG1.
    session.execute("SET client_min_messages = debug1").unwrap();
    connected(session);
    for sql in [
        CREATE_QUICKLY,
        "REINDEX INDEX items_idx",
        "DROP INDEX items_idx; \
         CREATE TABLE parts (id int, v vector(384)) PARTITION BY HASH (id); \
         CREATE TABLE part_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0); \
         CREATE TABLE part_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1); \
         INSERT INTO parts SELECT id, v FROM items LIMIT 500",
        "CREATE INDEX items_idx ON parts USING hnsw (v vector_l2_ops) WITH (external = true)",
        "DROP INDEX items_idx",
        "CREATE INDEX CONCURRENTLY items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)",
        "REINDEX INDEX CONCURRENTLY items_idx",
    ] {
        // Statements by themselves: some must not run in a transaction block.
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let ports = connected(session);
        let builds =
            if sql.contains("ON parts") { 2 } else { usize::from(sql.contains("INDEX") && !sql.contains("DROP")) };
        assert_eq!(ports.len(), 2 * builds, "{sql}: {ports:?}");
        for pair in ports.chunks(2) {
            assert_eq!(pair[0], scene.proxy.port(), "{sql}");
            assert!(![scene.proxy.port(), scene.router.address().port()].contains(&pair[1]), "{sql}");
        }
    }
    inspect(&CLUSTER, session, "items_idx").unwrap();
    scene.router.expect_builds(6).unwrap();
    assert_eq!(ended(&scene.router, "succeeded"), 6.0);
    wait_for_builders(&scene.router, 0);
}

#[test]
fn the_certificate_is_checked_at_the_builder_too() {
    let mut scene = scene("sent_tls", &[]);
    let trusted = scene.router.certificate().display().to_string();
    for mode in ["verify-ca", "verify-full"] {
        let session = scene.session.as_mut().unwrap();
        session
            .execute(&format!(
                "SET hnsw.external_index_sslmode = '{mode}'; SET hnsw.external_index_sslrootcert = '{trusted}'"
            ))
            .unwrap();
        scene.build_and_drop();
    }
    // Two builders that the routers do not start: the client trusts the certificate of the first, but not of the second.
    let [known, stranger] = [(); 2].map(|()| Builder::start().unwrap());
    let files = Scratch::new("certificates", 0o755).unwrap();
    let [key, both] = ["key", "both.pem"].map(|name| files.path().join(name).display().to_string());
    std::fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
    for builder in [&known, &stranger] {
        let port = builder.address().port();
        // The builders require no ticket, but a ticket that returns tells the router that the client did not reach its builder.
        let router = router_of(&known, ports(builder), &["--mode", "redirect", "--ticket-key", &key]);
        let texts = [&router, &known].map(|daemon| std::fs::read_to_string(daemon.certificate()).unwrap());
        std::fs::write(&both, texts.concat()).unwrap();
        let session = scene.session.as_mut().unwrap();
        router.attach(session).unwrap();
        session.execute(&format!("SET hnsw.external_index_sslrootcert = '{both}'")).unwrap();
        connected(session);
        let started = Instant::now();
        let result = session.execute(CREATE_QUICKLY);
        let (went, at) = (connected(session), router.address().port());
        if port == known.address().port() {
            assert_eq!(went, [at, port]);
            result.unwrap();
            session.execute("DROP INDEX items_idx").unwrap();
        } else {
            let error = result.unwrap_err();
            println!("{error}\n");
            assert_eq!(went, [at, port, at, port], "it asks once more");
            assert!(error.to_string().contains("certificate"), "{error}");
            // The only builder stays reserved for 60 s if its client does not come back.
            assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
            assert_eq!(stranger.metric("lantern_index_tuples_received_total").unwrap(), 0.0, "no row for a stranger");
        }
    }
}

#[test]
fn a_listed_builder_takes_tickets_for_its_place() {
    let mut scene = scene("sent_tickets", &[]);
    let files = Scratch::new("ticket-key", 0o755).unwrap();
    let key = files.path().join("key").display().to_string();
    std::fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
    // The name has the port, which is known once a builder has had it.
    let first = Builder::start().unwrap();
    let ports = ports(&first);
    drop(first);
    let [name, other] = [format!("127.0.0.1:{}", ports[0]), format!("localhost:{}", ports[0])];
    for (ticket_name, taken) in [(&name, true), (&other, false)] {
        let serve = BuilderOptions::serve(&["--ticket-key", &key, "--ticket-name", ticket_name]);
        let builder = Builder::start_with(&BuilderOptions { ports, ..serve }).unwrap();
        for mode in ["redirect", "relay"] {
            let router = router_of(&builder, ports, &["--mode", mode, "--ticket-key", &key]);
            let session = scene.session.as_mut().unwrap();
            router.attach(session).unwrap();
            session.execute("SET hnsw.external_index_sslmode = 'require'").unwrap();
            let result = session.execute(CREATE_QUICKLY);
            if taken {
                result.unwrap();
                session.execute("DROP INDEX items_idx").unwrap();
            } else {
                let error = result.unwrap_err();
                assert!(error.to_string().contains("the ticket is not one for this builder"), "{mode}: {error}");
            }
        }
    }
}

#[test]
fn a_builder_that_is_gone_before_the_client_comes_is_replaced() {
    let arguments = ["--mode", "redirect", "--min-builders", "1"];
    let options = BuilderOptions { tls: false, ..BuilderOptions::router(&arguments) };
    let mut scene = Scene::with("sent_late", &options);
    wait_for_builders(&scene.router, 1);
    let [pid] = builders(&scene.router)[..] else { panic!("one builder is expected") };
    // The greeting passes; the redirect arrives only after the builder has gone.
    scene.proxy.stop_after(Direction::ToClient, 8);
    let building = scene.start(CREATE_QUICKLY);
    wait_for("the client to be sent", PATIENCE, || {
        Ok((scene.router.metric("lantern_index_build_active")? == 1.0).then_some(()))
    })
    .unwrap();
    kill(pid);
    wait_for("another builder", PATIENCE, || Ok((!builders(&scene.router).contains(&pid)).then_some(()))).unwrap();
    scene.proxy.reset();
    let (mut session, result) = building.join().unwrap();
    result.unwrap();
    inspect(&CLUSTER, &mut session, "items_idx").unwrap();
    let ports = connected(&mut session);
    assert_eq!(ports.len(), 4, "the router, nobody, the router, a builder: {ports:?}");
    assert_ne!(ports[1], ports[3]);
}

#[test]
fn a_builder_that_dies_in_the_middle_ends_the_statement() {
    let mut scene = scene("sent_dies", &["--idle-ttl", "1s"]);
    let building = build_slowly(&mut scene);
    let [pid] = builders(&scene.router)[..] else { panic!("one builder is expected") };
    kill(pid);
    let (mut session, result) = building.join().unwrap();
    session.execute("RESET hnsw.external_index_max_rate").unwrap();
    scene.session = Some(session);
    let error = result.unwrap_err();
    println!("{error}\n");
    assert_eq!(error.server().sqlstate, "08006", "{error}");
    scene.router.expect_builds(1).unwrap();
    assert_eq!(ended(&scene.router, "failed"), 1.0);
    scene.build_and_drop();
    wait_for_builders(&scene.router, 0);
}

#[test]
fn a_build_whose_listed_builder_starts_again_has_failed() {
    let mut scene = scene("sent_again", &[]);
    let first = Builder::start().unwrap();
    let ports = ports(&first);
    let router = router_of(&first, ports, &["--mode", "redirect"]);
    let session = scene.session.as_mut().unwrap();
    router.attach(session).unwrap();
    session.execute("SET hnsw.external_index_sslmode = 'require'").unwrap();
    let building = build_slowly(&mut scene);
    kill(first.pid().unwrap());
    // The restarted builder must begin in another second: builders report their start in whole seconds.
    std::thread::sleep(Duration::from_millis(1100));
    let _again = Builder::start_with(&BuilderOptions { ports, ..BuilderOptions::serve(&[]) }).unwrap();
    let (_, result) = building.join().unwrap();
    assert_eq!(result.unwrap_err().server().sqlstate, "08006");
    router.expect_builds(1).unwrap();
    assert_eq!(ended(&router, "failed"), 1.0, "and not cancelled, as if its client had not come");
}

#[test]
fn builds_go_on_when_their_router_ends_and_not_when_it_dies() {
    for signal in [Signal::TERM, Signal::KILL] {
        let mut scene = scene(&format!("sent_router_{}", signal.as_raw()), &["--grace", "10m"]);
        let building = build_slowly(&mut scene);
        let pid = Pid::from_raw(scene.router.pid().unwrap().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
        let (mut session, result) = building.join().unwrap();
        if signal == Signal::TERM {
            result.unwrap();
            inspect(&CLUSTER, &mut session, "items_idx").unwrap();
        } else {
            let error = result.unwrap_err();
            println!("{error}\n");
            assert!(["08006", "57000"].contains(&error.server().sqlstate.as_str()), "{error}");
        }
    }
}
