//! Payloads that are too short, too long, of another kind, or with invalid fields.

mod samples;

use bytes::{Bytes, BytesMut};
use lantern_index_protocol::{
    Advice, BuilderMessage, ClientMessage, FLAG_OPTIONAL, Findings, Frame, MAX_CONTROL_PAYLOAD, Phase, ProtocolError,
    SqlState, kind,
};

/// Decodes a frame as one side does; the message as text, so that both sides have one type.
type Read = fn(&Frame) -> Result<Option<String>, ProtocolError>;

/// The frames of all sample messages, and how the receiving side decodes each.
fn frames() -> Vec<(Frame, Read)> {
    let as_client = |frame: &Frame| Ok(ClientMessage::from_frame(frame)?.map(|message| format!("{message:?}")));
    let as_builder = |frame: &Frame| Ok(BuilderMessage::from_frame(frame)?.map(|message| format!("{message:?}")));
    let mut frames: Vec<(Frame, Read)> = Vec::new();
    let mut out = BytesMut::new();
    for (_, message) in samples::client() {
        message.encode(&mut out);
        frames.push((Frame::decode(&mut out).unwrap().unwrap(), as_client));
    }
    for (_, message) in samples::builder() {
        message.encode(&mut out);
        frames.push((Frame::decode(&mut out).unwrap().unwrap(), as_builder));
    }
    frames
}

fn is_data(frame: &Frame) -> bool {
    matches!(frame.kind, kind::TUPLES | kind::PAGES | kind::INDEX_PAGES)
}

#[test]
fn every_shorter_payload_is_refused() {
    for (frame, read) in frames() {
        // Messages of earlier versions end there.
        let enough = frame.payload.len() - later_fields(&frame);
        let older = match ClientMessage::from_frame(&frame) {
            Ok(Some(ClientMessage::Hello(hello))) if hello.check.is_some() || hello.ask.is_some() => {
                enough - 2 - hello.build_id.len()
            }
            _ => enough,
        };
        for len in (0..frame.payload.len()).filter(|&len| len != enough && len != older) {
            let short = Frame { payload: frame.payload.slice(..len), ..frame.clone() };
            let error = read(&short).unwrap_err();
            assert!(matches!(error, ProtocolError::Truncated { .. }), "{error}");
            assert_eq!(error.sqlstate(), SqlState::PROTOCOL_VIOLATION);
        }
    }
}

/// The length of the fields that later versions have added.
fn later_fields(frame: &Frame) -> usize {
    match ClientMessage::from_frame(frame) {
        Ok(Some(ClientMessage::Hello(hello))) => {
            return match (hello.check, hello.ask) {
                (Some(_), _) => 10,
                (None, Some(_)) => 18,
                (None, None) => 2 + hello.build_id.len(),
            };
        }
        Ok(Some(ClientMessage::Ping(ping))) => return ping.token.map_or(0, |token| 2 + token.len()),
        _ => {}
    }
    match BuilderMessage::from_frame(frame) {
        Ok(Some(BuilderMessage::Accept(accept))) => 2 + accept.remark.len(),
        Ok(Some(BuilderMessage::Done(_))) => size_of::<u32>(),
        _ => 0,
    }
}

