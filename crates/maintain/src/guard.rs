use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::connect::Database;
use crate::error::Error;
use crate::run::Settings;

/// How often to look whether what a step waits for is over.
const LOOK: Duration = Duration::from_secs(2);

/// Whether a step may begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum May {
    Begin,
    /// Not now, and why.
    NotNow(String),
    /// Told to stop, or the window is over.
    Stop(String),
}

/// Waits, for so long as settings say, until nobody else is at the table, replicas have caught up and no old transaction would be waited for.
pub(crate) async fn wait(
    database: &Database,
    table: &str,
    settings: &Settings,
    stop: &CancellationToken,
) -> Result<May, Error> {
    let started = Instant::now();
    // That does not pass.
    if database.value("SELECT pg_is_in_recovery()").await? {
        return Ok(May::NotNow("this is a standby: rebuild on the primary".to_owned()));
    }
    loop {
        if stop.is_cancelled() {
            return Ok(May::Stop("told to stop".to_owned()));
        }
        if let Some(window) = settings.window {
            // The server's clock and time zone.
            let minute = "SELECT (extract(hour FROM localtime) * 60 + extract(minute FROM localtime))::int";
            let minute: i32 = database.value(minute).await?;
            if !window.contains(minute.unsigned_abs()) {
                return Ok(May::Stop(format!("the window is closed, it is {:02}:{:02}", minute / 60, minute % 60)));
            }
        }
        let Some(reason) = obstacle(database, table, settings).await? else { return Ok(May::Begin) };
        if started.elapsed() > settings.patience {
            return Ok(May::NotNow(reason));
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// Whether another session has a table to itself, as CREATE INDEX, REINDEX and VACUUM have it, or waits for that. An index that is invalid then may be one
/// that it is building; a DROP that waits for it and is waited for is a deadlock. Autovacuum gives way.
pub(crate) async fn is_taken(database: &Database, table: &str) -> Result<bool, Error> {
    let table = table.replace('\'', "''");
    let locks =
        "'ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'";
    let sql = format!(
        "SELECT EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'relation' AND l.mode IN ({locks}) \
                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                AND l.relation = '{table}'::regclass AND l.pid IS DISTINCT FROM pg_backend_pid() \
                AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = l.pid AND a.backend_type = 'autovacuum worker'))"
    );
    database.value(&sql).await
}

/// What stands in the way just now.
async fn obstacle(database: &Database, table: &str, settings: &Settings) -> Result<Option<String>, Error> {
    if is_taken(database, table).await? {
        return Ok(Some("another session builds an index of the table, or vacuums it".to_owned()));
    }
    let lag = "SELECT coalesce(max(extract(epoch FROM replay_lag)), 0)::float8 FROM pg_stat_replication";
    let lag: f64 = database.value(lag).await?;
    if lag > settings.max_lag.as_secs_f64() {
        return Ok(Some(format!("a replica is {lag:.0} s behind")));
    }
    // REINDEX CONCURRENTLY waits for those of this database, and holds back VACUUM everywhere meanwhile.
    let oldest = "SELECT coalesce(extract(epoch FROM max(now() - xact_start)), 0)::float8, coalesce(min(pid), 0) \
                  FROM (SELECT xact_start, pid FROM pg_stat_activity \
                        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() \
                          AND xact_start IS NOT NULL AND application_name <> 'lantern-index maintain' \
                        ORDER BY xact_start LIMIT 1) t";
    let rows = database.rows(oldest).await?;
    let (age, pid): (f64, i32) = rows.first().map_or((0.0, 0), |row| (row.get(0), row.get(1)));
    let is_old = age > settings.max_transaction.as_secs_f64();
    Ok(is_old
        .then(|| format!("the transaction of process {pid} is open for {age:.0} s, and a rebuild would wait for it")))
}
