use std::convert::Infallible;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::{
    BuilderMessage, ClientMessage, FLAG_LENGTHS, Frame, Greeting, HEADER_BYTES, HEAP_TID_BYTES, MAX_CONTROL_PAYLOAD,
    PAGE_SIZE, SessionState, StreamChecksum, TuplesWriter, kind,
};

use super::input::Input;

/// A stream of arbitrary bytes yields the same frames and the same error however it is cut into pieces.
pub fn frames(data: &[u8]) {
    let mut input = Input(data);
    let _ = Greeting::from_bytes(input.array());
    let piece = 1 + usize::from(input.u8());
    let stream = input.0;
    assert_eq!(decode(stream, stream.len().max(1)), decode(stream, piece));
}

/// Messages that a builder reads: decoding returns, and encoding an accepted message reproduces it.
pub fn client_messages(data: &[u8]) {
    for frame in sealed(data) {
        let Ok(Some(message)) = ClientMessage::from_frame(&frame) else { continue };
        // The first encoding may shorten texts to the limit for senders.
        let again = client_again(&message);
        assert_eq!(client_again(&again), again);
        assert_eq!(again.name(), message.name());
        if let ClientMessage::Tuples(tuples) = &message {
            assert_eq!(again, message);
            assert_eq!(tuples.rows().count(), tuples.count as usize);
            assert_eq!(tuples.rows().map(|(_, value)| value.len()).sum::<usize>(), tuples.values.len());
        }
    }
}

/// Messages that a client reads, checked as in [`client_messages`].
pub fn builder_messages(data: &[u8]) {
    for frame in sealed(data) {
        let Ok(Some(message)) = BuilderMessage::from_frame(&frame) else { continue };
        let again = builder_again(&message);
        assert_eq!(builder_again(&again), again);
        assert_eq!(again.name(), message.name());
        if let BuilderMessage::Pages(pages) = &message {
            assert_eq!(pages.blocks().count(), pages.page_count() as usize);
        }
    }
}

/// Messages of both sides in any order: a session's state only advances, and nothing follows its end.
pub fn session(data: &[u8]) {
    let mut state = SessionState::default();
    for frame in sealed(data) {
        let next = match frame.kind {
            // Both sides send heartbeats.
            kind::HEARTBEAT if frame.payload.first() == Some(&1) => state.builder(&BuilderMessage::Heartbeat),
            kind if kind & 0x80 == 0 => match ClientMessage::from_frame(&frame) {
                Ok(Some(message)) => state.client(&message),
                _ => continue,
            },
            _ => match BuilderMessage::from_frame(&frame) {
                Ok(Some(message)) => state.builder(&message),
                _ => continue,
            },
        };
        let Ok(next) = next else { continue };
        assert!(next as u8 >= state as u8, "{next:?} after {state:?}");
        assert!(
            next == state
                || next == SessionState::Ended
                || next as u8 == state as u8 + 1
                || matches!(
                    (state, next),
                    (SessionState::Opened, SessionState::Admission)
                        | (SessionState::CheckAdmission, SessionState::Rows | SessionState::IndexPages)
                ),
            "{next:?} after {state:?}"
        );
        state = next;
    }
}

/// Rows that a client sends in batches arrive unchanged.
pub fn tuples(data: &[u8]) {
    let mut input = Input(data);
    let varying = input.u8() & 1 == 1;
    let same = 1 + input.below(300);
    let mut writer = TuplesWriter::new(varying);
    let mut rows: Vec<([u8; HEAP_TID_BYTES], Vec<u8>)> = Vec::new();
    let (mut stream, mut sent) = (BytesMut::new(), StreamChecksum::new());
    while !input.is_empty() && rows.len() < 200 {
        let len = if varying { 1 + input.below(9000) } else { same };
        let mut value = input.take(len.min(16)).to_vec();
        value.resize(len, 7);
        let tid = input.array();
        writer.push(tid, &value);
        rows.push((tid, value));
        if writer.is_full() || input.u8() == 0 {
            flush(&mut writer, &mut stream, &mut sent);
        }
    }
    if !writer.is_empty() {
        flush(&mut writer, &mut stream, &mut sent);
    }
    let mut received = StreamChecksum::new();
    let mut arrived = Vec::new();
    while let Some(frame) = Frame::decode(&mut stream).expect("our own frames") {
        received.add(frame.crc);
        let Ok(Some(ClientMessage::Tuples(batch))) = ClientMessage::from_frame(&frame) else { panic!("{frame:?}") };
        arrived.extend(batch.rows().map(|(tid, value)| (tid, value.to_vec())));
    }
    assert_eq!(arrived, rows);
    assert_eq!(sent.value(), received.value());
}

fn flush(writer: &mut TuplesWriter, stream: &mut BytesMut, sent: &mut StreamChecksum) {
    let Ok(crc) = writer.take(|part| {
        stream.extend_from_slice(part);
        Ok::<_, Infallible>(())
    });
    sent.add(crc);
}

fn client_again(message: &ClientMessage) -> ClientMessage {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes);
    let frame = Frame::decode(&mut bytes).expect("our own frame").expect("all of it");
    ClientMessage::from_frame(&frame).expect("our own message").expect("a kind that is known")
}

fn builder_again(message: &BuilderMessage) -> BuilderMessage {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes);
    let frame = Frame::decode(&mut bytes).expect("our own frame").expect("all of it");
    BuilderMessage::from_frame(&frame).expect("our own message").expect("a kind that is known")
}

/// What the decoder returns for a stream in pieces of this size.
fn decode(stream: &[u8], piece: usize) -> (Vec<Frame>, Option<String>) {
    let (mut frames, mut buffer) = (Vec::new(), BytesMut::new());
    for bytes in stream.chunks(piece) {
        buffer.extend_from_slice(bytes);
        loop {
            match Frame::decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error.to_string())),
            }
        }
    }
    (frames, None)
}

/// Frames with payloads from the input and correct checksums, which a fuzzer would not find.
fn sealed(data: &[u8]) -> Vec<Frame> {
    let mut input = Input(data);
    let mut frames = Vec::new();
    while !input.is_empty() && frames.len() < 32 {
        let [kind, flags] = input.array();
        let len = usize::from(input.u16()) % (MAX_CONTROL_PAYLOAD + 1);
        let mut payload = input.take(len).to_vec();
        // Whole pages are long, and their bytes do not matter here.
        if kind == kind::PAGES && payload.len() >= 8 {
            payload.resize(8 + usize::from(payload[0] % 3) * PAGE_SIZE + usize::from(payload[1] / 255), 0);
            payload[0] = 0;
        }
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + payload.len());
        bytes.put_slice(&[kind, flags & (1 | FLAG_LENGTHS), 0, 0]);
        bytes.put_u32_le(u32::try_from(payload.len()).expect("short"));
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), &payload);
        bytes.put_u32_le(crc);
        bytes.put_slice(&payload);
        match Frame::decode(&mut bytes) {
            Ok(Some(frame)) => {
                assert_eq!(frame.payload, Bytes::from(payload));
                frames.push(frame);
            }
            Ok(None) => panic!("a whole frame is not enough"),
            Err(_) => {}
        }
    }
    frames
}
