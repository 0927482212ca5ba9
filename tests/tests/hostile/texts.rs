//! Texts of a builder are shown as plain text, whatever bytes they contain.

use harness::Notice;
use protocol::{Accept, BuilderMessage, ErrorReport, FLAG_OPTIONAL, PROTOCOL_VERSION, SqlState, Wait, kind};

use crate::answer::{Answer, honest};
use crate::fake::frame;
use crate::scene::{CLUSTER, CREATE, Scene};

/// An Error frame with arbitrary bytes.
fn report(sqlstate: &[u8; 5], texts: [&[u8]; 3]) -> Vec<u8> {
    let mut payload = sqlstate.to_vec();
    for text in texts {
        payload.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
        payload.extend_from_slice(text);
    }
    frame(kind::ERROR, 0, &payload)
}

fn fails(scene: &mut Scene, bytes: Vec<u8>) -> Notice {
    scene.fails(move |peer| {
        peer.accept()?;
        peer.send(&bytes)
    })
}

#[test]
fn texts_of_errors_are_shown_as_plain_text() {
    let mut scene = Scene::new("texts");
    let found = fails(&mut scene, report(b"53200", [b"\x1b[31mred\x1b[0m\r\nERROR:  \x07", b"\ta\x7fb", b"\xc2\x85c"]));
    assert_eq!(found.message, "external index build failed: ?[31mred?[0m??ERROR:  ?");
    assert_eq!((found.detail.as_str(), found.hint.as_str()), ("?a?b", "?c"));

    let formats = b"100 % %s %n %m %1$s %".as_slice();
    let found = fails(&mut scene, report(b"53200", [formats; 3]));
    assert_eq!(found.message, format!("external index build failed: {}", String::from_utf8_lossy(formats)));
    assert_eq!((found.detail.as_bytes(), found.hint.as_bytes()), (formats, formats));

    let found = fails(&mut scene, report(b"53200", ["möbel 漢字 🦀".as_bytes(), b"", b""]));
    assert_eq!(found.message, "external index build failed: möbel 漢字 🦀");
    assert_eq!((found.detail.as_str(), found.hint.as_str()), ("", ""));

    let found = fails(&mut scene, report(b"53200", [&[b'x'; 65_000], b"", b""]));
    assert!(found.message.len() >= 1000 && found.message.len() < 66_000, "{}", found.message.len());

    for (case, bytes) in [
        ("not UTF-8", report(b"53200", [b"\xff\xfe", b"", b""])),
        ("half a character", report(b"53200", [b"\xe6\xbc", b"", b""])),
        ("NUL", report(b"53200", [b"a\0b", b"", b""])),
        ("longer than the frame", frame(kind::ERROR, 0, b"53200\xff\xffabc")),
        ("no texts", frame(kind::ERROR, 0, b"53200")),
    ] {
        let found = fails(&mut scene, bytes);
        assert_eq!((found.sqlstate.as_str(), found.detail.is_empty()), ("08P01", false), "{case}: {found}");
    }
}

#[test]
fn only_codes_of_errors_are_taken() {
    let mut scene = Scene::new("texts_codes");
    // A code without a name in PostgreSQL is at least shown.
    for code in [b"ZZ999", b"5320X", b"XXXXX"] {
        let found = fails(&mut scene, report(code, [b"no name", b"", b""]));
        let shown = std::str::from_utf8(code).unwrap();
        assert!(found.sqlstate == shown || found.message.contains(shown), "{found} ({})", found.sqlstate);
        assert!(found.message.contains("no name"), "{found}");
        assert_eq!(found.severity, "ERROR");
    }
    for code in [b"00000", b"01000", b"02000", b"5320\n", b"5320\0", b"abcde", b"\xff\xff\xff\xff\xff"] {
        let found = fails(&mut scene, report(code, [b"fine", b"", b""]));
        assert_eq!((found.severity.as_str(), found.sqlstate.as_str()), ("ERROR", "08P01"), "{code:?}: {found}");
        assert!(found.detail.contains("is not an error code"), "{found}");
    }
    // A pooler would take the codes of a shutdown or crash for those of PostgreSQL itself.
    let general = b"57000";
    for (code, shown) in
        [(b"57014", b"57014"), (b"40001", b"40001"), (b"57P01", general), (b"57P02", general), (b"57P03", general)]
    {
        let found = fails(&mut scene, report(code, [b"so it says", b"", b""]));
        assert_eq!((found.severity.as_str(), found.sqlstate.as_bytes()), ("ERROR", shown.as_slice()), "{found}");
        assert_eq!(found.message, "external index build failed: so it says");
    }
}

/// The reason arrives while the last rows are sent, and the connection closes right after it: the statement must
/// report the reason, not the lost connection.
#[test]
fn the_reason_is_not_lost_with_the_connection() {
    let mut scene = Scene::new("texts_reason");
    for round in 0..400 {
        let reason = report(b"53200", [b"out of memory", b"", b""]);
        let result = scene.run(CREATE, move |peer| {
            peer.accept()?;
            peer.send(&reason)
        });
        let error = result.expect_err("the build should have failed");
        assert_eq!(error.server().message, "external index build failed: out of memory", "round {round}");
    }
    scene.expect_clean();
}

