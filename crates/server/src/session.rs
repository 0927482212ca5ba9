use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hnsw::{BuildSpec, Control};
use protocol::{Accept, BuilderMessage, ClientMessage, Hello, PROTOCOL_VERSION, Pong};
use service::report::Subject;
use service::{Closed, Outcome, Queued, Running};
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::end::SessionError;
use crate::greet::{self, Choice};
use crate::hello;
use crate::job::{Event, Job};
use crate::memory;
use crate::progress::Watch;
use crate::reading::Reader;
use crate::rows::RowTotals;
use crate::server::Shared;
use crate::ticket;
use crate::writing::Writer;

/// How long a frame that is being written may take when the session is to end.
const LAST_FRAME: Duration = Duration::from_secs(2);
/// How long the client may take to close after it was told of an error.
const LINGER: Duration = Duration::from_secs(2);

/// The builder's name and version.
const VERSION: &str = concat!("lantern-index ", env!("CARGO_PKG_VERSION"));

/// Serves a connection from the greeting to the close.
pub(crate) async fn serve<S>(mut stream: S, shared: &Arc<Shared>, id: u64, peer: SocketAddr)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let limit = shared.config.handshake_timeout;
    let greeting = async { timeout(limit, greet::greet(&mut stream)).await.unwrap_or_else(|_| Err(late(limit))) };
    let choice = tokio::select! {
        choice = greeting => choice,
        () = shared.drain.cancelled() => return,
    };
    let metrics = shared.activity.metrics();
    let (read, write) = split(stream);
    let mut session = Session {
        id,
        peer,
        shared,
        reader: Reader::new(read, metrics),
        writer: Writer::new(write, shared.config.idle_timeout, metrics),
    };
    let build = match choice {
        Ok(Some(Choice::V2)) => session.run().await,
        other => {
            if let Some(why) = log_other(&other) {
                metrics.closed(why);
            }
            None
        }
    };
    match build {
        // The client is not kept waiting for the build thread, nor the status for the client.
        Some(build) => _ = tokio::join!(session.close(build.outcome), build.end()),
        None => session.close(Outcome::Refused).await,
    }
}

fn log_other(choice: &io::Result<Option<Choice>>) -> Option<Closed> {
    match choice {
        Ok(Some(Choice::LanternV1)) => tracing::info!("closed: Lantern's protocol version 1 is not served yet"),
        Ok(Some(magic)) => tracing::info!(?magic, "closed: no known protocol"),
        Ok(None) => {
            tracing::debug!("client left after the greeting");
            return None;
        }
        Err(error) => {
            tracing::info!(%error, "closed: no choice of protocol");
            return Some(if error.kind() == io::ErrorKind::TimedOut { Closed::Timeout } else { Closed::Broken });
        }
    }
    Some(Closed::Protocol)
}

fn late(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("nothing received for {} s", limit.as_secs_f64()))
}

