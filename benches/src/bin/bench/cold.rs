use anyhow::Result;
use harness::{Cluster, Metric, Session};

use super::NEIGHBORS;
use super::stage::DATABASE;

/// The pages of the index on `v` that PostgreSQL reads per query of `table` with an empty cache. The server restarts before each query.
pub fn pages_per_query(
    cluster: &mut Cluster,
    table: &str,
    metric: Metric,
    ef_search: u32,
    queries: usize,
) -> Result<f64> {
    let before = pages_read(cluster, table)?;
    for query in 0..queries {
        cluster.restart()?;
        let mut session = cluster.session(DATABASE)?;
        let operator = metric.operator();
        session.execute(&format!(
            "SET hnsw.ef_search = {ef_search}; SET enable_seqscan = off; SET enable_sort = off; \
             SELECT id FROM {table} ORDER BY v {operator} (SELECT v FROM queries WHERE id = {query}) LIMIT {NEIGHBORS}"
        ))?;
    }
    Ok((pages_read(cluster, table)? - before) / queries as f64)
}

/// Sessions report their statistics when they end, so the server is stopped first.
fn pages_read(cluster: &mut Cluster, table: &str) -> Result<f64> {
    cluster.restart()?;
    let mut session: Session = cluster.session(DATABASE)?;
    session.value(&format!(
        "SELECT idx_blks_read FROM pg_statio_user_indexes WHERE relname = '{table}' AND indexrelname = '{table}_v_idx'"
    ))
}
