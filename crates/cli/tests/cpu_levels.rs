//! Whole builds by the program, with the distance kernels of each level that this processor supports.

mod support;

use std::collections::HashMap;
use std::io::Write;

use hnsw::{Level, Links, Searcher};
use pages::{Linked, PageBytes, verify};
use protocol::{Hello, Metric, ValueType};
use support::{Daemon, command, encode, hello, points};
use tempfile::TempDir;

const ROWS: usize = 1000;
const DIMS: usize = 64;
/// Rows to search for.
const QUERIES: usize = 100;
const EF_SEARCH: usize = 40;

/// Builds such that each kernel is used by one of them.
const BUILDS: [(ValueType, Metric); 8] = [
    (ValueType::Vector, Metric::L2),
    (ValueType::Vector, Metric::InnerProduct),
    (ValueType::Vector, Metric::Cosine),
    (ValueType::Vector, Metric::L1),
    (ValueType::HalfVec, Metric::L2),
    (ValueType::SparseVec, Metric::Cosine),
    (ValueType::Bit, Metric::Hamming),
    (ValueType::Bit, Metric::Jaccard),
];

/// Levels that this processor does not support are printed as skipped: the test shows nothing about them.
#[test]
fn indexes_are_good_at_every_level_of_this_processor() {
    let available = Level::available();
    // The portable kernels are the same code on all processors: emulated, they would only take long.
    let is_emulated = std::env::var_os("LANTERN_INDEX_EMULATOR").is_some();
    for level in Level::ALL.into_iter().filter(|&level| !(is_emulated && level == Level::Portable)) {
        if !available.contains(&level) {
            // Written to stderr directly, since the test harness captures what `eprintln!` prints.
            writeln!(std::io::stderr(), "skipped: builds at level {level}, which this processor does not have")
                .unwrap();
            continue;
        }
        let dir = TempDir::new().unwrap();
        let daemon = Daemon::start(&["--cpu-level", level.name(), "--threads", "2"], dir.path());
        daemon.wait_for_line(&["builder started", &format!("kernels=\"{level}\"")]);
        for (value_type, metric) in BUILDS {
            let recall = build(&daemon, value_type, metric);
            assert!(recall >= 0.97, "{level}, {} by {}: recall {recall}", value_type.name(), metric.name());
        }
    }
}

#[test]
fn levels_that_the_processor_lacks_are_refused() {
    let foreign = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
    let lacks = format!("this processor does not have {foreign}; it has portable");
    for (level, why) in
        [(foreign, lacks.as_str()), ("sse9", "no processor level is called \"sse9\"; there are portable")]
    {
        for from_environment in [false, true] {
            let mut serve = command();
            serve.args(["serve", "--port", "0", "--status-port", "0"]);
            if from_environment {
                serve.env("LANTERN_INDEX_CPU_LEVEL", level);
            } else {
                serve.args(["--cpu-level", level]);
            }
            let output = serve.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(64), "{said}");
            assert!(said.contains(why), "{said}");
        }
    }
}

/// Builds an index, verifies its pages, and returns the recall of searches in them.
fn build(daemon: &Daemon, value_type: ValueType, metric: Metric) -> f64 {
    let rows = points(value_type, metric, ROWS, DIMS);
    let mut client = daemon.connect();
    client.admitted(Hello { value_type, metric, estimated_rows: ROWS as u64, ..hello(DIMS as u32) });
    client.values(value_type, &rows);
    client.end_of_rows(ROWS as u64);
    let pages = client.pages().pages;

    let report = verify(&mut pages.as_slice(), Some(value_type));
    assert!(report.is_ok() && report.heap_tids == ROWS as u64, "{report}");
    recall(&pages, value_type, metric, &rows)
}

/// recall@10 of searches; ties with the tenth neighbor count as found. Computes distances without the kernels.
fn recall(pages: &[PageBytes], value_type: ValueType, metric: Metric, rows: &[Vec<f32>]) -> f64 {
    let index = Index(Linked::new(pages, value_type).unwrap());
    let numbers: HashMap<_, _> = rows.iter().enumerate().map(|(row, value)| (encode(value_type, value), row)).collect();
    let row_of: Vec<usize> =
        (0..index.len() as u32).map(|element| numbers[&index.0.value(element).unwrap().concat()]).collect();
    let mut hits = 0;
    for query in rows.iter().step_by(ROWS / QUERIES).take(QUERIES) {
        let mut exact: Vec<f32> = rows.iter().map(|row| distance(metric, query, row)).collect();
        exact.sort_by(f32::total_cmp);
        let distance = |element: u32| distance(metric, query, &rows[row_of[element as usize]]);
        let found = Searcher::default().search(&index, distance, |_| {}, EF_SEARCH);
        hits += found.iter().take(10).filter(|near| near.distance() <= exact[9]).count();
    }
    hits as f64 / (10 * QUERIES) as f64
}

struct Index<'a>(Linked<'a>);

impl Links for Index<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn entry(&self) -> Option<(u32, u8)> {
        self.0.entry()
    }

    fn neighbors(&self, element: u32, layer: u8) -> impl Iterator<Item = u32> {
        self.0.neighbors(element, layer)
    }
}

fn distance(metric: Metric, a: &[f32], b: &[f32]) -> f32 {
    let sum = |term: fn(f32, f32) -> f32| a.iter().zip(b).map(|(&a, &b)| term(a, b)).sum::<f32>();
    match metric {
        Metric::L2 => sum(|a, b| (a - b) * (a - b)),
        Metric::InnerProduct | Metric::Cosine => -sum(|a, b| a * b),
        // For bits, which are 0 or 1 here, the Hamming distance is the sum of differences.
        Metric::L1 | Metric::Hamming => sum(|a, b| (a - b).abs()),
        Metric::Jaccard => 1.0 - sum(f32::min) / sum(f32::max).max(1.0),
    }
}
