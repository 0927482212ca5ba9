//! Advice from a sample of rows.

use pages::PAGE_SIZE;
use protocol::{Advice, Ask, BuilderMessage, ClientMessage, EndOfTuples, Hello, Metric, Pages, ValueType, capability};

use crate::support::{Builder, Client, Rows, Stream, hello};

const DIMS: u32 = 24;
const ROWS: usize = 2000;

fn asking(rows: usize, ask: Ask) -> Hello {
    let (capabilities, estimated_rows) = (capability::ADVISE, rows as u64);
    Hello { capabilities, estimated_rows, ask: Some(ask), ..hello(DIMS) }
}

fn ask() -> Ask {
    Ask { queries: 0, table_rows: ROWS as u64, k: 10, target_ppm: 900_000 }
}

/// Requests advice and expects it to be accepted.
fn accepted<S: Stream>(client: &mut Client<S>, hello: Hello) {
    assert_eq!(client.hello(hello).capabilities, capability::ADVISE);
}

fn advice(builder: &Builder, hello: Hello) -> Advice {
    let rows = Rows::new(ROWS, DIMS);
    let mut client = builder.connect();
    accepted(&mut client, hello);
    client.rows(&rows, 500);
    client.end_of_rows(ROWS as u64);
    let Some(BuilderMessage::Advice(advice)) = client.news() else { panic!("no advice") };
    let Some(BuilderMessage::Done(done)) = client.news() else { panic!("not done") };
    assert_eq!((done.rows, done.blocks), (ROWS as u64, 0));
    assert_eq!(client.next(), None);
    advice
}

#[test]
fn choices_reach_the_target_and_grow_with_the_table() {
    let builder = Builder::start();
    let small = advice(&builder, asking(ROWS, ask()));
    println!("{small:#?}");
    assert_eq!((small.rows, small.queries), (1800, 200));
    assert!(small.choices.iter().any(|choice| choice.value_type == ValueType::Vector));
    for choice in &small.choices {
        assert!(choice.recall_ppm >= 899_999 && (10..=1000).contains(&choice.ef_search), "{choice:?}");
        assert!(choice.cached_bytes <= choice.index_bytes && choice.visited <= ROWS as u64, "{choice:?}");
        assert_eq!(choice.reranked > 0, choice.value_type == ValueType::Bit);
    }
    let large = advice(&builder, asking(ROWS, Ask { table_rows: 1_000_000, ..ask() }));
    let first = |advice: &Advice| *advice.choices.iter().find(|c| c.value_type == ValueType::HalfVec).unwrap();
    let (small, large) = (first(&small), first(&large));
    assert!(large.ef_search > 2 * small.ef_search && large.visited > small.visited, "{small:?} {large:?}");
    assert!(large.index_bytes > 300 * small.index_bytes && large.build_ms > small.build_ms);
    let given = advice(&builder, asking(ROWS, Ask { queries: 300, ..ask() }));
    assert_eq!((given.rows, given.queries), (1700, 300));
    // Fewer rows come than announced, so these are all rows of the table, whatever its estimate.
    let counted = advice(&builder, asking(2 * ROWS, Ask { table_rows: 3 * ROWS as u64 / 2, ..ask() }));
    assert_eq!(first(&counted).index_bytes, small.index_bytes);
}

#[test]
fn invalid_questions_and_samples_are_errors() {
    let builder = Builder::start();
    let refused = |hello: Hello| builder.connect().refused(hello);
    for (wrong, text) in [
        (Ask { k: 0, ..ask() }, "k is 0, must be between 1 and 1000"),
        (Ask { k: 1001, ..ask() }, "k is 1001"),
        (Ask { target_ppm: 1_000_000, ..ask() }, "target_recall is 1, must be above 0 and below 1"),
        (Ask { queries: 1001, ..ask() }, "1001 queries"),
    ] {
        let refuse = refused(asking(ROWS, wrong));
        assert_eq!(refuse.report.sqlstate.as_str(), "22023", "{}", refuse.report.message);
        assert!(refuse.report.message.contains(text), "{}", refuse.report.message);
    }
    let refuse = refused(Hello { metric: Metric::Hamming, ..asking(ROWS, ask()) });
    assert_eq!(refuse.report.sqlstate.as_str(), "0A000");
    let refuse = refused(Hello { dims: 16_001, ..asking(ROWS, ask()) });
    assert_eq!(refuse.report.sqlstate.as_str(), "54000");

    let rows = Rows::new(100, DIMS);
    let tuples = |client: &mut Client<_>| client.rows(&rows, 100);
    let mut client = builder.connect();
    accepted(&mut client, asking(ROWS, ask()));
    tuples(&mut client);
    client.end_of_rows(100);
    let error = client.error();
    assert_eq!(error.sqlstate.as_str(), "55000");
    assert!(error.message.starts_with("100 rows with values are too few") && !error.hint.is_empty(), "{error:?}");
    // More rows than announced.
    let mut client = builder.connect();
    accepted(&mut client, asking(99, ask()));
    tuples(&mut client);
    assert_eq!(client.error().sqlstate.as_str(), "08P01");
    let page = Pages { first_block: 0, pages: vec![0; PAGE_SIZE].into() };
    for (message, sqlstate) in [
        (ClientMessage::IndexPages(page), "08P01"),
        (ClientMessage::EndOfTuples(EndOfTuples { rows: 7, checksum: 0 }), "XX001"),
        (ClientMessage::Cancel, "57014"),
    ] {
        let mut client = builder.connect();
        accepted(&mut client, asking(ROWS, ask()));
        client.send(&message);
        assert_eq!(client.error().sqlstate.as_str(), sqlstate);
    }
}

#[test]
fn memory_is_reserved_before_rows_are_sent() {
    let builder = Builder::with(|config| config.memory_limit = 256 << 20);
    let refuse = builder.connect().refused(asking(10_000_000, ask()));
    assert_eq!(refuse.report.sqlstate.as_str(), "53200");
    assert!(
        refuse.report.message.starts_with("advice needs more memory") && refuse.report.detail.contains("256 MB"),
        "{refuse:?}"
    );
    assert!(refuse.report.hint.contains("--memory-limit"), "{refuse:?}");
    // A vector that is too long for an index of its own type may have an index of another type.
    let mut client = builder.connect();
    accepted(&mut client, Hello { dims: 3000, ..asking(1000, ask()) });
}
