//! PostgreSQL: clusters, their databases, and counts of what crashes leave in them.

use std::time::Duration;

use anyhow::{Context, Result};
use harness::{Cluster, PgConfig, Session, wait_for};

use crate::tables;

/// The number of clusters, and of databases in all.
pub const CLUSTERS: usize = 2;
pub const PER_CLUSTER: usize = 2;
pub const DATABASES: usize = CLUSTERS * PER_CLUSTER;
/// Queries per table.
pub const QUERIES: usize = 8;

/// All clusters.
pub struct Databases {
    clusters: Vec<Cluster>,
    /// By cluster: the number of processes that ended by a signal.
    crashes: [usize; CLUSTERS],
    /// By database: the number of relation files that belong to no relation.
    orphans: [usize; DATABASES],
}

/// The cluster of a database.
pub fn cluster_of(database: usize) -> usize {
    database / PER_CLUSTER
}

fn name(database: usize) -> String {
    format!("chaos_{database}")
}

impl Databases {
    /// Starts the clusters and fills the tables.
    pub fn start(seed: u64) -> Result<Self> {
        let settings = "shared_preload_libraries = 'lantern_index'\nshared_buffers = 64MB\nmaintenance_work_mem = 64MB";
        let clusters = (0..CLUSTERS).map(|_| Cluster::start_with(PgConfig::require()?, settings));
        let clusters = clusters.collect::<Result<Vec<_>>>()?;
        for database in 0..DATABASES {
            let mut session = clusters[cluster_of(database)].database(&name(database))?;
            session.execute("CREATE EXTENSION lantern_index")?;
            for (number, table) in tables::ALL.iter().enumerate() {
                let seed = seed ^ (database * 100 + number) as u64;
                for (name, rows) in [(table.name.to_owned(), None), (format!("{}_q", table.name), Some(QUERIES))] {
                    session.execute(&format!("CREATE TABLE {name} (id int, v {})", table.column()))?;
                    session.copy(&format!("COPY {name} FROM STDIN"), table.lines(seed, rows).as_bytes())?;
                    session.execute(&format!("ANALYZE {name}"))?;
                }
            }
        }
        Ok(Self { clusters, crashes: [0; CLUSTERS], orphans: [0; DATABASES] })
    }

    /// A session in a database.
    pub fn session(&self, database: usize) -> Result<Session> {
        self.clusters[cluster_of(database)].session(&name(database))
    }

    /// The cluster of a database.
    pub fn cluster(&mut self, database: usize) -> &mut Cluster {
        &mut self.clusters[cluster_of(database)]
    }

    /// A session after a crash, once the server has recovered and will not end sessions again.
    pub fn recovered(&self, database: usize) -> Result<Session> {
        wait_for("PostgreSQL to be back", Duration::from_secs(60), || {
            let session = self.session(database).ok();
            Ok(session.and_then(|mut session| session.query("SELECT pg_sleep(0.1)").is_ok().then_some(session)))
        })
    }

    /// Ends all statements and drops all indexes that a round may have left.
    pub fn clean(&self) {
        for database in 0..DATABASES {
            let cleaned = self.recovered(database).and_then(|mut session| {
                session.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid()",
                )?;
                let indexes = "SELECT indexrelid::regclass FROM pg_index WHERE indrelid >= 16384 AND NOT indisunique
                               AND indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)";
                for index in session.query(indexes)?.iter().flatten().flatten() {
                    session.execute(&format!("DROP INDEX {index}"))?;
                }
                Ok(())
            });
            if let Err(error) = cleaned {
                println!("{}: {error:#}", name(database));
            }
        }
    }

    /// The number of a cluster's processes that ended by a signal since the last call.
    pub fn new_crashes(&mut self, database: usize) -> usize {
        let cluster = cluster_of(database);
        let now = self.clusters[cluster].log().matches(") was terminated by signal").count();
        let new = now - self.crashes[cluster];
        self.crashes[cluster] = now;
        new
    }

    /// The number of relation files without a relation that have appeared since the last call.
    pub fn new_orphans(&mut self, database: usize) -> Result<usize> {
        let now = self.clusters[cluster_of(database)].orphaned_files(&name(database))?.len();
        let new = now.saturating_sub(self.orphans[database]);
        self.orphans[database] = now;
        Ok(new)
    }

    /// The number of temporary files of a cluster.
    pub fn temporary_files(&self, database: usize) -> Result<usize> {
        let mut session = self.session(database)?;
        session.value("SELECT count(*) FROM pg_ls_tmpdir()").context("cannot list temporary files")
    }
}
