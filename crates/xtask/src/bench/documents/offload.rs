//! What those who use a database notice of a build: in it, and outside.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::{Builder, Cluster, Recall, Session, copy_rows, load_queries, recall};

use super::super::contest::{alternate, median};
use super::super::markdown::Table;
use super::super::options::Case;
use super::super::plot::{From, Plot, Scale, Series};
use super::super::set::Set;
use super::super::stage::DATABASE;
use super::ground::Ground;
use super::indexed::{Built, create};
use super::pgbench::{self, Load, Transaction};
use super::pin::{self, Cores};
use super::section::Section;

const SOURCE: &str = "Theirs: Lantern, *CREATE INDEX EXTERNALLY: Offloading pgvector Indexing from Postgres* (October 2024): pgbench \
beside a build over 500,000 vectors of 1,536 dimensions, m = 16, ef_construction 128; database with 8 vCPUs, builder with 32, pgbench with 8, each a machine of \
its own. Recall about 93 % both ways.";

const TABLE: &str = "items";
/// What the table of pgbench's accounts holds, times 100,000.
const SCALE: usize = 10;
const EF_SEARCH: u32 = 40;
/// Seconds after the start of pgbench that do not count.
const WARM_UP: Duration = Duration::from_secs(2);
const MAX_RATE: &str = "10MB";

/// Who builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setup {
    Database,
    External,
    /// External, with a limit to what the database moves per second.
    Slow,
    /// The database, which also has the cores that are the builder's otherwise.
    AllCores,
}

impl Setup {
    fn name(self, max_rate: &str) -> String {
        match self {
            Self::Database => "in the database".to_owned(),
            Self::External => "external".to_owned(),
            Self::Slow => format!("external, max_rate {max_rate}"),
            Self::AllCores => "in the database, on all cores".to_owned(),
        }
    }
}

/// One build beside pgbench.
struct Run {
    built: Built,
    /// When it began and ended, in seconds since 1970.
    span: (f64, f64),
    idle_from: f64,
    transactions: Vec<Transaction>,
    recall: f64,
}

impl Run {
    fn rate(&self, from: f64, to: f64) -> f64 {
        pgbench::rate(&self.transactions, from, to)
    }

    fn idle(&self) -> f64 {
        self.rate(self.idle_from, self.span.0)
    }

    fn busy(&self) -> f64 {
        self.rate(self.span.0, self.span.1)
    }

    /// Transactions per second while the table is read, the builder is waited for, pages are written.
    fn by_phase(&self) -> Option<[(f64, f64); 3]> {
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

/// Where it happens.
struct Scene<'a> {
    ground: &'a Ground,
    set: &'a Set,
    case: Case,
    cluster: Cluster,
    session: Session,
    builder: Option<Builder>,
    cores: Cores,
    clients: usize,
    idle: u64,
    max_rate: String,
}

pub fn measure(ground: &Ground) -> Result<Section> {
    let sizes = &ground.sizes;
    let dims = sizes.dims.as_ref().and_then(|dims| dims.first().copied()).unwrap_or(1536);
    let rows = sizes.rows.unwrap_or(6_000);
    let set = ground.set(&format!("synthetic-{dims}"), rows, sizes.queries.unwrap_or(200))?;
    let mut scene = Scene::new(ground, &set)?;

    let mut setups = vec![Setup::Database, Setup::External, Setup::Slow];
    if scene.cores.builder.is_some() {
        setups.push(Setup::AllCores);
    }
    let rounds = alternate(sizes.rounds.unwrap_or(2), &setups, |round, &setup| {
        if round > 0 && ground.is_over() {
            return Ok(None);
        }
        let run = scene.run(setup)?;
        println!(
            "round {}, {}: {:.0} TPS before, {:.0} during {:.1} s, recall {:.4}",
            round + 1,
            setup.name(&scene.max_rate),
            run.idle(),
            run.busy(),
            run.built.seconds,
            run.recall
        );
        Ok(Some(run))
    })?;
    let runs: Vec<(String, Vec<Run>)> = setups
        .iter()
        .zip(rounds)
        .map(|(setup, runs)| (setup.name(&scene.max_rate), runs.into_iter().flatten().collect()))
        .collect();

    let mut section = Section::new("transactions per second beside a build", SOURCE);
    section.theirs("pgbench on 8 vCPUs", theirs());
    section.ours(&scene.what(), table(&runs));
    section.ours("transactions per second in the phases of the external builds", phases(&runs));
    section.plot("tps", plot(&set, &runs));
    section.text(&scene.differs());
    Ok(section)
}

impl<'a> Scene<'a> {
    fn new(ground: &'a Ground, set: &'a Set) -> Result<Self> {
        let sizes = &ground.sizes;
        let case = Case { m: sizes.m.unwrap_or(16), ef_construction: sizes.ef_construction.unwrap_or(128) };
        let cores = match sizes.builder {
            None => Cores::of_machine(),
            Some(_) => Cores { database: (0..crate::build::cores()).collect(), builder: None },
        };
        let cluster = ground.cluster("")?;
        let mut session = cluster.database(DATABASE)?;
        copy_rows(&mut session, TABLE, set.column, &set.base)?;
        load_queries(&mut session, "queries", set.column, &set.queries)?;
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
        let idle = sizes.seconds.unwrap_or(6);
        let scene = Self { ground, set, case, cluster, session, builder, cores, clients, idle, max_rate };
        scene.load().prepare(SCALE)?;
        Ok(scene)
    }

    /// pgbench's own transactions, on the database's cores.
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

