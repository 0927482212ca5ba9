use std::sync::Arc;

use bytes::Bytes;
use protocol::{BuilderMessage, Done, Frame, HEADER_BYTES, MAX_CONTROL_PAYLOAD, PAGE_SIZE, Phase, SqlState, kind};

use crate::stages::Stages;

/// What a builder has reported since the last [`Boundary::take_news`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Rows that it has received.
    pub(crate) rows: u64,
    /// Pages that it has sent.
    pub(crate) pages: u64,
    /// The totals, at the end.
    pub(crate) done: Option<Done>,
}

/// Tracks frame boundaries and progress in a builder's stream, which the router relays as bytes.
///
/// It does not verify checksums of frames: the client does.
#[derive(Debug)]
pub(crate) struct Boundary {
    header: [u8; HEADER_BYTES],
    have: usize,
    payload_left: usize,
    /// The payload of a Progress, Done or Error.
    payload: Vec<u8>,
    /// The SQLSTATE of the last Error.
    error: Option<SqlState>,
    /// The kind of the last complete frame.
    last: Option<u8>,
    /// Total of rows that the builder has received.
    rows: u64,
    news: News,
    stages: Arc<Stages>,
}

impl Boundary {
    /// The state before the first frame.
    pub(crate) fn new(stages: Arc<Stages>) -> Self {
        Self {
            header: [0; HEADER_BYTES],
            have: 0,
            payload_left: 0,
            payload: Vec::new(),
            error: None,
            last: None,
            rows: 0,
            news: News::default(),
            stages,
        }
    }

    /// Takes the next bytes of the stream, which may end anywhere in a frame.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let (of_payload, rest) = bytes.split_at(self.payload_left.min(bytes.len()));
                if matches!(self.header[0], kind::PROGRESS | kind::DONE | kind::ERROR) {
                    let room = MAX_CONTROL_PAYLOAD.saturating_sub(self.payload.len()).min(of_payload.len());
                    self.payload.extend_from_slice(&of_payload[..room]);
                }
                self.payload_left -= of_payload.len();
                bytes = rest;
            } else {
                let (of_header, rest) = bytes.split_at((HEADER_BYTES - self.have).min(bytes.len()));
                self.header[self.have..self.have + of_header.len()].copy_from_slice(of_header);
                self.have += of_header.len();
                bytes = rest;
                if self.have < HEADER_BYTES {
                    return;
                }
                let [_, _, _, _, l0, l1, l2, l3, ..] = self.header;
                self.payload_left = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            }
            if self.payload_left == 0 {
                self.end_frame();
            }
        }
    }

    fn end_frame(&mut self) {
        let [kind, flags, _, _, l0, l1, l2, l3, ..] = self.header;
        if matches!(kind, kind::PROGRESS | kind::DONE) {
            let frame = Frame { kind, flags, crc: 0, payload: Bytes::copy_from_slice(&self.payload) };
            match BuilderMessage::from_frame(&frame) {
                Ok(Some(BuilderMessage::Progress(progress))) => {
                    self.stages.see(&progress);
                    if progress.phase == Phase::Rows as u8 {
                        self.take_rows(progress.done);
                    }
                }
                Ok(Some(BuilderMessage::Done(done))) => {
                    self.take_rows(done.rows);
                    self.news.done = Some(done);
                }
                _ => {}
            }
        }
        if kind == kind::PAGES {
            self.news.pages += u64::from(u32::from_le_bytes([l0, l1, l2, l3])) / PAGE_SIZE as u64;
        }
        if kind == kind::ERROR {
            self.error = self.payload.first_chunk().copied().and_then(SqlState::new);
        }
        self.payload.clear();
        self.last = Some(kind);
        self.have = 0;
    }

    fn take_rows(&mut self, rows: u64) {
        self.news.rows += rows.saturating_sub(self.rows);
        self.rows = self.rows.max(rows);
    }

    /// What the builder has reported since the last call.
    pub(crate) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// Whether the bytes so far end at a frame boundary.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.have == 0
    }

    /// Whether the builder reported that the client cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.error == Some(SqlState::QUERY_CANCELED)
    }

    /// Whether the builder reported that it is shutting down.
    pub(crate) fn is_shutdown(&self) -> bool {
        self.error == Some(SqlState::ADMIN_SHUTDOWN)
    }

    /// Whether the builder reported that it cannot advise: rows or queries are too few, or their values are not supported.
    pub(crate) fn has_no_advice(&self) -> bool {
        let codes = [SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, SqlState::FEATURE_NOT_SUPPORTED];
        self.error.is_some_and(|error| codes.contains(&error))
    }

    /// The kind of the last complete frame.
    pub(crate) fn last(&self) -> Option<u8> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::BytesMut;
    use protocol::{BuilderMessage, Done, ErrorReport, Phase, Progress, SqlState, kind};

    use super::Boundary;
    use crate::stages::Stages;

    #[test]
    fn the_sqlstate_of_an_error_is_recognised() {
        let said = |sqlstate| {
            let mut bytes = BytesMut::new();
            BuilderMessage::Error(ErrorReport::new(sqlstate, "the end")).encode(&mut bytes);
            let mut boundary = Boundary::new(Arc::new(Stages::new()));
            boundary.pass(&bytes);
            [boundary.is_cancelled(), boundary.is_shutdown(), boundary.has_no_advice()]
        };
        assert_eq!(said(SqlState::QUERY_CANCELED), [true, false, false]);
        assert_eq!(said(SqlState::ADMIN_SHUTDOWN), [false, true, false]);
        assert_eq!(said(SqlState::FEATURE_NOT_SUPPORTED), [false, false, true]);
        assert_eq!(said(SqlState::OUT_OF_MEMORY), [false; 3]);
    }

    #[test]
    fn frames_are_read_at_every_split_of_the_stream() {
        let mut bytes = BytesMut::new();
        BuilderMessage::Progress(Progress { phase: 3, done: 2, total: 7 }).encode(&mut bytes);
        let first = bytes.len();
        let done = Done { rows: 5, recall_ppm: Some(990_000), ..Done::default() };
        BuilderMessage::Done(done).encode(&mut bytes);
        for split in 0..=bytes.len() {
            let stages = Arc::new(Stages::new());
            let mut boundary = Boundary::new(stages.clone());
            boundary.pass(&bytes[..split]);
            assert_eq!(boundary.is_between_frames(), [0, first, bytes.len()].contains(&split), "{split}");
            let ends = [(bytes.len(), kind::DONE), (first, kind::PROGRESS)];
            let last = ends.into_iter().find(|(end, _)| split >= *end);
            assert_eq!(boundary.last(), last.map(|(_, kind)| kind));
            boundary.pass(&bytes[split..]);
            assert!(boundary.is_between_frames());
            let stage = stages.stage();
            assert_eq!((stage.phase, stage.done, stage.total), (Phase::Repair, 2, 7));
            assert_eq!(boundary.take_news().done, Some(done), "its payload is not cut off");
        }
    }
}
