//! A check by a builder: the backend sends pages as fast as the builder reads them.

use std::sync::mpsc::channel;
use std::time::Duration;

use harness::Session;
use protocol::{BuilderMessage, ErrorReport, SqlState, capability};

use crate::fake::{FakeBuilder, accept_of};
use crate::scene::CLUSTER;

/// Longer than a busy machine usually delays a process, and shorter than the backend's polling interval of half a second.
const PAUSE: Duration = Duration::from_millis(400);

/// Runs a check; returns how often nothing arrived for [`PAUSE`].
fn pauses(session: &mut Session) -> usize {
    let (tell, told) = channel();
    let builder = FakeBuilder::play_with_buffers(move |peer| {
        peer.hello()?;
        peer.say(&accept_of(capability::CHECK))?;
        // No progress is sent meanwhile: it would wake the backend.
        let (pages, pauses) = peer.index(PAUSE)?;
        println!("{pages} pages, {pauses} pauses");
        assert!(pages > 4000, "{pages} pages");
        tell.send(pauses).unwrap();
        peer.say(&BuilderMessage::Error(ErrorReport::new(SqlState::OUT_OF_MEMORY, "all pages have come")))
    });
    session.execute(&format!("SET hnsw.external_index_port = {}", builder.port())).unwrap();
    let error = session.execute("SELECT * FROM lantern_index.check('items_idx', 0, true)").unwrap_err();
    builder.expect_left();
    assert!(error.server().message.ends_with("all pages have come"), "{error}");
    told.recv().unwrap()
}

#[test]
fn pages_come_while_the_builder_takes_them() {
    let mut session = CLUSTER.database("checker").unwrap();
    // Each value fills a page.
    session
        .execute(
            "CREATE EXTENSION lantern_index;
             CREATE TABLE items AS SELECT ('x' || repeat(md5(i::text), 500))::bit(64000) AS b FROM generate_series(1, 4000) i;
             CREATE INDEX items_idx ON items USING hnsw (b bit_hamming_ops) WITH (m = 2, ef_construction = 4);
             SET hnsw.external_index_host = '127.0.0.1'; SET hnsw.external_index_secure = off",
        )
        .unwrap();
    // A backend that waits in vain does so several times in every check. A busy machine may delay one check as often, but not all.
    assert!((0..5).any(|_| pauses(&mut session) < 4), "the backend waits with nothing left to send");
}
