use std::time::Duration;

use database::{Database, Error};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::run::{Outcome, Settings};

/// How often an obstacle is checked again.
const POLL: Duration = Duration::from_secs(2);

/// Waits until no other session builds or vacuums on the table with this oid, replicas have caught up and no old transaction would block
/// the step; at most for the settings' patience. `dead_since` is set if VACUUM follows: rows that died before this transaction id are to be
/// removed. `note` gets the first reason for waiting. Returns the step's outcome if it may not begin.
pub(crate) async fn wait(
    database: &Database,
    table: u32,
    dead_since: Option<&str>,
    settings: &Settings,
    stop: &CancellationToken,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Option<Outcome>, Error> {
    let (started, mut is_noted) = (Instant::now(), false);
    // Waiting would not change this.
    if database.value("SELECT pg_is_in_recovery()").await? {
        return Ok(Some(Outcome::Postponed("this is a standby: rebuild on the primary".to_owned())));
    }
    loop {
        if stop.is_cancelled() {
            return Ok(Some(Outcome::told_to_stop()));
        }
        if let Some(time) = past_window(database, settings).await? {
            return Ok(Some(Outcome::Stopped(format!("the window is closed, it is {time}"))));
        }
        let Some(reason) = obstacle(database, table, dead_since, settings).await? else { return Ok(None) };
        if started.elapsed() > settings.patience {
            return Ok(Some(Outcome::Postponed(reason)));
        }
        if !is_noted {
            is_noted = true;
            note(&format!("waiting: {reason}"));
        }
        tokio::select! {
            () = sleep(POLL) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// The time with its zone, if it is outside the window. The server's clock counts, in the time zone of the session, which the database or the role
/// may set.
pub(crate) async fn past_window(database: &Database, settings: &Settings) -> Result<Option<String>, Error> {
    let Some(window) = settings.window else { return Ok(None) };
    let now = "SELECT (extract(hour FROM localtime) * 60 + extract(minute FROM localtime))::int, \
                      to_char(localtime, 'HH24:MI') || ' in time zone ' || current_setting('timezone')";
    let rows = database.rows(now).await?;
    let minute: i32 = rows[0].get(0);
    Ok((!window.contains(minute.unsigned_abs())).then(|| rows[0].get(1)))
}

/// The oldest transaction id that is still running: rows that are dead by now were deleted by older transactions.
pub(crate) async fn oldest_running(database: &Database) -> Result<String, Error> {
    database.value("SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint & 4294967295)::text").await
}

/// Whether another session holds, or waits for, a lock on the table that conflicts with CREATE INDEX, REINDEX and VACUUM. The session may be
/// building an index that is still invalid, and DROP INDEX CONCURRENTLY could deadlock with it. Autovacuum counts only if it prevents wraparound:
/// otherwise PostgreSQL cancels it for a session that waits.
pub(crate) async fn is_taken(database: &Database, table: u32) -> Result<bool, Error> {
    let locks =
        "'ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'";
    let sql = format!(
        "SELECT EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'relation' AND l.mode IN ({locks}) \
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND l.relation = {table} AND l.pid IS DISTINCT FROM pg_backend_pid() \
         AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = l.pid AND a.backend_type = 'autovacuum worker' \
                         AND a.query LIKE 'autovacuum: %' AND a.query NOT LIKE '%(to prevent wraparound)'))"
    );
    database.value(&sql).await
}

/// The first reason why the step cannot begin now.
async fn obstacle(
    database: &Database,
    table: u32,
    dead_since: Option<&str>,
    settings: &Settings,
) -> Result<Option<String>, Error> {
    if is_taken(database, table).await? {
        return Ok(Some(
            "another session builds an index of the table, vacuums it, or has a conflicting lock".to_owned(),
        ));
    }
    // Programs that only store or decode WAL report no position of replay, and PostgreSQL lets their lag grow for ever.
    let lag = "SELECT coalesce(max(extract(epoch FROM replay_lag)), 0)::float8 FROM pg_stat_replication \
               WHERE replay_lsn IS NOT NULL";
    let lag: f64 = database.value(lag).await?;
    if lag > settings.max_lag.as_secs_f64() {
        return Ok(Some(format!("a replica is {lag:.0} s behind")));
    }
    if let Some(reason) = transaction(database, table, dead_since.is_some(), settings).await? {
        return Ok(Some(reason));
    }
    match dead_since {
        Some(since) => xmin_holder(database, since).await,
        None => Ok(None),
    }
}

/// The oldest transaction that has been open too long. REINDEX CONCURRENTLY waits for transactions of this database, prepared ones too, with a
/// lock on the table or an older snapshot; VACUUM keeps the rows that they have deleted or may still see. For VACUUM, transactions of other
/// databases count if they have an id: every snapshot of this database, such as that of a query, keeps the rows that died after the oldest of
/// them began. A VACUUM of another table holds up neither statement. A concurrent build of an index without expressions or predicate holds up
/// VACUUM, but from PostgreSQL 14 on not REINDEX CONCURRENTLY.
async fn transaction(
    database: &Database,
    table: u32,
    vacuums: bool,
    settings: &Settings,
) -> Result<Option<String>, Error> {
    let locks = format!(
        "SELECT FROM pg_locks l WHERE l.locktype = 'relation' AND l.relation = {table} \
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    let builds = "SELECT b.pid FROM pg_stat_progress_create_index b JOIN pg_index i ON i.indexrelid = b.index_relid \
                  WHERE b.command LIKE '% CONCURRENTLY' AND i.indexprs IS NULL AND i.indpred IS NULL \
                    AND current_setting('server_version_num')::int >= 140000";
    let sql = format!(
        "SELECT what, age, waits, place FROM ( \
             SELECT format('the transaction of process %s', a.pid), extract(epoch FROM now() - a.xact_start)::float8, \
                    xmin IS NOT NULL AND worker.leader NOT IN ({builds}) OR EXISTS ({locks} AND l.pid = a.pid), \
                    coalesce(a.backend_xid, xmin) IS NOT NULL, a.datname \
             FROM pg_stat_activity a, LATERAL (SELECT coalesce(a.leader_pid, a.pid) AS leader) worker, \
                  LATERAL (SELECT CASE WHEN a.datname = current_database() THEN a.backend_xmin END AS xmin) here \
             WHERE a.backend_type <> 'autovacuum worker' AND a.pid <> pg_backend_pid() \
               AND worker.leader NOT IN (SELECT pid FROM pg_stat_progress_vacuum) \
               AND a.application_name <> 'lantern-index maintain' \
             UNION ALL \
             SELECT format('the prepared transaction \"%s\"', p.gid), extract(epoch FROM now() - p.prepared)::float8, \
                    EXISTS ({locks} AND l.pid IS NULL AND l.virtualtransaction IN ( \
                        SELECT x.virtualtransaction FROM pg_locks x WHERE x.pid IS NULL AND x.transactionid = p.transaction)), true, p.database \
             FROM pg_prepared_xacts p \
         ) t (what, age, waits, keeps, place) \
         WHERE age IS NOT NULL AND (waits OR keeps AND {vacuums}) ORDER BY age DESC LIMIT 1"
    );
    let rows = database.rows(&sql).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (what, age, waits): (String, f64, bool) = (row.get(0), row.get(1), row.get(2));
    let place = row.get::<_, Option<String>>(3).filter(|place| *place != database.name);
    let place = place.map(|place| format!(" in database \"{place}\"")).unwrap_or_default();
    let harm = if waits { "a rebuild would wait for it" } else { "VACUUM removes no row that it may still see" };
    let is_old = age > settings.max_transaction.as_secs_f64();
    Ok(is_old.then(|| format!("{what}{place} is open for {age:.0} s, and {harm}")))
}

/// A slot or replica whose xmin (hot_standby_feedback) keeps VACUUM from removing rows that died before `since`. The rebuilt index would
/// leave these rows out, but the table would keep them, and each run would rebuild the index again. Logical slots hold back only the
/// catalogs' rows (`catalog_xmin`).
async fn xmin_holder(database: &Database, since: &str) -> Result<Option<String>, Error> {
    let sql = format!(
        "SELECT what FROM ( \
             SELECT format('replication slot \"%s\", which is %s,', slot_name, CASE WHEN active THEN 'in use' ELSE 'not in use' END), xmin \
             FROM pg_replication_slots \
             UNION ALL \
             SELECT format('a query of the replica \"%s\" (hot_standby_feedback)', application_name), backend_xmin \
             FROM pg_stat_replication \
         ) t (what, xmin) WHERE xmin IS NOT NULL AND age(xmin) > age('{since}'::xid) ORDER BY age(xmin) DESC LIMIT 1"
    );
    let rows = database.rows(&sql).await?;
    let what: Option<String> = rows.first().map(|row| row.get(0));
    Ok(what.map(|what| {
        format!("{what} keeps VACUUM from removing dead rows, and the index would be rebuilt again and again")
    }))
}
