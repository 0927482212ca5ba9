//! Redirected clients, simulated byte by byte; `sent` tests redirects of PostgreSQL.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use harness::{Builder, BuilderOptions, wait_for};
use protocol::{
    BuilderMessage, ClientMessage, Frame, Greeting, Hello, MAGIC, Metric, Redirect, Ticket, ValueType, capability,
};

use crate::ended;
use crate::scene::{PATIENCE, builders, wait_for_builders};

fn start(arguments: &[&str]) -> Builder {
    let options = BuilderOptions::router(&[&["--mode", "redirect", "--idle-ttl", "1s"], arguments].concat());
    Builder::start_with(&BuilderOptions { tls: false, ..options }).unwrap()
}

fn connect(address: SocketAddr, greeting: Greeting) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(Greeting::from_bytes(bytes), greeting);
    stream
}

fn hello(capabilities: u64) -> Hello {
    Hello {
        capabilities,
        estimated_rows: 10,
        client_version: "test".to_owned(),
        server_version: "test".to_owned(),
        label: "items_idx".to_owned(),
        ..Hello::new(ValueType::Vector, Metric::L2, 3)
    }
}

/// Sends a Hello, with or without a ticket; returns the first answer other than Wait.
fn ask(stream: &mut TcpStream, ticket: &str, capabilities: u64) -> BuilderMessage {
    ask_for(stream, ticket, hello(capabilities))
}

fn ask_for(stream: &mut TcpStream, ticket: &str, hello: Hello) -> BuilderMessage {
    send(stream, ticket, hello);
    answer(stream)
}

fn send(stream: &mut TcpStream, ticket: &str, hello: Hello) {
    let mut bytes = BytesMut::from(&MAGIC[..]);
    if !ticket.is_empty() {
        ClientMessage::Ticket(Ticket { ticket: ticket.to_owned() }).encode(&mut bytes);
    }
    ClientMessage::Hello(hello).encode(&mut bytes);
    stream.write_all(&bytes).unwrap();
}

fn answer(stream: &mut TcpStream) -> BuilderMessage {
    let mut received = BytesMut::new();
    loop {
        while let Some(frame) = Frame::decode(&mut received).unwrap() {
            match BuilderMessage::from_frame(&frame).unwrap().unwrap() {
                BuilderMessage::Wait(_) | BuilderMessage::Heartbeat => {}
                message => return message,
            }
        }
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "closed early");
        received.extend_from_slice(&bytes[..read]);
    }
}

fn redirected(router: &Builder) -> Redirect {
    match ask(&mut connect(router.address(), Greeting::router()), "", capability::REDIRECT) {
        BuilderMessage::Redirect(redirect) => redirect,
        other => panic!("{other:?}"),
    }
}

fn expect_refused(answer: &BuilderMessage, words: &str) {
    let BuilderMessage::Refuse(refuse) = answer else { panic!("{answer:?}") };
    assert_eq!(refuse.report.sqlstate.as_str(), "28000", "{refuse:?}");
    assert!(refuse.report.message.contains(words), "{refuse:?}");
}

#[test]
fn a_client_is_sent_to_a_builder_that_takes_its_ticket_once() {
    let router = start(&[]);
    let Redirect { port, host, server_name, ticket } = redirected(&router);
    assert_eq!((host.as_str(), server_name.as_str()), ("127.0.0.1", ""));
    let at: SocketAddr = format!("{host}:{port}").parse().unwrap();
    let builder = || connect(at, Greeting::builder());
    expect_refused(&ask(&mut builder(), "", 0), "only from its router");
    let forged = format!("{}0", &ticket[..ticket.len() - 1]);
    let forged = if forged == ticket { format!("{}1", &ticket[..ticket.len() - 1]) } else { forged };
    expect_refused(&ask(&mut builder(), &forged, 0), "not one for this builder");
    // The router has polled the builder meanwhile, and still reserves it for the client.
    std::thread::sleep(Duration::from_millis(500));
    let mut build = builder();
    assert!(matches!(ask(&mut build, &ticket, 0), BuilderMessage::Accept(_)));
    expect_refused(&ask(&mut builder(), &ticket, 0), "used before");
    // During the build its builder is neither idle nor granted to others.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(builders(&router).len(), 1);
    let status = router.get("/status").unwrap().1;
    assert!(status.contains("\"builder\":\"builder-"), "{status}");
    let other = redirected(&router);
    assert_ne!(other.port, port, "one build per builder");
    expect_refused(&ask(&mut connect(at, Greeting::builder()), &other.ticket, 0), "not one for this builder");
    drop(build);
    let mut build = connect(format!("{}:{}", other.host, other.port).parse().unwrap(), Greeting::builder());
    assert!(matches!(ask(&mut build, &other.ticket, 0), BuilderMessage::Accept(_)));
    drop(build);
    wait_for_builders(&router, 0);
}

