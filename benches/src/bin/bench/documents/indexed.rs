use std::time::Instant;

use anyhow::{Context, Result, ensure};
use harness::{Builder, Session};

use super::super::options::Case;
use super::super::watch;

/// The cost of a build.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Built {
    pub seconds: f64,
    /// Seconds of an external build's phases: reading the table, waiting for the graph, writing pages.
    pub phases: Option<[f64; 3]>,
}

/// Runs `CREATE INDEX` on the column `v`, externally if there is a builder. The index is named after the table, with `_v_idx`.
pub fn create_index(
    session: &mut Session,
    table: &str,
    opclass: &str,
    case: Case,
    builder: Option<&Builder>,
) -> Result<Built> {
    if let Some(builder) = builder {
        builder.attach(session)?;
    }
    create(session, table, opclass, case, builder.is_some())
}

/// The same by the builder in the session's settings.
pub fn create(session: &mut Session, table: &str, opclass: &str, case: Case, external: bool) -> Result<Built> {
    let external = if external { ", external = true" } else { "" };
    let Case { m, ef_construction } = case;
    session.take_notices();
    let start = Instant::now();
    session
        .execute(&format!(
            "CREATE INDEX {table}_v_idx ON {table} USING hnsw (v {opclass}) \
             WITH (m = {m}, ef_construction = {ef_construction}{external})"
        ))
        .context("the index was not built")?;
    let seconds = start.elapsed().as_secs_f64();
    let notices = session.take_notices();
    let spilled = notices.iter().any(|notice| notice.message.contains("no longer fits"));
    ensure!(!spilled, "the database's build did not have the memory it wants: {notices:?}");
    Ok(Built { seconds, phases: notices.iter().find_map(|notice| watch::phases(&notice.detail)) })
}
