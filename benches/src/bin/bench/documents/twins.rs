use anyhow::Result;
use harness::{Cluster, Recall, Session, copy_rows, cores, recall, step};

use super::super::NEIGHBORS;
use super::super::indexed::{self, Built};
use super::super::options::Case;
use super::super::set::Set;
use super::super::stage::DATABASE;
use super::ground::Ground;

/// Names and tables of the twins, and whether a builder built the index.
pub const TWINS: [(&str, &str, bool); 2] =
    [("external", "items_external", true), ("database", "items_database", false)];

/// A cluster with the same table twice: one indexed externally, the other in the database.
pub struct Twins {
    pub cluster: Cluster,
    /// The builds, in the order of [`TWINS`].
    pub built: [Built; 2],
}

impl Twins {
    /// Loads the rows and builds both indexes, each build with all cores.
    pub fn new(ground: &Ground, set: &Set, case: Case) -> Result<Self> {
        let cluster = ground.cluster("")?;
        let builder = ground.builder(&[])?;
        let mut session = cluster.database(DATABASE)?;
        copy_rows(&mut session, "queries", set.column, &set.queries)?;
        session.execute("CREATE UNIQUE INDEX ON queries (id); ANALYZE queries")?;
        session.execute(&Ground::build_settings(set, case.m, cores()))?;
        builder.attach(&mut session)?;
        let mut built = Vec::new();
        for (name, table, external) in TWINS {
            copy_rows(&mut session, table, set.column, &set.base)?;
            session.execute(&format!(
                "ALTER TABLE {table} SET (parallel_workers = {}); CHECKPOINT",
                (cores() - 1).max(1)
            ))?;
            let sql = indexed::statement(table, &set.key(), case, external);
            let build = || indexed::create(&mut session, &sql);
            built.push(step::timed(&format!("{}: building the index: {name}", set.title()), build)?);
        }
        Ok(Self { cluster, built: [built[0], built[1]] })
    }

    pub fn session(&self) -> Result<Session> {
        self.cluster.session(DATABASE)
    }

    /// recall@10 of one of the tables.
    pub fn recall(&self, set: &Set, exact: &[Vec<u32>], table: &str, ef_search: u32) -> Result<f64> {
        let search = Recall { table, queries: "queries", metric: set.metric, exact };
        recall(&mut self.session()?, search, ef_search)
    }

    /// Settings that make searches use the index.
    pub fn search_settings(ef_search: &str) -> [(&'static str, &str); 4] {
        [("hnsw.ef_search", ef_search), ("enable_seqscan", "off"), ("enable_sort", "off"), ("jit", "off")]
    }

    /// A search with a random query, as a pgbench script.
    pub fn search_script(set: &Set, table: &str) -> String {
        format!(
            "\\set n random(0, {})\nSELECT id FROM {table} ORDER BY v {} (SELECT v FROM queries WHERE id = :n) LIMIT {NEIGHBORS};\n",
            set.queries.rows() - 1,
            set.metric.operator()
        )
    }
}
