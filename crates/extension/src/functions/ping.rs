//! `lantern_index.ping()`

use std::time::{Duration, Instant};

use pgrx::prelude::*;
use protocol::{BuilderMessage, ClientMessage, MAGIC, Ping, Pong};
use rustls::ProtocolVersion;

use super::bigint;
use crate::connection::Connection;
use crate::failure::{Failure, or_raise, printable};
use crate::session::Session;
use crate::settings::Settings;

/// The longest wait for the answer if no timeout is set.
const TIMEOUT: Duration = Duration::from_secs(30);

#[pg_extern]
#[allow(clippy::type_complexity)] // the row, column by column
fn lantern_index_ping() -> TableIterator<
    'static,
    (
        name!(address, String),
        name!(tls, String),
        name!(verified, bool),
        name!(builder_version, String),
        name!(protocol, i32),
        name!(latency_ms, f64),
        name!(memory_free, Option<i64>),
    ),
> {
    let settings = Settings::get();
    let (mut session, pong, latency) = or_raise(ping(&settings));
    let connection = session.connection();
    let memory_free = (pong.memory_free > 0).then(|| bigint(pong.memory_free));
    TableIterator::once((
        connection.address().map(|address| address.to_string()).unwrap_or_default(),
        connection.tls_version().map_or("off".into(), tls_name),
        // Without a root certificate any certificate is accepted.
        settings.tls.is_some_and(|tls| tls.root_cert.is_some()),
        printable(&pong.builder_version),
        pong.protocol.into(),
        latency.as_nanos() as f64 / 1e6,
        memory_free,
    ))
}

fn ping(settings: &Settings) -> Result<(Session, Pong, Duration), Failure> {
    let limit = settings.connect_timeout.unwrap_or(TIMEOUT);
    let token = Some(settings.token()?);
    let mut session = Session::connect(settings)?;
    session.with_connection(|connection| connection.send(&MAGIC))?;
    let started = Instant::now();
    session.send_message(&ClientMessage::Ping(Ping { token }))?;
    session.with_connection(Connection::flush)?;
    match session.next_within(limit)? {
        Some(BuilderMessage::Pong(pong)) => Ok((session, pong, started.elapsed())),
        Some(other) => Err(Failure::protocol(format!("{} in place of Pong.", other.name()))),
        None => Err(session.connection().broken("the builder did not answer")),
    }
}

/// The version as libpq and `pg_stat_ssl` write it.
fn tls_name(version: ProtocolVersion) -> String {
    match version {
        ProtocolVersion::TLSv1_2 => "TLSv1.2".into(),
        ProtocolVersion::TLSv1_3 => "TLSv1.3".into(),
        other => format!("{other:?}"),
    }
}
