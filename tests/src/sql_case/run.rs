use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::{Cluster, Column, Session, SqlError, copy_rows, data_set, inspect, wait_for};

use super::outcome::Outcome;
use super::script::Step;
use super::{BuildIn, search};

/// The number of query vectors to load.
const QUERIES: usize = 100;

/// Runs all statements in a database, and then checks that the files of all valid indexes have no errors.
pub(super) fn run(cluster: &Cluster, database: &str, build_in: BuildIn, steps: &[Step]) -> Result<Vec<Outcome>> {
    let mut session = cluster.session(database)?;
    let mut outcomes = Vec::new();
    for step in steps {
        let outcome = run_step(&mut session, build_in, step);
        outcomes.push(outcome.with_context(|| format!("line {}: {}", step.line, step.sql))?);
        if step.search.is_some() {
            inspect_all(cluster, &mut session, build_in)?;
        }
    }
    inspect_all(cluster, &mut session, build_in)?;
    Ok(outcomes)
}

fn run_step(session: &mut Session, build_in: BuildIn, step: &Step) -> Result<Outcome> {
    if let Some((set, rows)) = &step.load {
        load(session, set, *rows)?;
        return Ok(Outcome::Rows(Vec::new()));
    }
    if let Some(indexes) = &step.search {
        return search::search(session, build_in, step, indexes);
    }
    if !step.builds.is_empty() {
        settle(session)?;
    }
    session.take_notices();
    let result = session.query(&step.sql);
    expect_builds(session, build_in, &step.builds)?;
    match (result, &step.fails) {
        (Ok(rows), None) => Ok(Outcome::Rows(rows)),
        (Err(SqlError::Server(error)), Some(sqlstate)) => {
            ensure!(error.sqlstate == *sqlstate, "SQLSTATE {} instead of {sqlstate}: {error}", error.sqlstate);
            Ok(Outcome::Error(error.to_string()))
        }
        (Ok(_), Some(_)) => bail!("the statement should fail"),
        (Err(error), _) => Err(error.into()),
    }
}

/// Waits until all transactions see the last changes: before, a build must index deleted rows. Transactions of other databases count too.
fn settle(session: &mut Session) -> Result<()> {
    if session.query("SELECT pg_current_xact_id_if_assigned()")? != [[None]] {
        return Ok(());
    }
    let done: u64 = session.value("SELECT pg_current_xact_id()")?;
    wait_for("other transactions", Duration::from_secs(120), || {
        let oldest: u64 = session.value("SELECT pg_snapshot_xmin(pg_current_snapshot())")?;
        Ok((oldest > done).then_some(()))
    })
}

/// Checks by INFO lines that exactly the expected builds were external: each line has the rows and the partition.
fn expect_builds(session: &mut Session, build_in: BuildIn, rows: &[u64]) -> Result<()> {
    let notices = session.take_notices();
    let built: Vec<u64> = notices
        .iter()
        .filter(|notice| notice.severity == "INFO")
        .filter_map(|notice| notice.message.strip_prefix("indexed ")?.split_once(" elements")?.0.parse().ok())
        .collect();
    let wanted = if build_in == BuildIn::External { rows } else { &[] };
    ensure!(built == wanted, "built by the builder: {built:?}, expected: {wanted:?}; said: {notices:?}");
    Ok(())
}

/// Makes and fills the tables SET and SET_queries.
fn load(session: &mut Session, set: &str, rows: usize) -> Result<()> {
    let directory = match set {
        "glove" => "glove-100",
        "minilm" => "minilm-384",
        _ => bail!("no such set of vectors: {set}"),
    };
    let (base, queries) = data_set(directory)?;
    copy_rows(session, set, Column::Vector, &base.truncated(rows))?;
    copy_rows(session, &format!("{set}_queries"), Column::Vector, &queries.truncated(QUERIES))
}

/// Inspects the files of all indexes, after a checkpoint.
fn inspect_all(cluster: &Cluster, session: &mut Session, build_in: BuildIn) -> Result<()> {
    let superuser: String = session.value("SHOW is_superuser")?;
    if build_in == BuildIn::Database || superuser == "off" {
        return Ok(());
    }
    let indexes = session.query(
        "SELECT c.oid::regclass FROM pg_class c JOIN pg_am a ON a.oid = c.relam JOIN pg_index i ON i.indexrelid = c.oid \
         WHERE a.amname = 'hnsw' AND c.relkind = 'i' AND c.relpersistence = 'p' AND i.indisvalid",
    )?;
    for index in indexes.iter().flatten().flatten() {
        inspect(cluster, session, index).with_context(|| index.clone())?;
    }
    Ok(())
}
