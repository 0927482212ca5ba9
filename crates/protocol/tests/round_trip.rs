//! Any message survives encoding and decoding, however its bytes are split; no bytes make a decoder panic.

use bytes::{Bytes, BytesMut};
use lantern_index_protocol::{
    Accept, Advice, Ask, BuilderMessage, Check, Choice, ClientMessage, Done, EndOfIndex, EndOfTuples, ErrorReport,
    Findings, Frame, Hello, Layout, Metric, PAGE_SIZE, Pages, Ping, Pong, Progress, Redirect, Refuse, SqlState, Ticket,
    Tuples, ValueType, Wait, capability,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>().prop_filter("NUL ends a text", |&char| char != '\0'), 0..40).prop_map(String::from_iter)
}

fn sqlstate() -> impl Strategy<Value = SqlState> {
    prop_oneof![Just(SqlState::OUT_OF_MEMORY), Just(SqlState::QUERY_CANCELED), Just(SqlState::new(*b"ZZ999").unwrap())]
}

fn hello() -> impl Strategy<Value = Hello> {
    let check = any::<Option<(u32, u32, u16)>>()
        .prop_map(|check| check.map(|(blocks, sample, ef_search)| Check { blocks, sample, ef_search }));
    let ask = any::<Option<(u32, u64, u16, u32)>>()
        .prop_map(|ask| ask.map(|(queries, table_rows, k, target_ppm)| Ask { queries, table_rows, k, target_ppm }));
    let kinds = (0..ValueType::ALL.len(), 0..Metric::ALL.len());
    let numbers = (any::<[u16; 4]>(), any::<[u64; 2]>(), any::<[u32; 2]>(), kinds, check, ask);
    (numbers, [text(), text(), text(), text(), text()]).prop_map(
        |((shorts, longs, words, (value_type, metric), check, ask), texts)| {
            let [protocol_min, protocol_max, m, ef_construction] = shorts;
            let [capabilities, estimated_rows] = longs;
            // The capability determines whether the fields are present.
            let with = |bits: u64, bit: u64, there| if there { bits | bit } else { bits & !bit };
            let capabilities = with(capabilities, capability::CHECK, check.is_some());
            let capabilities = with(capabilities, capability::ADVISE, ask.is_some());
            let [dims, page_size] = words;
            let [client_version, server_version, label, token, build_id] = texts;
            let (value_type, metric) = (ValueType::ALL[value_type], Metric::ALL[metric]);
            #[rustfmt::skip]
        let hello = Hello {
            protocol_min, protocol_max, capabilities, value_type, metric, dims, m, ef_construction, estimated_rows,
            page_size, client_version, server_version, label, token, build_id, check, ask,
        };
            hello
        },
    )
}

fn tuples() -> impl Strategy<Value = Tuples> {
    let same = (1..50usize, 1..20usize).prop_map(|(count, len)| (vec![len; count], false));
    let varying = vec(1..20usize, 1..50).prop_map(|lens| (lens, true));
    prop_oneof![same, varying].prop_flat_map(|(lens, varying)| {
        let (count, values) = (lens.len(), lens.iter().sum::<usize>());
        let lengths: Vec<u8> = lens.iter().flat_map(|&len| u32::try_from(len).unwrap().to_le_bytes()).collect();
        let lengths = if varying { Bytes::from(lengths) } else { Bytes::new() };
        (vec(any::<u8>(), count * 6), vec(any::<u8>(), values)).prop_map(move |(tids, values)| Tuples {
            count: u32::try_from(count).unwrap(),
            tids: tids.into(),
            lengths: lengths.clone(),
            values: values.into(),
        })
    })
}

fn client() -> impl Strategy<Value = ClientMessage> {
    prop_oneof![
        hello().prop_map(ClientMessage::Hello),
        tuples().prop_map(ClientMessage::Tuples),
        any::<(u64, u32)>().prop_map(|(rows, checksum)| ClientMessage::EndOfTuples(EndOfTuples { rows, checksum })),
        Just(ClientMessage::Cancel),
        Just(ClientMessage::Heartbeat),
        proptest::option::of(text()).prop_map(|token| ClientMessage::Ping(Ping { token })),
        text().prop_map(|ticket| ClientMessage::Ticket(Ticket { ticket })),
        pages().prop_map(ClientMessage::IndexPages),
        any::<(u32, u32)>().prop_map(|(blocks, checksum)| ClientMessage::EndOfIndex(EndOfIndex { blocks, checksum })),
    ]
}

fn accept() -> impl Strategy<Value = BuilderMessage> {
    let numbers = any::<(u16, u64, u64, u64, u32)>();
    (numbers, [text(), text()]).prop_map(|(numbers, [builder_version, remark])| {
        let (protocol, capabilities, session, memory_reserved, threads) = numbers;
        #[rustfmt::skip]
        let accept = Accept { protocol, capabilities, session, memory_reserved, threads, builder_version, remark };
        BuilderMessage::Accept(accept)
    })
}

fn pong() -> impl Strategy<Value = BuilderMessage> {
    (any::<(u16, u32, u64)>(), text()).prop_map(|((protocol, threads, memory_free), builder_version)| {
        BuilderMessage::Pong(Pong { protocol, threads, memory_free, builder_version })
    })
}

fn redirect() -> impl Strategy<Value = BuilderMessage> {
    (any::<u16>(), [text(), text(), text()]).prop_map(|(port, [host, server_name, ticket])| {
        BuilderMessage::Redirect(Redirect { port, host, server_name, ticket })
    })
}

