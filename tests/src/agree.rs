use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::{Rows, Session};

/// The `k` rows of `table (id, v)` nearest to each of `queries (id, v)` by L2 distance, by index scans or
/// exactly, as sorted pairs of query id and row id.
pub fn near_rows(session: &mut Session, table: &str, queries: &str, k: u32, exactly: bool) -> Result<Vec<(u32, u32)>> {
    let sql = format!(
        "SELECT q.id, n.id FROM {queries} q CROSS JOIN LATERAL \
         (SELECT t.id FROM {table} t ORDER BY t.v <-> q.v LIMIT {k}) n ORDER BY 1, 2"
    );
    session.execute("SET hnsw.ef_search = 200")?;
    search_rows(session, table, &sql, exactly)?
        .iter()
        .map(|row| match &row[..] {
            [Some(query), Some(found)] => Ok((query.parse()?, found.parse()?)),
            _ => anyhow::bail!("unexpected row {row:?}"),
        })
        .collect()
}

/// Runs a search of `table t` by index scans or exactly, and checks that its plan is so.
pub fn search_rows(session: &mut Session, table: &str, sql: &str, exactly: bool) -> Result<Rows> {
    let (unwanted, wanted) = if exactly { ("indexscan", "Seq Scan on") } else { ("seqscan", "Index Scan using") };
    session.execute(&format!("SET enable_{unwanted} = off"))?;
    let plan = session.plan(sql)?;
    let of_table = format!(".{table} t");
    let is_so = plan.lines().any(|line| line.contains(wanted) && line.contains(&of_table));
    ensure!(is_so, "no {wanted} {table} in\n{plan}");
    let rows = session.query(sql)?;
    session.execute(&format!("RESET enable_{unwanted}"))?;
    Ok(rows)
}

/// Settings by which one index scan returns the whole table.
pub const READ_ALL: &str = "SET hnsw.iterative_scan = relaxed_order; SET hnsw.max_scan_tuples = 2147483647; \
                            SET hnsw.scan_mem_multiplier = 1000";

/// How many rows that pgvector has inserted may be missing.
const STRANDED: usize = 10;

/// Checks that an iterative index scan of `table (id, v)` returns every row once. pgvector has inserted the rows with ids of `inserted` or more:
/// a few may be missing, since no search finds such a row if no neighbor has room for a link back. Not for rows in clusters far apart: in
/// pgvector's own graphs, some clusters may be unreachable.
pub fn expect_every_row(session: &mut Session, table: &str, inserted: u32) -> Result<()> {
    session.execute(&format!("SET enable_seqscan = off; {READ_ALL}"))?;
    let sql = format!("SELECT id FROM {table} ORDER BY v <-> (SELECT v FROM {table} WHERE v IS NOT NULL LIMIT 1)");
    let plan = session.plan(&sql)?;
    ensure!(plan.contains("Index Scan using"), "no index in\n{plan}");
    let found = ids(session, &sql)?;
    session.execute("RESET enable_seqscan; RESET hnsw.iterative_scan")?;
    let stored = ids(session, &format!("SELECT id FROM {table} WHERE v IS NOT NULL"))?;
    expect_each_once(&found, &stored, inserted).map(drop)
}

/// Checks that a scan has found the ids of all stored rows once. Returns the number of rows that are missing: a few rows with ids from `inserted` on may be.
pub fn expect_each_once(found: &[u32], stored: &[u32], inserted: u32) -> Result<usize> {
    let all: BTreeSet<u32> = stored.iter().copied().collect();
    ensure!(!all.is_empty(), "the table has no rows");
    let seen: BTreeSet<u32> = found.iter().copied().collect();
    ensure!(found.len() == seen.len(), "the index returns {} rows twice", found.len() - seen.len());
    let missing: Vec<u32> = all.difference(&seen).copied().collect();
    let tolerated = missing.len() <= STRANDED && missing.iter().all(|&id| id >= inserted);
    ensure!(tolerated, "the index returns {} of {} rows; {missing:?} are missing", seen.len(), all.len());
    ensure!(seen.is_subset(&all), "the index returns rows that are not in the table");
    Ok(missing.len())
}

fn ids(session: &mut Session, sql: &str) -> Result<Vec<u32>> {
    let rows = session.query(sql)?;
    rows.iter().flatten().flatten().map(|id| Ok(id.parse()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::expect_each_once;

    #[test]
    fn only_a_few_inserted_rows_may_be_missing() {
        let stored: Vec<u32> = (0..100).collect();
        let missing = |found: &[u32], inserted| expect_each_once(found, &stored, inserted).ok();
        assert_eq!(missing(&stored, 100), Some(0));
        assert_eq!(missing(&stored[..90], 90), Some(10));
        assert_eq!(missing(&stored[..90], 91), None, "row 90 was there before");
        assert_eq!(missing(&stored[..89], 0), None, "too many");
        assert_eq!(missing(&[&stored[..], &[5]].concat(), 0), None, "twice");
        assert_eq!(missing(&[&stored[..], &[100]].concat(), 0), None, "not stored");
    }
}
