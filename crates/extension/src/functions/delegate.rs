//! A check by the builder: pages out, findings in. The backend reads pages, while a thread takes checksums, encrypts and sends.

use std::sync::mpsc::{self, SyncSender};

use bytes::BytesMut;
use pages::{PAGE_SIZE, PageSource, Problems};
use pgrx::prelude::*;
use protocol::{BuilderMessage, Check, ClientMessage, EndOfIndex, Findings, Hello, capability, encode_index_pages};

use super::live::LivePages;
use super::{answer, elements_in, unsupported};
use crate::build;
use crate::column::Column;
use crate::connection::Connection;
use crate::connection_thread::{self, Gone};
use crate::engage::engage;
use crate::failure::{Failure, Steps};
use crate::link::Link;
use crate::options::IndexOptions;
use crate::progress::{self, Phase, Shown};
use crate::rate_limit::RateLimit;
use crate::session::Session;
use crate::settings::{self, Settings};
use crate::wait;

/// Pages of a frame, 256 KiB.
const PAGES_PER_FRAME: u32 = 32;
/// The most frames that wait for the thread, while one is read and one is sent: a megabyte in all, which stays in the processor's cache.
const FRAMES: usize = 2;

/// A check that a builder has accepted.
pub(super) struct Begun {
    session: Session,
    pages: LivePages,
    blocks: u32,
    _shown: Shown,
}

/// Asks a builder to verify the current pages of an index, and to search them for `sample` of its elements.
///
/// # Safety
/// The index must be open and locked.
pub(super) unsafe fn begin(
    index: pg_sys::Relation,
    column: &Column,
    options: IndexOptions,
    sample: usize,
    ef_search: u16,
) -> Result<Begun, Failure> {
    // SAFETY: as promised by the caller.
    let (pages, label) = unsafe { (LivePages::new(index), build::label((*index).rd_id)) };
    let blocks = pages.blocks();
    // From the number of elements for which the index has room, the builder estimates memory.
    let elements = elements_in(column, options.m, blocks).unwrap_or_default();
    let hello = build::hello(label, column, options, elements);
    let sample = u32::try_from(sample).unwrap_or(u32::MAX);
    let hello = Hello {
        capabilities: hello.capabilities | capability::CHECK,
        check: Some(Check { blocks, sample, ef_search }),
        ..hello
    };
    // SAFETY: the index is open.
    let shown = unsafe { Shown::new((*(*index).rd_index).indrelid, (*index).rd_id) };
    let session = engage(&Settings::get(), hello, Steps { quiet: true })?;
    if !session.takes_index() {
        return Err(unsupported("external indexing server does not check indexes"));
    }
    Ok(Begun { session, pages, blocks, _shown: shown })
}

impl Begun {
    /// Sends the pages, and waits for what the builder finds. Pages that PostgreSQL cannot read are sent as zeros, and count as errors.
    pub(super) fn finish(mut self) -> Result<Findings, Failure> {
        let Self { session, pages, blocks, .. } = &mut self;
        let unreadable = send(session, pages, *blocks, &mut RateLimit::new(settings::max_rate()))?;
        let mut findings = findings(session, *blocks)?;
        findings.errors = findings.errors.saturating_add(unreadable.count());
        findings.first_errors.splice(0..0, unreadable.first().iter().cloned());
        Ok(findings)
    }
}

/// Sends the pages. Returns the errors of those that PostgreSQL cannot read.
fn send(
    session: &mut Session,
    pages: &mut LivePages,
    blocks: u32,
    rate_limit: &mut RateLimit,
) -> Result<Problems, Failure> {
    progress::enter(Phase::SendingPages, 0);
    progress::blocks(0, blocks);
    let (read, to_send) = mpsc::sync_channel(FRAMES);
    // Returns the memory of sent frames to the backend.
    let (sent, spare) = mpsc::channel();
    let (unreadable, ()) = connection_thread::run_both(
        session,
        wait::TICK,
        move |session, link| {
            connection_thread::send_all(session, link, &to_send, |session, (first, pages): (u32, BytesMut)| {
                let len = pages.len();
                let (head, pages, crc) = encode_index_pages(first, pages.freeze());
                session.send_index(&head, &pages, crc)?;
                let _ = sent.send(pages.try_into_mut().unwrap_or_default());
                session.pause(rate_limit.pause_after(len))
            })
        },
        |link| read_frames(link, pages, blocks, read, &spare),
    )?;
    let end = EndOfIndex { blocks, checksum: session.sent_checksum() };
    session.send_message(&ClientMessage::EndOfIndex(end))?;
    session.with_connection(Connection::flush)?;
    Ok(unreadable)
}

/// The backend: reads the pages, and hands over frames with their first blocks, in `spare` memory if there is some. Returns the errors of
/// pages that PostgreSQL cannot read.
fn read_frames(
    link: &Link,
    pages: &mut LivePages,
    blocks: u32,
    frames: SyncSender<(u32, BytesMut)>,
    spare: &mpsc::Receiver<BytesMut>,
) -> Result<Problems, Gone> {
    let (mut first, mut unreadable) = (0, Problems::default());
    while first < blocks {
        let count = PAGES_PER_FRAME.min(blocks - first);
        let mut bytes = spare.try_recv().unwrap_or_default();
        bytes.resize(count as usize * PAGE_SIZE, 0);
        for (block, page) in (first..).zip(bytes.as_chunks_mut::<PAGE_SIZE>().0) {
            if let Err(error) = pages.read(block, page) {
                page.fill(0);
                unreadable.add_unreadable(block, &error);
            }
        }
        connection_thread::hand_over(link, &frames, (first, bytes))?;
        first += count;
        progress::blocks(first, blocks);
    }
    // The thread ends after the last frame.
    drop(frames);
    link.wake_thread();
    Ok(unreadable)
}

fn findings(session: &mut Session, blocks: u32) -> Result<Findings, Failure> {
    let (findings, done) = answer(session, Phase::CheckingIndex, |message| match message {
        BuilderMessage::Findings(findings) => Some(findings),
        _ => None,
    })?;
    if (done.blocks, done.checksum) != (blocks, session.sent_checksum()) {
        return Err(Failure::protocol("The builder has checked other pages than were sent."));
    }
    Ok(findings)
}
