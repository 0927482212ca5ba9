//! Clients that wait, leave, arrive together, or are refused for lack of room.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use service::{TicketGate, TicketKeys};

use crate::client::{Client, Failure, connect};
use crate::support::{Builder, Pair, encrypted, eventually, hello};
use crate::table::{Opclass, Table, tid};

fn table(rows: usize) -> Table {
    Table::random(Opclass::L2, rows, 32, 7)
}

/// A client whose build runs.
fn begun(builder: &Builder, table: &Table) -> Client<TcpStream> {
    let mut client = Client::open(connect(builder.address), table.init());
    client.acknowledged().unwrap();
    eventually("the build runs", || builder.metric("lantern_index_build_active") == 1);
    client
}

#[test]
fn two_lantern_builds_and_one_of_version_2_run_at_once() {
    let builder = Builder::start();
    let tables = [table(3000), Table::random(Opclass::Cosine, 2000, 16, 9)];
    let mut clients = tables.each_ref().map(|table| Client::open(connect(builder.address), table.init()));
    clients.iter_mut().for_each(|client| client.acknowledged().unwrap());
    let mut ours = builder.connect();
    ours.hello(hello(4));
    assert_eq!(builder.metric("lantern_index_build_active"), 3);
    thread::scope(|scope| {
        for (mut client, table) in clients.into_iter().zip(&tables) {
            scope.spawn(move || {
                table.send(&mut client).unwrap();
                let index = client.finish().unwrap();
                index.check();
                assert!(table.recall(&index, 20) >= 0.98);
            });
        }
    });
}

#[test]
fn a_lantern_client_may_pause_between_rows() {
    // The pauses below are ten times this timeout.
    let builder = Builder::with(|config| config.listening.idle_timeout = Duration::from_millis(50));
    let table = table(100);
    let mut client = begun(&builder, &table);
    for (number, row) in table.rows.iter().flatten().enumerate() {
        if number % 50 == 0 {
            thread::sleep(Duration::from_millis(500));
        }
        client.row(tid(number), &table.encode(row)).unwrap();
    }
    client.finish().unwrap().check();
}

#[test]
fn max_rows_time_ends_a_build_whose_rows_do_not_come() {
    let builder = Builder::with(|config| config.max_rows_time = Some(Duration::from_millis(300)));
    // Not `begun`: the build may have ended before its gauge is read.
    let mut client = Client::open(connect(builder.address), table(100).init());
    client.acknowledged().unwrap();
    eventually("the build fails", || builder.builds("failed") == 1);
}

#[test]
fn a_build_ends_when_its_client_leaves() {
    let builder = Builder::start();
    let table = table(5000);
    // The client leaves while it sends rows, and after the last one.
    for ended in [false, true] {
        let mut client = begun(&builder, &table);
        table.send(&mut client).unwrap();
        if ended {
            std::io::Write::write_all(&mut client.stream, &crate::client::END).unwrap();
        }
        drop(client);
        assert!(builder.settle() < Duration::from_secs(30));
    }
    assert_eq!(builder.builds("cancelled") + builder.builds("succeeded"), 2);
    assert!(builder.builds("cancelled") >= 1);
    let reserved = builder.metric("lantern_index_memory_reserved_bytes");
    assert_eq!(reserved, 0);
}

#[test]
fn shutdown_resets_a_client_that_sends_rows() {
    let builder = Builder::with(|config| config.drain_timeout = Duration::from_millis(100));
    let table = table(1000);
    let mut client = begun(&builder, &table);
    table.send(&mut client).unwrap();
    builder.shutdown.drain.cancel();
    let until = Instant::now() + Duration::from_secs(30);
    let failure = loop {
        assert!(Instant::now() < until, "the connection is never reset");
        match client.row([0, 0, 0, 0, 1, 0], &[0; 128]) {
            Ok(()) => thread::sleep(Duration::from_millis(20)),
            Err(failure) => break failure,
        }
    };
    assert_eq!(failure, Failure::Broken);
}

