mod admit;
mod build;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use protocol::{BuilderMessage, ClientMessage, Hello, MAX_PINGS, PROTOCOL_VERSION, Pong, ProtocolError, Refuse};
use service::report::Subject;
use service::{Activity, Client, Closed, Queued, printable};
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::admit::NotBegun;
use crate::greet::{self, Choice};
use crate::lifecycle::{self, EndedBuild};
use crate::reading::Reader;
use crate::server::Shared;
use crate::session_error::SessionError;
use crate::ticket;
use crate::v1;
use crate::writing::Writer;

/// The time limit for finishing a partly written frame when the session ends.
const LAST_FRAME: Duration = Duration::from_secs(2);

/// The builder's name and version.
const VERSION: &str = concat!("lantern-index ", env!("CARGO_PKG_VERSION"));

/// Serves a connection from the greeting to the close.
pub(crate) async fn serve(stream: TcpStream, shared: &Arc<Shared>, id: u64, peer: SocketAddr) {
    let listening = &shared.config.listening;
    let opening = async {
        let mut stream = listening.open(stream, &shared.activity).await?;
        let limit = listening.handshake_timeout;
        let choice = timeout(limit, greet::greet(&mut stream)).await.unwrap_or_else(|_| Err(late(limit)));
        Some((stream, choice))
    };
    let opened = tokio::select! {
        opened = opening => opened,
        () = shared.drain.cancelled() => None,
    };
    let Some((stream, choice)) = opened else { return };
    let choice = match choice {
        Ok(Some(Choice::LanternV1(ticket))) => return v1::serve(stream, shared, id, peer, ticket).await,
        choice => choice,
    };
    let metrics = shared.activity.metrics();
    let certificate = stream.peer_name();
    let (read, write) = split(stream);
    let mut session = Session {
        id,
        peer,
        certificate,
        shared,
        reader: Reader::new(read, metrics),
        writer: Writer::new(write, listening.idle_timeout, metrics),
    };
    let build = match choice {
        Ok(Some(Choice::V2)) => session.run().await,
        other => {
            log_other(&shared.activity, &other);
            None
        }
    };
    let close = async { tokio::join!(session.writer.shutdown(), session.reader.discard()) };
    lifecycle::close(shared, id, build, close).await;
}

fn log_other(activity: &Activity, choice: &io::Result<Option<Choice>>) {
    match choice {
        Ok(Some(Choice::Unknown(magic))) => {
            activity.closed(Closed::Protocol, format_args!("no known protocol: {magic:x?}"));
        }
        Ok(_) => tracing::debug!("client left after the greeting"),
        Err(error) => {
            let why = if error.kind() == io::ErrorKind::TimedOut { Closed::Timeout } else { Closed::Broken };
            activity.closed(why, format_args!("no choice of protocol: {error}"));
        }
    }
}

fn late(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("nothing received for {} s", limit.as_secs_f64()))
}

