//! Builders that read no rows and send without end: the statement fails, and the backend's memory does not grow.

use std::io;
use std::time::Instant;

use protocol::{BuilderMessage, FLAG_OPTIONAL, kind};

use crate::answer::Answer;
use crate::fake::{Peer, encoded, frame, progress};
use crate::scene::{CREATE, SOON, Scene, private_bytes};

#[test]
fn endless_messages_are_not_kept_in_memory() {
    let mut scene = Scene::large("flood");
    let mut garbage = vec![0; 64 << 10];
    let mut state = 1u32;
    for byte in &mut garbage {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
    // The header of a frame with 2 MiB of pages, then zeros without end.
    let mut pages = frame(kind::PAGES, 0, &[]);
    pages[4..8].copy_from_slice(&(2u32 << 20).to_le_bytes());
    pages.resize(1 << 20, 0);
    for (case, sqlstate, bytes) in [
        ("progress", "08P01", encoded(&progress())),
        ("heartbeats", "08P01", encoded(&BuilderMessage::Heartbeat)),
        ("optional frames", "08P01", frame(0xf0, FLAG_OPTIONAL, &[7; 60_000])),
        ("garbage", "08P01", garbage),
        ("zeros: no frame's checksum", "XX001", vec![0; 4096]),
        ("pages with a wrong checksum", "XX001", pages),
    ] {
        println!("{case}:");
        let script = move |peer: &mut Peer| -> io::Result<()> {
            peer.accept()?;
            peer.reached();
            peer.flood(&bytes)
        };
        let failed = scene.fails_by(script, |_| Instant::now());
        assert_eq!(failed.error.sqlstate, sqlstate, "{case}: {}", failed.error);
        assert!(failed.took < SOON, "{case}: {:.1} s", failed.took.as_secs_f64());
    }
}

#[test]
fn failures_leak_no_memory() {
    let mut scene = Scene::new("flood_failures");
    let fail = |scene: &mut Scene| {
        let result = scene.run(CREATE, |peer| {
            let hello = peer.accept()?;
            let mut answer = Answer::new(&hello, &peer.rows()?);
            answer.checksum_error = 1;
            answer.send(peer)
        });
        result.unwrap_err();
    };
    // The first failures fill caches.
    (0..20).for_each(|_| fail(&mut scene));
    let before = private_bytes(scene.session.pid());
    (0..150).for_each(|_| fail(&mut scene));
    let after = private_bytes(scene.session.pid());
    println!("{before} bytes before, {after} after 150 failures");
    // Each failure had read buffers of more than 128 KiB.
    assert!(after < before + (4 << 20), "{before} bytes before, {after} after");
    scene.expect_clean();
}
