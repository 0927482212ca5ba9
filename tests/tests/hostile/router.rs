//! A router sends the address of a builder; if the address is invalid, the statement fails with a helpful message.

use std::io;

use harness::{Notice, inspect};
use protocol::{BuilderMessage, ClientMessage, Greeting, Hello, Redirect, Wait, capability};

use crate::answer::{build, honest};
use crate::fake::{FakeBuilder, Peer};
use crate::scene::{CLUSTER, CREATE, Scene};

const TICKET: &str = "one build";

fn redirect(host: &str, port: u16) -> BuilderMessage {
    BuilderMessage::Redirect(Redirect { port, host: host.into(), server_name: String::new(), ticket: TICKET.into() })
}

/// Reads what a client sends to a router.
fn ask(peer: &mut Peer) -> io::Result<Hello> {
    peer.send(&Greeting::router().to_bytes())?;
    match peer.choice()? {
        ClientMessage::Hello(hello) => Ok(hello),
        other => panic!("{} in place of Hello", other.name()),
    }
}

/// Reads the ticket that a client returns because it could not reach its builder, and its Hello.
fn ask_again(peer: &mut Peer) -> io::Result<Hello> {
    peer.send(&Greeting::router().to_bytes())?;
    match (peer.choice()?, peer.message()?) {
        (ClientMessage::Ticket(unused), ClientMessage::Hello(hello)) => {
            assert_eq!(unused.ticket, TICKET);
            Ok(hello)
        }
        (first, second) => panic!("{} and {} in place of Ticket and Hello", first.name(), second.name()),
    }
}

/// A builder that requires a ticket.
fn ticket_and_build(peer: &mut Peer) -> io::Result<()> {
    peer.greet()?;
    match peer.choice()? {
        ClientMessage::Ticket(ticket) => assert_eq!(ticket.ticket, TICKET),
        other => panic!("{} in place of Ticket", other.name()),
    }
    match peer.message()? {
        ClientMessage::Hello(hello) => {
            assert_eq!((hello.capabilities, hello.token.as_str()), (0, "secret"), "as the router was told");
            build(peer, &hello)
        }
        other => panic!("{} in place of Hello", other.name()),
    }
}

#[test]
fn a_redirected_client_builds_at_the_named_builder() {
    let mut scene = Scene::new("router");
    scene.session.execute("SET hnsw.external_index_token = 'secret'").unwrap();
    let builder = FakeBuilder::play(ticket_and_build);
    let port = builder.port();
    scene
        .run(CREATE, move |peer| {
            let hello = ask(peer)?;
            assert_eq!((hello.capabilities & capability::REDIRECT, hello.token.as_str()), (1, "secret"));
            peer.say(&BuilderMessage::Wait(Wait { position: 0, reason: "A builder is starting.".into() }))?;
            peer.say(&redirect("127.0.0.1", port))
        })
        .unwrap();
    builder.expect_left();
    let said: Vec<String> = scene.session.take_notices().iter().map(Notice::headline).collect();
    assert_eq!(said.len(), 5, "{said:?}");
    assert_eq!(said[2], format!("INFO:  connecting to external indexing server on 127.0.0.1:{port}"));
    inspect(&CLUSTER, &mut scene.session, "items_idx").unwrap();
}

#[test]
fn a_router_may_relay() {
    let mut scene = Scene::new("router_relay");
    scene.run(CREATE, |peer| ask(peer).and_then(|hello| build(peer, &hello))).unwrap();
    inspect(&CLUSTER, &mut scene.session, "items_idx").unwrap();
}

#[test]
fn a_builder_that_is_gone_is_replaced_once() {
    let mut scene = Scene::new("router_again");
    scene.session.execute("SET hnsw.external_index_token = 'secret'").unwrap();
    let nobody = 1;
    let builder = FakeBuilder::play(ticket_and_build);
    let to = |port| move |peer: &mut Peer| ask(peer).and_then(|_| peer.say(&redirect("127.0.0.1", port)));
    let then_to = |port| move |peer: &mut Peer| ask_again(peer).and_then(|_| peer.say(&redirect("127.0.0.1", port)));
    let router = FakeBuilder::play_in_turn(vec![Box::new(to(nobody)), Box::new(then_to(builder.port()))]);
    scene.point_at(router.port());
    scene.session.execute(CREATE).unwrap();
    router.expect_left();
    builder.expect_left();
    inspect(&CLUSTER, &mut scene.session, "items_idx").unwrap();
    scene.session.execute("DROP INDEX items_idx").unwrap();

    let router = FakeBuilder::play_in_turn(vec![Box::new(to(nobody)), Box::new(then_to(nobody))]);
    scene.point_at(router.port());
    let error = scene.session.execute(CREATE).unwrap_err();
    router.expect_left();
    assert_eq!(error.server().sqlstate, "08001", "{error}");
    assert!(error.server().message.ends_with(&format!(":{nobody}")), "{error}");
}

#[test]
fn redirects_to_invalid_addresses_fail() {
    let mut scene = Scene::new("router_lies");
    for (case, host, port) in [("no host", "", 1), ("no port", "127.0.0.1", 0)] {
        scene.fails_with(case, ("08P01", "names no builder"), move |peer| {
            ask(peer)?;
            peer.say(&redirect(host, port))
        });
    }
    let to_nowhere = |peer: &mut Peer| ask(peer).and_then(|_| peer.say(&redirect("x\u{1b}y", 1)));
    let again = |peer: &mut Peer| ask_again(peer).and_then(|_| peer.say(&redirect("x\u{1b}y", 1)));
    let router = FakeBuilder::play_in_turn(vec![Box::new(to_nowhere), Box::new(again)]);
    scene.point_at(router.port());
    let error = scene.session.execute(CREATE).unwrap_err();
    router.expect_left();
    assert_eq!(error.server().sqlstate, "08001", "{error}");
    assert!(error.server().message.ends_with("x?y:1"), "{error}");
}

#[test]
fn only_a_router_redirects_and_only_once() {
    let mut scene = Scene::new("router_chain");
    scene.fails_with("a builder that redirects", ("08P01", "Redirect in place of Accept"), |peer| {
        peer.hello()?;
        peer.say(&redirect("127.0.0.1", 1))
    });
    let second = FakeBuilder::play(|peer| {
        peer.send(&Greeting::router().to_bytes())?;
        peer.choice()?;
        peer.message()?;
        peer.say(&redirect("127.0.0.1", 1))
    });
    let port = second.port();
    scene.fails_with("a router behind a router", ("08P01", "another router"), move |peer| {
        ask(peer)?;
        peer.say(&redirect("127.0.0.1", port))
    });
    second.expect_left();
    scene.run(CREATE, honest).unwrap();
}
