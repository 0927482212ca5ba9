//! Invalid greetings and frames.

use protocol::{FLAG_LENGTHS, FLAG_OPTIONAL, Greeting, kind};

use crate::answer::{Answer, honest};
use crate::fake::{accept, encoded, frame, progress};
use crate::scene::{CREATE, Scene};

#[test]
fn invalid_greetings_are_refused() {
    let mut scene = Scene::new("greetings");
    scene.fails_with("another type", ("08P01", "type 4294967295"), |peer| {
        peer.send(&Greeting { version: 1, server_type: u32::MAX }.to_bytes())
    });
    scene.fails_with("another version", ("08P01", "version 2"), |peer| {
        peer.send(&Greeting { version: 2, server_type: 1 }.to_bytes())
    });
    scene.fails_with("half of one", ("08006", "before its greeting"), |peer| peer.send(&[1, 0, 0, 0, 1]));
    scene.fails_with("none, and gone", ("08006", "lost connection"), |peer| {
        peer.hang_up();
        Ok(())
    });
    scene.fails_with("one, and gone", ("08006", "lost connection"), |peer| {
        peer.hang_up();
        peer.greet()
    });
    scene.session.execute("SET hnsw.external_index_connect_timeout = 1").unwrap();
    scene.fails_with("none", ("08006", "no greeting"), |peer| peer.message().map(drop));
}

/// Sends `bytes` in place of Accept, and expects the build to fail.
fn in_place_of_accept(scene: &mut Scene, case: &str, expected: (&str, &str), bytes: Vec<u8>) {
    scene.fails_with(case, expected, move |peer| {
        peer.hello()?;
        peer.send(&bytes)
    });
}

#[test]
fn invalid_frames_are_refused() {
    let mut scene = Scene::new("frames");
    let protocol = |version| encoded(&accept(version));
    let changed = |at: usize, byte: u8| {
        let mut bytes = protocol(2);
        bytes[at] = byte;
        bytes
    };
    let length = |kind: u8, length: u32| {
        let mut bytes = frame(kind, 0, b"");
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    in_place_of_accept(&mut scene, "a version from the future", ("08P01", "Version 3"), protocol(3));
    in_place_of_accept(&mut scene, "a version from the past", ("08P01", "Version 1"), protocol(1));
    in_place_of_accept(&mut scene, "an unknown kind", ("08P01", "0xf0"), frame(0xf0, 0, b"new"));
    in_place_of_accept(
        &mut scene,
        "a kind of the other side",
        ("08P01", "not for this side"),
        frame(kind::HELLO, 0, b""),
    );
    in_place_of_accept(&mut scene, "an empty Accept", ("08P01", "Accept ends in field"), frame(kind::ACCEPT, 0, b""));
    in_place_of_accept(
        &mut scene,
        "a short Accept",
        ("08P01", "Accept ends in field"),
        frame(kind::ACCEPT, 0, &[2; 20]),
    );
    in_place_of_accept(&mut scene, "unknown flags", ("08P01", "flags"), frame(kind::ACCEPT, 0x80, b""));
    in_place_of_accept(&mut scene, "another kind's flag", ("08P01", "flags"), frame(kind::ACCEPT, FLAG_LENGTHS, b""));
    in_place_of_accept(&mut scene, "a reserved field", ("08P01", "reserved"), changed(2, 1));
    in_place_of_accept(&mut scene, "a long text", ("08P01", "allowed"), length(kind::ERROR, (64 << 10) + 1));
    in_place_of_accept(&mut scene, "a long optional frame", ("08P01", "allowed"), length(0xf0, 1 << 20));
    in_place_of_accept(&mut scene, "a frame of 2 MiB", ("08P01", "allowed"), length(kind::PAGES, (2 << 20) + 1));
    in_place_of_accept(&mut scene, "a frame of 4 GiB", ("08P01", "allowed"), length(kind::PAGES, u32::MAX));
    in_place_of_accept(&mut scene, "half a header", ("08006", "lost connection"), protocol(2)[..7].to_vec());
    in_place_of_accept(&mut scene, "half a frame", ("08006", "lost connection"), protocol(2)[..20].to_vec());
    in_place_of_accept(&mut scene, "HTTP", ("08P01", ""), b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    in_place_of_accept(&mut scene, "a wrong checksum", ("XX001", "checksum"), changed(9, 0xaa));
    in_place_of_accept(&mut scene, "a flipped bit", ("XX001", "checksum"), changed(40, 0x80));
}

#[test]
fn invalid_frames_of_pages_are_refused() {
    let mut scene = Scene::new("frames_pages");
    let pages = |first_block: u32, count: u32, bytes: usize| {
        let mut payload = first_block.to_le_bytes().to_vec();
        payload.extend_from_slice(&count.to_le_bytes());
        payload.resize(8 + bytes, 0);
        frame(kind::PAGES, 0, &payload)
    };
    for (case, words, bytes) in [
        ("no page", "Pages has count 0", pages(0, 0, 0)),
        ("no count", "Pages ends in field count", frame(kind::PAGES, 0, &[0; 7])),
        ("half a page", "Pages ends in field pages", pages(0, 1, 4096)),
        ("a byte too many", "Pages has 1 bytes after its end", pages(0, 1, 8193)),
        ("more pages than there are numbers", "block numbers end before", pages(u32::MAX, 1, 8192)),
        ("a count that does not fit", "Pages ends in field pages", pages(0, 1 << 31, 8192)),
    ] {
        scene.fails_with(case, ("08P01", words), move |peer| {
            let hello = peer.accept()?;
            let answer = Answer::new(&hello, &peer.rows()?);
            peer.say(&protocol::BuilderMessage::Layout(answer.layout))?;
            peer.send(&bytes)
        });
    }
}

#[test]
fn additions_of_later_versions_are_skipped() {
    let mut scene = Scene::new("frames_later");
    scene
        .run(CREATE, |peer| {
            let hello = peer.hello()?;
            let optional = frame(0xf0, FLAG_OPTIONAL, &[0xff; 60_000]);
            peer.send(&optional)?;
            // With an additional field, as of a later version.
            let accept = [&encoded(&accept(2))[12..], b"more"].concat();
            peer.send(&frame(kind::ACCEPT, 0, &accept))?;
            peer.send(&optional)?;
            let rows = peer.rows()?;
            // With an additional phase, as of a later version.
            peer.send(&frame(kind::PROGRESS, 0, &[0xff; 40]))?;
            peer.say(&progress())?;
            peer.send(&optional)?;
            Answer::new(&hello, &rows).send(peer)?;
            // After Done, the client does not read this.
            peer.send(&[0xff; 4096])
        })
        .unwrap();
    scene.session.execute("DROP INDEX items_idx").unwrap();
    scene.run(CREATE, honest).unwrap();
    scene.session.execute("DROP INDEX items_idx").unwrap();
    scene.expect_clean();
}
