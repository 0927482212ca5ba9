//! How much do updates and deletes wear an index, and what do VACUUM and `lantern-index maintain` cost and repair? From which share of new
//! rows on does a rebuild cost less than inserts?
//!
//! A streaming replica on the same machine replays the WAL of each step. It may slow the steps down, but its CPU seconds are not counted;
//! those of the primary's WAL sender, and of the session that asks for the WAL's position, are.

mod replica;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use harness::{
    Builder, BuilderOptions, Cluster, Column, Cost, Recall, Session, Vectors, copy_rows, cost, exact_neighbors, recall,
    step, synthetic,
};

use super::flags::positive;
use super::markdown::Table;
use super::options::SetOptions;
use super::peer::Tools;
use super::results::Results;
use super::set::{SEED, Set};
use super::stage::{self, INDEX};
use super::{NEIGHBORS, programs};
use replica::{Replay, Replica};

const EF_SEARCH: u32 = 40;
/// One of this many rows is updated, and one deleted.
const PART: usize = 8;
const WORN: &str = "worn";

/// Sizes of the benchmark.
#[derive(Args)]
pub struct Wear {
    /// Rows; a quarter of them is updated or deleted
    #[arg(long, value_name = "N", value_parser = positive::<usize>, default_value = "200000")]
    rows: usize,
    #[arg(long, value_name = "N", value_parser = positive::<usize>, default_value = "128")]
    dims: usize,
    #[arg(long, value_name = "N", value_parser = positive::<usize>, default_value = "500")]
    queries: usize,
    /// Inserts whose mean cost is taken
    #[arg(long, value_name = "N", value_parser = positive::<usize>, default_value = "2000")]
    inserts: usize,
    /// Name of the report in benches/results
    #[arg(long, default_value = "wear")]
    name: String,
}

/// Measures, and writes a report.
pub fn run(options: &Wear) -> Result<()> {
    let tools = Tools::find(false)?;
    let mut results = Results::new(&options.name, &tools.config)?;
    let bench = Bench::new(options, &tools)?;
    results.heading(&bench.set.title());
    results.markdown(&format!(
        "{} rows are updated and as many deleted. recall@10 of the rows that are left, and elements visited, at ef_search {EF_SEARCH}; CPU \
         seconds of server and builder, and seconds on a machine that a replica uses too. `maintain` rebuilds, then vacuums, each from the \
         state after the changes. Each step follows a checkpoint, so that the first change of a page logs the whole page. lag: the most WAL \
         that the replica had not yet replayed while the step ran; catch-up: seconds from the step's end until it had replayed all.\n",
        options.rows / PART
    ));
    results.table("Updates and deletes", &bench.wear()?);
    results.table("New rows", &bench.shares()?);
    results.finish()
}

/// The cost of a step for the server, and for the replica.
struct Step {
    cost: Cost,
    replay: Replay,
}

