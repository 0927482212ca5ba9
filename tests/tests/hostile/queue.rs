//! A builder that lets the build wait in its queue.

use std::io;
use std::thread;
use std::time::Duration;

use harness::{Notice, wait_for_phase};
use protocol::{BuilderMessage, Wait};

use crate::answer::build;
use crate::fake::{FakeBuilder, Peer};
use crate::scene::{CLUSTER, CREATE, Scene};

fn wait(peer: &mut Peer, position: u32, reason: &str) -> io::Result<()> {
    peer.say(&BuilderMessage::Wait(Wait { position, reason: reason.into() }))
}

/// Sends the messages that a queued client receives.
fn keep_waiting(peer: &mut Peer, seconds: u32) -> io::Result<()> {
    for _ in 0..seconds {
        peer.say(&BuilderMessage::Heartbeat)?;
        thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

#[test]
fn a_queued_statement_reports_its_position_and_waits() {
    let mut scene = Scene::new("queue");
    // The timeout applies to connecting, not to the queue.
    scene.session.execute("SET hnsw.external_index_connect_timeout = 8").unwrap();
    let builder = FakeBuilder::play(|peer| {
        let hello = peer.hello()?;
        wait(peer, 3, "Two builds have 7 GB of 8 GB.")?;
        peer.reached();
        wait(peer, 3, "Two builds have 7 GB of 8 GB.")?;
        wait(peer, 2, "A build has 6 GB of 8 GB.")?;
        wait(peer, 1, "A build has 6 GB of 8 GB.")?;
        keep_waiting(peer, 16)?;
        wait(peer, 0, "A builder is starting.")?;
        build(peer, &hello)
    });
    scene.point_at(builder.port());
    let phase = thread::scope(|scope| {
        let building = scope.spawn(|| scene.session.execute(CREATE));
        builder.wait_until_reached();
        let phase = wait_for_phase(&mut CLUSTER.session("queue").unwrap(), "place");
        building.join().unwrap().unwrap();
        phase.unwrap()
    });
    assert_eq!(phase, "building index: waiting for a place on the builder");
    builder.expect_left();
    let mut said = scene.session.take_notices();
    said.retain(|notice| notice.severity == "NOTICE");
    let said: Vec<(String, String)> =
        said.into_iter().map(|Notice { message, detail, .. }| (message, detail)).collect();
    let expect = |position: u32, detail: &str| {
        (format!("waiting for external indexing server, position {position} in its queue"), detail.to_owned())
    };
    // Intermediate changes come too fast for a line each, and the last one was followed by the build at once.
    assert_eq!(said, [expect(3, "Two builds have 7 GB of 8 GB."), expect(1, "A build has 6 GB of 8 GB.")]);
}

#[test]
fn a_queued_statement_can_be_cancelled() {
    let mut scene = Scene::new("queue_cancel");
    let script = |peer: &mut Peer| {
        peer.hello()?;
        wait(peer, 1, "")?;
        peer.reached();
        keep_waiting(peer, 30)
    };
    scene.cancelled(script, Duration::from_millis(500));
}
