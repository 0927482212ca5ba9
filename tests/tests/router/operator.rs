//! Commands of a router's operator, over its Unix socket.

use std::net::TcpStream;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use harness::{Builder, BuilderOptions, Scratch, SqlError, binary, wait_for};

use crate::client::{Failure, connect};
use crate::ended;
use crate::scene::{CREATE, CREATE_QUICKLY, PATIENCE, Scene};
use crate::table::{Opclass, Table};

/// The directory of a router's admin socket.
pub struct Socket(Scratch);

impl Socket {
    pub fn new() -> Self {
        Self(Scratch::new("admin-socket", 0o700).unwrap())
    }

    pub fn path(&self) -> String {
        self.0.path().join("admin.sock").display().to_string()
    }

    /// Runs a command of the operator and returns its output.
    pub fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(binary().unwrap());
        let output: Output = command.args(arguments).args(["--socket", &self.path()]).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn a_drained_router_takes_no_builds_whatever_the_client_speaks() {
    let socket = Socket::new();
    let options = BuilderOptions::router(&["--admin-socket", &socket.path()]);
    let mut scene = Scene::with("drained", &BuilderOptions { tls: false, ..options });
    let table = Table::random(Opclass::L2, 100, 8, 7);
    socket.run(&["drain"]);
    let error = scene.session.as_mut().unwrap().execute(CREATE_QUICKLY).unwrap_err();
    let notice = error.server();
    assert_eq!(notice.sqlstate, "57000", "{error}");
    assert!(notice.message.contains("router takes no builds at the moment"), "{error}");
    let Err(Failure::Reported(text)) = table.build(connect(scene.router.address())) else {
        panic!("a drained router serves a Lantern client")
    };
    assert!(text.starts_with("router takes no builds at the moment"), "{text}");
    socket.run(&["drain", "--undo"]);
    scene.build_and_drop();
    table.build(connect(scene.router.address())).unwrap();
}

/// A builder that does one build at a time.
fn one_at_a_time(arguments: &[&str]) -> Builder {
    let options = BuilderOptions::serve(&[&["--max-builds", "1"], arguments].concat());
    Builder::start_with(&BuilderOptions { tls: false, ..options }).unwrap()
}

/// A builder in a router's list.
fn address(builder: &Builder) -> String {
    format!("127.0.0.1:{}/{}", builder.address().port(), builder.status_address().port())
}

/// A router to one builder, which the router does not start.
fn router_to(builder: &Builder, name: &str, arguments: &[&str]) -> Scene {
    let own = ["--builders", "static", "--builder", &address(builder)];
    let mut scene = Scene::with(name, &BuilderOptions::router(&[&own, arguments].concat()));
    scene.build_and_drop();
    scene
}

/// A build through a router whose builder is occupied by a client that does not come through the router.
struct Behind {
    building: thread::JoinHandle<Result<(), SqlError>>,
    other: crate::client::Client<TcpStream>,
    /// Whether the build waits at the builder. If the router has just polled the builder, it knows that the builder is busy and queues the
    /// build itself: then try again.
    waits_there: bool,
}

impl Behind {
    fn begin(scene: &Scene, builder: &Builder) -> Self {
        let table = Table::random(Opclass::L2, 100, 8, 7);
        // The idle timeout does not apply to Lantern's clients.
        let mut other = crate::client::Client::open(connect(builder.address()), table.init());
        other.acknowledged().unwrap();
        let mut session = scene.another_session();
        let building = thread::spawn(move || session.execute(CREATE_QUICKLY));
        let at_builder = || Ok((depth(builder)? > 0.0).then_some(()));
        let waits_there = wait_for("the build to wait at the builder", Duration::from_secs(5), at_builder).is_ok();
        Self { building, other, waits_there }
    }
}

fn depth(builder: &Builder) -> anyhow::Result<f64> {
    builder.metric("lantern_index_queue_depth")
}

#[test]
fn a_build_is_cancelled_while_it_waits_for_its_builders_other_build() {
    let (socket, builder) = (Socket::new(), one_at_a_time(&[]));
    let mut scene = router_to(&builder, "waits", &["--admin-socket", &socket.path()]);
    let listed = || socket.run(&["builds"]).split_once(' ').map(|(id, _)| id.to_owned());
    let waited_there = (0..10).any(|_| {
        let Behind { building, other, waits_there } = Behind::begin(&scene, &builder);
        let id = wait_for("the build to be listed", PATIENCE, || Ok(listed())).unwrap();
        socket.run(&["cancel", &id]);
        let error = building.join().unwrap().unwrap_err();
        assert_eq!(error.server().sqlstate, "57014", "{error}");
        wait_for("the builder's queue to be empty", PATIENCE, || Ok((depth(&builder)? == 0.0).then_some(()))).unwrap();
        drop(other);
        scene.build_and_drop();
        waits_there
    });
    assert!(waited_there);
}

#[test]
fn a_build_waits_for_its_builders_other_build_longer_than_the_idle_timeout() {
    let builder = one_at_a_time(&["--idle-timeout", "5s"]);
    let scene = router_to(&builder, "waits_long", &[]);
    let waited_there = (0..10).any(|_| {
        let Behind { building, other, waits_there } = Behind::begin(&scene, &builder);
        if waits_there {
            thread::sleep(Duration::from_secs(8));
        }
        drop(other);
        building.join().unwrap().unwrap();
        scene.another_session().execute("DROP INDEX items_idx").unwrap();
        waits_there
    });
    assert!(waited_there);
}

#[test]
fn a_build_that_waits_for_its_builders_other_build_is_refused_when_the_router_ends() {
    let builder = one_at_a_time(&[]);
    let waited_there = (0..10).any(|attempt| {
        let mut scene = router_to(&builder, &format!("router_ends_{attempt}"), &["--grace", "10min"]);
        let Behind { building, other, waits_there } = Behind::begin(&scene, &builder);
        assert_eq!(scene.router.terminate(PATIENCE).unwrap(), Some(0));
        let error = building.join().unwrap().unwrap_err();
        assert_eq!(error.server().sqlstate, "57000", "{error}");
        drop(other);
        waits_there
    });
    assert!(waited_there);
}

#[test]
fn a_drained_builder_gets_no_builds_while_another_one_takes_them() {
    let table = Table::random(Opclass::L2, 100, 8, 7);
    // Whichever builder is the router's first choice.
    for (mode, drained) in [("relay", 0), ("relay", 1), ("redirect", 0), ("redirect", 1)] {
        let sockets = [Socket::new(), Socket::new()];
        let builders = sockets.each_ref().map(|socket| one_at_a_time(&["--admin-socket", &socket.path()]));
        let [first, second] = builders.each_ref().map(address);
        let list = ["--builders", "static", "--builder", &first, "--builder", &second, "--min-builders", "2"];
        let options = BuilderOptions::router(&[&["--mode", mode], &list[..]].concat());
        let mut scene = Scene::with(&format!("drained_{mode}_{drained}"), &BuilderOptions { tls: false, ..options });
        scene.router.expect_builders("idle", 2).unwrap();
        sockets[drained].run(&["drain"]);
        // The first build comes before the router knows that the builder is drained, the second one later.
        for _ in 0..2 {
            scene.build_and_drop();
            if mode == "relay" {
                table.build(connect(scene.router.address())).unwrap();
            }
            scene.router.expect_builders("idle", 1).unwrap();
        }
        assert_eq!(ended(&builders[drained], "succeeded"), 0.0);
    }
}

#[test]
fn a_build_that_was_sent_to_its_builder_is_not_cancelled_here() {
    let socket = Socket::new();
    let options = BuilderOptions::router(&["--mode", "redirect", "--admin-socket", &socket.path()]);
    let scene = Scene::with("sent_away", &BuilderOptions { tls: false, ..options });
    let mut session = scene.another_session();
    // Slow enough to be listed, and to be refused a cancellation.
    session.execute("SET hnsw.external_index_max_rate = '4MB'").unwrap();
    let building = thread::spawn(move || session.execute(CREATE));
    let running = || socket.run(&["builds"]).lines().find(|line| !line.contains("waiting")).map(str::to_owned);
    let id = wait_for("the build to be sent", PATIENCE, || Ok(running())).unwrap();
    let id = id.split_once(' ').unwrap().0;
    let mut command = Command::new(binary().unwrap());
    let output = command.args(["cancel", id, "--socket", &socket.path()]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("has been sent to builder"), "{text}");
    building.join().unwrap().unwrap();
}
