use anyhow::Result;
use harness::{Cluster, Metric, Session};

use super::NEIGHBORS;
use super::stage::{DATABASE, INDEX};

/// How many pages of the index PostgreSQL reads for a query when its cache is empty: before each, the server is restarted.
pub fn pages_per_query(cluster: &mut Cluster, metric: Metric, ef_search: u32, queries: usize) -> Result<f64> {
    let before = pages_read(cluster)?;
    for query in 0..queries {
        cluster.restart()?;
        let mut session = cluster.session(DATABASE)?;
        let operator = metric.operator();
        session.execute(&format!(
            "SET hnsw.ef_search = {ef_search}; SET enable_seqscan = off; SET enable_sort = off; \
             SELECT id FROM items ORDER BY v {operator} (SELECT v FROM queries WHERE id = {query}) LIMIT {NEIGHBORS}"
        ))?;
    }
    Ok((pages_read(cluster)? - before) / queries as f64)
}

/// Counted when sessions end, and certainly when the server has stopped.
fn pages_read(cluster: &mut Cluster) -> Result<f64> {
    cluster.restart()?;
    let mut session: Session = cluster.session(DATABASE)?;
    session.value(&format!("SELECT idx_blks_read FROM pg_statio_user_indexes WHERE indexrelname = '{INDEX}'"))
}
