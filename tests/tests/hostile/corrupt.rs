//! A received index is accepted only if it is an index of exactly the rows that were sent.

use harness::{Notice, inspect};
use pages::PAGE_SIZE;
use protocol::{ClientMessage, Metric, ValueType};

use crate::answer::{Answer, honest};
use crate::fake::Row;
use crate::scene::{CLUSTER, CREATE, Scene};

const NOT_VALID: &str = "XX001";
const OTHER_ROWS: &str = "the rows in the index are not those that were sent";

#[test]
fn a_correct_index_is_accepted() {
    let mut scene = Scene::new("corrupt_not");
    scene
        .run(CREATE, |peer| {
            let hello = peer.accept()?;
            assert_eq!((hello.value_type, hello.metric, hello.dims), (ValueType::Vector, Metric::L2, 128));
            assert_eq!((hello.m, hello.ef_construction, hello.page_size), (16, 64, 8192));
            assert_eq!((hello.label.as_str(), hello.token.as_str()), ("corrupt_not.public.items_idx", ""));
            assert!(hello.client_version.starts_with("lantern_index "), "{}", hello.client_version);
            assert!(hello.server_version.starts_with("PostgreSQL "), "{}", hello.server_version);
            let rows = peer.rows()?;
            let answer = Answer::new(&hello, &rows);
            assert_eq!((rows.len(), answer.pages.len()), (24, 4));
            answer.send(peer)?;
            // The client closes the connection, or sends heartbeats.
            while let Ok(message) = peer.message() {
                assert_eq!(message, ClientMessage::Heartbeat);
            }
            Ok(())
        })
        .unwrap();
    let said: Vec<String> = scene.session.take_notices().iter().map(Notice::headline).collect();
    assert!(said.contains(&"INFO:  indexed 24 elements".to_owned()), "{said:?}");
    inspect(&CLUSTER, &mut scene.session, "items_idx").unwrap();
    let nearest = "SELECT string_agg(id::text, ',') FROM (
                       SELECT id FROM items ORDER BY v <-> (SELECT v FROM items WHERE id = 17) LIMIT 24) t";
    scene.session.execute("SET enable_seqscan = off").unwrap();
    scene.session.expect_index_scan("items_idx", nearest).unwrap();
    let found: String = scene.session.value(nearest).unwrap();
    scene.session.execute("RESET enable_seqscan; SET enable_indexscan = off").unwrap();
    assert_eq!(found, scene.session.value::<String>(nearest).unwrap());
    scene.session.execute("INSERT INTO items SELECT id + 100, v FROM items; DELETE FROM items WHERE id < 10").unwrap();
    scene.session.execute("VACUUM items").unwrap();
    inspect(&CLUSTER, &mut scene.session, "items_idx").unwrap();
    // In a REINDEX the old index remains until the new one is complete.
    let error = scene.run("REINDEX INDEX items_idx", |peer| {
        let hello = peer.accept()?;
        let rows = peer.rows()?;
        let mut answer = Answer::new(&hello, &rows[..20]);
        answer.layout.rows = rows.len() as u64;
        answer.send(peer)
    });
    assert_eq!(error.unwrap_err().server().sqlstate, NOT_VALID);
    inspect(&CLUSTER, &mut scene.session, "items_idx").unwrap();
}

/// Checks that the build fails if the index has as many rows as were sent, but other ones.
fn rows_refused(scene: &mut Scene, case: &str, words: &str, change: fn(&mut Vec<Row>)) {
    scene.fails_with(case, (NOT_VALID, words), move |peer| {
        let hello = peer.accept()?;
        let mut rows = peer.rows()?;
        let sent = rows.len() as u64;
        change(&mut rows);
        let mut answer = Answer::new(&hello, &rows);
        (answer.layout.rows, answer.done.rows) = (sent, sent);
        answer.send(peer)
    });
}

#[test]
fn other_rows_are_refused() {
    let mut scene = Scene::new("corrupt_rows");
    rows_refused(&mut scene, "swapped heap TIDs", OTHER_ROWS, |rows| {
        let first = rows[3].tid;
        rows[3].tid = rows[20].tid;
        rows[20].tid = first;
    });
    rows_refused(&mut scene, "a row in place of another", OTHER_ROWS, |rows| rows[5] = rows[6].clone());
    rows_refused(&mut scene, "a heap TID twice", OTHER_ROWS, |rows| rows[5].tid = rows[6].tid);
    rows_refused(&mut scene, "a flipped bit", OTHER_ROWS, |rows| rows[23].value[511] ^= 1);
    rows_refused(&mut scene, "a heap TID never sent", OTHER_ROWS, |rows| rows[0].tid = graph::HeapTid::new(9999, 1));
    rows_refused(&mut scene, "a row lost", "23 rows came, 24 announced", |rows| drop(rows.pop()));
    rows_refused(&mut scene, "a row too many", "25 elements announced", |rows| rows.push(rows[0].clone()));
    rows_refused(&mut scene, "an infinite value", "", |rows| {
        rows[2].value[4..8].copy_from_slice(&f32::INFINITY.to_le_bytes());
    });
}

