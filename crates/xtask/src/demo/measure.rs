use std::time::Duration;

use anyhow::{Context, Result};
use harness::{Builder, Cluster, Cost, Metric, Recall, Session, beside, cost, recall};

use super::EF_SEARCH;
use crate::step;

/// Where the graph is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Database,
    Builder,
}

/// The cost of a build, and its index.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub cost: Cost,
    /// Mean recall at each of [`EF_SEARCH`].
    pub recall: Vec<f64>,
    /// Bytes of the index.
    pub size: u64,
}

/// What measurements need: the servers, and the true neighbors of each query.
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
        let pid = session.pid();
        let build = || session.execute(&sql);
        let (built, cost) = self.with_progress(pid, || cost(self.cluster, Some(self.builder), build))?;
        built.context("the index was not built")?;
        session.take_notices().iter().for_each(|notice| println!("{notice}"));
        println!("CREATE INDEX\nTime: {:.0} ms", cost.seconds * 1000.0);

        let search = Recall { table: "items", queries: "queries", metric: Metric::Cosine, exact: self.exact };
        let mut found = Vec::new();
        let bar = step::progress("searching", EF_SEARCH.len() as u64);
        for ef_search in EF_SEARCH {
            found.push(recall(session, search, ef_search)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(Measured { cost, recall: found, size: session.value("SELECT pg_relation_size('items_v_idx')")? })
    }

    /// Does something while another session watches the index build of backend `pid`.
    fn with_progress<T>(&self, pid: u32, work: impl FnOnce() -> T) -> Result<T> {
        let mut watcher = self.cluster.session("demo")?;
        let bar = step::progress("building", 100);
        let sql = format!(
            "SELECT phase, (100 * greatest(tuples_done::float8 / nullif(tuples_total, 0), \
             blocks_done::float8 / nullif(blocks_total, 0)))::int FROM pg_stat_progress_create_index WHERE pid = {pid}"
        );
        let look = || {
            if let Ok(rows) = watcher.query(&sql)
                && let Some([phase, percent]) = rows.first().map(Vec::as_slice)
            {
                bar.set_message(phase.clone().unwrap_or_default());
                bar.set_position(percent.as_ref().and_then(|percent| percent.parse().ok()).unwrap_or(0));
            }
        };
        let result = beside(Duration::from_millis(200), look, work);
        bar.finish_and_clear();
        Ok(result)
    }
}
