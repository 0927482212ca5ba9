//! Checks of indexes: the client sends pages and receives findings.

use pages::{PAGE_SIZE, PageBytes};
use protocol::{
    BuilderMessage, Check, ClientMessage, Done, EndOfIndex, Findings, Frame, Hello, Pages, StreamChecksum, capability,
};

use crate::support::{Builder, Client, Rows, Stream, hello};

const DIMS: u32 = 24;
const ROWS: usize = 3000;

/// The pages of a valid index.
fn index(builder: &Builder) -> Vec<PageBytes> {
    let mut client = builder.connect();
    client.hello(hello(DIMS));
    client.index_of(&Rows::new(ROWS, DIMS), 500).pages
}

fn asking(blocks: usize, sample: u32) -> Hello {
    let check = Check { blocks: blocks as u32, sample, ef_search: 40 };
    Hello { capabilities: capability::CHECK, check: Some(check), ..hello(DIMS) }
}

/// Requests a check and expects it to be accepted.
fn accepted<S: Stream>(client: &mut Client<S>, hello: Hello) {
    assert_eq!(client.hello(hello).capabilities, capability::CHECK);
}

/// Sends pages of an index from block 0 on; returns the checksum of all frames.
fn send<S: Stream>(client: &mut Client<S>, pages: &[PageBytes]) -> u32 {
    let mut checksum = StreamChecksum::new();
    for (number, some) in pages.chunks(100).enumerate() {
        let pages = Pages { first_block: 100 * number as u32, pages: some.concat().into() };
        let message = ClientMessage::IndexPages(pages);
        let mut bytes = bytes::BytesMut::new();
        message.encode(&mut bytes);
        client.raw(&bytes);
        checksum.add(Frame::decode(&mut bytes).unwrap().unwrap().crc);
    }
    checksum.value()
}

fn check(builder: &Builder, pages: &[PageBytes], sample: u32) -> (Findings, Done) {
    let mut client = builder.connect();
    accepted(&mut client, asking(pages.len(), sample));
    let checksum = send(&mut client, pages);
    client.send(&ClientMessage::EndOfIndex(EndOfIndex { blocks: pages.len() as u32, checksum }));
    let Some(BuilderMessage::Findings(findings)) = client.news() else { panic!("no findings") };
    let Some(BuilderMessage::Done(done)) = client.news() else { panic!("not done") };
    assert_eq!((done.blocks as usize, done.checksum), (pages.len(), checksum));
    assert_eq!(client.next(), None);
    (findings, done)
}

#[test]
fn findings_tell_a_good_index_from_a_damaged_one() {
    let builder = Builder::start();
    let mut pages = index(&builder);
    let (good, done) = check(&builder, &pages, 100);
    assert_eq!((good.m, good.live, good.rows, good.deleted), (16, ROWS as u64, ROWS as u64, 0));
    assert_eq!((good.reachable, good.errors, good.sampled), (ROWS as u64, 0, 100));
    assert!((900_000..=1_000_000).contains(&good.recall_ppm), "{}", good.recall_ppm);
    assert_eq!((done.rows, done.elements, done.unreachable), (ROWS as u64, ROWS as u64, 0));
    let (unsearched, _) = check(&builder, &pages, 0);
    assert_eq!((unsearched.sampled, unsearched.recall_ppm, unsearched.live), (0, u32::MAX, ROWS as u64));
    // The first tuple of the first data page is an element: its third byte says whether it is deleted.
    let pointer = u32::from_le_bytes(pages[1][24..28].try_into().unwrap());
    pages[1][(pointer & 0x7fff) as usize + 2] = 1;
    let (damaged, _) = check(&builder, &pages, 100);
    assert!(damaged.errors > 0 && damaged.first_errors.len() as u64 <= damaged.errors, "{damaged:?}");
    assert_eq!((damaged.sampled, damaged.recall_ppm), (0, u32::MAX));
    // Pages that are no index at all.
    let (nothing, _) = check(&builder, &vec![[7; PAGE_SIZE]; 300], 100);
    assert!(nothing.m == 0 && nothing.errors > 0);
}

