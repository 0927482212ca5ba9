use std::process::Command;

use anyhow::{Context, Result};
use harness::{Builder, BuilderOptions, Cluster, Cost, Recall, Session, copy_rows, cores, cost, recall, step};

use super::figures::{Figures, Search};
use super::options::{BenchOptions, Case};
use super::peer::{Peer, Tools};
use super::programs::{self, Visits};
use super::set::Set;
use super::{EF_SEARCH, cold, indexed, memory, warm, watch};

pub const DATABASE: &str = "bench";
pub const INDEX: &str = "items_v_idx";

/// A cluster with a set in it, and builders.
pub struct Stage<'a> {
    pub tools: &'a Tools,
    pub set: &'a Set,
    pub cluster: Cluster,
    pub session: Session,
    bulk: Builder,
    usearch: Option<Builder>,
    cold: usize,
    largest_m: u32,
}

impl<'a> Stage<'a> {
    pub fn new(tools: &'a Tools, options: &BenchOptions, set: &'a Set) -> Result<Self> {
        let builder = |arguments: &[&str]| Builder::start_with(&BuilderOptions::serve(arguments).by(&tools.program));
        let bulk = builder(&[])?;
        let usearch = options.peers.contains(&Peer::Usearch).then(|| builder(&["--engine", "usearch"])).transpose()?;
        let cluster = Cluster::start_with(tools.config.clone(), &settings())?;
        let mut session = cluster.database(DATABASE)?;
        copy_rows(&mut session, "items", set.column, &set.base)?;
        copy_rows(&mut session, "queries", set.column, &set.queries)?;
        // Use all cores, even if the table is small without its TOASTed values.
        session.execute(&format!("ALTER TABLE items SET (parallel_workers = {})", cores() - 1))?;
        let largest_m = options.m.iter().copied().max().unwrap_or_default();
        let mut stage = Self { tools, set, cluster, session, bulk, usearch, cold: options.cold, largest_m };
        stage.prepare_session()?;
        Ok(stage)
    }

    /// The requested peers that can build this set.
    pub fn peers(&self, options: &BenchOptions) -> Vec<Peer> {
        let can = |peer: &Peer| match peer {
            Peer::External | Peer::Database | Peer::Usearch => true,
            Peer::Graph => self.set.is_vector(),
            Peer::Hnswlib | Peer::Faiss => self.set.is_vector() && self.tools.python.is_some(),
        };
        options.peers.iter().copied().filter(can).collect()
    }

    /// Builds by a peer and measures searches; `cold`: with an empty cache too.
    pub fn build(&mut self, peer: &Peer, case: Case, cold: bool) -> Result<Figures> {
        if peer.is_indexed() {
            let mut figures = self.create_index(*peer, case)?;
            self.search(&mut figures, cold && self.cold > 0)?;
            self.session.execute(&format!("DROP INDEX {INDEX}"))?;
            return Ok(figures);
        }
        let graph = programs::graph(self.tools, *peer, self.set, case)?;
        let mut figures = Figures { seconds: graph.seconds, memory: Some(graph.memory), ..Figures::default() };
        for (search, ef) in figures.searches.iter_mut().zip(EF_SEARCH) {
            let found = graph.searches.iter().find(|found| found.ef == ef).context("an ef_search is missing")?;
            let visited = Some(found.distances).filter(|&distances| distances > 0.0);
            *search = Search { recall: Some(found.recall), visited, ..Search::default() };
        }
        Ok(figures)
    }

    /// Runs `CREATE INDEX` and measures its cost.
    pub fn create_index(&mut self, peer: Peer, case: Case) -> Result<Figures> {
        let builder = match peer {
            Peer::External => Some(&self.bulk),
            Peer::Usearch => Some(self.usearch.as_ref().context("no builder with usearch")?),
            _ => None,
        };
        let (session, pid) = (&mut self.session, builder.and_then(Builder::pid));
        if let Some(builder) = builder {
            builder.attach(session)?;
            memory::forget_peak(pid.unwrap_or_default());
        }
        // Before timing: warm the page cache, and write the hint bits that the first scan sets.
        session.execute("SELECT count(v) FROM items")?;
        session.execute("CHECKPOINT")?;
        warm::up(self.set.bytes());
        let sql = indexed::statement("items", &self.set.key(), case, builder.is_some());
        let backend = session.pid();
        let build = || watch::during(backend, || indexed::create(session, &sql));
        let ((built, most), Cost { database, builder, .. }) = cost(&self.cluster, builder, build);
        let built = built?;
        Ok(Figures {
            seconds: built.seconds,
            cpu: Some((database, builder)),
            phases: built.phases,
            memory: Some((most + pid.map_or(0, memory::peak)) as f64),
            size: Some(self.session.value(&format!("SELECT pg_relation_size('{INDEX}')"))?),
            ..Figures::default()
        })
    }

    fn search(&mut self, figures: &mut Figures, cold: bool) -> Result<()> {
        let Set { metric, ref exact, .. } = *self.set;
        for (found, ef) in figures.searches.iter_mut().zip(EF_SEARCH) {
            let search = Recall { table: "items", queries: "queries", metric, exact };
            found.recall = Some(recall(&mut self.session, search, ef)?);
        }
        if self.set.is_vector() {
            let file = self.cluster.relation_file(&mut self.session, INDEX)?;
            figures.curve = programs::visits(self.tools, self.set, &file)?;
            for (found, ef) in figures.searches.iter_mut().zip(EF_SEARCH) {
                let visits: Option<&Visits> = figures.curve.iter().find(|visits| visits.ef == ef);
                (found.visited, found.pages) = (visits.map(|v| v.distances), visits.map(|v| v.pages));
            }
        }
        if cold {
            for (found, ef) in figures.searches.iter_mut().zip(EF_SEARCH) {
                found.cold = Some(cold::pages_per_query(&mut self.cluster, "items", self.set.metric, ef, self.cold)?);
            }
            self.session = self.cluster.session(DATABASE)?;
            self.prepare_session()?;
        }
        Ok(())
    }

    fn prepare_session(&mut self) -> Result<()> {
        self.session.execute(&format!(
            "SET maintenance_work_mem = '{}MB'; SET max_parallel_maintenance_workers = {}; SET client_min_messages = notice",
            self.set.graph_megabytes(self.largest_m),
            cores() - 1
        ))?;
        Ok(())
    }
}

/// Settings with ample resources. Dynamic shared memory is in /dev/shm if there is room, since files would be written to disk.
pub fn settings() -> String {
    let workers = cores() + 4;
    let memory = if shared_memory() > 8 << 30 { "dynamic_shared_memory_type = posix\n" } else { "" };
    format!(
        "shared_preload_libraries = 'lantern_index'\nshared_buffers = 2GB\nmax_wal_size = 20GB\n\
         max_worker_processes = {workers}\nmax_parallel_workers = {workers}\n{memory}"
    )
}

/// Bytes free in /dev/shm.
fn shared_memory() -> u64 {
    let text = step::output(Command::new("df").args(["--output=avail", "-B1", "/dev/shm"])).unwrap_or_default();
    text.lines().nth(1).and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}
