use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::{Builder, Cluster, Recall, Session, copy_rows, cores, recall};

use super::super::super::indexed::{self, Built};
use super::super::super::options::Case;
use super::super::super::set::Set;
use super::super::super::stage::DATABASE;
use super::super::ground::Ground;
use super::super::pgbench::{self, Load, Transaction};
use super::super::pin::{self, Cores};

const TABLE: &str = "items";
/// pgbench's scale: the table of accounts has 100,000 rows per unit.
const SCALE: usize = 10;
const EF_SEARCH: u32 = 40;
/// Seconds after the start of pgbench that are not counted.
const WARM_UP: Duration = Duration::from_secs(2);
const MAX_RATE: &str = "10MB";

/// What builds the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    Database,
    External,
    /// An external build with a limit to the database's rate of bytes.
    Slow,
    /// The database, which also uses the cores that are otherwise the builder's.
    AllCores,
}

impl Setup {
    pub fn name(self, max_rate: &str) -> String {
        match self {
            Self::Database => "in the database".to_owned(),
            Self::External => "external".to_owned(),
            Self::Slow => format!("external, max_rate {max_rate}"),
            Self::AllCores => "in the database, all cores".to_owned(),
        }
    }
}

/// A build with pgbench running beside it.
pub struct Run {
    pub built: Built,
    /// Begin and end, in seconds since 1970.
    pub span: (f64, f64),
    pub idle_from: f64,
    pub transactions: Vec<Transaction>,
    pub recall: f64,
}

impl Run {
    pub fn rate(&self, from: f64, to: f64) -> f64 {
        pgbench::rate(&self.transactions, from, to)
    }

    pub fn idle(&self) -> f64 {
        self.rate(self.idle_from, self.span.0)
    }

    pub fn busy(&self) -> f64 {
        self.rate(self.span.0, self.span.1)
    }

    /// Seconds and transactions per second of each phase: reading the table, waiting for the builder, writing pages. `None` without phases.
    pub fn by_phase(&self) -> Option<[(f64, f64); 3]> {
        let phases = self.built.phases?;
        let mut to = self.span.1;
        let mut rates = phases.map(|seconds| (seconds, 0.0));
        for (seconds, rate) in rates.iter_mut().rev() {
            let from = (to - *seconds).max(self.span.0);
            *rate = self.rate(from, to);
            to = from;
        }
        Some(rates)
    }
}

/// The cluster, the builder and the table.
pub struct Scene<'a> {
    ground: &'a Ground,
    set: &'a Set,
    case: Case,
    cluster: Cluster,
    session: Session,
    builder: Option<Builder>,
    pub cores: Cores,
    clients: usize,
    idle: u64,
    pub max_rate: String,
}

impl<'a> Scene<'a> {
    pub fn new(ground: &'a Ground, set: &'a Set) -> Result<Self> {
        let sizes = &ground.sizes;
        let case = Case { m: sizes.m.unwrap_or(16), ef_construction: sizes.ef_construction.unwrap_or(128) };
        let cores = match sizes.builder {
            None => Cores::of_machine(),
            Some(_) => Cores { database: (0..cores()).collect(), builder: None },
        };
        let cluster = ground.cluster("")?;
        let mut session = cluster.database(DATABASE)?;
        copy_rows(&mut session, TABLE, set.column, &set.base)?;
        copy_rows(&mut session, "queries", set.column, &set.queries)?;
        let builder = match &sizes.builder {
            Some((host, port)) => {
                session.execute(&format!(
                    "SET hnsw.external_index_host = '{host}'; SET hnsw.external_index_port = {port}"
                ))?;
                None
            }
            None => Some(
                ground.builder(&["--threads", &cores.builder.as_ref().unwrap_or(&cores.database).len().to_string()])?,
            ),
        };
        if let Some(builder) = &builder {
            builder.attach(&mut session)?;
            pin::process(
                builder.pid().context("the builder is gone")?,
                cores.builder.as_ref().unwrap_or(&cores.database),
            )?;
        }
        let clients = sizes.clients.as_ref().and_then(|clients| clients.first().copied()).unwrap_or(8);
        let max_rate = sizes.max_rate.clone().unwrap_or(MAX_RATE.to_owned());
        let idle = sizes.seconds.unwrap_or(5);
        let scene = Self { ground, set, case, cluster, session, builder, cores, clients, idle, max_rate };
        scene.load().prepare(SCALE)?;
        Ok(scene)
    }

