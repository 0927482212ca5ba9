use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use harness::{CachedFiles, beside, wait_for};

use super::super::super::set::Set;
use super::super::super::stage::DATABASE;
use super::super::ground::Ground;
use super::super::pgbench::{Amount, Load};
use super::super::twins::{Twin, Twins};
use super::case;

const ROWS: usize = 100_000;
const DIMS: usize = 128;
const QUERIES: usize = 500;
const EF_SEARCH: [u32; 2] = [40, 400];
const CLIENTS: [usize; 3] = [1, 2, 4];
const SECONDS: u64 = 2;

/// Shared buffers as a fraction of the index: 250 GB of 781 GB in the document.
const SHARE: f64 = 0.32;

/// The interval at which the files are evicted from the page cache.
const PAUSE: Duration = Duration::from_millis(20);

/// The source of pages that are not in shared buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The system's page cache.
    Cache,
    /// The disk, unless the machine has a further cache.
    Disk,
}

/// The result of searches by some clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Searched {
    pub twin: Twin,
    pub source: Source,
    pub ef_search: u32,
    pub clients: usize,
    pub recall: f64,
    pub per_second: f64,
    /// Pages of the index per query that were read, since they were not in shared buffers.
    pub read: f64,
    /// All pages of the index per query, including those in shared buffers.
    pub touched: f64,
}

/// The results for one table.
pub struct Searches {
    pub title: String,
    /// Bytes of the index built in the database, of the external one, and of shared buffers.
    pub sizes: [f64; 3],
    pub searched: Vec<Searched>,
    /// Whether some searches were skipped for lack of time.
    pub is_cut: bool,
}

impl Source {
    pub const ALL: [Self; 2] = [Self::Cache, Self::Disk];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "system's cache",
            Self::Disk => "disk",
        }
    }
}

/// Searches two tables with the same rows, one indexed in the database and one externally, with shared buffers for a third of the index.
pub fn measure(ground: &Ground) -> Result<Searches> {
    let sizes = &ground.sizes;
    let dims = sizes.dims.as_ref().and_then(|dims| dims.iter().copied().min()).unwrap_or(DIMS);
    let (rows, queries) = (sizes.rows.unwrap_or(ROWS), sizes.queries.unwrap_or(QUERIES));
    let set = ground.set(&format!("synthetic-{dims}"), rows, queries)?;
    let mut twins = Twins::new(ground, &set, case(ground))?;
    let mut session = twins.session()?;
    let mut size = |twin: Twin| session.value(&format!("SELECT pg_relation_size('{}')", twin.index()));
    let [inside, outside]: [f64; 2] = [size(Twin::Database)?, size(Twin::External)?];
    drop(session);
    let buffers = (SHARE * inside / 8192.0) as u64;
    twins.cluster.configure(&format!("shared_buffers = {buffers}"))?;
    twins.cluster.restart()?;

    let mut searched = Vec::new();
    let mut is_cut = false;
    for ef_search in sizes.ef_search.clone().unwrap_or_else(|| EF_SEARCH.to_vec()) {
        for source in Source::ALL {
            for &clients in sizes.clients.as_deref().unwrap_or(&CLIENTS) {
                for twin in [Twin::Database, Twin::External] {
                    is_cut |= ground.is_over();
                    if !is_cut {
                        let search = Search { twin, source, ef_search, clients };
                        searched.push(search.run(ground, &twins, &set)?);
                    }
                }
            }
        }
    }
    let title = format!("{rows} rows x {dims}");
    Ok(Searches { title, sizes: [inside, outside, 8192.0 * buffers as f64], searched, is_cut })
}

#[derive(Clone, Copy)]
struct Search {
    twin: Twin,
    source: Source,
    ef_search: u32,
    clients: usize,
}

impl Search {
    /// Runs all queries once, for the recall and to fill shared buffers with this index; then measures searches for some time.
    fn run(self, ground: &Ground, twins: &Twins, set: &Set) -> Result<Searched> {
        let Self { twin, source, ef_search, clients } = self;
        let table = &twin.table();
        let recall = twins.recall(set, &set.exact, table, ef_search)?;
        let file = |relation: &str| twins.cluster.relation_file(&mut twins.session()?, relation);
        let files = match source {
            Source::Cache => Vec::new(),
            Source::Disk => vec![file(&twin.index())?, file(table)?],
        };
        let before = self.pages(twins)?;
        let (settings, script) = (ef_search.to_string(), Twins::search_script(set, table));
        let load = Load {
            cluster: &twins.cluster,
            database: DATABASE,
            script: &script,
            clients,
            settings: &Twins::search_settings(&settings),
            cores: None,
        };
        let seconds = ground.sizes.seconds.unwrap_or(SECONDS);
        let outcome = without_cache(&files, || load.run(Amount::Seconds(seconds)))??;
        let after = self.pages(twins)?;
        let each = |at: usize| (after[at] - before[at]) / outcome.transactions.max(1) as f64;
        let (per_second, read) = (outcome.rate, each(0));
        println!(
            "{}, {}, ef_search {ef_search}, {clients} clients: {per_second:.0} per second, {read:.1} pages read",
            twin.name(),
            source.name()
        );
        Ok(Searched { twin, source, ef_search, clients, recall, per_second, read, touched: read + each(1) })
    }

    /// Pages of the index read and hit so far. A session's statistics are counted when it has ended.
    fn pages(self, twins: &Twins) -> Result<[f64; 2]> {
        let mut session = twins.session()?;
        wait_for("the end of the sessions", Duration::from_secs(30), || {
            let others: usize = session.value(&format!(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = '{DATABASE}' AND pid <> pg_backend_pid()"
            ))?;
            Ok((others == 0).then_some(()))
        })?;
        let sql = |what: &str| {
            format!("SELECT idx_blks_{what} FROM pg_statio_user_indexes WHERE indexrelname = '{}'", self.twin.index())
        };
        Ok([session.value(&sql("read"))?, session.value(&sql("hit"))?])
    }
}

/// Runs `work` while the files are repeatedly evicted from the page cache.
fn without_cache<T>(files: &[PathBuf], work: impl FnOnce() -> T) -> Result<T> {
    let files: Vec<CachedFiles> = files.iter().map(|file| CachedFiles::of(file)).collect::<Result<_>>()?;
    files.iter().try_for_each(CachedFiles::write)?;
    let mut forgotten = files.iter().try_for_each(CachedFiles::forget);
    let forget = || {
        if forgotten.is_ok() {
            forgotten = files.iter().try_for_each(CachedFiles::forget);
        }
    };
    let result = beside(PAUSE, forget, work);
    forgotten.map(|()| result)
}