#[test]
fn the_router_counts_how_the_builds_of_redirected_clients_end() {
    let router = start(&[]);
    let too_long = Hello { dims: 1_000_000, ..hello(0) };
    for (hello, outcome) in [(hello(0), "cancelled"), (too_long, "refused")] {
        let Redirect { port, ticket, .. } = redirected(&router);
        let mut build = connect(([127, 0, 0, 1], port).into(), Greeting::builder());
        let answer = ask_for(&mut build, &ticket, hello);
        assert_eq!(matches!(answer, BuilderMessage::Accept(_)), outcome == "cancelled", "{answer:?}");
        drop(build);
        let counted = || Ok((ended(&router, outcome) == 1.0).then_some(()));
        wait_for(&format!("a build to count as {outcome}"), PATIENCE, counted).unwrap();
    }
    assert_eq!(ended(&router, "failed"), 0.0);
}

#[test]
fn a_client_that_comes_back_with_its_ticket_does_not_wait_for_itself() {
    let router = start(&["--max-builders", "1"]);
    let Redirect { ticket, .. } = redirected(&router);
    let started = Instant::now();
    let again = ask(&mut connect(router.address(), Greeting::router()), &ticket, capability::REDIRECT);
    assert!(matches!(&again, BuilderMessage::Redirect(again) if again.ticket != ticket), "{again:?}");
    // A builder stays reserved for 60 s if its client does not come back.
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
}

#[test]
fn a_build_of_unknown_size_waits_for_no_number_of_bytes() {
    let router = start(&["--max-builders", "1"]);
    redirected(&router);
    let mut waiting = connect(router.address(), Greeting::router());
    send(&mut waiting, "", Hello { estimated_rows: 0, ..hello(0) });
    let placed = || Ok(Some(router.get("/status")?.1).filter(|status| status.contains("\"position\":1")));
    let status = wait_for("the place in the queue", PATIENCE, placed).unwrap();
    let queue = status.split("\"queue\":").nth(1).unwrap();
    assert!(queue.contains("\"memory_bytes\":0,"), "{status}");
}

#[test]
fn clients_that_cannot_be_sent_are_relayed() {
    let router = start(&[]);
    let mut stream = connect(router.address(), Greeting::router());
    assert!(matches!(ask(&mut stream, "", 0), BuilderMessage::Accept(_)));
    drop(stream);
    wait_for_builders(&router, 0);
}

#[test]
fn lanterns_clients_get_an_address_in_their_own_format() {
    let router = start(&[]);
    let mut stream = connect(router.address(), Greeting::router());
    stream.write_all(&3u32.to_le_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let word = |at: usize| u32::from_le_bytes(answer[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4), &answer[8..17]), (0, 9, &b"127.0.0.1"[..]));
    let port = u16::try_from(word(17)).unwrap();
    connect(([127, 0, 0, 1], port).into(), Greeting::builder());
}

#[test]
fn garbage_is_disconnected_and_counted() {
    let router = start(&[]);
    let mut stream = connect(router.address(), Greeting::router());
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    let mut stream = connect(router.address(), Greeting::router());
    stream.write_all(&[&MAGIC[..], &[0xff; 64]].concat()).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    assert_eq!(builders(&router), Vec::<u32>::new());
    let counted = || Ok((router.metric("lantern_index_connections_closed_total")? >= 2.0).then_some(()));
    wait_for("both to be counted", PATIENCE, counted).unwrap();
}
