use anyhow::Result;
use harness::{Cluster, Recall, Session, copy_rows, cores, recall, step};

use super::super::NEIGHBORS;
use super::super::indexed::{self, Built};
use super::super::options::Case;
use super::super::set::Set;
use super::super::stage::DATABASE;
use super::ground::Ground;

/// One of two tables with the same rows, by where its index was built, which determines the index's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    External,
    Database,
}

impl Twin {
    pub const ALL: [Self; 2] = [Self::External, Self::Database];

    pub fn name(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Database => "database",
        }
    }

    pub fn table(self) -> String {
        format!("items_{}", self.name())
    }

    pub fn index(self) -> String {
        format!("{}_v_idx", self.table())
    }
}

/// A cluster with the same table twice: one indexed externally, the other in the database.
pub struct Twins {
    pub cluster: Cluster,
    /// The builds, in the order of [`Twin::ALL`].
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
        for twin in Twin::ALL {
            let (name, table) = (twin.name(), &twin.table());
            copy_rows(&mut session, table, set.column, &set.base)?;
            session.execute(&format!(
                "ALTER TABLE {table} SET (parallel_workers = {}); CHECKPOINT",
                (cores() - 1).max(1)
            ))?;
            let sql = indexed::statement(table, &set.key(), case, twin == Twin::External);
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
    pub fn search_settings(ef_search: &str) -> [(&'static str, &str); 3] {
        [("hnsw.ef_search", ef_search), ("enable_seqscan", "off"), ("enable_sort", "off")]
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