struct Session<'a, R, W> {
    id: u64,
    peer: SocketAddr,
    shared: &'a Arc<Shared>,
    reader: Reader<'a, R>,
    writer: Writer<'a, W>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<'_, R, W> {
    /// From the Hello to the last frame. Returns the build, if one was begun.
    async fn run(&mut self) -> Option<EndedBuild> {
        let (hello, ticket) = match self.hello().await {
            Ok(Some(opening)) => opening,
            Ok(None) => return None,
            Err(error) => {
                self.fail(&error).await;
                return None;
            }
        };
        tracing::Span::current().record("label", &hello.label);
        let queued = self.shared.activity.queue(self.subject(&hello));
        let admitted = ticket::check(self.shared.config.tickets.as_deref(), &ticket);
        let refuse = match admitted.and_then(|()| hello::check(&hello)) {
            Ok(spec) => match self.start(spec.clone()).await {
                Ok(job) => return Some(self.build(&hello, &spec, job, queued).await),
                Err(error) => hello::refuse_error(&error),
            },
            Err(refuse) => refuse,
        };
        tracing::warn!(sqlstate = %refuse.sqlstate, reason = refuse.message, "build refused");
        queued.refuse(hello::refusal(refuse.sqlstate), refuse.message.clone());
        self.tell(&BuilderMessage::Refuse(*refuse)).await;
        None
    }

    /// What the client wants, for status.
    fn subject(&self, hello: &Hello) -> Subject {
        Subject {
            id: self.id,
            peer: self.peer.to_string(),
            label: Some(hello.label.clone()),
            value_type: hello.value_type.name().to_owned(),
            metric: hello.metric.name().to_owned(),
            dims: hello.dims,
            m: hello.m,
            ef_construction: hello.ef_construction,
            expected_rows: hello.estimated_rows,
        }
    }

    /// The Hello and the ticket before it, which must come in time however often the client pings. `None`: it only pinged.
    async fn hello(&mut self) -> Result<Option<(Hello, String)>, SessionError> {
        let (limit, drain) = (self.shared.config.handshake_timeout, &self.shared.drain);
        tokio::select! {
            hello = timeout(limit, self.pings_and_hello()) => hello.map_err(|_| SessionError::Late(limit))?,
            () = drain.cancelled() => Err(SessionError::Shutdown),
        }
    }

    async fn pings_and_hello(&mut self) -> Result<Option<(Hello, String)>, SessionError> {
        let (mut pinged, mut shown) = (false, String::new());
        loop {
            match self.reader.next().await {
                Ok((ClientMessage::Hello(hello), _)) => return Ok(Some((hello, shown))),
                Ok((ClientMessage::Ticket(ticket), _)) => shown = ticket.ticket,
                Ok((ClientMessage::Ping, _)) => {
                    pinged = true;
                    self.writer.send(&self.pong()).await?;
                }
                // Only what the client lets us skip gets here.
                Ok(_) => {}
                Err(SessionError::Left) if pinged => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn pong(&self) -> BuilderMessage {
        BuilderMessage::Pong(Pong {
            protocol: PROTOCOL_VERSION,
            threads: self.threads(),
            memory_free: memory::free().unwrap_or(0),
            builder_version: VERSION.to_owned(),
        })
    }

    fn threads(&self) -> u32 {
        u32::try_from(self.shared.pool.threads()).unwrap_or(u32::MAX)
    }

    /// Starts the build thread and waits until its engine takes rows.
    async fn start(&self, spec: BuildSpec) -> Result<Job, SessionError> {
        if self.shared.drain.is_cancelled() {
            return Err(SessionError::Shutdown);
        }
        let mut job = Job::spawn(self.id, self.shared.config.engine, spec, self.shared.pool.clone())
            .map_err(|error| hnsw::BuildError::Memory(format!("no thread for the build: {error}")))?;
        match job.events.recv().await {
            Some(Event::Started) => Ok(job),
            Some(Event::Failed(error)) => Err(error),
            _ => Err(SessionError::Defect("build thread did not start".to_owned())),
        }
    }

    async fn build(&mut self, hello: &Hello, spec: &BuildSpec, mut job: Job, queued: Queued) -> EndedBuild {
        let cancel = CancelOnDrop(job.control.clone());
        let watch = Watch::new(job.control.clone());
        let stage = watch.clone();
        let running = queued.begin(0, move || stage.stage());
        tracing::info!(
            value_type = spec.value_type.name(),
            metric = spec.metric.name(),
            dims = spec.dims,
            m = spec.m,
            ef_construction = spec.ef_construction,
            expected_rows = spec.expected_rows,
            client = ?hello.client_version,
            postgres = ?hello.server_version,
            "build started"
        );
        let accept = BuilderMessage::Accept(Accept {
            protocol: PROTOCOL_VERSION,
            capabilities: 0,
            session: self.id,
            memory_reserved: 0,
            threads: self.threads(),
            builder_version: VERSION.to_owned(),
        });
        let result = match self.writer.send(&accept).await {
            Ok(()) => self.drive(spec, &mut job, &watch, &running).await,
            Err(error) => Err(error),
        };
        let (outcome, reason) = match result {
            Ok(()) => (Outcome::Succeeded, None),
            Err(error) => {
                job.control.cancel();
                self.fail(&error).await;
                (error.outcome(), Some(error.to_string()))
            }
        };
        EndedBuild { job, running, outcome, reason, _cancel: cancel }
    }

    /// Both halves of the build at once, until one of them ends it.
    async fn drive(
        &mut self,
        spec: &BuildSpec,
        job: &mut Job,
        watch: &Watch,
        running: &Running,
    ) -> Result<(), SessionError> {
        let stop = CancellationToken::new();
        let totals = RowTotals::new(spec.value_type, spec.dims);
        let mut writing = pin!(self.writer.drive(&mut job.events, watch, running, &stop));
        let error = tokio::select! {
            sent = &mut writing => {
                if let Some(done) = sent? {
                    let [rows, graph, repair, order, pages] = watch.stage().spent.map(|spent| spent.as_secs_f64());
                    tracing::info!(
                        rows = done.rows,
                        elements = done.elements,
                        pages = done.blocks,
                        seconds = done.build_ms as f64 / 1e3,
                        seconds_rows = rows,
                        seconds_graph = graph,
                        seconds_repair = repair,
                        seconds_order = order,
                        seconds_pages = pages,
                        "build succeeded"
                    );
                }
                return Ok(());
            }
            error = self.reader.drive(totals, &job.rows, self.shared.config.idle_timeout, running) => error,
            () = self.shared.stop.cancelled() => SessionError::Shutdown,
        };
        job.control.cancel();
        // The client can read our reason only after a whole frame.
        stop.cancel();
        match timeout(LAST_FRAME, writing).await {
            // The last frame was on its way already: the client has everything.
            Ok(Ok(Some(_))) => Ok(()),
            _ => Err(error),
        }
    }

    /// Logs why the session ends and tells the client, if it listens.
    async fn fail(&mut self, error: &SessionError) {
        let report = error.report();
        let sqlstate = report.as_ref().map_or("", |report| report.sqlstate.as_str());
        match error.outcome() {
            Outcome::Failed => tracing::warn!(%error, sqlstate, "session failed"),
            _ => tracing::info!(%error, sqlstate, "session ended early"),
        }
        if let Some(report) = report {
            self.tell(&BuilderMessage::Error(report)).await;
        }
    }

    async fn tell(&mut self, message: &BuilderMessage) {
        if !self.writer.is_between_frames() {
            return;
        }
        match timeout(LAST_FRAME, self.writer.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "client does not hear why"),
            Err(_) => tracing::debug!("client does not read why"),
        }
    }

    /// Ends the stream and gives the client time to read what is on its way: closing a socket that has unread bytes would
    /// throw that away.
    async fn close(&mut self, outcome: Outcome) {
        let limit = if outcome == Outcome::Succeeded { self.shared.config.idle_timeout } else { LINGER };
        let both = async { tokio::join!(self.writer.shutdown(), self.reader.discard()) };
        tokio::select! {
            _ = timeout(limit, both) => {}
            () = self.shared.stop.cancelled() => {}
        }
    }
}

/// A build whose session is over, but maybe not its thread.
struct EndedBuild {
    job: Job,
    running: Running,
    outcome: Outcome,
    reason: Option<String>,
    _cancel: CancelOnDrop,
}

impl EndedBuild {
    /// Waits for the thread.
    async fn end(self) {
        let Job { rows, mut events, .. } = self.job;
        drop(rows);
        events.close();
        while events.recv().await.is_some() {}
        self.running.end(self.outcome, self.reason);
    }
}

/// Stops a build whose session is gone, for whatever reason.
struct CancelOnDrop(Control);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
