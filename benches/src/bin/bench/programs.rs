//! Programs that build graphs without a database, or search an index file. All print lines of the same form.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use harness::{Metric, cores, step};

use super::options::Case;
use super::peer::{Peer, Tools};
use super::set::Set;
use super::warm;

/// The script that builds with hnswlib and faiss.
const PEERS: &str = include_str!("peers.py");

/// The result of building and searching a graph.
pub struct Graph {
    pub seconds: f64,
    /// Peak memory in bytes besides the given vectors.
    pub memory: f64,
    pub searches: Vec<Visits>,
}

/// Results of searches with one ef_search, as means per query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Visits {
    pub ef: u32,
    pub recall: f64,
    pub distances: f64,
    pub pages: f64,
}

/// Builds the graph of a set without a database.
pub fn graph(tools: &Tools, peer: Peer, set: &Set, case: Case) -> Result<Graph> {
    let mut command = match peer {
        Peer::Hnswlib | Peer::Faiss => {
            let script = step::work_dir()?.join("bench/peers.py");
            std::fs::write(&script, PEERS)?;
            let mut command = Command::new(tools.python.as_ref().context("there is no Python for it")?);
            command.arg(script).arg(peer.name()).args([&set.base_file, &set.query_file, &set.exact_file]);
            command
        }
        _ => {
            let mut command = Command::new(&tools.graph);
            command.args([&set.base_file, &set.query_file]);
            command.arg("--count").arg(set.queries.rows().to_string());
            command
        }
    };
    command.args(["--metric", metric(set.metric), "--m", &case.m.to_string()]);
    command.args(["--ef-construction", &case.ef_construction.to_string()]);
    warm::up(set.bytes());
    let text = step::output(command.args(["--threads", &cores().to_string()]))?;
    let line = text.lines().find(|line| line.contains("seconds ")).context("no line with seconds")?;
    Ok(Graph { seconds: field(line, "seconds")?, memory: field(line, "peak")?, searches: searches(&text)? })
}

/// Searches an index file.
pub fn visits(tools: &Tools, set: &Set, index: &Path) -> Result<Vec<Visits>> {
    let mut command = Command::new(&tools.visits);
    searches(&step::output(command.arg(index).arg(&set.query_file).args(["--metric", metric(set.metric)]))?)
}

fn metric(metric: Metric) -> &'static str {
    match metric {
        Metric::L2 => "l2",
        Metric::InnerProduct => "ip",
        _ => "cosine",
    }
}

/// Parses all lines like `ef 40 recall 0.98 distances 812.5 pages 210.0`.
fn searches(text: &str) -> Result<Vec<Visits>> {
    let of = |line: &str| {
        let [recall, distances, pages] = [field(line, "recall")?, field(line, "distances")?, field(line, "pages")?];
        Ok(Visits { ef: field(line, "ef")? as u32, recall, distances, pages })
    };
    text.lines().filter(|line| line.starts_with("ef ")).map(of).collect()
}

/// The number that follows a word.
fn field(line: &str, name: &str) -> Result<f64> {
    let mut words = line.split(' ').skip_while(|&word| word != name);
    let value = words.nth(1).and_then(|word| word.parse().ok());
    value.with_context(|| format!("no {name} in {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let text = "7000 x 384 seconds 1.3 peak 28\nef 40 recall 0.98 distances 812.5 pages 210.0\n";
        let expected = Visits { ef: 40, recall: 0.98, distances: 812.5, pages: 210.0 };
        assert_eq!(searches(text).unwrap(), [expected]);
        assert_eq!(field(text.lines().next().unwrap(), "peak").unwrap(), 28.0);
        assert!(searches("ef 40 recall x").is_err());
    }
}
