use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::{Builder, Cluster, Recall, Scratch, Session, copy_rows, cores, recall, step};

use super::super::super::set::Set;
use super::super::super::stage::INDEX;
use super::super::super::{indexed, memory, watch};
use super::super::ground::Ground;
use super::case;

const ROWS: usize = 20_000;
const DIMS: usize = 1536;
const QUERIES: usize = 200;
const EF_SEARCH: u32 = 100;

/// The interval of memory samples. A sample of a backend is expensive, one of a builder is not.
const PAUSE: Duration = Duration::from_millis(20);

/// The cost of a build, and its memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Build {
    pub name: &'static str,
    /// The memory limit in bytes.
    pub limit: Option<f64>,
    /// Peak memory in bytes: of a builder without mapped files, of the database without shared buffers.
    pub memory: f64,
    /// The largest size of the spool in bytes.
    pub spooled: f64,
    pub seconds: f64,
    pub recall: f64,
    /// The database's NOTICE about its memory.
    pub said: Option<String>,
}

/// Builds of one table.
pub struct Builds {
    pub title: String,
    pub builds: Vec<Build>,
}

struct Stage<'a> {
    ground: &'a Ground,
    set: &'a Set,
    session: Session,
    spool: Scratch,
    // After the fields that use it, so that it is dropped after them.
    _cluster: Cluster,
}

/// Runs four builds of a table: externally and in the database, with enough memory and with too little.
pub fn measure(ground: &Ground) -> Result<Builds> {
    let sizes = &ground.sizes;
    let dims = sizes.dims.as_ref().and_then(|dims| dims.iter().copied().max()).unwrap_or(DIMS);
    let (rows, queries) = (sizes.rows.unwrap_or(ROWS), sizes.queries.unwrap_or(QUERIES));
    let set = ground.set(&format!("synthetic-{dims}"), rows, queries)?;
    let limit = limit(ground, &set)?;
    let mut stage = Stage::new(ground, &set)?;
    let dir = stage.spool.path().display().to_string();
    let spooling = ["--memory-limit", &format!("{}kB", limit / 1024), "--spool-dir", &dir];
    let enough = set.graph_megabytes(case(ground).m) as u64 * 1024;
    let builds = vec![
        stage.outside("external", &[])?,
        Build { limit: Some(limit as f64), ..stage.outside("external, spooled", &spooling)? },
        stage.inside("database", enough)?,
        Build { limit: Some(limit as f64), ..stage.inside("database, as little memory", limit / 1024)? },
    ];
    Ok(Builds { title: format!("{rows} rows x {dims}"), builds })
}

/// Bytes that a build needs besides its vectors, according to `lantern-index estimate`.
fn limit(ground: &Ground, set: &Set) -> Result<u64> {
    let (rows, dims) = (set.base.rows(), set.base.dims());
    let mut estimate = Command::new(&ground.tools.program);
    estimate.args(["estimate", "--json", "--rows", &rows.to_string(), "--dims", &dims.to_string()]);
    estimate.args(["--m", &case(ground).m.to_string(), "--threads", &cores().to_string()]);
    let text = step::output(&mut estimate)?;
    let estimate: serde_json::Value = serde_json::from_str(&text)?;
    let all = estimate["builder_memory_bytes"].as_u64().with_context(|| format!("cannot make sense of {text:?}"))?;
    Ok(all.saturating_sub(4 * (rows * dims) as u64))
}

impl<'a> Stage<'a> {
    fn new(ground: &'a Ground, set: &'a Set) -> Result<Self> {
        let cluster = ground.cluster("")?;
        let mut session = cluster.database("builds")?;
        copy_rows(&mut session, "items", set.column, &set.base)?;
        copy_rows(&mut session, "queries", set.column, &set.queries)?;
        let workers = (cores() - 1).max(1);
        session.execute(&format!(
            "ALTER TABLE items SET (parallel_workers = {workers}); \
             SET max_parallel_maintenance_workers = {workers}; SET client_min_messages = notice"
        ))?;
        Ok(Self { ground, set, session, spool: Scratch::new("spool", 0o700)?, _cluster: cluster })
    }

    /// Builds externally, by a builder with these flags.
    fn outside(&mut self, name: &'static str, flags: &[&str]) -> Result<Build> {
        let builder: Builder = self.ground.builder(flags)?;
        builder.attach(&mut self.session)?;
        let pid = builder.pid().context("the builder has ended")?;
        let dir = self.spool.path().to_owned();
        let look = move || [memory::anonymous(pid), memory::in_files(pid, &dir)];
        let sql = self.statement(true)?;
        let (built, [most, spooled]) = watch::most(PAUSE, look, || indexed::create(&mut self.session, &sql));
        let seconds = built?.seconds;
        self.finish(Build { name, memory: most as f64, spooled: spooled as f64, seconds, ..Build::default() })
    }

    /// Builds in the database, with this maintenance_work_mem in kB.
    fn inside(&mut self, name: &'static str, memory: u64) -> Result<Build> {
        self.session.execute(&format!("SET maintenance_work_mem = '{memory}kB'"))?;
        let sql = self.statement(false)?;
        let session = &mut self.session;
        let (built, most) = watch::during(session.pid(), || indexed::create_anyway(session, &sql));
        let (built, said) = built?;
        self.finish(Build { name, memory: most as f64, seconds: built.seconds, said, ..Build::default() })
    }

    /// Writes dirty pages, and returns the statement that builds.
    fn statement(&mut self, external: bool) -> Result<String> {
        self.session.execute("CHECKPOINT")?;
        Ok(indexed::statement("items", &self.set.key(), case(self.ground), external))
    }

    /// Measures searches of the index, and drops it.
    fn finish(&mut self, build: Build) -> Result<Build> {
        let Set { metric, ref exact, .. } = *self.set;
        let recall =
            recall(&mut self.session, Recall { table: "items", queries: "queries", metric, exact }, EF_SEARCH)?;
        self.session.execute(&format!("DROP INDEX {INDEX}"))?;
        println!("{}: {:.2} s, {:.0} MB, recall {recall:.4}", build.name, build.seconds, build.memory / 1e6);
        Ok(Build { recall, ..build })
    }
}
