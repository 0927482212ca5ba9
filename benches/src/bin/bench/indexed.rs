//! `CREATE INDEX`, timed.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use harness::{Notice, Session};

use super::options::Case;
use super::watch;

/// The cost of a build.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Built {
    pub seconds: f64,
    /// Seconds of an external build's phases: reading the table, waiting for the graph, writing pages.
    pub phases: Option<[f64; 3]>,
}

/// `CREATE INDEX` for a key such as `v vector_l2_ops`. The index is named after the table, with `_v_idx`.
pub fn statement(table: &str, key: &str, Case { m, ef_construction }: Case, external: bool) -> String {
    let external = if external { ", external = true" } else { "" };
    format!(
        "CREATE INDEX {table}_v_idx ON {table} USING hnsw ({key}) \
         WITH (m = {m}, ef_construction = {ef_construction}{external})"
    )
}

/// Runs `CREATE INDEX`; fails if the database's build did not have enough memory.
pub fn create(session: &mut Session, sql: &str) -> Result<Built> {
    let (built, spilled) = create_anyway(session, sql)?;
    expect_not(spilled.as_deref())?;
    Ok(built)
}

/// Runs `CREATE INDEX`. Returns also the NOTICE of a build in the database that did not have enough memory.
pub fn create_anyway(session: &mut Session, sql: &str) -> Result<(Built, Option<String>)> {
    session.take_notices();
    let start = Instant::now();
    session.execute(sql).context("the index was not built")?;
    let seconds = start.elapsed().as_secs_f64();
    let notices = session.take_notices();
    let phases = notices.iter().find_map(|notice| watch::phases(&notice.detail));
    Ok((Built { seconds, phases }, spilled(&notices).map(str::to_owned)))
}

/// Fails if the notices say that the database's build did not have enough memory.
pub fn expect_memory(notices: &[Notice]) -> Result<()> {
    expect_not(spilled(notices))
}

fn spilled(notices: &[Notice]) -> Option<&str> {
    notices.iter().map(|notice| notice.message.as_str()).find(|message| message.contains("no longer fits"))
}

fn expect_not(spilled: Option<&str>) -> Result<()> {
    ensure!(spilled.is_none(), "the database's build did not have the memory it wants: {spilled:?}");
    Ok(())
}
