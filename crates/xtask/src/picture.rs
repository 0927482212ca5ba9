//! Pictures of what a user sees, from real runs: the demo, and a build that psql and `lantern-index status` watch.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, ensure};
use harness::{Builder, BuilderOptions, Cluster, Column, copy_rows, synthetic};

use crate::{build, setup, step};

mod svg;

use svg::Text;

/// Enough rows to see the phases.
const ROWS: usize = 100_000;
const DIMS: usize = 384;
const CREATE: &str = "CREATE INDEX ON items USING hnsw (v vector_cosine_ops) WITH (external = true)";
const PROGRESS: &str =
    "SELECT phase, tuples_done, tuples_total, blocks_done, blocks_total FROM pg_stat_progress_create_index";

/// Records both, and writes `demo.svg` and `watch.svg` into `dir`.
pub fn run(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (name, record) in [("demo.svg", demo as fn() -> Result<Vec<Text>>), ("watch.svg", watch)] {
        let path = dir.join(name);
        fs::write(&path, svg::render(&record()?)).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// A line, and the second when it came.
struct Line {
    at: f64,
    text: String,
}

/// What a program prints until it ends.
fn lines(output: ChildStdout, start: Instant) -> Result<Vec<Line>> {
    let timed = |text| Ok(Line { at: start.elapsed().as_secs_f64(), text: text? });
    BufReader::new(output).lines().map(timed).collect()
}

/// What `cargo xtask demo` prints to a file. A line that ends in dots gives way to the next one.
fn demo() -> Result<Vec<Text>> {
    let mut child = Command::new(env::current_exe()?).arg("demo").stdout(Stdio::piped()).spawn()?;
    let lines = lines(child.stdout.take().context("no stdout")?, Instant::now())?;
    ensure!(child.wait()?.success(), "the demo failed");
    let mut texts = vec![Text::new(0, 0.0, "$ cargo xtask demo")];
    let mut row = 1;
    for (number, line) in lines.iter().enumerate() {
        let next = lines.get(number + 1).filter(|_| line.text.ends_with(" ..."));
        texts.push(Text { until: next.map(|next| next.at), ..Text::new(row, line.at, &line.text) });
        row += usize::from(next.is_none());
    }
    Ok(texts)
}

/// A build, with psql's `\watch` and `lantern-index status --watch` below it.
fn watch() -> Result<Vec<Text>> {
    let config = setup::run(None, false)?;
    let program = build::demo_program()?;
    let options = BuilderOptions::default().by(&program);
    let builder = Builder::start_with(&BuilderOptions { tls: false, ..options })?;
    let cluster = Cluster::start_with(config, &builder.settings())?;
    let mut session = cluster.database("demo")?;
    let (base, _) = synthetic(ROWS, 1, DIMS, 1);
    step::timed(&format!("loading {ROWS} rows"), || copy_rows(&mut session, "items", Column::Vector, &base))?;

    // Each line as it comes, as in a terminal.
    let mut psql = Command::new("stdbuf");
    psql.arg("-oL").arg(cluster.config().program("psql")).args(["-X", "-f", "-", "-h"]).arg(cluster.dir());
    let mut psql = psql.args(["-U", "postgres", "demo"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let address = builder.status_address().to_string();
    let mut status = Command::new(&program);
    let mut status = status.args(["status", "--watch", &address]).stdout(Stdio::piped()).spawn()?;
    let mut statement = psql.stdin.take().context("no stdin")?;
    writeln!(statement, "{PROGRESS} \\watch 1")?;
    let start = Instant::now();
    let readers = [&mut psql, &mut status].map(|child| child.stdout.take());
    let readers = readers.map(|output| output.map(|output| thread::spawn(move || lines(output, start))));
    thread::sleep(Duration::from_secs(2));
    let began = start.elapsed().as_secs_f64();
    let result = session.execute(CREATE);
    let ended = start.elapsed().as_secs_f64();
    thread::sleep(Duration::from_secs(2));
    for child in [&mut psql, &mut status] {
        child.kill()?;
        child.wait()?;
    }
    result?;
    let [progress, reports] = readers.map(|reader| reader.and_then(|reader| reader.join().ok()).context("no output"));

    let mut texts = vec![Text::new(0, began, &format!("demo=# {CREATE};"))];
    let seconds = format!("CREATE INDEX\nTime: {:.0} ms", (ended - began) * 1000.0);
    let said: Vec<String> = session.take_notices().iter().map(ToString::to_string).chain([seconds]).collect();
    let said = said.join("\n");
    texts.extend((1..).zip(said.lines()).map(|(row, line)| Text::new(row, ended, line)));
    let row = svg::rows(&texts) + 1;
    texts.push(Text::new(row, 0.0, &format!("demo=# {PROGRESS} \\watch 1")));
    texts.extend(frames(&progress??, "(every 1s)", row + 1));
    let row = svg::rows(&texts) + 1;
    texts.push(Text::new(row, 0.0, &format!("$ lantern-index status --watch {address}")));
    texts.extend(frames(&reports??, &format!(" at {address}: "), row + 1));
    Ok(texts)
}

/// Screens that replace each other from `row` on; each begins with a line that contains `head`. A line that stays is there once.
fn frames(lines: &[Line], head: &str, row: usize) -> Vec<Text> {
    let heads: Vec<usize> = (0..lines.len()).filter(|&line| lines[line].text.contains(head)).collect();
    let ends = heads.iter().skip(1).copied().chain([lines.len()]);
    let mut texts = Vec::new();
    for (&head, end) in heads.iter().zip(ends) {
        let (from, until) = (lines[head].at, lines.get(end).map(|next| next.at));
        let screen = (row..).zip(&lines[head..end]).filter(|(_, line)| !line.text.is_empty());
        texts.extend(screen.map(|(row, line)| Text { until, ..Text::new(row, from, &line.text) }));
    }
    texts.sort_by_key(|text| text.row);
    texts.dedup_by(|next, before| {
        let stays = (before.row, &before.text, before.until) == (next.row, &next.text, Some(next.from));
        if stays {
            before.until = next.until;
        }
        stays
    });
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_in_the_documents_are_xml() {
        for name in ["demo.svg", "watch.svg"] {
            let svg = fs::read_to_string(harness::root().join("docs/pictures").join(name)).unwrap();
            assert!(roxmltree::Document::parse(&svg).unwrap().root_element().has_tag_name("svg"), "{name}");
        }
    }

    #[test]
    fn a_line_that_stays_is_there_once() {
        let line = |at: f64, text: &str| Line { at, text: text.to_owned() };
        let lines =
            [line(1.0, "noon"), line(1.0, "busy"), line(2.0, "one noon"), line(2.0, "busy"), line(3.0, "two noon")];
        let shown = |row, from, until, text| Text { until, ..Text::new(row, from, text) };
        let expected = [
            shown(4, 1.0, Some(2.0), "noon"),
            shown(4, 2.0, Some(3.0), "one noon"),
            shown(4, 3.0, None, "two noon"),
            shown(5, 1.0, Some(3.0), "busy"),
        ];
        assert_eq!(frames(&lines, "noon", 4), expected);
    }
}
