use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use graph::HeapTid;
use hnsw::{BuildError, BuildSpec, Control, EngineKind, Finished, Pool, Report, RowBatch, Storage};
use protocol::{Advice, Ask, Check, Done, Findings, Pages, TUPLES_BATCH_BYTES, Tuples};
use tokio::sync::mpsc;

use crate::admission::Reservation;
use crate::advising::Sample;
use crate::checking::{CheckNeed, Incoming};
use crate::paging;
use crate::server::Shared;
use crate::session_error::SessionError;
use crate::v1::{self, Lantern};

/// What the client gets as a result.
pub(crate) enum Form {
    /// The pages of an index.
    Pages,
    /// A node file, from which a Lantern client makes the pages.
    Nodes(Lantern),
    /// Findings of a check, whose input is pages instead of rows.
    Findings(Check, CheckNeed),
    /// Advice from a sample of rows.
    Advice { ask: Ask, own_type: bool },
}

/// Batches of rows or pages between the connection and the build, of up to 2 MiB each.
const QUEUE: usize = 4;

/// Waiting batches go to the engine in one call, until they have this many bytes of values: as many as a full queue of usual batches.
const GATHER_BYTES: usize = QUEUE * TUPLES_BATCH_BYTES;

/// Input of the build thread.
pub(crate) enum Input {
    Rows(Tuples),
    /// All rows have been passed on.
    End,
    /// Pages of an index to check.
    Pages(Pages),
    /// All pages to check have been passed on; with the checksum of their frames.
    EndOfIndex(u32),
}

/// Events of the build thread.
pub(crate) enum Event {
    /// The engine accepts rows.
    Started,
    Layout(protocol::Layout),
    /// A frame of `count` pages in two parts.
    Pages {
        count: u32,
        head: Bytes,
        body: Bytes,
    },
    Findings(Box<Findings>),
    Advice(Box<Advice>),
    /// All pages have been sent, and the graph's memory has been freed.
    Done(Done),
    Failed(SessionError),
}

/// A build on its own thread. The thread ends soon after `control` is cancelled or either channel is closed.
pub(crate) struct Job {
    pub(crate) rows: mpsc::Sender<Input>,
    /// Closed when the thread has ended.
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) control: Control,
}

impl Job {
    /// Starts the build of a session and waits until its engine accepts rows.
    ///
    /// Each build has its own threads, so that the system shares the cores fairly among builds; a common pool would run all tasks of an
    /// earlier build before those of the next one.
    pub(crate) async fn start(
        session: u64,
        shared: &Shared,
        spec: BuildSpec,
        form: Form,
        storage: Storage,
        threads: u32,
        reservation: Arc<Reservation>,
    ) -> Result<Self, SessionError> {
        let (rows, input) = mpsc::channel(QUEUE);
        let (output, mut events) = mpsc::channel(QUEUE);
        let control = Control::default();
        let mut build = Build {
            engine: shared.config.engine,
            spec,
            form,
            storage,
            threads,
            control: control.clone(),
            input,
            output,
            started: Instant::now(),
        };
        let span = tracing::Span::current();
        let thread = thread::Builder::new().name(format!("build-{session}")).spawn(move || {
            let _entered = span.enter();
            // The build is dropped before its channel: when the session sees the last event, or a
            // closed channel, the memory has been freed.
            let output = build.output.clone();
            let result = guard(|| build.run());
            drop(build);
            hnsw::memory::give_back();
            reservation.release();
            let last = result.map_or_else(Event::Failed, Event::Done);
            // Sending fails if the session has ended before.
            let _ = output.blocking_send(last);
        });
        thread.map_err(|error| BuildError::Memory(format!("no thread for the build: {error}")))?;
        match events.recv().await {
            Some(Event::Started) => Ok(Self { rows, events, control }),
            Some(Event::Failed(error)) => Err(error),
            _ => Err(SessionError::Defect("build thread did not start".to_owned())),
        }
    }
}