#[test]
fn low_recall_is_reported() {
    let builder = Builder::start();
    let mut pages = index(&builder);
    let (before, _) = check(&builder, &pages, 200);
    // Lists that end after two links of thirty-two: neighbor tuples have their type in the first byte and six bytes for each link.
    for page in &mut pages[1..] {
        let lower = u16::from_le_bytes([page[12], page[13]]) as usize;
        for at in (24..lower).step_by(4) {
            let start = (u32::from_le_bytes(page[at..at + 4].try_into().unwrap()) & 0x7fff) as usize;
            if page[start] == 2 {
                let count = u16::from_le_bytes([page[start + 2], page[start + 3]]) as usize;
                let layer0 = start + 4 + 6 * (count - 32);
                for slot in 2..32 {
                    page[layer0 + 6 * slot..layer0 + 6 * slot + 6].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0]);
                }
            }
        }
    }
    let (after, _) = check(&builder, &pages, 200);
    println!("{before:?}\n{after:?}");
    assert_eq!((after.errors, after.not_full), (0, ROWS as u64));
    assert!(after.recall_ppm < before.recall_ppm - 200_000 && after.reachable < before.reachable);
}

#[test]
fn pages_out_of_order_or_other_than_announced_are_errors() {
    let builder = Builder::start();
    let some = vec![[0u8; PAGE_SIZE]; 3];
    let pages = |first_block, count: usize| {
        ClientMessage::IndexPages(Pages { first_block, pages: some[..count].concat().into() })
    };
    let end = |blocks, checksum| ClientMessage::EndOfIndex(EndOfIndex { blocks, checksum });
    for (messages, sqlstate) in [
        (vec![pages(1, 1)], "08P01"),
        (vec![pages(0, 1), pages(0, 1)], "08P01"),
        (vec![pages(0, 3)], "08P01"),
        (vec![pages(0, 1), end(1, 0)], "XX001"),
        (vec![pages(0, 2), end(2, 7)], "XX001"),
        (vec![pages(0, 2), end(3, 0)], "XX001"),
        (vec![ClientMessage::EndOfTuples(protocol::EndOfTuples { rows: 0, checksum: 0 })], "08P01"),
        (vec![pages(0, 1), ClientMessage::Cancel], "57014"),
    ] {
        let mut client = builder.connect();
        accepted(&mut client, asking(2, 0));
        messages.iter().for_each(|message| client.send(message));
        let error = client.error();
        assert_eq!(error.sqlstate.as_str(), sqlstate, "{messages:?}: {}", error.message);
    }
    // A build accepts no pages.
    let mut client = builder.connect();
    client.hello(hello(DIMS));
    client.send(&pages(0, 1));
    assert_eq!(client.error().sqlstate.as_str(), "08P01");
}

#[test]
fn memory_is_reserved_before_pages_are_sent() {
    let builder = Builder::with(|config| config.memory_limit = 64 << 20);
    let refuse = builder.connect().refused(asking(1 << 20, 0));
    assert_eq!(refuse.report.sqlstate.as_str(), "53200");
    assert!(
        refuse.report.message.contains("check of the index") && refuse.report.detail.contains("64 MB"),
        "{refuse:?}"
    );
    let refuse = builder.connect().refused(asking(0, 0));
    assert_eq!(refuse.report.sqlstate.as_str(), "22023");
    let reserved = |sample| builder.connect().admitted(asking(1000, sample));
    assert!((1000 * PAGE_SIZE as u64..64 << 20).contains(&reserved(1)), "{}", reserved(1));
    // With a sample, verified pages and the value of one row are kept for searches.
    assert_eq!(reserved(1) - reserved(0), 1001 * PAGE_SIZE as u64);
}