/// The build fails if a correct answer is changed by `change`.
fn refused(scene: &mut Scene, case: &str, words: &str, change: fn(&mut Answer)) {
    scene.fails_with(case, (NOT_VALID, words), move |peer| {
        let hello = peer.accept()?;
        let mut answer = Answer::new(&hello, &peer.rows()?);
        change(&mut answer);
        answer.send(peer)
    });
}

#[test]
fn broken_pages_are_refused() {
    let mut scene = Scene::new("corrupt_pages");
    refused(&mut scene, "an LSN", "header fields that must be 0", |answer| answer.put(1, 4, &[1]));
    refused(&mut scene, "a page checksum", "header fields that must be 0", |answer| answer.put(1, 8, &[1]));
    refused(&mut scene, "flags", "header fields that must be 0", |answer| answer.put(2, 10, &[4]));
    refused(&mut scene, "bytes in the hole", "bytes between line pointers and tuples", |answer| {
        let upper = u16::from_le_bytes([answer.pages[2].1[14], answer.pages[2].1[15]]);
        answer.put(2, usize::from(upper) - 1, &[1]);
    });
    refused(&mut scene, "an LSN of the meta page", "meta page", |answer| answer.put(0, 0, &[1]));
    refused(&mut scene, "zeros", "block 1", |answer| answer.pages[1].1 = [0; PAGE_SIZE]);
    refused(&mut scene, "garbage", "block 2", |answer| {
        for (at, byte) in answer.pages[2].1.iter_mut().enumerate() {
            *byte = (at.wrapping_mul(2_654_435_761) >> 11) as u8;
        }
    });
    refused(&mut scene, "garbage in front", "block 0", |answer| answer.pages[0].1 = [0xa5; PAGE_SIZE]);
    refused(&mut scene, "a line pointer beyond the page", "", |answer| answer.put(1, 24, &[0xff; 4]));
    refused(&mut scene, "other dimensions", "meta page: byte 32", |answer| answer.put(0, 32, &[127]));
    refused(&mut scene, "another m", "meta page: byte 36", |answer| answer.put(0, 36, &[15]));
    refused(&mut scene, "another insert page", "meta page: byte 48", |answer| answer.put(0, 48, &[9]));
    refused(&mut scene, "a chain that loops", "the next block is not the one after it", |answer| {
        answer.put(2, PAGE_SIZE - 8, &1u32.to_le_bytes());
    });
}

#[test]
fn broken_links_are_refused() {
    let mut scene = Scene::new("corrupt_links");
    refused(&mut scene, "an entry point beyond the index", "entry point cannot be", |answer| answer.put(0, 40, &[200]));
    refused(&mut scene, "an entry point that is no element", "entry point is not", |answer| answer.put(0, 44, &[60]));
    refused(&mut scene, "a higher entry point", "level is not the entry point's", |answer| answer.put(0, 46, &[1]));
    refused(&mut scene, "a level of -2", "entry point cannot be", |answer| answer.put(0, 46, &[0xfe, 0xff]));
    refused(&mut scene, "a higher element", "level is above the entry point's", |answer| {
        let (block, at) = answer.first_element();
        answer.put(block, at + 1, &[1]);
    });
    refused(&mut scene, "a deleted element", "deleted", |answer| {
        let (block, at) = answer.first_element();
        answer.put(block, at + 2, &[1]);
    });
    refused(&mut scene, "an element without rows", "no heap TID", |answer| {
        let (block, at) = answer.first_element();
        answer.put(block, at + 8, &[0, 0]);
    });
    refused(&mut scene, "neighbors beyond the index", "neighbor tuple is nowhere", |answer| {
        let (block, at) = answer.first_element();
        answer.put(block, at + 64, &[0, 0, 77, 0]);
    });
    for (case, words, tid) in [
        ("a neighbor beyond the index", "is not an element", [0, 0, 77, 0, 1, 0]),
        ("a neighbor in the last block there can be", "is not an element", [0xff, 0xff, 0xfe, 0xff, 1, 0]),
        ("a neighbor on the meta page", "is not an element", [0, 0, 0, 0, 1, 0]),
        ("a neighbor that is not on its page", "", [0, 0, 2, 0, 88, 0]),
        ("a hole in a list", "comes after an unused slot", [0xff, 0xff, 0xff, 0xff, 0, 0]),
    ] {
        scene.fails_with(case, (NOT_VALID, words), move |peer| {
            let hello = peer.accept()?;
            let mut answer = Answer::new(&hello, &peer.rows()?);
            let (block, at) = answer.first_neighbors();
            answer.put(block, at + 4, &tid);
            answer.send(peer)
        });
    }
    refused(&mut scene, "a neighbor twice", "is repeated", |answer| {
        let (block, at) = answer.first_neighbors();
        let first: [u8; 6] = answer.pages[block].1[at + 4..at + 10].try_into().unwrap();
        answer.put(block, at + 10, &first);
    });
}

