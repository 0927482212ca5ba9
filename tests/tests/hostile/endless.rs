//! Builders that never finish: a statement that waits for one can be cancelled, and its memory does not grow.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use protocol::{BuilderMessage, FLAG_OPTIONAL, Wait, kind};

use crate::answer::Answer;
use crate::fake::{Peer, encoded, frame, progress};
use crate::scene::{SOON, Scene};

type Script = fn(&mut Peer) -> io::Result<()>;

/// Scripts whose last step goes on forever.
const ENDLESS: [(&str, Script); 11] = [
    ("no greeting", |peer| {
        peer.reached();
        wait_for_hangup(peer)
    }),
    ("half a greeting", |peer| {
        peer.send(&[1, 0, 0])?;
        peer.reached();
        wait_for_hangup(peer)
    }),
    ("no answer to Hello", |peer| {
        peer.hello()?;
        peer.reached();
        wait_for_hangup(peer)
    }),
    ("queued", |peer| {
        peer.hello()?;
        peer.reached();
        let wait = Wait { position: 7, reason: "six others are ahead".into() };
        peer.flood(&encoded(&BuilderMessage::Wait(wait)))
    }),
    ("heartbeats before Accept", |peer| {
        peer.hello()?;
        peer.reached();
        peer.flood(&encoded(&BuilderMessage::Heartbeat))
    }),
    ("progress after the rows", |peer| {
        peer.accept()?;
        peer.rows()?;
        peer.reached();
        peer.flood(&encoded(&progress()))
    }),
    ("heartbeats after the rows", |peer| {
        peer.accept()?;
        peer.rows()?;
        peer.reached();
        peer.flood(&encoded(&BuilderMessage::Heartbeat))
    }),
    ("optional frames of another time", |peer| {
        peer.accept()?;
        peer.rows()?;
        peer.reached();
        peer.flood(&frame(0xf0, FLAG_OPTIONAL, &[7; 60_000]))
    }),
    ("a frame byte by byte", |peer| {
        peer.accept()?;
        peer.rows()?;
        let frame = frame(kind::ERROR, 0, &[0; 60_000]);
        peer.reached();
        frame.iter().try_for_each(|&byte| {
            thread::sleep(Duration::from_millis(5));
            peer.send(&[byte])
        })
    }),
    ("progress in place of pages", |peer| {
        let hello = peer.accept()?;
        let answer = Answer::new(&hello, &peer.rows()?);
        peer.say(&BuilderMessage::Layout(answer.layout))?;
        peer.reached();
        peer.flood(&encoded(&progress()))
    }),
    ("the last page does not come", |peer| {
        let hello = peer.accept()?;
        let mut answer = Answer::new(&hello, &peer.rows()?);
        let last = answer.pages.pop().unwrap();
        peer.say(&BuilderMessage::Layout(answer.layout))?;
        for (block, page) in &answer.pages {
            peer.send(&protocol::encode_pages(*block, page.to_vec()).0)?;
            peer.send(page)?;
        }
        peer.send(&protocol::encode_pages(last.0, last.1.to_vec()).0)?;
        peer.reached();
        wait_for_hangup(peer)
    }),
];

/// Sends nothing more, and waits until the client closes.
fn wait_for_hangup(peer: &mut Peer) -> io::Result<()> {
    loop {
        peer.message()?;
    }
}

#[test]
fn waiting_can_be_cancelled() {
    let mut scene = Scene::new("endless_cancel");
    for (case, script) in ENDLESS {
        println!("{case}:");
        let failed = scene.cancelled(script, Duration::from_millis(300));
        assert_eq!(failed.error.message, "canceling statement due to user request", "{case}");
    }
}

#[test]
fn waiting_has_a_timeout() {
    thread::scope(|scope| {
        for (number, (case, script)) in ENDLESS.into_iter().enumerate() {
            scope.spawn(move || {
                let mut scene = Scene::new(&format!("endless_timeout_{number}"));
                // Shorter than the time limit for the greeting.
                scene.session.execute("SET statement_timeout = '5s'").unwrap();
                let failed = scene.fails_by(script, |_| Instant::now());
                assert_eq!(failed.error.message, "canceling statement due to statement timeout", "{case}");
                assert!(failed.took < SOON, "{case}: {:.1} s", failed.took.as_secs_f64());
                scene.session.execute("RESET statement_timeout").unwrap();
            });
        }
    });
}

#[test]
fn a_builder_that_never_reads_can_be_left() {
    let mut scene = Scene::large("endless_deaf");
    let deaf: Script = |peer| {
        peer.accept()?;
        peer.reached();
        loop {
            thread::sleep(Duration::from_millis(100));
            peer.say(&progress())?;
        }
    };
    // After this pause all buffers are full.
    scene.cancelled(deaf, Duration::from_millis(1500));
}