struct Bench<'a> {
    options: &'a Wear,
    tools: &'a Tools,
    set: Set,
    /// The rows of the set, followed by those that are inserted later.
    all: Vectors,
    replica: Replica,
    cluster: Cluster,
    builder: Builder,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Wear, tools: &'a Tools) -> Result<Self> {
        let &Wear { rows, dims, queries, inserts, .. } = options;
        let of_set = SetOptions { queries_from: None, rows: Some(rows), queries, metric: None, column: Column::Vector };
        let set = Set::find(&format!("synthetic-{dims}"), &of_set)?;
        let (all, _) = synthetic(rows + inserts.max(rows / PART), 1, dims, SEED);
        let cluster = Cluster::start_with(tools.config.clone(), &stage::settings())?;
        let builder = Builder::start_with(&BuilderOptions::default().by(&tools.program))?;
        cluster.configure(&format!(
            "hnsw.external_index_host = '127.0.0.1'\nhnsw.external_index_port = {}\nhnsw.external_index_sslmode = 'require'\n\
             maintenance_work_mem = '{}MB'",
            builder.address().port(),
            set.graph_megabytes(16)
        ))?;
        cluster.reload()?;
        Ok(Self { options, tools, set, all, replica: Replica::start(&cluster)?, cluster, builder })
    }

    /// Makes a database with the first rows and their index.
    fn load(&self, name: &str, rows: usize, external: bool) -> Result<(Session, Step)> {
        let mut session = self.cluster.database(name)?;
        session.execute("CREATE EXTENSION lantern_index")?;
        copy_rows(&mut session, "items", self.set.column, &self.set.base.clone().truncated(rows))?;
        copy_rows(&mut session, "pool", self.set.column, &self.all)?;
        copy_rows(&mut session, "queries", self.set.column, &self.set.queries)?;
        session.execute(
            "CREATE UNIQUE INDEX ON items (id); CREATE UNIQUE INDEX ON pool (id); ALTER TABLE items SET (autovacuum_enabled = off)",
        )?;
        session.execute("ANALYZE; CHECKPOINT")?;
        let option = if external { " WITH (external = true)" } else { "" };
        let sql = format!("CREATE INDEX {INDEX} ON items USING hnsw (v {}){option}", self.set.opclass());
        let step = self.step(|| Ok(session.execute(&sql)?))?;
        Ok((session, step))
    }

    /// Runs a step and measures its cost.
    fn step(&self, what: impl FnOnce() -> Result<()>) -> Result<Step> {
        let follower = self.replica.follow(&self.cluster)?;
        let what = || what().inspect(|()| follower.end());
        let (done, cost) = cost(&self.cluster, Some(&self.builder), what);
        done?;
        Ok(Step { cost, replay: follower.replay()? })
    }

    fn wear(&self) -> Result<Table> {
        let mut table =
            Table::new(["", "recall@10", "visited", "CPU, s", "seconds", "MB", "WAL, MB", "lag, MB", "catch-up, s"]);
        for (name, external) in [("external", true), ("database", false)] {
            let (rows, worn) = (self.options.rows, format!("{WORN}_{name}"));
            let (mut session, step) = self.load(&worn, rows, external)?;
            self.row(&mut table, &format!("built: {name}"), &worn, &self.set.exact, &step)?;
            let step = self.step(|| Ok(session.execute("VACUUM items")?))?;
            self.row(&mut table, "VACUUM", &worn, &self.set.exact, &step)?;
            let change = format!(
                "UPDATE items i SET v = p.v FROM pool p WHERE i.id % {PART} = 0 AND p.id = {rows} + i.id / {PART}; \
                 DELETE FROM items WHERE id % {PART} = 1"
            );
            let step = step::timed("updates and deletes", || self.step(|| Ok(session.execute(&change)?)))?;
            let exact = self.exact_after();
            self.row(&mut table, "updates and deletes", &worn, &exact, &step)?;
            drop(session);
            // Each contestant gets its own copy of the worn database.
            for (what, rebuilds) in [("VACUUM", false), ("maintain", true)] {
                let copy = format!("{worn}_{what}");
                self.copy(&worn, &copy)?;
                let vacuum = || self.step(|| Ok(self.cluster.session(&copy)?.execute("VACUUM items")?));
                let step = step::timed(&format!("{name}: {what}"), || {
                    if rebuilds { self.step(|| self.maintain(&copy)) } else { vacuum() }
                })?;
                let rebuilt = if external { ", by the builder" } else { ", by REINDEX in the database" };
                let how = if rebuilds { rebuilt } else { " of that" };
                self.row(&mut table, &format!("{what}{how}"), &copy, &exact, &step)?;
                if rebuilds {
                    self.row(&mut table, "VACUUM after that", &copy, &exact, &vacuum()?)?;
                }
                self.cluster.session("postgres")?.execute(&format!("DROP DATABASE \"{copy}\""))?;
            }
        }
        Ok(table)
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        let mut session = self.cluster.session("postgres")?;
        let sql = format!("CREATE DATABASE \"{to}\" TEMPLATE \"{from}\"");
        // The last session of the template database ends shortly after it is dropped.
        harness::wait_for("the template", Duration::from_secs(20), || Ok(session.execute(&sql).ok()))?;
        // Statistics are not copied with the template.
        self.cluster.session(to)?.execute("ANALYZE items; CHECKPOINT")?;
        Ok(())
    }

    fn maintain(&self, database: &str) -> Result<()> {
        let dsn = format!("host={} user=postgres dbname='{database}'", self.cluster.dir().display());
        let output = Command::new(&self.tools.program).args(["maintain", &dsn, "--rebuild"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && said.contains(": done"), "maintain has not rebuilt: {said}");
        Ok(())
    }

    fn row(&self, table: &mut Table, what: &str, database: &str, exact: &[Vec<u32>], step: &Step) -> Result<()> {
        let mut session = self.cluster.session(database)?;
        let search = Recall { table: "items", queries: "queries", metric: self.set.metric, exact };
        let found = recall(&mut session, search, EF_SEARCH)?;
        let file = self.cluster.relation_file(&mut session, INDEX)?;
        let visits = programs::visits(self.tools, &self.set, &file)?;
        let visits = visits.iter().find(|visits| visits.ef == EF_SEARCH).context("an ef_search is missing")?;
        let bytes: f64 = session.value(&format!("SELECT pg_relation_size('{INDEX}')"))?;
        let cells = [
            what.to_owned(),
            format!("{found:.4}"),
            format!("{:.0}", visits.distances),
            format!("{:.1}", step.cost.cpu()),
            format!("{:.1}", step.cost.seconds),
            format!("{:.0}", bytes / 1e6),
            format!("{:.1}", step.replay.written as f64 / 1e6),
            format!("{:.1}", step.replay.behind as f64 / 1e6),
            format!("{:.2}", step.replay.seconds),
        ];
        println!("{database}: {}", cells.join(" | "));
        table.row(cells);
        Ok(())
    }

    /// The true neighbors among the rows after the changes.
    fn exact_after(&self) -> Vec<Vec<u32>> {
        let rows = self.options.rows;
        let ids: Vec<u32> = (0..rows as u32).filter(|id| *id as usize % PART != 1).collect();
        let mut values = Vec::with_capacity(ids.len() * self.all.dims());
        for &id in &ids {
            let id = id as usize;
            values.extend_from_slice(self.all.row(if id.is_multiple_of(PART) { rows + id / PART } else { id }));
        }
        let left = Vectors::new(self.all.dims(), values);
        let exact = exact_neighbors(&left, &self.set.queries, self.set.metric, NEIGHBORS);
        exact.into_iter().map(|near| near.into_iter().map(|at| ids[at as usize]).collect()).collect()
    }

    /// Compares inserts into indexes of several sizes with a rebuild.
    fn shares(&self) -> Result<Table> {
        let mut table = Table::new([
            "rows",
            "an insert, CPU ms",
            "external build, CPU s",
            "build in the database, CPU s",
            "new rows from which the external build takes less CPU",
            "from which the build in the database does",
        ]);
        for rows in [self.options.rows / 4, self.options.rows / 2, self.options.rows] {
            let (_, inside) = self.load(&format!("inside_{rows}"), rows, false)?;
            let (mut session, outside) = self.load(&format!("outside_{rows}"), rows, true)?;
            let (first, count) = (self.options.rows, self.options.inserts);
            let insert = format!("INSERT INTO items SELECT * FROM pool WHERE id >= {first} AND id < {first} + {count}");
            let each = self.step(|| Ok(session.execute(&insert)?))?.cost.cpu() / count as f64;
            let share = |build: &Step| format!("{:.0} %", 100.0 * build.cost.cpu() / each / rows as f64);
            let cells = [
                rows.to_string(),
                format!("{:.2}", 1000.0 * each),
                format!("{:.1}", outside.cost.cpu()),
                format!("{:.1}", inside.cost.cpu()),
                share(&outside),
                share(&inside),
            ];
            println!("{}", cells.join(" | "));
            table.row(cells);
        }
        Ok(table)
    }
}