struct Session<'a, R, W> {
    id: u64,
    peer: SocketAddr,
    /// The name of the client's certificate.
    certificate: Option<String>,
    shared: &'a Arc<Shared>,
    reader: Reader<'a, R>,
    writer: Writer<'a, W>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<'_, R, W> {
    /// Runs from the Hello to the last frame. Returns the build, if one was started.
    async fn run(&mut self) -> Option<EndedBuild> {
        let (hello, ticket) = match self.hello().await {
            Ok(Some(opening)) => opening,
            Ok(None) => return None,
            Err(error) => {
                self.shared.activity.closed(error.closed(), format_args!("{error}"));
                self.explain(&error).await;
                return None;
            }
        };
        let admitted = self.admit(&hello.token, &ticket);
        let client = admitted.as_ref().map_or_else(|_| Client::unnamed(self.peer), Clone::clone);
        let queued = self.shared.activity.queue(Subject::new(self.id, self.peer, &client, &hello));
        if let Err(refuse) = admitted {
            self.refuse(queued, refuse).await;
            return None;
        }
        self.shared.door.pending.settle(self.id);
        tracing::Span::current().record("label", printable(&hello.label));
        match self.begin(&hello, &client, &queued).await {
            Ok(begun) => return Some(self.build(&hello, &client, begun, queued).await),
            Err(NotBegun::Refused(refuse)) => self.refuse(queued, refuse).await,
            Err(NotBegun::Ended(error)) => {
                queued.end(error.outcome(), error.to_string());
                self.fail(&error).await;
            }
        }
        None
    }

    /// Authenticates the client by its ticket if it comes through a router, else by token and certificate. The ticket takes precedence: the
    /// router has authenticated the client.
    fn admit(&self, token: &str, ticket: &str) -> Result<Client, Box<Refuse>> {
        if let Some(refuse) = self.shared.activity.refuses("builder") {
            return Err(refuse);
        }
        let sent = ticket::check(self.shared.config.tickets.as_deref(), ticket)?;
        let client =
            self.shared.config.listening.access.admit("builder", self.peer, token, self.certificate.as_deref())?;
        Ok(match sent {
            Some(sent) => Client { limits: client.limits.lower(&sent.limits), ..sent },
            None => client,
        })
    }

    /// Reports a refusal to the client, the log and the status page.
    async fn refuse(&mut self, queued: Queued, refuse: Box<Refuse>) {
        queued.log_and_refuse(&refuse);
        self.tell(&BuilderMessage::Refuse(*refuse)).await;
    }

    /// The Hello, and the ticket before it. Pings do not extend the time limit. `None` if the client only pinged.
    async fn hello(&mut self) -> Result<Option<(Hello, String)>, SessionError> {
        let shared = self.shared;
        lifecycle::in_time(shared, self.pings_and_hello()).await
    }

    async fn pings_and_hello(&mut self) -> Result<Option<(Hello, String)>, SessionError> {
        let (mut pings, mut shown) = (0, String::new());
        loop {
            match self.reader.next().await {
                Ok((ClientMessage::Hello(hello), _)) => return Ok(Some((hello, shown))),
                Ok((ClientMessage::Ticket(ticket), _)) => shown = ticket.ticket,
                Ok((ClientMessage::Ping(ping), _)) => {
                    pings += 1;
                    if pings > MAX_PINGS {
                        return Err(ProtocolError::Pings.into());
                    }
                    if let Err(refuse) =
                        self.shared.config.listening.access.answer_ping("builder", self.peer, ping.token.as_deref())
                    {
                        self.tell(&BuilderMessage::Refuse(*refuse)).await;
                        return Ok(None);
                    }
                    self.writer.send(&self.pong()).await?;
                }
                // Only skippable messages reach this.
                Ok(_) => {}
                Err(SessionError::Left) if pings > 0 => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn pong(&self) -> BuilderMessage {
        BuilderMessage::Pong(Pong {
            protocol: PROTOCOL_VERSION,
            threads: self.shared.threads(),
            memory_free: self.shared.admission.free(),
            builder_version: VERSION.to_owned(),
        })
    }

    /// Logs why the session ends, and sends the reason to the client if it can still read.
    async fn fail(&mut self, error: &SessionError) {
        lifecycle::log_failure(&self.shared.activity, error);
        self.explain(error).await;
    }

    /// Sends the client the reason why the session ends, if it can still read.
    async fn explain(&mut self, error: &SessionError) {
        if let Some(report) = error.report() {
            self.tell(&BuilderMessage::Error(report)).await;
        }
    }

    async fn tell(&mut self, message: &BuilderMessage) {
        if !self.writer.is_between_frames() {
            return;
        }
        match timeout(LAST_FRAME, self.writer.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the error report could not be sent"),
            Err(_) => tracing::debug!("the client did not read the error report in time"),
        }
    }
}