#[test]
fn fields_of_later_versions_may_be_left_out() {
    let accept = frames().into_iter().map(|(frame, _)| frame).find(|frame| frame.kind == kind::ACCEPT).unwrap();
    let short = accept.payload.slice(..accept.payload.len() - later_fields(&accept));
    match BuilderMessage::from_frame(&Frame { payload: short, ..accept }) {
        Ok(Some(BuilderMessage::Accept(accept))) => assert_eq!((accept.threads, accept.remark.as_str()), (8, "")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn longer_control_payloads_are_taken_and_longer_data_payloads_are_not() {
    for (frame, read) in frames() {
        let longer = Frame { payload: [&frame.payload[..], b"later fields"].concat().into(), ..frame.clone() };
        if is_data(&frame) {
            let message = kind::name(frame.kind);
            assert_eq!(read(&longer), Err(ProtocolError::Trailing { message, extra: 12 }));
        } else {
            assert_eq!(read(&longer), read(&frame));
        }
    }
}

#[test]
fn unknown_kinds_are_skipped_only_if_they_may_be() {
    let of = |kind, flags| Frame { kind, flags, crc: 0, payload: Bytes::from_static(b"?") };
    for kind in [0x00, 0x0a, 0x7f, 0x80, 0xff] {
        assert_eq!(ClientMessage::from_frame(&of(kind, FLAG_OPTIONAL)), Ok(None));
        assert_eq!(BuilderMessage::from_frame(&of(kind, FLAG_OPTIONAL)), Ok(None));
        assert_eq!(ClientMessage::from_frame(&of(kind, 0)), Err(ProtocolError::UnknownKind { kind }));
        assert_eq!(BuilderMessage::from_frame(&of(kind, 0)), Err(ProtocolError::UnknownKind { kind }));
    }
    // The other side's messages are unknown kinds, too.
    assert!(matches!(ClientMessage::from_frame(&of(kind::DONE, 0)), Err(ProtocolError::UnknownKind { .. })));
    assert!(matches!(BuilderMessage::from_frame(&of(kind::HELLO, 0)), Err(ProtocolError::UnknownKind { .. })));
}

#[test]
fn a_known_kind_is_read_even_if_it_is_marked_optional() {
    for (frame, read) in frames() {
        let optional = Frame { flags: frame.flags | FLAG_OPTIONAL, ..frame.clone() };
        assert_eq!(read(&optional), read(&frame));
    }
}

#[test]
fn invalid_fields_are_refused_by_name() {
    let with = |kind, offset: usize, byte| {
        let (frame, read) = frames().into_iter().find(|(frame, _)| frame.kind == kind).unwrap();
        let mut payload = frame.payload.to_vec();
        payload[offset] = byte;
        read(&Frame { payload: payload.into(), ..frame }).unwrap_err()
    };
    assert_eq!(with(kind::HELLO, 12, 5), ProtocolError::ValueType(5));
    assert_eq!(with(kind::HELLO, 13, 0), ProtocolError::Metric(0));
    assert_eq!(with(kind::HELLO, 13, 0).sqlstate(), SqlState::FEATURE_NOT_SUPPORTED);
    let text = |message, field| ProtocolError::Text { message, field };
    assert_eq!(with(kind::HELLO, 38, 0xff), text("Hello", "client_version"));
    assert_eq!(with(kind::HELLO, 76, 0), text("Hello", "label"));
    assert_eq!(with(kind::REFUSE, 8, b'z'), ProtocolError::SqlState(*b"5320z"));
    assert_eq!(with(kind::ERROR, 0, b'!'), ProtocolError::SqlState(*b"!7014"));
}

#[test]
fn secrets_are_not_shown() {
    let (_, ClientMessage::Hello(mut hello)) = samples::client().swap_remove(0) else { panic!("no hello") };
    hello.token = "open sesame".into();
    let shown = format!("{:?}", ClientMessage::Hello(hello));
    assert!(!shown.contains("sesame") && shown.contains("hidden"), "{shown}");
    for (_, message) in samples::client() {
        assert!(!format!("{message:?}").contains("one way"), "{message:?}");
    }
    for (_, message) in samples::builder() {
        assert!(!format!("{message:?}").contains("one way"), "{message:?}");
    }
}

#[test]
fn each_kind_is_named_as_its_message() {
    for (frame, read) in frames() {
        let message = read(&frame).unwrap().expect("a known kind");
        assert_eq!(message.split(['(', ' ']).next(), Some(kind::name(frame.kind)));
    }
    assert_eq!(kind::name(0x7f), "unknown");
}

#[test]
fn each_phase_is_found_by_its_number() {
    for phase in [Phase::Rows, Phase::Graph, Phase::Repair, Phase::Order, Phase::Pages] {
        assert_eq!(Phase::from_number(phase as u8), Some(phase));
    }
    assert_eq!([0, 6].map(Phase::from_number), [None; 2]);
}

#[test]
fn checks_and_advice_index_no_rows() {
    for (_, message) in samples::client() {
        let ClientMessage::Hello(hello) = message else { continue };
        let is_build = hello.check.is_none() && hello.ask.is_none();
        assert_eq!(
            (hello.is_build(), hello.rows_to_index()),
            (is_build, if is_build { hello.estimated_rows } else { 0 })
        );
        assert_ne!(hello.estimated_rows, 0);
    }
}

#[test]
fn a_frame_of_advice_has_as_many_choices_as_fit() {
    let advice = samples::builder().into_iter().find_map(|(_, message)| match message {
        BuilderMessage::Advice(advice) => Some(advice),
        _ => None,
    });
    let advice = advice.unwrap();
    let with = |count: usize| {
        let choices = advice.choices.iter().cycle().take(count).copied().collect();
        let mut out = BytesMut::new();
        BuilderMessage::Advice(Advice { choices, ..advice.clone() }).encode(&mut out);
        Frame::decode(&mut out).unwrap().unwrap().payload.len()
    };
    let (one, most) = (with(2) - with(1), with(10_000));
    assert!(most <= MAX_CONTROL_PAYLOAD && most + 2 * one > MAX_CONTROL_PAYLOAD, "{most} bytes, {one} a choice");
}

#[test]
fn findings_with_many_long_errors_fit_into_a_frame() {
    let findings = samples::builder().into_iter().find_map(|(_, message)| match message {
        BuilderMessage::Findings(findings) => Some(findings),
        _ => None,
    });
    let first_errors = vec!["e".repeat(10_000); 10_000];
    let mut out = BytesMut::new();
    BuilderMessage::Findings(Findings { first_errors, ..findings.unwrap() }).encode(&mut out);
    let payload = Frame::decode(&mut out).unwrap().unwrap().payload.len();
    assert!((MAX_CONTROL_PAYLOAD / 3..=MAX_CONTROL_PAYLOAD).contains(&payload), "{payload} bytes");
}
