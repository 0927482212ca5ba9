use anyhow::Result;

use crate::{Cluster, Session};

/// Rows per INSERT that the head sends to a node (`batch_size`).
const AT_ONCE: usize = 100;

/// A table `items (id int, …)` whose rows are on other servers, in a table `items` with the same columns. It is partitioned by hash of the
/// id; each partition is a foreign table of postgres_fdw: `items_1`, `items_2`, …. Needs PostgreSQL 14 or newer.
pub fn federate(head: &mut Session, columns: &str, nodes: &[&Cluster], database: &str) -> Result<()> {
    head.execute(&format!("CREATE EXTENSION postgres_fdw; CREATE TABLE items ({columns}) PARTITION BY HASH (id)"))?;
    for (node, number) in nodes.iter().zip(1..) {
        let (host, modulus, remainder) = (node.dir().display(), nodes.len(), number - 1);
        head.execute(&format!(
            "CREATE SERVER node_{number} FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{host}', dbname '{database}', \
             extensions 'vector', async_capable 'true', batch_size '{AT_ONCE}', options ''); \
             CREATE USER MAPPING FOR CURRENT_USER SERVER node_{number}; \
             CREATE FOREIGN TABLE items_{number} PARTITION OF items \
             FOR VALUES WITH (MODULUS {modulus}, REMAINDER {remainder}) \
             SERVER node_{number} OPTIONS (table_name 'items')"
        ))?;
    }
    Ok(())
}

/// Makes the nodes search by their indexes with this hnsw.ef_search, by options of the head's connections, which are reopened.
pub fn federate_ef_search(head: &mut Session, nodes: usize, ef_search: u32) -> Result<()> {
    for number in 1..=nodes {
        head.execute(&format!(
            "ALTER SERVER node_{number} OPTIONS \
             (SET options '-c hnsw.ef_search={ef_search} -c enable_seqscan=off')"
        ))?;
    }
    Ok(())
}
