//! The frames in `proto/vectors` are what this crate reads and writes, bit for bit.

mod samples;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;

use bytes::BytesMut;
use lantern_index_protocol::{
    BuilderMessage, ClientMessage, Frame, Greeting, MAGIC, StreamChecksum, TuplesWriter, encode_index_pages,
    encode_pages,
};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/vectors"))
}

/// Bytes in hexadecimal digits; `xx*n` is byte `xx` n times, `#` begins a comment.
fn vector(name: &str) -> BytesMut {
    let text = fs::read_to_string(folder().join(name).with_extension("hex")).unwrap();
    let mut bytes = BytesMut::new();
    for token in text.lines().filter_map(|line| line.split('#').next()).flat_map(str::split_whitespace) {
        let (byte, times) = token.split_once('*').unwrap_or((token, "1"));
        assert_eq!(byte.len(), 2, "{name}: {token}");
        bytes.resize(bytes.len() + times.parse::<usize>().unwrap(), u8::from_str_radix(byte, 16).unwrap());
    }
    bytes
}

fn frame(name: &str) -> Frame {
    let mut bytes = vector(name);
    let frame = Frame::decode(&mut bytes).unwrap().unwrap();
    assert!(bytes.is_empty(), "{name}");
    frame
}

#[test]
fn client_messages_are_the_bytes_of_their_files() {
    for (name, message) in samples::client() {
        assert_eq!(ClientMessage::from_frame(&frame(name)).unwrap().unwrap(), message, "{name}");
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        assert_eq!(bytes, vector(name), "{name}");
        let mut again = BytesMut::new();
        frame(name).encode(&mut again);
        assert_eq!(again, bytes, "{name}");
    }
}

#[test]
fn builder_messages_are_the_bytes_of_their_files() {
    for (name, message) in samples::builder() {
        assert_eq!(BuilderMessage::from_frame(&frame(name)).unwrap().unwrap(), message, "{name}");
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        assert_eq!(bytes, vector(name), "{name}");
    }
}

#[test]
fn writers_that_do_not_copy_make_the_same_bytes() {
    for (name, message) in samples::client() {
        let ClientMessage::Tuples(tuples) = message else { continue };
        let mut writer = TuplesWriter::new(!tuples.lengths.is_empty());
        tuples.rows().for_each(|(tid, value)| writer.push(tid, value));
        let mut bytes = BytesMut::new();
        let crc = writer.take(|part| {
            bytes.extend_from_slice(part);
            Ok::<_, Infallible>(())
        });
        assert_eq!(bytes, vector(name), "{name}");
        assert_eq!(crc, Ok(frame(name).crc));
    }
    let Ok(Some(BuilderMessage::Pages(pages))) = BuilderMessage::from_frame(&frame("pages")) else {
        panic!("no pages")
    };
    let (head, body, crc) = encode_pages(pages.first_block, pages.pages);
    assert_eq!([head, body].concat(), vector("pages"));
    assert_eq!(crc, frame("pages").crc);
    let Ok(Some(ClientMessage::IndexPages(pages))) = ClientMessage::from_frame(&frame("index_pages")) else {
        panic!("no pages of an index")
    };
    let (head, body, crc) = encode_index_pages(pages.first_block, pages.pages);
    assert_eq!([head, body].concat(), vector("index_pages"));
    assert_eq!(crc, frame("index_pages").crc);
}

#[test]
fn totals_are_those_of_the_other_files() {
    let sum = |name| {
        let mut sum = StreamChecksum::new();
        sum.add(frame(name).crc);
        sum.value()
    };
    let Ok(Some(ClientMessage::EndOfTuples(end))) = ClientMessage::from_frame(&frame("end_of_tuples")) else {
        panic!()
    };
    assert_eq!(end.checksum, sum("tuples"));
    let Ok(Some(BuilderMessage::Done(done))) = BuilderMessage::from_frame(&frame("done")) else { panic!() };
    assert_eq!(done.checksum, sum("pages"));
}

#[test]
fn greeting_choice_and_unknown_frames_are_as_in_their_files() {
    assert_eq!(vector("greeting"), Greeting::builder().to_bytes()[..]);
    assert_eq!(vector("choose"), MAGIC[..]);
    let unknown = frame("unknown_optional");
    assert_eq!(ClientMessage::from_frame(&unknown), Ok(None));
    assert_eq!(BuilderMessage::from_frame(&unknown), Ok(None));
}

#[test]
fn every_file_is_replayed() {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = samples::client().into_iter().map(|(name, _)| name);
    let names = names.chain(samples::builder().into_iter().map(|(name, _)| name));
    let names = names.chain(["greeting", "choose", "unknown_optional"]).map(|name| format!("{name}.hex"));
    assert_eq!(files.collect::<BTreeSet<_>>(), names.collect());
}
