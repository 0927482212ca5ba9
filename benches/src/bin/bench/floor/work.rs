//! The statements to time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::{Builder, BuilderOptions, Cluster, Session, fill_rows, make_certificate, step, synthetic};
use service::Tls;

use super::super::options::Case;
use super::super::peer::Tools;
use super::super::set::SEED;
use super::super::stage::{self, INDEX};
use super::super::{indexed, warm, watch};
use super::Floor;
use super::replay::{Recording, Replay};
use super::shape::Shape;
use super::threads::{self, Used, Watched};

/// Characters per row in the table for raw pages: four rows fill a page, and no value is compressed or moved to TOAST.
const FILLER: usize = 1980;

/// The statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// COPY of the column to the client, which discards it.
    Copy,
    /// A query that reads all values, with this number of parallel workers.
    Read(u32),
    /// INSERT of rows that fill as many pages as the index has.
    Insert,
    /// ALTER INDEX … SET TABLESPACE, by which PostgreSQL copies the finished index.
    Move,
    /// A whole build by a builder, with this number of parallel workers.
    Build(u32),
    /// A build by replay, with this number of parallel workers.
    Replay(u32),
}

/// A part of a statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    pub seconds: f64,
    pub used: Used,
}

/// The spans of a statement; those of a build are scan, graph, pages, and the whole.
pub type Spans = Vec<Span>;

/// A table in a cluster, with a builder and a replay.
pub struct Bench<'a> {
    options: &'a Floor,
    shape: Shape,
    cluster: Cluster,
    session: Session,
    builder: Builder,
    replay: Option<Replay>,
    tls: Tls,
    /// Blocks of the index.
    pub blocks: u32,
    /// Whether most values are in the TOAST table.
    pub out_of_line: bool,
}

