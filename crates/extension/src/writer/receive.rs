//! The thread that receives pages, and passes on only those that it has verified.

use std::sync::mpsc;

use pages::{IncomingError, IncomingVerifier, PAGE_SIZE, RowDigest};
use protocol::{BuilderMessage, Done, Layout};

use super::batch::Batch;
use crate::failure::Failure;
use crate::link::Link;
use crate::session::Session;

pub(super) struct Receiver<'a> {
    link: &'a Link,
    /// Takes full batches to the backend.
    full: mpsc::Sender<Batch>,
    /// Brings them back.
    empty: mpsc::Receiver<Batch>,
    verifier: IncomingVerifier,
    /// Verified pages, until the batch is full.
    batch: Option<Batch>,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(
        link: &'a Link,
        full: mpsc::Sender<Batch>,
        empty: mpsc::Receiver<Batch>,
        verifier: IncomingVerifier,
    ) -> Self {
        Self { link, full, empty, verifier, batch: None }
    }

    /// Receives and verifies all pages. `sent` is the digest of the rows sent, with which the rows in the pages are compared.
    pub(super) fn receive(mut self, session: &mut Session, layout: Layout, sent: RowDigest) -> Result<Done, Failure> {
        let done = loop {
            match session.next()? {
                BuilderMessage::Pages(pages) => self.pages(pages.first_block, &pages.pages)?,
                BuilderMessage::Progress(_) => {}
                BuilderMessage::Done(done) => break done,
                other => return Err(Failure::protocol(format!("{} in place of Pages.", other.name()))),
            }
        };
        check_totals(&done, &layout, session.pages_checksum())?;
        self.verifier.finish(sent).map_err(refused)?;
        // The last batch is passed on only after all checks, so that an incomplete index is never stored completely.
        if let Some(batch) = self.batch.take() {
            let _ = self.full.send(batch);
            self.link.wake_backend();
        }
        Ok(done)
    }

    fn pages(&mut self, first_block: u32, bytes: &[u8]) -> Result<(), Failure> {
        let (pages, rest) = bytes.as_chunks::<PAGE_SIZE>();
        if pages.is_empty() || !rest.is_empty() {
            return Err(Failure::protocol("Pages that are not whole."));
        }
        for (block, page) in (first_block..).zip(pages) {
            self.verifier.page(block, page).map_err(refused)?;
            let mut batch = match self.batch.take() {
                Some(batch) if !batch.is_full() => batch,
                full => self.next_batch(full, block)?,
            };
            batch.push(page);
            self.batch = Some(batch);
        }
        Ok(())
    }

    /// Passes on a full batch, and waits for an empty one if the backend has all of them.
    fn next_batch(&self, full: Option<Batch>, block: u32) -> Result<Batch, Failure> {
        if let Some(full) = full {
            let _ = self.full.send(full);
            self.link.wake_backend();
        }
        loop {
            if let Ok(mut batch) = self.empty.try_recv() {
                batch.start(block);
                return Ok(batch);
            }
            self.link.wait_in_thread()?;
        }
    }
}

fn check_totals(done: &Done, layout: &Layout, checksum: u32) -> Result<(), Failure> {
    if done.checksum != checksum {
        let detail = format!("The pages have the checksum {checksum:#010x}, {:#010x} was announced.", done.checksum);
        return Err(Failure::invalid(detail));
    }
    let totals = [
        ("rows", done.rows, layout.rows),
        ("elements", done.elements, layout.elements),
        ("blocks", done.blocks.into(), layout.blocks.into()),
    ];
    for (what, found, expected) in totals {
        if found != expected {
            return Err(Failure::invalid(format!("{found} {what} at the end, {expected} announced.")));
        }
    }
    Ok(())
}

pub(super) fn refused(error: IncomingError) -> Failure {
    Failure::invalid(format!("{error}."))
}