struct Build {
    engine: EngineKind,
    spec: BuildSpec,
    form: Form,
    storage: Storage,
    threads: u32,
    control: Control,
    input: mpsc::Receiver<Input>,
    output: mpsc::Sender<Event>,
    started: Instant,
}

impl Build {
    fn run(&mut self) -> Result<Done, SessionError> {
        let pool = Arc::new(Pool::new(self.threads as usize)?);
        if let Form::Findings(check, need) = self.form {
            return self.check(&check, &need, &pool);
        }
        if let Form::Advice { ask, own_type } = self.form {
            return self.advise(&ask, own_type, &pool);
        }
        let finished = self.graph(&pool)?;
        let report = finished.report;
        tracing::info!(
            rows = report.rows,
            elements = report.elements,
            relinked = report.relinked,
            unreachable = report.unreachable,
            self_recall = f64::from(report.self_recall),
            recall = f64::from(report.recall),
            lost = f64::from(report.lost),
            remedy = report.remedy.name(),
            seconds = self.started.elapsed().as_secs_f64(),
            "graph built"
        );
        let send = |event| self.send(event);
        let sent = match &self.form {
            Form::Pages | Form::Findings(..) | Form::Advice { .. } => {
                paging::send(&finished, &self.spec, &pool, &self.control, send)?
            }
            Form::Nodes(_) => v1::send(&finished, &self.spec, &self.control, send)?,
        };
        drop(finished);
        Ok(self.totals(&report, sent))
    }

    fn graph(&mut self, pool: &Arc<Pool>) -> Result<Finished, SessionError> {
        let mut engine =
            hnsw::start_in(self.storage.clone(), self.engine, self.spec.clone(), pool.clone(), self.control.clone())?;
        self.send(Event::Started)?;
        loop {
            let (mut rows, mut bytes, mut ended) = (Vec::with_capacity(QUEUE), 0, false);
            let mut next = self.input.blocking_recv().ok_or(BuildError::Cancelled)?;
            loop {
                match (next, &mut self.form) {
                    (Input::Rows(tuples), Form::Nodes(lantern)) => rows.push(Rows::new(lantern.prepare(tuples))),
                    (Input::Rows(tuples), _) => rows.push(Rows::new(tuples)),
                    (Input::End, _) => ended = true,
                    (Input::Pages(_) | Input::EndOfIndex(_), _) => return Err(mixed()),
                }
                bytes += rows.last().map_or(0, |rows| rows.values.len());
                if ended || bytes >= GATHER_BYTES {
                    break;
                }
                // Take waiting batches along: the engine's threads share the rows of one call.
                let Ok(waiting) = self.input.try_recv() else { break };
                next = waiting;
            }
            engine.add_all(&rows.iter().map(Rows::batch).collect::<Vec<_>>())?;
            // The rest of the build needs their memory.
            drop(rows);
            if ended {
                if let Form::Nodes(lantern) = &self.form {
                    lantern.remark();
                }
                return Ok(engine.finish()?);
            }
        }
    }

    fn check(&mut self, check: &Check, need: &CheckNeed, pool: &Pool) -> Result<Done, SessionError> {
        self.send(Event::Started)?;
        let mut next = || match self.input.blocking_recv() {
            Some(Input::Pages(pages)) => Ok(pages),
            Some(Input::Rows(_) | Input::End | Input::EndOfIndex(_)) => Err(mixed()),
            None => Err(BuildError::Cancelled.into()),
        };
        let index = Incoming::new(check, &mut next, &self.control)?.scan(self.spec.value_type, need)?;
        // The session has checked that all pages have arrived.
        let Some(Input::EndOfIndex(checksum)) = self.input.blocking_recv() else {
            return Err(BuildError::Cancelled.into());
        };
        let findings = index.check(&self.spec, check, need, pool, &self.control)?;
        let blocks = check.blocks;
        tracing::info!(
            blocks,
            elements = findings.live,
            deleted = findings.deleted,
            errors = findings.errors,
            sampled = findings.sampled,
            recall_ppm = findings.recall_ppm,
            seconds = self.started.elapsed().as_secs_f64(),
            "index checked"
        );
        let done = Done {
            rows: findings.rows,
            elements: findings.live,
            unreachable: findings.live - findings.reachable,
            build_ms: self.milliseconds(),
            blocks,
            checksum,
            ..Done::default()
        };
        self.send(Event::Findings(Box::new(findings)))?;
        Ok(done)
    }