impl<'a> Bench<'a> {
    pub fn new(options: &'a Floor, tools: &Tools, shape: Shape) -> Result<Self> {
        let wal = if options.minimal { "wal_level = minimal\nmax_wal_senders = 0\n" } else { "" };
        let settings = format!("{}{wal}wal_compression = {}\n", stage::settings(), options.wal_compression);
        let cluster = Cluster::start_with(tools.config.clone(), &settings)?;
        let daemon = BuilderOptions::default().by(&tools.program);
        let builder = Builder::start_with(&BuilderOptions { tls: !options.no_tls, ..daemon })?;
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| builder.certificate().with_file_name(name));
        if options.no_tls {
            make_certificate(&cert, &key)?;
        }
        let tls = Tls::open(&cert, &key, None)?;
        let session = cluster.database(stage::DATABASE)?;
        let mut bench =
            Self { options, shape, cluster, session, builder, replay: None, tls, blocks: 0, out_of_line: false };
        bench.load()?;
        bench.record(tools)?;
        Ok(bench)
    }

    fn load(&mut self) -> Result<()> {
        let &Floor { rows, unlogged, .. } = self.options;
        let (base, _) =
            step::timed(&format!("{rows} values of {}", self.shape), || Ok(synthetic(rows, 1, self.shape.dims, SEED)))?;
        let unlogged = if unlogged { "UNLOGGED " } else { "" };
        let storage = if self.shape.plain { "ALTER TABLE items ALTER v SET STORAGE PLAIN;" } else { "" };
        self.session.execute(&format!(
            "CREATE {unlogged}TABLE items ({}); {storage}
             CREATE TABLE filler AS SELECT string_agg(chr(33 + (random() * 90)::int), '') AS v FROM generate_series(1, {FILLER});
             SET allow_in_place_tablespaces = on; SET maintenance_work_mem = '1GB'",
            self.shape.definition()
        ))?;
        self.session.execute("CREATE TABLESPACE elsewhere LOCATION ''")?;
        fill_rows(&mut self.session, "items", self.shape.column, &base)?;
        let toast =
            "SELECT pg_relation_size(reltoastrelid) > pg_relation_size(oid) FROM pg_class WHERE relname = 'items'";
        self.out_of_line = self.session.value::<String>(toast)? == "t";
        Ok(())
    }

    /// Builds the index once and records the builder's answer.
    fn record(&mut self, tools: &Tools) -> Result<()> {
        let daemon = BuilderOptions::default().by(&tools.program);
        let plain = Builder::start_with(&BuilderOptions { tls: false, ..daemon })?;
        let recording = step::timed("a build that is recorded", || {
            Recording::make(plain.address(), |port| {
                self.attach(port, false, 0)?;
                self.session.execute(&self.create())?;
                self.drop_index()
            })
        })?;
        self.blocks = recording.layout.blocks;
        let tls = (!self.options.no_tls).then(|| self.tls.config());
        self.replay = Some(Replay::start(Arc::new(recording), tls)?);
        Ok(())
    }

    fn attach(&mut self, port: u16, tls: bool, workers: u32) -> Result<()> {
        let secure = if tls { "on" } else { "off" };
        Ok(self.session.execute(&format!(
            "SET hnsw.external_index_host = '127.0.0.1'; SET hnsw.external_index_port = {port}; \
             SET hnsw.external_index_secure = {secure}; ALTER TABLE items SET (parallel_workers = {workers}); \
             SET max_parallel_maintenance_workers = {workers}"
        ))?)
    }

    fn create(&self) -> String {
        let &Floor { m, ef_construction, .. } = self.options;
        let key = format!("v {}_cosine_ops", self.shape.column.name());
        indexed::statement("items", &key, Case { m, ef_construction }, true)
    }

    /// Bytes of all values.
    pub fn value_bytes(&self) -> f64 {
        (self.options.rows * self.shape.value_bytes()) as f64
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> f64 {
        f64::from(self.blocks) * 8192.0
    }

    pub fn run(&mut self, work: Work) -> Result<Spans> {
        let (tls, replay) = (!self.options.no_tls, self.replay.as_ref().map_or(0, Replay::port));
        match work {
            Work::Copy => self.timed("COPY items (v) TO '/dev/null' (FORMAT binary)", threads::Builder::None),
            Work::Read(workers) => {
                self.session.execute(&format!(
                    "ALTER TABLE items SET (parallel_workers = {workers}); SET max_parallel_workers_per_gather = {workers}; \
                     SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0"
                ))?;
                self.timed("SELECT count(vector_dims(v)) FROM items", threads::Builder::None)
            }
            Work::Insert => {
                let unlogged = if self.options.unlogged { "UNLOGGED " } else { "" };
                let rows = 4 * self.blocks;
                self.session.execute("SET max_parallel_workers_per_gather = 0")?;
                let sql = format!("CREATE {unlogged}TABLE raw AS SELECT f.v FROM filler f, generate_series(1, {rows})");
                let spans = self.timed(&sql, threads::Builder::None)?;
                self.session.execute("DROP TABLE raw")?;
                Ok(spans)
            }
            Work::Move => {
                self.attach(replay, tls, 0)?;
                self.session.execute(&self.create())?;
                let spans =
                    self.timed(&format!("ALTER INDEX {INDEX} SET TABLESPACE elsewhere"), threads::Builder::None)?;
                self.drop_index()?;
                Ok(spans)
            }
            Work::Build(workers) => {
                self.attach(self.builder.address().port(), tls, workers)?;
                let pid = self.builder.pid().context("the builder is gone")?;
                self.build(threads::Builder::Process(pid))
            }
            Work::Replay(workers) => {
                self.attach(replay, tls, workers)?;
                self.build(threads::Builder::Replay)
            }
        }
    }

    fn drop_index(&mut self) -> Result<()> {
        Ok(self.session.execute(&format!("DROP INDEX {INDEX}"))?)
    }

    fn build(&mut self, builder: threads::Builder) -> Result<Spans> {
        let spans = self.timed(&self.create(), builder)?;
        self.drop_index()?;
        Ok(spans)
    }

    fn timed(&mut self, sql: &str, builder: threads::Builder) -> Result<Spans> {
        // Before timing: the table is cached with hint bits set, dirty pages are written, and free memory is available.
        self.session.execute("SELECT count(v) FROM items")?;
        self.session.execute("CHECKPOINT")?;
        warm::up(self.value_bytes() as usize);
        self.session.take_notices();
        let watched = Watched {
            postmaster: self.cluster.postmaster().context("the server is not running")?,
            backend: self.session.pid(),
            builder,
        };
        let ((start, end, result), seen) = threads::during(watched, || {
            let start = Instant::now();
            let result = self.session.execute(sql);
            (start, Instant::now(), result)
        });
        result.with_context(|| sql.to_owned())?;
        let phases = self.session.take_notices().iter().find_map(|notice| watch::phases(&notice.detail));
        let span = |from: Instant, to: Instant| Span { seconds: (to - from).as_secs_f64(), used: seen.used(from, to) };
        let mut spans = Vec::new();
        let mut to = end;
        for seconds in phases.into_iter().flatten().rev() {
            let from = to.checked_sub(Duration::from_secs_f64(seconds)).unwrap_or(start).max(start);
            spans.insert(0, span(from, to));
            to = from;
        }
        spans.push(span(start, end));
        Ok(spans)
    }
}