/// Each layer of an element takes space on pages: at level 63 more than half a page.
#[test]
fn an_index_is_not_inflated() {
    let mut scene = Scene::new("corrupt_levels");
    let mut refused = |case: &str, levels: fn(usize) -> u8| {
        let words = "more elements of its level than levels drawn at random give";
        scene.fails_with(case, (NOT_VALID, words), move |peer| {
            let hello = peer.accept()?;
            let rows = peer.rows()?;
            Answer::with_levels(&hello, &rows, (0..rows.len()).map(levels).collect()).send(peer)
        });
    };
    refused("one far too high", |element| if element == 20 { 63 } else { 0 });
    refused("all a little too high", |_| 1);
    refused("too many of them", |element| u8::from(element % 4 != 0) * 3);
    let honest = scene.run(CREATE, |peer| {
        let hello = peer.accept()?;
        let rows = peer.rows()?;
        Answer::with_levels(&hello, &rows, (0..rows.len()).map(|element| u8::from(element % 7 == 3)).collect())
            .send(peer)
    });
    honest.unwrap();
}

#[test]
fn pages_out_of_order_or_number_are_refused() {
    let mut scene = Scene::new("corrupt_order");
    refused(&mut scene, "swapped", "block 2 came, expected block 1", |answer| answer.pages.swap(1, 2));
    refused(&mut scene, "swapped under each other's number", "", |answer| {
        answer.pages.swap(1, 2);
        (answer.pages[1].0, answer.pages[2].0) = (1, 2);
    });
    refused(&mut scene, "not from the first on", "block 1 came, expected block 0", |answer| {
        answer.pages.remove(0);
    });
    refused(&mut scene, "one twice", "block 1 came, expected block 2", |answer| {
        answer.pages.insert(2, answer.pages[1]);
    });
    refused(&mut scene, "the last is missing", "3 blocks came, 4 announced", |answer| {
        answer.pages.pop();
    });
    refused(&mut scene, "one too many", "block 4 came", |answer| answer.pages.push((4, answer.pages[3].1)));
    refused(&mut scene, "one too many, announced", "", |answer| {
        answer.layout.blocks = 5;
        answer.pages.push((4, answer.pages[3].1));
    });
    refused(&mut scene, "far away", "block 4294967294 came", |answer| answer.pages[2].0 = u32::MAX - 1);
}

#[test]
fn wrong_totals_are_refused() {
    let mut scene = Scene::new("corrupt_totals");
    refused(&mut scene, "another checksum", "checksum", |answer| answer.checksum_error = 1);
    refused(&mut scene, "rows", "rows", |answer| answer.done.rows -= 1);
    refused(&mut scene, "elements", "elements", |answer| answer.done.elements += 1);
    refused(&mut scene, "blocks", "blocks", |answer| answer.done.blocks = u32::MAX);
    scene.run(CREATE, honest).unwrap();
    scene.session.execute("DROP INDEX items_idx").unwrap();
    scene.expect_clean();
}

#[test]
fn the_error_can_be_caught() {
    let mut scene = Scene::new("corrupt_caught");
    let sql = format!(
        "DO $$ BEGIN
             BEGIN
                 {CREATE};
             EXCEPTION WHEN data_corrupted THEN
                 RAISE NOTICE '%', SQLERRM;
             END;
             INSERT INTO items SELECT 1000, v FROM items LIMIT 1;
         END $$"
    );
    scene
        .run(&sql, |peer| {
            let hello = peer.accept()?;
            let mut answer = Answer::new(&hello, &peer.rows()?);
            answer.pages[3].1 = [0x5a; PAGE_SIZE];
            answer.send(peer)
        })
        .unwrap();
    let said: Vec<String> = scene.session.take_notices().iter().map(Notice::headline).collect();
    assert!(said.contains(&"NOTICE:  external indexing server sent an index that is not valid".into()), "{said:?}");
    assert_eq!(scene.session.value::<u32>("SELECT count(*) FROM items").unwrap(), 25);
    scene.expect_clean();
}
