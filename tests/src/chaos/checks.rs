//! Checks whether an index is correct, and whether a failure is one that the fault explains.

use std::io;

use anyhow::{Context, Result, bail, ensure};
use harness::{Notice, Session, SqlError, search_rows};

use crate::databases::{QUERIES, cluster_of};
use crate::documented::Documented;
use crate::fault::{Fault, Party};
use crate::plan::{Build, Plan};
use crate::tables::{self, Table};

/// Neighbors per query.
const NEIGHBORS: usize = 10;
/// The least recall at ef_search 200. Searches then visit more than a tenth of all rows.
const RECALL: f64 = 0.93;

/// The name of a build's index.
pub fn index(build: &Build) -> String {
    format!("{}_idx", tables::ALL[build.table].name)
}

/// Checks a table's indexes after its statement.
pub fn indexes(session: &mut Session, plan: &Plan, build: &Build, result: &Result<(), SqlError>) -> Result<bool> {
    let table = tables::ALL[build.table];
    let others = session.query(&format!(
        "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = '{}'::regclass AND NOT indisvalid",
        table.name
    ))?;
    for other in others.iter().flatten().flatten() {
        session.execute(&format!("DROP INDEX {other}"))?;
    }
    let may_be_left = build.form.is_concurrent() && result.is_err();
    ensure!(others.len() <= usize::from(may_be_left), "indexes that are not valid are left: {others:?}");
    let sql = format!("SELECT count(*) FROM pg_index WHERE indrelid = '{}'::regclass AND indisvalid", table.name);
    let valid: usize = session.value(&sql)?;
    let expected = match result {
        Ok(()) => 1..=1,
        // The statement may have succeeded although the session was lost.
        Err(_) if plan.fault.ends_sessions() => usize::from(build.form.is_reindex())..=1,
        Err(_) => usize::from(build.form.is_reindex())..=usize::from(build.form.is_reindex()),
    };
    ensure!(expected.contains(&valid), "{valid} valid indexes after {result:?}");
    Ok(valid == 1)
}

/// Checks that the index has every row and no errors, and agrees with an exact search. An index built in the database may have a few
/// unreachable elements, as pgvector's graphs sometimes do.
pub fn is_right(session: &mut Session, table: &Table, by_database: bool) -> Result<()> {
    session.execute("SET hnsw.ef_search = 200")?;
    let rows: usize = session.value(&format!("SELECT count(v) FROM {}", table.name))?;
    let sql = format!("SELECT rows, errors, unreachable, advice FROM lantern_index.check('{}_idx', 10)", table.name);
    let checked = session.query(&sql).with_context(|| sql.clone())?;
    let [Some(indexed), Some(errors), Some(unreachable), Some(advice)] =
        &checked.first().context("no answer of check()")?[..]
    else {
        bail!("check() says {checked:?}")
    };
    ensure!(
        indexed.parse() == Ok(rows) && errors == "0" && (unreachable == "0" || by_database),
        "{rows} rows, and check() counts {indexed}, {errors} errors, {unreachable} unreachable: {advice}"
    );
    let distances = |session: &mut Session, exactly: bool| -> Result<Vec<(usize, f64)>> {
        // The distances from a query to its nearest rows; rows at the same distance are interchangeable.
        let sql = format!(
            "SELECT q.id, n.d FROM {0}_q q CROSS JOIN LATERAL (SELECT t.v {1} q.v AS d FROM {0} t WHERE t.v IS NOT NULL \
             ORDER BY t.v {1} q.v LIMIT {NEIGHBORS}) n ORDER BY 1, 2",
            table.name,
            table.metric.operator()
        );
        let found = search_rows(session, table.name, &sql, exactly)?;
        let pair = |row: &Vec<Option<String>>| -> Option<(usize, f64)> {
            Some((row[0].as_ref()?.parse().ok()?, row[1].as_ref()?.parse().ok()?))
        };
        found.iter().map(|row| pair(row).with_context(|| format!("unexpected row {row:?}"))).collect()
    };
    let (exact, found) = (distances(session, true)?, distances(session, false)?);
    let farthest = |query: usize| {
        let all = exact.iter().filter(|(other, _)| *other == query).map(|&(_, distance)| distance);
        all.fold(f64::NEG_INFINITY, f64::max)
    };
    let hits = (0..QUERIES).map(|query| {
        let limit = farthest(query);
        found.iter().filter(|(other, distance)| *other == query && *distance <= limit + 1e-5).count()
    });
    let hits: usize = hits.sum();
    ensure!(found.len() <= exact.len(), "{} rows are found, and there are {}", found.len(), exact.len());
    ensure!(hits as f64 >= RECALL * exact.len() as f64, "{hits} of {} nearest rows are found", exact.len());
    Ok(())
}

/// What is unexpected about the failure of build number `at`, if anything.
pub fn failure(plan: &Plan, at: usize, error: &SqlError, documented: &Documented) -> Option<String> {
    let build = &plan.builds[at];
    let is_same_cluster = cluster_of(build.database) == cluster_of(plan.builds[0].database);
    let is_hit = match plan.fault {
        fault if fault.is_harmless() => false,
        fault if fault.ends_sessions() => is_same_cluster,
        Fault::Terminate(Party::Backend) | Fault::Cancel => at == 0,
        // Builds with odd numbers use the second router.
        fault if fault.has_replica() => at % 2 == 1,
        _ => true,
    };
    if !is_hit {
        return Some(format!("failed, though the fault did not concern it: {}", one_line(error)));
    }
    let notice = match error {
        SqlError::Server(notice) => notice,
        SqlError::Connection(_) if plan.fault.ends_sessions() => return None,
        // A terminated backend reports it, unless its client is writing the statement at that time.
        SqlError::Connection(lost)
            if plan.fault == Fault::Terminate(Party::Backend) && lost.kind() == io::ErrorKind::BrokenPipe =>
        {
            return None;
        }
        SqlError::Connection(_) => return Some(format!("its session was lost: {error}")),
    };
    let expected = match plan.fault {
        Fault::FullDisk => Some("53100"),
        Fault::LittleMemory => Some("53200"),
        // Builds that wait for a builder may be refused; builds that have one do not need the API server.
        Fault::ApiServer(_) => Some("57000"),
        _ => None,
    };
    if let Some(expected) = expected.filter(|&expected| notice.sqlstate != expected) {
        return Some(format!("failed, with another SQLSTATE than {expected}: {}", one_line(error)));
    }
    if !documented.has(notice) && !is_of_postgres(plan.fault, notice) {
        return Some(format!("failed with an error that docs/errors.md does not have: {}", one_line(error)));
    }
    None
}

/// Whether the message comes from PostgreSQL itself.
fn is_of_postgres(fault: Fault, error: &Notice) -> bool {
    match fault {
        Fault::Cancel => error.sqlstate == "57014",
        Fault::Terminate(Party::Backend) => error.sqlstate == "57P01",
        fault => fault.ends_sessions() && ["57P01", "57P02"].contains(&error.sqlstate.as_str()),
    }
}

/// The error in one line.
pub fn one_line(error: &SqlError) -> String {
    error.to_string().replace('\n', " ")
}