    fn advise(&mut self, ask: &Ask, own_type: bool, pool: &Arc<Pool>) -> Result<Done, SessionError> {
        let mut sample = Sample::new(&self.spec, ask, own_type, &self.control);
        self.send(Event::Started)?;
        let mut rows = 0;
        loop {
            match self.input.blocking_recv() {
                Some(Input::Rows(tuples)) => {
                    rows += u64::from(tuples.count);
                    sample.add(&tuples, &self.control);
                }
                Some(Input::End) => break,
                Some(Input::Pages(_) | Input::EndOfIndex(_)) => return Err(mixed()),
                None => return Err(BuildError::Cancelled.into()),
            }
        }
        let advice = sample.advise(self.engine, pool, &self.control)?;
        tracing::info!(
            rows,
            built = advice.rows,
            queries = advice.queries,
            choices = advice.choices.len(),
            seconds = self.started.elapsed().as_secs_f64(),
            "advice given"
        );
        self.send(Event::Advice(Box::new(advice)))?;
        Ok(Done { rows, build_ms: self.milliseconds(), ..Done::default() })
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn send(&self, event: Event) -> Result<(), SessionError> {
        self.output.blocking_send(event).map_err(|_| BuildError::Cancelled.into())
    }

    fn totals(&self, report: &Report, sent: paging::Sent) -> Done {
        Done {
            rows: report.rows,
            elements: report.elements,
            relinked: report.relinked,
            unreachable: report.unreachable,
            self_recall_ppm: millionths(report.self_recall.into()),
            build_ms: self.milliseconds(),
            blocks: sent.blocks,
            checksum: sent.checksum,
            recall_ppm: Some(millionths(report.recall.into())),
        }
    }
}

/// The rows of a message.
struct Rows {
    tids: Vec<HeapTid>,
    lengths: Vec<u32>,
    values: Bytes,
}

impl Rows {
    fn new(tuples: Tuples) -> Self {
        let lengths = if tuples.lengths.is_empty() { Vec::new() } else { tuples.value_lens().collect() };
        Self { tids: tuples.tids().map(HeapTid).collect(), lengths, values: tuples.values }
    }

    fn batch(&self) -> RowBatch<'_> {
        RowBatch { tids: &self.tids, values: &self.values, lengths: &self.lengths }
    }
}

/// A defect of the session, which must pass only rows to a build and only pages to a check.
fn mixed() -> SessionError {
    SessionError::Defect("rows and pages in one session".to_owned())
}

/// A share as in messages.
pub(crate) fn millionths(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 1e6).round() as u32
}

/// Turns a panic, which is a defect of the engine or the session, into an error of this build alone.
fn guard<T>(work: impl FnOnce() -> Result<T, SessionError>) -> Result<T, SessionError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (_, Some(text)) => text.as_str(),
            _ => "panic without a text",
        };
        Err(SessionError::Defect(text.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::guard;
    use crate::session_error::SessionError;

    #[test]
    fn a_panic_is_an_error_of_the_build() {
        let number = 7;
        for result in [guard::<()>(|| panic!("index out of bounds")), guard(|| panic!("index {number} out of bounds"))]
        {
            let report = result.unwrap_err().report().unwrap();
            assert_eq!(report.sqlstate.as_str(), "XX000");
            assert!(report.message.ends_with("out of bounds"), "{}", report.message);
        }
        assert!(matches!(guard(|| Err::<(), _>(SessionError::Left)), Err(SessionError::Left)));
    }
}