#[test]
fn texts_of_other_messages_are_shown_as_plain_text() {
    let mut scene = Scene::new("texts_other");
    // Waiting is no failure, so the build continues.
    let queued = |reason: &str, position| BuilderMessage::Wait(Wait { position, reason: reason.to_owned() });
    let (loud, mute) = (queued("\x1b[2J 100 %s", 3), queued("", 0));
    let result = scene.run(CREATE, move |peer| {
        let hello = peer.hello()?;
        peer.say(&loud)?;
        peer.say(&mute)?;
        peer.say(&BuilderMessage::Accept(Accept {
            protocol: PROTOCOL_VERSION,
            capabilities: u64::MAX,
            session: u64::MAX,
            memory_reserved: u64::MAX,
            threads: u32::MAX,
            builder_version: "\x1b[2J\u{202e}%s".repeat(500),
            remark: "\x1b[2J 200 %s".to_owned(),
        }))?;
        peer.send(&frame(0xaa, FLAG_OPTIONAL, b"\x1b[2J"))?;
        Answer::new(&hello, &peer.rows()?).send(peer)
    });
    result.unwrap();
    let notices = scene.session.take_notices();
    let found = notices.iter().find(|notice| notice.message.contains("position 3")).expect("a notice of the queue");
    assert_eq!((found.severity.as_str(), found.detail.as_str()), ("NOTICE", "?[2J 100 %s."));
    let found = notices.iter().find(|notice| notice.message.contains("200")).expect("a notice of the remark");
    let expected = ("NOTICE", "external indexing server: ?[2J 200 %s");
    assert_eq!((found.severity.as_str(), found.message.as_str()), expected);
    for notice in notices {
        assert!(!notice.to_string().contains(['\x1b', '\x07']), "{notice:?}");
        assert!(!notice.message.contains("position 0"), "0 is unknown: {notice}");
    }
    scene.session.execute("DROP INDEX items_idx").unwrap();
    scene.expect_clean();
}

/// The names of the index and of the function around the build are in the CONTEXT of messages.
#[test]
fn names_outside_the_encoding_of_the_client_fail_no_build() {
    let mut scene = Scene::new("texts_names");
    let name = r#"U&"i_\6F22""#;
    let create = format!("CREATE INDEX {name} ON items USING hnsw (v vector_l2_ops)");
    scene.session.execute(&format!("{create}; ALTER INDEX {name} SET (external = true)")).unwrap();
    scene.session.execute("SET client_encoding = 'LATIN1'").unwrap();
    scene.point_at(1);
    let reindex = format!("REINDEX INDEX {name}");
    let error = scene.session.execute(&reindex).unwrap_err();
    assert_eq!(error.server().sqlstate, "08001", "{error}");
    scene.session.execute("SET hnsw.external_index_fallback = local").unwrap();
    scene.session.execute(&reindex).unwrap();
    scene.session.execute(&format!("SET hnsw.external_index_fallback = error; DROP INDEX {name}")).unwrap();
    scene.run(&format!("DO $$ BEGIN EXECUTE '{CREATE} /* ' || chr(28450) || ' */'; END $$"), honest).unwrap();
    let notices = scene.session.take_notices();
    assert!(notices.iter().any(|notice| notice.message.starts_with("indexed 24 elements")), "{notices:?}");
    scene.session.execute("DROP INDEX items_idx").unwrap();
    scene.expect_clean();
}

/// The client's encoding may lack characters of the database's encoding: PostgreSQL would raise an error when it sends one.
#[test]
fn characters_outside_the_encoding_of_the_client_are_replaced() {
    let mut scene = Scene::new("texts_client");
    scene.session.execute("SET client_encoding = 'LATIN1'").unwrap();
    for (reason, remark, shown) in
        [("full … 漢", "漢字", ("Full ? ?.", "??")), ("ASCII only", "none", ("ASCII only.", "none"))]
    {
        let (wait, remark) = (Wait { position: 2, reason: reason.to_owned() }, remark.to_owned());
        let result = scene.run(CREATE, move |peer| {
            let hello = peer.hello()?;
            peer.say(&BuilderMessage::Wait(wait))?;
            // Wait, so that the notice is not suppressed as too frequent.
            std::thread::sleep(std::time::Duration::from_millis(200));
            peer.say(&BuilderMessage::Accept(Accept {
                protocol: PROTOCOL_VERSION,
                session: 1,
                threads: 1,
                builder_version: "script".into(),
                remark,
                ..Accept::default()
            }))?;
            Answer::new(&hello, &peer.rows()?).send(peer)
        });
        result.unwrap();
        let notices = scene.session.take_notices();
        let details: Vec<_> = notices.iter().map(|notice| notice.detail.as_str()).collect();
        assert!(details.contains(&shown.0), "{notices:?}");
        let messages: Vec<_> = notices.iter().map(|notice| notice.message.as_str()).collect();
        assert!(messages.contains(&format!("external indexing server: {}", shown.1).as_str()), "{notices:?}");
        scene.session.execute("DROP INDEX items_idx").unwrap();
    }
    let found = fails(&mut scene, report(b"53200", ["漢字 möbel".as_bytes(), b"", b""]));
    assert_eq!((found.sqlstate.as_str(), found.message.as_str()), ("53200", "external index build failed: ?? m?bel"));
    scene.expect_clean();
}

#[test]
fn characters_outside_the_encoding_of_the_database_are_replaced() {
    let mut session = CLUSTER.session("postgres").unwrap();
    session
        .execute("CREATE DATABASE texts_latin1 TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
        .unwrap();
    let mut session = CLUSTER.session("texts_latin1").unwrap();
    session
        .execute(
            "CREATE EXTENSION vector; CREATE TABLE items (id int, v vector(3)); INSERT INTO items VALUES (1, '[1,2,3]');
             SET hnsw.external_index_host = '127.0.0.1'; SET hnsw.external_index_secure = off",
        )
        .unwrap();
    let mut scene = Scene::of("texts_latin1", session);
    let found = scene.fails(|peer| {
        peer.accept()?;
        peer.say(&BuilderMessage::Error(ErrorReport::new(SqlState::INTERNAL_ERROR, "möbel 漢字")))
    });
    assert_eq!(found.message, "external index build failed: m?bel ??");
}
