//! From the settings to a builder that has accepted the build, through queue and router.

use std::time::{Duration, Instant};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use protocol::{BuilderMessage, ClientMessage, Hello, MAGIC, PROTOCOL_VERSION, Redirect, Ticket, Wait, capability};

use crate::connection::Connection;
use crate::failure::{Failure, Steps, information, printable, sentence, tell};
use crate::progress::{self, Phase};
use crate::session::Session;
use crate::settings::Settings;

/// The least interval between NOTICEs about the queue.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// The answer of a builder or router.
enum Answer {
    Taken(Session),
    Elsewhere(Redirect),
}

/// Requests a build and waits until a builder accepts it.
pub(crate) fn engage(settings: &Settings, hello: Hello, steps: Steps) -> Result<Session, Failure> {
    let mut unused = None;
    loop {
        let again = unused.is_some();
        let redirect = match ask(settings, hello.clone(), unused.as_deref().unwrap_or_default(), steps)? {
            Answer::Taken(session) => return Ok(session),
            Answer::Elsewhere(redirect) => redirect,
        };
        let ticket = redirect.ticket.clone();
        match follow(settings, redirect, hello.clone(), steps) {
            // Ask the router once more: it may know another builder by now. The unused ticket frees the place that it reserved.
            Err(failure) if !again && failure.is_of_connection() => unused = Some(ticket),
            result => return result,
        }
    }
}

/// Connects to the builder that a router named.
fn follow(settings: &Settings, redirect: Redirect, mut hello: Hello, steps: Steps) -> Result<Session, Failure> {
    let Redirect { port, host, server_name, ticket } = redirect;
    if host.is_empty() || port == 0 {
        return Err(Failure::protocol("A router that names no builder."));
    }
    let mut there = Settings { host, port, ..settings.clone() };
    if let Some(tls) = there.tls.as_mut().filter(|_| !server_name.is_empty()) {
        tls.name = server_name;
    }
    hello.capabilities &= !capability::REDIRECT;
    match ask(&there, hello, &ticket, steps)? {
        Answer::Taken(session) => Ok(session),
        Answer::Elsewhere(_) => Err(Failure::protocol("A router that names another router.")),
    }
}

/// Sends the request, with a router's ticket unless that is empty, and waits in the queue.
fn ask(settings: &Settings, mut hello: Hello, ticket: &str, steps: Steps) -> Result<Answer, Failure> {
    hello.token = settings.token()?;
    let estimate = hello.estimated_rows;
    progress::enter(Phase::Connecting, estimate);
    steps.report(printable(&format!("connecting to external indexing server on {}:{}", settings.host, settings.port)));
    let mut session = Session::connect(settings)?;
    session.with_connection(|connection| connection.send(&MAGIC))?;
    if !ticket.is_empty() {
        session.send_message(&ClientMessage::Ticket(Ticket { ticket: ticket.to_owned() }))?;
    }
    session.send_message(&ClientMessage::Hello(hello))?;
    session.with_connection(Connection::flush)?;
    let mut queue = Queue::default();
    loop {
        match session.next_within(queue.tell())? {
            None => {}
            Some(BuilderMessage::Accept(accept)) if accept.protocol == PROTOCOL_VERSION => {
                if !accept.remark.is_empty() {
                    let remark = printable(&format!("external indexing server: {}", accept.remark));
                    tell(PgLogLevel::NOTICE, information(remark));
                }
                return Ok(Answer::Taken(session));
            }
            Some(BuilderMessage::Accept(accept)) => {
                let found = accept.protocol;
                return Err(Failure::protocol(format!("Version {found} accepted, {PROTOCOL_VERSION} was offered.")));
            }
            Some(BuilderMessage::Redirect(redirect)) if session.is_router() => return Ok(Answer::Elsewhere(redirect)),
            Some(BuilderMessage::Wait(wait)) => queue.report(wait, estimate),
            Some(other) => return Err(Failure::protocol(format!("{} in place of Accept.", other.name()))),
        }
    }
}

/// The place in the queue: the builder's latest report unless the user knows it, and the last one that the user got.
#[derive(Default)]
struct Queue {
    latest: Option<Wait>,
    reported: Option<(Wait, Instant)>,
}

impl Queue {
    fn report(&mut self, wait: Wait, estimate: u64) {
        if self.latest.is_none() && self.reported.is_none() {
            progress::enter(Phase::Queued, estimate);
        }
        self.latest = Some(wait).filter(|wait| self.reported.as_ref().is_none_or(|(reported, _)| reported != wait));
    }

    /// Sends a NOTICE about a change, unless the last one is too recent. Returns how long to wait for the next.
    fn tell(&mut self) -> Duration {
        let Some(wait) = self.latest.take() else { return Duration::MAX };
        if let Some((_, when)) = self.reported
            && let Some(left) = NOTICE_INTERVAL.checked_sub(when.elapsed())
        {
            self.latest = Some(wait);
            return left;
        }
        tell(PgLogLevel::NOTICE, waiting(&wait));
        self.reported = Some((wait, Instant::now()));
        Duration::MAX
    }
}

fn waiting(wait: &Wait) -> ErrorReport {
    let position = match wait.position {
        0 => String::new(),
        position => format!(", position {position} in its queue"),
    };
    let report = information(format!("waiting for external indexing server{position}"));
    if wait.reason.is_empty() { report } else { report.set_detail(printable(&sentence(&wait.reason))) }
}