#[test]
fn a_queued_client_is_answered_in_time() {
    let builder = Builder::with(|config| config.max_builds = 1);
    let table = table(100);
    let first = begun(&builder, &table);
    // The client gives up after 10 seconds: only the clock tells whether the answer comes in time.
    let since = Instant::now();
    let Err(Failure::Reported(text)) = table.build(connect(builder.address)) else { panic!("two builds at a time") };
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    assert!(text.starts_with("builder is busy, try again later: number 1 in the queue"), "{text}");

    let waiting = thread::scope(|scope| {
        let second = scope.spawn(|| table.build(connect(builder.address)));
        thread::sleep(Duration::from_millis(300));
        drop(first);
        second.join().unwrap()
    });
    waiting.unwrap();
}

#[test]
fn an_operator_cancels_a_queued_client() {
    let builder = Builder::with(|config| config.max_builds = 1);
    let table = table(100);
    let _first = begun(&builder, &table);
    let cancelled = thread::scope(|scope| {
        let second = scope.spawn(|| table.build(connect(builder.address)));
        eventually("the client waits", || builder.activity.report().queue.len() == 1);
        let build = builder.activity.report().queue[0].subject.build.clone();
        builder.activity.cancel(&build).unwrap();
        second.join().unwrap()
    });
    let Err(Failure::Reported(text)) = cancelled else { panic!("{cancelled:?}") };
    assert_eq!(text, "build cancelled by the builder's operator");
    assert_eq!((builder.builds("cancelled"), builder.builds("refused")), (1, 0));
}

#[test]
fn a_build_beyond_the_memory_limit_is_refused_with_the_limit() {
    let builder = Builder::with(|config| config.memory_limit = 1 << 20);
    let Err(Failure::Reported(text)) = table(10).build(connect(builder.address)) else { panic!("it fits") };
    assert!(text.contains("more memory than this builder may use") && text.contains("the limit is 1024 kB"), "{text}");
    assert_eq!(builder.builds("refused"), 1);
}

#[test]
fn more_rows_than_memory_reset_the_connection() {
    let builder = Builder::with(|config| config.memory_limit = 40 << 20);
    let failure = table(100_000).build(connect(builder.address)).unwrap_err();
    assert_eq!(failure, Failure::Broken);
    builder.settle();
    assert_eq!(builder.builds("failed"), 1);
}

#[test]
fn without_a_ticket_clients_need_a_flag_of_the_builder() {
    let keys = Arc::new(TicketKeys::from_text(&"0123456789abcdef".repeat(4)));
    let gate = |builder: &str| Some(Arc::new(TicketGate::new(keys.clone(), builder.to_owned())));
    let builder = Builder::with(|config| config.tickets = gate("b1"));
    let Err(Failure::Reported(text)) = table(10).build(connect(builder.address)) else { panic!("let in") };
    assert!(text.contains("only builds that its router sends"), "{text}");

    let trusting = Builder::with(|config| {
        config.tickets = gate("b2");
        config.lantern_without_ticket = true;
    });
    table(10).build(connect(trusting.address)).unwrap();
}

#[test]
fn a_client_that_does_not_read_is_reset() {
    let builder = Builder::with(|config| config.listening.idle_timeout = Duration::from_millis(300));
    let table = Table::random(Opclass::L2, 3000, 1000, 3);
    let mut client = begun(&builder, &table);
    table.send(&mut client).unwrap();
    std::io::Write::write_all(&mut client.stream, &crate::client::END).unwrap();
    builder.settle();
    // The client then reads an error, instead of the end of a short file.
    let mut bytes = vec![0; 1 << 16];
    let end = loop {
        match std::io::Read::read(&mut client.stream, &mut bytes) {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => break Some(error.kind()),
        }
    };
    assert_eq!(end, Some(std::io::ErrorKind::ConnectionReset));
}

#[test]
fn a_build_succeeds_over_tls() {
    let pair = Pair::new();
    let builder = Builder::with(|config| config.listening.access.tls = Some(pair.tls(None)));
    let stream = encrypted(builder.address, &pair.certificate, None, &rustls::version::TLS13);
    let table = table(2000);
    let index = table.build(stream).unwrap();
    assert!(table.recall(&index, 20) >= 0.98);
}

#[test]
fn a_client_that_closes_its_sending_side_has_left() {
    let builder = Builder::start();
    let table = table(2000);
    let mut client = begun(&builder, &table);
    table.send(&mut client).unwrap();
    client.stream.shutdown(Shutdown::Write).unwrap();
    builder.settle();
    assert_eq!(builder.builds("cancelled"), 1);
}
