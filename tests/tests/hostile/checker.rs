//! A check by a builder: the backend sends pages as fast as the builder reads them.

use std::time::Duration;

use protocol::{BuilderMessage, ErrorReport, SqlState, capability};

use crate::fake::{FakeBuilder, accept_of};
use crate::scene::CLUSTER;

/// Longer than a busy machine delays a process, and shorter than the backend's polling interval of half a second.
const PAUSE: Duration = Duration::from_millis(400);

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
    let builder = FakeBuilder::play_with_buffers(|peer| {
        peer.hello()?;
        peer.say(&accept_of(capability::CHECK))?;
        // No progress is sent meanwhile: it would wake the backend.
        let (pages, pauses) = peer.index(PAUSE)?;
        println!("{pages} pages, {pauses} pauses");
        assert!(pages > 4000 && pauses < 4, "{pages} pages, {pauses} pauses");
        peer.say(&BuilderMessage::Error(ErrorReport::new(SqlState::OUT_OF_MEMORY, "all pages have come")))
    });
    session.execute(&format!("SET hnsw.external_index_port = {}", builder.port())).unwrap();
    let error = session.execute("SELECT * FROM lantern_index.check('items_idx', 0, true)").unwrap_err();
    builder.expect_left();
    assert!(error.server().message.ends_with("all pages have come"), "{error}");
}
