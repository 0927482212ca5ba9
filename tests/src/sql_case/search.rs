use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

use crate::{READ_ALL, Rows, Session};

use super::BuildIn;
use super::outcome::Outcome;
use super::script::Step;

const RESET: &str = "RESET enable_indexscan; RESET enable_seqscan; RESET enable_sort; \
                     RESET hnsw.iterative_scan; RESET hnsw.max_scan_tuples; RESET hnsw.scan_mem_multiplier";

/// Runs the search without and with the indexes, then reads the whole table through them, ordered by one query.
pub(super) fn search(session: &mut Session, build_in: BuildIn, step: &Step, indexes: &[String]) -> Result<Outcome> {
    let queries = step.queries.as_deref().context("a search has queries")?;
    let searched = search_all(session, &step.sql, queries, indexes);
    let searched = searched.and_then(|outcome| {
        // An inner LIMIT would prevent reading all rows.
        if step.sql.matches("LIMIT").count() == 1 {
            let (sql, _) = step.sql.rsplit_once("LIMIT").context("a search has a LIMIT")?;
            let lost = read_all(session, sql, &format!("SELECT * FROM ({queries}) one LIMIT 1"), indexes)?;
            ensure!(
                build_in == BuildIn::Database || lost <= step.lost,
                "{lost} rows cannot be found by the index, {} are expected at most",
                step.lost
            );
        }
        Ok(outcome)
    })?;
    session.execute(RESET)?;
    if let (Some(floor), Some(recall)) = (&step.recall, searched.recall()) {
        ensure!(recall >= floor.parse()?, "recall {recall:.4}, at least {floor} is expected");
    }
    Ok(searched)
}

fn search_all(session: &mut Session, sql: &str, queries: &str, indexes: &[String]) -> Result<Outcome> {
    let sql = with_queries(sql, queries);
    session.execute("SET enable_indexscan = off")?;
    let mut exact = Found::by(session, &sql, &[], indexes)?;
    session.execute("SET enable_indexscan = on; SET enable_seqscan = off; SET enable_sort = off")?;
    let found = Found::by(session, &sql, indexes, &[])?;
    let (mut hits, mut wanted) = (0, 0);
    for (query, rows) in &exact.0 {
        // Rows at equal distance are interchangeable.
        let farthest = rows.iter().map(|(_, distance)| *distance).fold(f64::NEG_INFINITY, f64::max);
        let near = |rows: &[(String, f64)]| rows.iter().filter(|(_, distance)| *distance <= farthest).count();
        wanted += rows.len();
        hits += found.0.get(query).map_or(0, |rows| near(rows)).min(rows.len());
    }
    ensure!(wanted > 0, "exact search finds nothing");
    Ok(Outcome::Search { exact: exact.comparable(), recall: hits as f64 / wanted as f64 })
}

/// Reads all rows and fails if one is returned twice. Returns how many the indexes do not return: pgvector may leave elements unreachable.
fn read_all(session: &mut Session, sql: &str, query: &str, indexes: &[String]) -> Result<usize> {
    let sql = with_queries(sql, query);
    session.execute("SET enable_indexscan = off; RESET enable_seqscan; RESET enable_sort")?;
    let wanted = Found::by(session, &sql, &[], indexes)?.ids();
    session
        .execute(&format!("SET enable_indexscan = on; SET enable_seqscan = off; SET enable_sort = off; {READ_ALL}"))?;
    let found = Found::by(session, &sql, indexes, &[])?.ids();
    let strange: Vec<_> = found.difference(&wanted).take(10).collect();
    ensure!(strange.is_empty(), "rows found by the index only: {strange:?}");
    Ok(wanted.len() - found.len())
}

/// Numbers the queries and runs the search for each by a lateral join.
fn with_queries(sql: &str, queries: &str) -> String {
    let search = sql.replace(":q", "queries.q");
    format!(
        "SELECT queries.n, found.* FROM (SELECT row_number() OVER (), * FROM ({queries}) vectors) AS queries (n, q) \
         CROSS JOIN LATERAL ({search}) found"
    )
}

/// For each query, ids and distances of rows. Rows without a distance (NULL, or zero vectors under cosine) are left out, as by indexes.
struct Found(BTreeMap<u64, Vec<(String, f64)>>);

impl Found {
    /// Runs a statement whose plan must use all indexes of `used` and none of `unused`.
    fn by(session: &mut Session, sql: &str, used: &[String], unused: &[String]) -> Result<Self> {
        let plan = session.plan(sql)?;
        let uses = |index: &String| plan.contains(&format!("Index Scan using {index} on"));
        ensure!(used.iter().all(uses) && !unused.iter().any(uses), "not the expected plan:\n{plan}");
        let mut found: BTreeMap<u64, Vec<(String, f64)>> = BTreeMap::new();
        for row in session.query(sql)? {
            let [Some(query), Some(id), distance] = &row[..] else {
                anyhow::bail!("a search gives id and distance, not {row:?}");
            };
            let Some(distance) = distance else { continue };
            let distance: f64 = distance.parse()?;
            if !distance.is_nan() {
                found.entry(query.parse()?).or_default().push((id.clone(), distance));
            }
        }
        for (query, rows) in &found {
            let distinct: BTreeSet<_> = rows.iter().map(|(id, _)| id).collect();
            ensure!(distinct.len() == rows.len(), "query {query}: a row is found twice: {rows:?}");
        }
        Ok(Self(found))
    }

    fn ids(self) -> BTreeSet<String> {
        self.0.into_values().flatten().map(|(id, _)| id).collect()
    }

    /// The rows in a canonical order, without ids at the greatest distance: ties at the LIMIT are arbitrary.
    fn comparable(&mut self) -> Rows {
        let mut all = Vec::new();
        for (query, rows) in &mut self.0 {
            rows.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
            let farthest = rows.last().map_or(0.0, |(_, distance)| *distance);
            all.extend(rows.iter().map(|(id, distance)| {
                let id = (*distance < farthest).then(|| id.clone());
                vec![Some(query.to_string()), id, Some(distance.to_string())]
            }));
        }
        all
    }
}
