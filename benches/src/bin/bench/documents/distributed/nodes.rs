use anyhow::Result;
use harness::{Cluster, Session, copy_rows, cores, federate, federate_ef_search};

use super::super::super::set::Set;
use super::super::ground::Ground;
use super::M;

const DATABASE: &str = "vectors";

/// A server with a table `items`.
pub struct Node {
    pub session: Session,
    cluster: Cluster,
}

impl Node {
    pub fn start(ground: &Ground, set: &Set) -> Result<Self> {
        let cluster = ground.cluster("shared_buffers = 512MB")?;
        let mut session = cluster.database(DATABASE)?;
        session.execute(&Ground::build_settings(set, ground.sizes.m.unwrap_or(M), cores()))?;
        session.execute("SET enable_seqscan = off; SET client_min_messages = notice")?;
        // The vectors stay in the table (no TOAST), as in the document.
        let columns = columns(set);
        session.execute(&format!("CREATE TABLE items ({columns}); ALTER TABLE items ALTER v SET STORAGE PLAIN"))?;
        session.execute(&format!("ALTER TABLE items SET (parallel_workers = {})", (cores() - 1).max(1)))?;
        Ok(Self { session, cluster })
    }

    /// Fills the table with all rows.
    pub fn fill(&mut self, set: &Set) -> Result<()> {
        fill(&mut self.session, set)?;
        Ok(self.session.execute("ANALYZE items")?)
    }
}

/// A server whose table `items` is partitioned over two nodes by hash of the id.
pub struct Head {
    pub session: Session,
    _cluster: Cluster,
}

impl Head {
    pub fn start(ground: &Ground, set: &Set, nodes: &[Node; 2]) -> Result<Self> {
        let cluster = ground.cluster("shared_buffers = 512MB")?;
        let mut session = cluster.database(DATABASE)?;
        federate(&mut session, &columns(set), &nodes.each_ref().map(|node| &node.cluster), DATABASE)?;
        Ok(Self { session, _cluster: cluster })
    }

    /// Fills the tables of both nodes.
    pub fn fill(&mut self, set: &Set) -> Result<()> {
        fill(&mut self.session, set)
    }

    /// Sets hnsw.ef_search on the nodes.
    pub fn set_ef_search(&mut self, ef_search: u32) -> Result<()> {
        federate_ef_search(&mut self.session, 2, ef_search)
    }
}

fn fill(session: &mut Session, set: &Set) -> Result<()> {
    copy_rows(session, "loaded", set.column, &set.base)?;
    Ok(session.execute("INSERT INTO items SELECT * FROM loaded; DROP TABLE loaded")?)
}

fn columns(set: &Set) -> String {
    format!("id int, v vector({})", set.base.dims())
}