    fn run(&mut self, setup: Setup) -> Result<Run> {
        let all: Vec<usize> = (0..crate::build::cores()).collect();
        let cores = if setup == Setup::AllCores { all } else { self.cores.database.clone() };
        // What the postmaster starts from now on runs there too.
        pin::process(self.cluster.postmaster().context("the server is not running")?, &cores)?;
        pin::process(self.session.pid(), &cores)?;
        let rate = if setup == Setup::Slow { self.max_rate.as_str() } else { "0" };
        self.session.execute(&format!(
            "{}; ALTER TABLE {TABLE} SET (parallel_workers = {}); SET hnsw.external_index_max_rate = '{rate}'",
            Ground::build_settings(self.set, self.case.m, cores.len()),
            (cores.len() - 1).max(1)
        ))?;
        for sql in ["VACUUM pgbench_branches, pgbench_tellers", "TRUNCATE pgbench_history", "CHECKPOINT"] {
            self.session.execute(sql)?;
        }
        let load = Load { cores: Some(&cores), ..self.load() };
        let running = load.start(2 * self.ground.sizes.limit.as_secs())?;
        thread::sleep(WARM_UP);
        let idle_from = pgbench::now();
        thread::sleep(Duration::from_secs(self.idle));
        let begin = pgbench::now();
        let external = matches!(setup, Setup::External | Setup::Slow);
        let built = create(&mut self.session, TABLE, &self.set.opclass(), self.case, external)?;
        let end = pgbench::now();
        thread::sleep(Duration::from_secs(1));
        let transactions = running.stop()?;
        let search = Recall { table: TABLE, queries: "queries", metric: self.set.metric, exact: &self.set.exact };
        let recall = recall(&mut self.session, search, EF_SEARCH)?;
        self.session.execute(&format!("DROP INDEX {TABLE}_v_idx"))?;
        Ok(Run { built, span: (begin, end), idle_from, transactions, recall })
    }

    fn what(&self) -> String {
        format!(
            "pgbench's own transactions, {} clients, {} accounts; {}, m = {}, ef_construction {}; medians",
            self.clients,
            SCALE * 100_000,
            self.set.title(),
            self.case.m,
            self.case.ef_construction
        )
    }

    fn differs(&self) -> String {
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
            "What differs: {builder}TPS before are of the {} seconds before each build began. A build in the database has as many \
             processes as it has cores, at least a leader and one worker, and memory for the whole graph. Commits do not wait for a disk \
             (fsync is off), so that the processor is what all compete for: with a disk to wait for, TPS would be lower and a build would cost \
             less of them. `max_rate` is for databases that must not notice the reading and writing either; it makes the build longer.",
            self.idle
        )
    }
}

fn theirs() -> Table {
    let mut table = Table::new(&["setup", "TPS", "% of baseline", "indexing, s"]);
    for (setup, tps, share, seconds) in
        [("baseline", "1654", "100", ""), ("in the database", "588", "36", "1085"), ("external", "1561", "94", "200")]
    {
        table.row([setup, tps, share, seconds].map(str::to_owned));
    }
    table
}

fn table(runs: &[(String, Vec<Run>)]) -> Table {
    let mut table = Table::new(&[
        "index built",
        "TPS before",
        "TPS during",
        "% kept",
        "p99 before, ms",
        "p99 during, ms",
        "indexing, s",
        "recall@10",
    ]);
    for (name, runs) in runs {
        let of = |get: &dyn Fn(&Run) -> Option<f64>, digits: usize| {
            median(runs.iter().filter_map(get)).map_or(String::new(), |value| format!("{value:.digits$}"))
        };
        let slow = |from: f64, to: f64, run: &Run| pgbench::latency(&run.transactions, from, to, 0.99);
        table.row([
            name.clone(),
            of(&|run| Some(run.idle()), 0),
            of(&|run| Some(run.busy()), 0),
            of(&|run| Some(100.0 * run.busy() / run.idle()), 1),
            of(&|run| slow(run.idle_from, run.span.0, run), 1),
            of(&|run| slow(run.span.0, run.span.1, run), 1),
            of(&|run| Some(run.built.seconds), 1),
            of(&|run| Some(run.recall), 4),
        ]);
    }
    table
}

fn phases(runs: &[(String, Vec<Run>)]) -> Table {
    let mut table = Table::new(&["index built", "scan, s", "% kept", "build, s", "% kept", "pages, s", "% kept"]);
    for (name, runs) in runs {
        let of = |get: &dyn Fn(&Run) -> Option<f64>, digits: usize| {
            median(runs.iter().filter_map(get)).map_or(String::new(), |value| format!("{value:.digits$}"))
        };
        if runs.iter().all(|run| run.built.phases.is_none()) {
            continue;
        }
        let phase = |at: usize| {
            [of(&|run| Some(run.by_phase()?[at].0), 2), of(&|run| Some(100.0 * run.by_phase()?[at].1 / run.idle()), 0)]
        };
        table.row([name.clone()].into_iter().chain((0..3).flat_map(phase)));
    }
    table
}

/// Transactions per second from the idle seconds to the end of each first build.
fn plot(set: &Set, runs: &[(String, Vec<Run>)]) -> Plot {
    let line = |(name, runs): &(String, Vec<Run>)| {
        let run = runs.first()?;
        let (begin, end) = run.span;
        let step = ((end - run.idle_from) / 80.0).max(0.5);
        let count = ((end - run.idle_from) / step) as usize;
        let point = |number: usize| {
            let from = run.idle_from + number as f64 * step;
            (from + step / 2.0 - begin, run.rate(from, from + step), String::new())
        };
        Some(Series { name: name.clone(), points: (0..count).map(point).collect() })
    };
    Plot {
        title: format!("pgbench beside builds that begin at 0, {}", set.title()),
        x: "seconds".to_owned(),
        y: "transactions per second".to_owned(),
        x_scale: Scale::Linear,
        y_from: From::Zero,
        series: runs.iter().filter_map(line).collect(),
    }
}
