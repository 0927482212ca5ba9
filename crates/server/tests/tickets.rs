//! A builder that belongs to a router takes only builds with a ticket.

mod support;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use protocol::{BuilderMessage, ClientMessage, Ticket};
use service::{TicketGate, TicketKey};
use support::{Builder, Client, Rows, Stream, hello};

/// The builder "mine", and the key.
fn builder() -> (Builder, TicketKey) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), TicketKey::generate().unwrap()).unwrap();
    let gate = TicketGate::new(TicketKey::read(file.path()).unwrap(), "mine".to_owned());
    let builder = Builder::with(|config| config.tickets = Some(Arc::new(gate)));
    (builder, TicketKey::read(file.path()).unwrap())
}

fn show<S: Stream>(client: &mut Client<S>, ticket: &str) {
    client.send(&ClientMessage::Ticket(Ticket { ticket: ticket.to_owned() }));
}

#[test]
fn a_ticket_lets_one_build_in() {
    let (builder, key) = builder();
    let ticket = key.issue("mine", Duration::from_secs(60)).unwrap();
    let mut client = builder.connect();
    show(&mut client, &ticket);
    client.hello(hello(4));
    client.rows(&Rows::new(100, 4), 100);
    client.end_of_rows(100);
    assert_eq!(client.pages().done.rows, 100);

    let mut again = builder.connect();
    show(&mut again, &ticket);
    let refuse = again.refused(hello(4));
    assert_eq!((refuse.sqlstate.as_str(), refuse.message.as_str()), ("28000", "the ticket was used before"));
}

#[test]
fn without_a_good_ticket_there_is_no_build() {
    let (builder, key) = builder();
    let refuse = builder.connect().refused(hello(4));
    assert_eq!(refuse.sqlstate.as_str(), "28000");
    assert!(refuse.hint.contains("router"), "{refuse:?}");
    for bad in ["forged", "..", &key.issue("other", Duration::from_secs(60)).unwrap()] {
        let mut client = builder.connect();
        show(&mut client, bad);
        let refuse = client.refused(hello(4));
        assert_eq!(
            (refuse.sqlstate.as_str(), refuse.message.as_str()),
            ("28000", "the ticket is not one for this builder")
        );
    }
    let mut client = builder.connect();
    client.send(&ClientMessage::Ping);
    assert!(matches!(client.next(), Some(BuilderMessage::Pong(_))), "whoever asks whether it is there needs none");
}

#[test]
fn other_builders_ignore_tickets() {
    let builder = Builder::start();
    let mut client = builder.connect();
    show(&mut client, "any");
    client.hello(hello(4));
}