fn refuse_or_error() -> impl Strategy<Value = BuilderMessage> {
    let parts = (any::<Option<u32>>(), sqlstate(), [text(), text(), text()]);
    parts.prop_map(|(retry_after, sqlstate, [message, detail, hint])| match retry_after {
        Some(retry_after_ms) => {
            BuilderMessage::Refuse(Refuse { retry_after_ms, report: ErrorReport { sqlstate, message, detail, hint } })
        }
        None => BuilderMessage::Error(ErrorReport { sqlstate, message, detail, hint }),
    })
}

fn done() -> impl Strategy<Value = BuilderMessage> {
    any::<([u64; 5], [u32; 3], Option<u32>)>().prop_map(|([rows, elements, relinked, unreachable, build_ms], words, recall_ppm)| {
        let [self_recall_ppm, blocks, checksum] = words;
        #[rustfmt::skip]
        let done = Done { rows, elements, relinked, unreachable, self_recall_ppm, build_ms, blocks, checksum, recall_ppm };
        BuilderMessage::Done(done)
    })
}

fn pages() -> impl Strategy<Value = Pages> {
    (0..u32::MAX - 3, 1..=3usize, any::<u8>())
        .prop_map(|(first_block, count, byte)| Pages { first_block, pages: vec![byte; count * PAGE_SIZE].into() })
}

fn findings() -> impl Strategy<Value = BuilderMessage> {
    let numbers = any::<(u16, [u64; 7], u32, u32)>();
    (numbers, vec(text(), 0..5)).prop_map(|((m, longs, sampled, recall_ppm), first_errors)| {
        let [live, deleted, rows, duplicates, not_full, reachable, errors] = longs;
        #[rustfmt::skip]
        let findings = Findings {
            m, live, deleted, rows, duplicates, not_full, reachable, sampled, recall_ppm, errors, first_errors,
        };
        BuilderMessage::Findings(findings)
    })
}

fn advice() -> impl Strategy<Value = BuilderMessage> {
    let choice = (0..ValueType::ALL.len(), any::<[u16; 4]>(), any::<u32>(), any::<[u64; 5]>()).prop_map(|(value_type, shorts, recall_ppm, longs)| {
        let [m, ef_construction, ef_search, reranked] = shorts;
        let [visited, index_bytes, cached_bytes, build_ms, memory_bytes] = longs;
        let value_type = ValueType::ALL[value_type];
        #[rustfmt::skip]
        let choice = Choice {
            value_type, m, ef_construction, ef_search, reranked, recall_ppm, visited, index_bytes, cached_bytes, build_ms, memory_bytes,
        };
        choice
    });
    (any::<(u64, u32)>(), vec(choice, 0..5))
        .prop_map(|((rows, queries), choices)| BuilderMessage::Advice(Advice { rows, queries, choices }))
}

fn builder() -> impl Strategy<Value = BuilderMessage> {
    prop_oneof![
        accept(),
        (any::<u32>(), text()).prop_map(|(position, reason)| BuilderMessage::Wait(Wait { position, reason })),
        refuse_or_error(),
        any::<(u8, u64, u64)>().prop_map(|(phase, done, total)| BuilderMessage::Progress(Progress {
            phase,
            done,
            total
        })),
        any::<(u32, u64, u64)>().prop_map(|(blocks, elements, rows)| BuilderMessage::Layout(Layout {
            blocks,
            elements,
            rows
        })),
        pages().prop_map(BuilderMessage::Pages),
        findings(),
        advice(),
        done(),
        Just(BuilderMessage::Heartbeat),
        pong(),
        redirect(),
    ]
}

/// Decodes bytes that arrive in pieces, which end at `cuts`.
fn frames(bytes: &[u8], mut cuts: Vec<usize>) -> Vec<Frame> {
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let (mut buffer, mut start, mut frames) = (BytesMut::new(), 0, Vec::new());
    for cut in cuts {
        buffer.extend_from_slice(&bytes[start..cut]);
        start = cut;
        while let Some(frame) = Frame::decode(&mut buffer).unwrap() {
            frames.push(frame);
        }
    }
    assert!(buffer.is_empty());
    frames
}

proptest! {
    #[test]
    fn client_messages_survive(sent in vec(client(), 1..8), cuts in vec(any::<prop::sample::Index>(), 0..8)) {
        let mut bytes = BytesMut::new();
        sent.iter().for_each(|message| message.encode(&mut bytes));
        let cuts = cuts.into_iter().map(|cut| cut.index(bytes.len())).collect();
        let received: Vec<_> =
            frames(&bytes, cuts).iter().map(|frame| ClientMessage::from_frame(frame).unwrap().unwrap()).collect();
        prop_assert_eq!(received, sent);
    }

    #[test]
    fn builder_messages_survive(sent in vec(builder(), 1..8), cuts in vec(any::<prop::sample::Index>(), 0..8)) {
        let mut bytes = BytesMut::new();
        sent.iter().for_each(|message| message.encode(&mut bytes));
        let cuts = cuts.into_iter().map(|cut| cut.index(bytes.len())).collect();
        let received: Vec<_> =
            frames(&bytes, cuts).iter().map(|frame| BuilderMessage::from_frame(frame).unwrap().unwrap()).collect();
        prop_assert_eq!(received, sent);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(kind: u8, flags in 0..4u8, bytes in vec(any::<u8>(), 0..200)) {
        let frame = Frame { kind: kind & 0x8f, flags, crc: 0, payload: bytes.clone().into() };
        if let Ok(Some(ClientMessage::Tuples(tuples))) = ClientMessage::from_frame(&frame) {
            prop_assert_eq!(tuples.rows().count(), tuples.count as usize);
        }
        let _ = BuilderMessage::from_frame(&frame);
        let _ = Frame::decode(&mut BytesMut::from(&bytes[..]));
    }
}
