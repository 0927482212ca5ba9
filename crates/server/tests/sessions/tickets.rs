//! A builder that belongs to a router accepts only builds with a ticket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use graph::HeapTid;
use protocol::v1::{ACK, ERROR_MAGIC, Init, relayed};
use protocol::{BuilderMessage, ClientMessage, LANTERN_V1_RELAYED, Ticket};
use service::{Limits, TicketGate, TicketKeys};

use crate::support::{Builder, Client, Rows, Stream, connect, eventually, hello};

/// The builder "mine", and the keys of its tickets.
fn builder() -> (Builder, Arc<TicketKeys>) {
    let keys = Arc::new(TicketKeys::from_text(&TicketKeys::generate().unwrap()));
    let gate = TicketGate::new(keys.clone(), "mine".to_owned());
    let builder = Builder::with(|config| config.tickets = Some(Arc::new(gate)));
    (builder, keys)
}

fn issue(keys: &TicketKeys, builder: &str) -> String {
    issue_limited(keys, builder, Limits::default())
}

fn issue_limited(keys: &TicketKeys, builder: &str, limits: Limits) -> String {
    let client = service::Client { limits, ..service::Client::unnamed("10.0.0.7:5432".parse().unwrap()) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    keys.issue(builder, &client, now + 60).unwrap()
}

fn show<S: Stream>(client: &mut Client<S>, ticket: &str) {
    client.send(&ClientMessage::Ticket(Ticket { ticket: ticket.to_owned() }));
}

#[test]
fn a_ticket_lets_one_build_in() {
    let (builder, key) = builder();
    let ticket = issue(&key, "mine");
    let mut client = builder.connect();
    show(&mut client, &ticket);
    client.hello(hello(4));
    client.index_of(&Rows::new(100, 4), 100);

    let mut again = builder.connect();
    show(&mut again, &ticket);
    let refuse = again.refused(hello(4));
    assert_eq!(
        (refuse.report.sqlstate.as_str(), refuse.report.message.as_str()),
        ("28000", "the ticket was used before")
    );
}

#[test]
fn without_a_good_ticket_there_is_no_build() {
    let (builder, key) = builder();
    let refuse = builder.connect().refused(hello(4));
    assert_eq!(refuse.report.sqlstate.as_str(), "28000");
    assert!(refuse.report.hint.contains("router"), "{refuse:?}");
    for bad in ["forged", "..", &issue(&key, "other")] {
        let mut client = builder.connect();
        show(&mut client, bad);
        let refuse = client.refused(hello(4));
        assert_eq!(
            (refuse.report.sqlstate.as_str(), refuse.report.message.as_str()),
            ("28000", "the ticket is not one for this builder")
        );
    }
    let mut client = builder.connect();
    client.send(&ClientMessage::Ping(protocol::Ping::default()));
    assert!(matches!(client.next(), Some(BuilderMessage::Pong(_))), "a ping needs no ticket");
}

/// Sends a Lantern order of vectors with four dimensions, with `ticket` ahead of it, as a router does.
fn order(builder: &Builder, ticket: &str) -> TcpStream {
    let init =
        Init { metric: 3, quantization: 1, dims: 4, m: 16, ef_construction: 64, element_bits: 32, ..Init::default() };
    let mut stream = connect(builder.address);
    stream.read_exact(&mut [0; 8]).unwrap();
    stream.write_all(&[&relayed(ticket).unwrap(), &init.to_bytes()[4..]].concat()).unwrap();
    stream
}

/// What a Lantern client receives for its order.
fn lantern(builder: &Builder, ticket: &str) -> Vec<u8> {
    let mut answer = vec![0; 1024];
    let length = order(builder, ticket).read(&mut answer).unwrap();
    answer.truncate(length);
    answer
}

#[test]
fn the_limit_of_memory_in_a_ticket_holds() {
    let (builder, keys) = builder();
    let limits = Limits { memory: 1000, ..Limits::default() };
    let mut build = builder.connect();
    show(&mut build, &issue_limited(&keys, "mine", limits));
    let refuse = build.refused(hello(4));
    assert_eq!(refuse.report.sqlstate.as_str(), "53200", "{refuse:?}");
    assert!(refuse.report.hint.contains("--token-file"), "{refuse:?}");
    let answer = lantern(&builder, &issue_limited(&keys, "mine", limits));
    let text = String::from_utf8_lossy(&answer);
    assert!(
        text.contains("build needs more memory than this client may have") && text.contains("--token-file"),
        "{text}"
    );
}

#[test]
fn the_limit_of_rows_in_a_ticket_holds_for_lanterns_protocol() {
    let (builder, keys) = builder();
    let limits = Limits { rows: 10, ..Limits::default() };
    let mut stream = order(&builder, &issue_limited(&keys, "mine", limits));
    stream.read_exact(&mut [0; ACK.len()]).unwrap();
    let row = |row: u16| {
        let value = [f32::from(row); 4].map(f32::to_le_bytes).concat();
        [&HeapTid::new(1, row).0[..], &[0; 2], &value].concat()
    };
    // At once: after the eleventh row, the builder closes the connection.
    stream.write_all(&(1..=20).flat_map(row).collect::<Vec<u8>>()).unwrap();
    eventually("the build fails", || builder.builds("failed") == 1);
    assert!(builder.get("/status").contains("more than 10 rows"));
}

#[test]
fn relayed_lantern_clients_need_a_valid_ticket() {
    let (builder, key) = builder();
    let ticket = issue(&key, "mine");
    assert_eq!(lantern(&builder, &ticket), ACK);
    for (bad, words) in
        [(ticket.as_str(), "used before"), ("forged", "not one for this builder"), ("", "only from its router")]
    {
        let answer = lantern(&builder, bad);
        assert!(answer.starts_with(&ERROR_MAGIC), "{answer:?}");
        assert!(String::from_utf8_lossy(&answer).contains(words), "{}", String::from_utf8_lossy(&answer));
    }
    let mut stream = connect(builder.address);
    stream.write_all(&[&LANTERN_V1_RELAYED[..], &u16::MAX.to_le_bytes()].concat()).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest.len(), 8, "a greeting, and the end");
}

#[test]
fn other_builders_ignore_tickets() {
    let builder = Builder::start();
    let mut client = builder.connect();
    show(&mut client, "any");
    client.hello(hello(4));
}
