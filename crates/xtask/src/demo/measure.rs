use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::{Builder, Cluster, Metric, Recall, Session, cpu_seconds, recall};

use super::EF_SEARCH;
use crate::step;

/// Where the graph is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Database,
    Builder,
}

/// What a build took and gave.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub seconds: f64,
    /// CPU seconds of all of PostgreSQL's processes.
    pub database_cpu: f64,
    /// CPU seconds of the builder.
    pub builder_cpu: f64,
    /// At each of [`EF_SEARCH`].
    pub recall: Vec<f64>,
    /// Bytes of the index.
    pub size: u64,
}

/// What is measured with.
pub struct Stage<'a> {
    pub cluster: &'a Cluster,
    pub builder: &'a Builder,
    pub exact: &'a [Vec<u32>],
}

impl Stage<'_> {
    /// Builds the index in one of the two places, shows what the user sees, and searches it.
    pub fn measure(&self, session: &mut Session, place: Place) -> Result<Measured> {
        let external = if place == Place::Builder { ", external = true" } else { "" };
        let sql = format!(
            "CREATE INDEX ON items USING hnsw (v vector_cosine_ops) WITH (m = 16, ef_construction = 64{external})"
        );
        println!("\ndemo=# {sql};");
        session.take_notices();
        let cpu = || (self.cluster.cpu_seconds(), self.builder.pid().map_or(0.0, cpu_seconds));
        let (before, start) = (cpu(), Instant::now());
        self.with_progress(session.pid(), || session.execute(&sql))?.context("the index was not built")?;
        let seconds = start.elapsed().as_secs_f64();
        // Parallel workers count once the postmaster has waited for them.
        thread::sleep(Duration::from_millis(300));
        let after = cpu();
        session.take_notices().iter().for_each(|notice| println!("{notice}"));
        println!("CREATE INDEX\nTime: {:.0} ms", seconds * 1000.0);

        let search = Recall { table: "items", queries: "queries", metric: Metric::Cosine, exact: self.exact };
        let mut found = Vec::new();
        let bar = step::progress("searching", EF_SEARCH.len() as u64);
        for ef_search in EF_SEARCH {
            found.push(recall(session, search, ef_search)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(Measured {
            seconds,
            database_cpu: after.0 - before.0,
            builder_cpu: after.1 - before.1,
            recall: found,
            size: session.value("SELECT pg_relation_size('items_v_idx')")?,
        })
    }

    /// Does something while another session watches the index build of backend `pid`.
    fn with_progress<T>(&self, pid: u32, work: impl FnOnce() -> T) -> Result<T> {
        let mut watcher = self.cluster.session("demo")?;
        let (done, over) = channel::<()>();
        Ok(thread::scope(|scope| {
            scope.spawn(move || watch(&mut watcher, pid, &over));
            let result = work();
            drop(done);
            result
        }))
    }
}

fn watch(watcher: &mut Session, pid: u32, over: &Receiver<()>) {
    let bar = step::progress("building", 100);
    let sql = format!(
        "SELECT phase, (100 * greatest(tuples_done::float8 / nullif(tuples_total, 0), \
         blocks_done::float8 / nullif(blocks_total, 0)))::int FROM pg_stat_progress_create_index WHERE pid = {pid}"
    );
    while over.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
        let Ok(rows) = watcher.query(&sql) else { break };
        if let Some([phase, percent]) = rows.first().map(Vec::as_slice) {
            bar.set_message(phase.clone().unwrap_or_default());
            bar.set_position(percent.as_ref().and_then(|percent| percent.parse().ok()).unwrap_or(0));
        }
    }
    bar.finish_and_clear();
}
