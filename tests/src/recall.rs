use std::collections::HashSet;

use anyhow::{Context, Result, bail, ensure};

use crate::{Metric, Session};

/// A search, with the expected result.
#[derive(Clone, Copy, Debug)]
pub struct Recall<'a> {
    /// The indexed table, with columns `id` and `v`.
    pub table: &'a str,
    /// The table of queries.
    pub queries: &'a str,
    /// The metric the index was made for.
    pub metric: Metric,
    /// The true nearest rows of each query.
    pub exact: &'a [Vec<u32>],
}

/// The fraction of the true nearest rows that index scans find with this ef_search.
///
/// # Errors
/// The plan uses no index, or a statement fails.
pub fn recall(session: &mut Session, search: Recall<'_>, ef_search: u32) -> Result<f64> {
    let Recall { table, queries, metric, exact } = search;
    let k = exact.iter().map(Vec::len).max().context("no queries")?;
    let sql = format!(
        "SELECT q.id, n.id FROM {queries} q CROSS JOIN LATERAL \
         (SELECT t.id FROM {table} t ORDER BY t.v {} q.v LIMIT {k}) n",
        metric.operator()
    );
    session.execute(&format!("SET hnsw.ef_search = {ef_search}; SET enable_seqscan = off; SET enable_sort = off"))?;
    let plan = session.plan(&sql)?;
    ensure!(plan.contains("Index Scan using"), "the plan uses no index:\n{plan}");
    let rows = session.query(&sql)?;
    session.execute("RESET enable_seqscan; RESET enable_sort")?;
    let (mut hits, mut seen) = (0usize, HashSet::new());
    for row in &rows {
        let [Some(query), Some(found)] = &row[..] else { bail!("a row without id: {row:?}") };
        let (query, found) = (query.parse::<usize>()?, found.parse()?);
        ensure!(seen.insert((query, found)), "row {found} is found twice");
        hits += usize::from(exact.get(query).context("more queries than expected")?.contains(&found));
    }
    Ok(hits as f64 / exact.iter().map(Vec::len).sum::<usize>() as f64)
}
