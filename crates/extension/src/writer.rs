//! Verifies pages as they arrive, logs them, and writes them into the index.

mod batch;
#[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15", feature = "pg16"))]
#[path = "writer/extend.rs"]
mod file;
#[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15", feature = "pg16")))]
#[path = "writer/bulk.rs"]
mod file;
mod receive;
mod wal;

use std::sync::mpsc;

use pages::{IncomingSpec, IncomingVerifier, IndexMeta, RowDigest};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use protocol::{Done, Layout};

use crate::connection_thread::{self, Gone};
use crate::failure::{Failure, LIBRARY, tell};
use crate::link::Link;
use crate::progress;
use crate::rate_limit::RateLimit;
use crate::session::Session;
use crate::wait;
use batch::Batch;
use file::IndexFile;
use receive::Receiver;
pub(crate) use wal::hint as wal_hint;

/// Batches of pages between the thread and the backend. Their number is fixed, so a slow side holds a fast one back.
const BATCHES: usize = 8;

/// What the received index must match.
pub(crate) struct Expected {
    pub(crate) meta: IndexMeta,
    pub(crate) layout: Layout,
    /// The digest of the rows sent.
    pub(crate) digest: RowDigest,
    pub(crate) key: [u64; 4],
}

/// Receives all pages, verifies each one and writes it.
///
/// # Safety
/// `index` must be an open, empty index that nobody else uses, until the end of the transaction.
pub(crate) unsafe fn write(
    index: pg_sys::Relation,
    session: &mut Session,
    expected: Expected,
    rate_limit: &mut RateLimit,
) -> Result<(), Failure> {
    let Expected { meta, layout, digest, key } = expected;
    let Layout { rows, elements, blocks } = layout;
    let spec = IncomingSpec { meta, rows, elements, blocks };
    let verifier = IncomingVerifier::new(spec, key).map_err(receive::refused)?;
    let ((full, received), (stored, empty)) = (mpsc::channel(), mpsc::channel());
    (0..BATCHES).for_each(|_| _ = stored.send(Batch::new()));
    // SAFETY: as promised by the caller.
    let mut file = unsafe { IndexFile::new(index, blocks) };
    let ((), done) = connection_thread::run_both(
        session,
        wait::TICK,
        |session, link| Receiver::new(link, full, empty, verifier).receive(session, layout, digest),
        |link| store(link, &received, &stored, &mut file, blocks, rate_limit),
    )?;
    file.finish();
    warn_of_poor_graph(&done);
    Ok(())
}

/// Writes the pages that the thread has verified.
fn store(
    link: &Link,
    received: &mpsc::Receiver<Batch>,
    stored: &mpsc::Sender<Batch>,
    file: &mut IndexFile,
    blocks: u32,
    rate_limit: &mut RateLimit,
) -> Result<(), Gone> {
    let mut written = 0;
    while written < blocks {
        // Read before looking for a batch: one may arrive between the two.
        let is_over = link.is_over();
        let Ok(mut batch) = received.try_recv() else {
            if is_over {
                return Err(Gone);
            }
            link.wait();
            continue;
        };
        let first = batch.first_block();
        let pages = batch.pages();
        let count = pages.len();
        file.append(first, pages);
        let _ = stored.send(batch);
        link.wake_thread();
        written += count as u32;
        progress::blocks(written, blocks);
        pgrx::check_for_interrupts!();
        rate_limit.keep(count * pages::PAGE_SIZE);
    }
    Ok(())
}

/// Warns if a valid index has a low recall.
fn warn_of_poor_graph(done: &Done) {
    const POOR: u32 = 800_000;
    // Older builders only count rows that find themselves; under inner product a row need not be its own nearest neighbor.
    let (found, of) = match done.recall_ppm {
        Some(recall) => (recall, "the ten nearest neighbors of a sample of values"),
        None => (done.self_recall_ppm, "a sample of values, by a search for each,"),
    };
    if found < POOR {
        let message = "searches of the new index may miss many rows";
        let percent = found / 10_000;
        let report = ErrorReport::new(PgSqlErrorCode::ERRCODE_WARNING, message, LIBRARY)
            .set_detail(format!("Searches with hnsw.ef_search = 40 found {percent} percent of {of}."))
            .set_hint("Raise hnsw.ef_search, or build the index with a higher m.");
        tell(PgLogLevel::WARNING, report);
    }
}