    /// pgbench's built-in transactions, on the database's cores.
    fn load(&self) -> Load<'_> {
        Load {
            cluster: &self.cluster,
            database: DATABASE,
            script: "",
            clients: self.clients,
            settings: &[],
            cores: Some(&self.cores.database),
        }
    }

    pub fn run(&mut self, setup: Setup) -> Result<Run> {
        let all: Vec<usize> = (0..cores()).collect();
        let cores = if setup == Setup::AllCores { all } else { self.cores.database.clone() };
        // Processes that the postmaster starts from now on inherit the affinity.
        pin::process(self.cluster.postmaster().context("the server is not running")?, &cores)?;
        pin::process(self.session.pid(), &cores)?;
        let rate = if setup == Setup::Slow { self.max_rate.as_str() } else { "0" };
        self.session.execute(&format!(
            "{}; ALTER TABLE {TABLE} SET (parallel_workers = {}); SET hnsw.external_index_max_rate = '{rate}'",
            Ground::build_settings(self.set, self.case.m, cores.len()),
            (cores.len() - 1).max(1)
        ))?;
        for sql in ["TRUNCATE pgbench_history", "CHECKPOINT"] {
            self.session.execute(sql)?;
        }
        let external = matches!(setup, Setup::External | Setup::Slow);
        let sql = indexed::statement(TABLE, &self.set.key(), self.case, external);
        let load = Load { cores: Some(&cores), ..self.load() };
        let running = load.start(2 * self.ground.seconds())?;
        thread::sleep(WARM_UP);
        let idle_from = pgbench::now();
        thread::sleep(Duration::from_secs(self.idle));
        let begin = pgbench::now();
        let built = indexed::create(&mut self.session, &sql)?;
        let end = pgbench::now();
        thread::sleep(Duration::from_secs(1));
        let transactions = running.stop()?;
        let search = Recall { table: TABLE, queries: "queries", metric: self.set.metric, exact: &self.set.exact };
        let recall = recall(&mut self.session, search, EF_SEARCH)?;
        self.session.execute(&format!("DROP INDEX {TABLE}_v_idx"))?;
        Ok(Run { built, span: (begin, end), idle_from, transactions, recall })
    }

    pub fn what(&self) -> String {
        format!(
            "pgbench's simple updates, {} clients, {} accounts; {}, m = {}, ef_construction {}; medians",
            self.clients,
            SCALE * 100_000,
            self.set.title(),
            self.case.m,
            self.case.ef_construction
        )
    }

    pub fn differs(&self) -> String {
        let builder = match (&self.builder, &self.cores.builder) {
            (None, _) => "The builder is a machine of its own. ".to_owned(),
            (_, None) => "There is one core, which the database, pgbench and the builder share. ".to_owned(),
            (_, Some(builder)) => format!(
                "Cores stand for machines: {} for the database and pgbench together, {} for the builder; only where it says so the database \
                 has all. ",
                self.cores.database.len(),
                builder.len()
            ),
        };
        format!(
            "What differs: {builder}pgbench updates accounts only (`simple-update`): its few branches and tellers, updated hundreds of times a \
             second, become slow whenever any statement takes long, since old versions of rows are kept for it, whoever builds. TPS before are of the {} seconds before each build began. A build in the database has as many \
             processes as it has cores, at least a leader and one worker, and memory for the whole graph. Commits do not wait for a disk \
             (fsync is off), so that the processor is what all compete for: with a disk to wait for, TPS would be lower and a build would cost \
             less of them. `max_rate` is for databases that must not notice the reading and writing either; it makes the build longer.",
            self.idle
        )
    }
}
