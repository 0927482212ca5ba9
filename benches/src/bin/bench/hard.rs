//! Builds of hard data by several means, and searches: a report with the worst family first.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use benches::hard::HardSet;
use benches::{EFS, Searches};
use clap::{Args, ValueEnum};
use harness::hard::{FAMILIES, Family, drawn};
use harness::{Builder, BuilderOptions, Cluster, PgConfig, Session, cost, cpu_seconds};
use hnsw::{EngineKind, Recorder};

use super::indexed;
use super::options::Case;
use super::results::Results;
use super::scaling::costliest_sections;

/// What builds the index or graph.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Contestant {
    /// The engine `bulk`, without a database
    Bulk,
    /// Insertion one by one as in pgvector, without a database
    Insertion,
    /// `CREATE INDEX` externally, by a builder
    External,
    /// `CREATE INDEX` in the database, by one process
    Database,
    /// As `external`; then rows are deleted, vacuumed and inserted again
    WornExternal,
    /// As `database`; then rows are deleted, vacuumed and inserted again
    WornDatabase,
}

impl Contestant {
    fn is_external(self) -> bool {
        matches!(self, Self::External | Self::WornExternal)
    }

    fn needs_database(self) -> bool {
        !matches!(self, Self::Bulk | Self::Insertion)
    }

    fn is_worn(self) -> bool {
        matches!(self, Self::WornExternal | Self::WornDatabase)
    }
}

/// What to build, and by which contestants: each is compared with the last one.
#[derive(Args)]
pub struct Hard {
    /// Parts of names of families (tests/src/hard) [default: all families]
    #[arg(value_name = "FAMILY", value_delimiter = ',')]
    families: Vec<String>,
    /// Number of families whose structure is drawn at random, in place of these families
    #[arg(long, value_name = "N", conflicts_with = "families")]
    drawn: Option<u64>,
    /// Number of the first drawn family
    #[arg(long, value_name = "N", default_value_t = 1, requires = "drawn")]
    first: u64,
    #[arg(long, default_value_t = 20_000)]
    rows: usize,
    #[arg(long, default_value_t = 1000)]
    queries: usize,
    #[arg(long, value_delimiter = ',', default_value = "1")]
    seeds: Vec<u64>,
    #[arg(long, value_delimiter = ',', default_value = "external,database")]
    contestants: Vec<Contestant>,
    #[command(flatten)]
    wear: Wear,
    /// Threads of builds without a database; 0 takes one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Also build by one thread and print which sections of the build take most CPU milliseconds
    #[arg(long)]
    sections: bool,
}

/// What happens to a worn index before it is searched.
#[derive(Args, Clone, Copy)]
struct Wear {
    /// How many times rows are deleted, vacuumed and inserted again
    #[arg(long, default_value_t = 1)]
    vacuums: u32,
    /// The share of the rows that is deleted each time
    #[arg(long, default_value_t = 0.125)]
    deleted: f64,
}

/// Measures, and writes a report.
pub fn run(arguments: &Hard) -> Result<()> {
    let wanted = |family: &&Family| {
        arguments.families.is_empty() || arguments.families.iter().any(|part| family.name.contains(part.as_str()))
    };
    let families: Vec<&'static Family> = match arguments.drawn {
        Some(count) => (arguments.first..).take(count as usize).map(drawn).collect(),
        None => FAMILIES.iter().filter(wanted).collect(),
    };
    ensure!(!families.is_empty(), "no family's name has a part {}", arguments.families.join(" or "));
    let needs_database = arguments.contestants.iter().any(|who| who.needs_database());
    let mut stage = if needs_database { Some(Stage::new(arguments.wear)?) } else { None };
    let (mut lines, mut table) = (String::new(), Vec::new());
    for family in families {
        println!("{}: {}", family.name, family.why);
        let mut margins = Vec::new();
        for &seed in &arguments.seeds {
            let set = HardSet::make(family, seed, arguments.rows, arguments.queries)?;
            if arguments.sections {
                let (_, steps) = set.graph.build_recorded(Recorder::of_tasks(), 1)?;
                println!("{:26} {seed} {}", family.name, costliest_sections(&steps));
            }
            let run = |&who: &Contestant| measure(&set, who, arguments.threads, stage.as_mut());
            let outcomes: Vec<Outcome> = arguments.contestants.iter().map(run).collect::<Result<_>>()?;
            for (who, outcome) in arguments.contestants.iter().zip(&outcomes) {
                let line = line(family, seed, *who, outcome, outcomes.last().filter(|_| outcomes.len() > 1));
                println!("{line}");
                lines += &(line + "\n");
            }
            if let [first, .., last] = &outcomes[..] {
                margins.push(Margins::of(first, last));
            }
        }
        if let Some(mean) = Margins::mean(&margins) {
            table.push((family, mean));
        }
    }
    table.sort_by(|a, b| a.1.worst().total_cmp(&b.1.worst()));
    let rows: String = table.iter().map(|(family, margins)| margins.row(family)).collect();
    let head = "Recall@10 of the first contestant less that of the last, by ef_search, means over seeds; CPU seconds and pages as a ratio.";
    let mut results = Results::new("hard", &PgConfig::require()?)?;
    results.markdown(&format!(
        "{head}\n\n| family | 10 | 20 | 40 | 100 | 200 | 400 | CPU | pages | visited at 40 | |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n{rows}\n\
         Each build: recall@10 by ef_search; visited at 40 and 200; CPU seconds, seconds, pages; the worst margin at any ef and k.\n\n\
         ```\n{lines}```\n"
    ));
    results.write()?;
    println!("\nwritten to {}", results.path().display());
    Ok(())
}

struct Outcome {
    cpu: f64,
    seconds: f64,
    pages: usize,
    searches: Searches,
    remark: String,
}

/// A contestant compared with another one: difference in recall, ratios of costs.
#[derive(Clone, Copy, Default)]
struct Margins {
    recall: [f64; EFS.len()],
    cpu: f64,
    pages: f64,
    visited: f64,
}

impl Margins {
    fn of(own: &Outcome, other: &Outcome) -> Self {
        Self {
            recall: std::array::from_fn(|ef| own.searches.recall[ef][1] - other.searches.recall[ef][1]),
            cpu: own.cpu / other.cpu,
            pages: own.pages as f64 / other.pages.max(1) as f64,
            visited: own.searches.visited[2] / other.searches.visited[2],
        }
    }

    fn mean(all: &[Self]) -> Option<Self> {
        let count = Some(all.len() as f64).filter(|&count| count > 0.0)?;
        let mean = |of: &dyn Fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / count;
        Some(Self {
            recall: std::array::from_fn(|ef| mean(&|margins| margins.recall[ef])),
            cpu: mean(&|margins| margins.cpu),
            pages: mean(&|margins| margins.pages),
            visited: mean(&|margins| margins.visited),
        })
    }

    fn worst(&self) -> f64 {
        self.recall.into_iter().fold(f64::INFINITY, f64::min)
    }

    fn row(&self, family: &Family) -> String {
        let recall: Vec<String> = self.recall.iter().map(|recall| format!("{recall:+.4}")).collect();
        let Self { cpu, pages, visited, .. } = self;
        format!(
            "| {} | {} | {cpu:.2} | {pages:.2} | {visited:.2} | {} |\n",
            family.name,
            recall.join(" | "),
            family.why
        )
    }
}

fn line(family: &Family, seed: u64, who: Contestant, outcome: &Outcome, last: Option<&Outcome>) -> String {
    let Outcome { cpu, seconds, pages, searches, remark } = outcome;
    let recall: Vec<String> = (0..EFS.len()).map(|ef| format!("{:.4}", searches.recall[ef][1])).collect();
    let visited = [searches.visited[2], searches.visited[4]];
    let name = format!("{who:?}");
    let mut line = format!("{:26} {seed} {name:9} {} |", family.name, recall.join(" "));
    line += &format!(" {:5.0} {:5.0} | {cpu:6.2} {seconds:6.2} s {pages} |", visited[0], visited[1]);
    if let Some(last) = last.filter(|last| !std::ptr::eq(*last, outcome)) {
        let (worst, ef, k) = searches.worst(&last.searches);
        let slow = if *cpu > last.cpu { " more CPU" } else { "" };
        line += &format!(" {worst:+.4} at ef {ef} k {k}{slow}");
    }
    format!("{line} {remark}").trim_end().to_owned()
}

fn measure(set: &HardSet, who: Contestant, threads: usize, stage: Option<&mut Stage>) -> Result<Outcome> {
    let kind = match who {
        Contestant::Bulk => EngineKind::Bulk,
        Contestant::Insertion => EngineKind::Insertion,
        _ => {
            let stage = stage.context("no database")?;
            stage.load(set)?;
            return stage.build(set, who);
        }
    };
    let (cpu, start) = (cpu_seconds(std::process::id()), Instant::now());
    let finished = set.graph.build(kind, threads)?;
    let (cpu, seconds) = (cpu_seconds(std::process::id()) - cpu, start.elapsed().as_secs_f64());
    let report = finished.report;
    let remark = format!("relinked {} self {:.2}", report.relinked, report.self_recall);
    Ok(Outcome { cpu, seconds, pages: 0, searches: set.graph.search(&finished), remark })
}

/// A cluster and a builder.
struct Stage {
    session: Session,
    builder: Builder,
    cluster: Cluster,
    wear: Wear,
}

impl Stage {
    fn new(wear: Wear) -> Result<Self> {
        let cluster = Cluster::start_with(
            PgConfig::require()?,
            "shared_preload_libraries = 'lantern_index'\nshared_buffers = 1GB\nmax_wal_size = 20GB\n",
        )?;
        let builder = Builder::start_with(&BuilderOptions::default())?;
        let mut session = cluster.database("hard")?;
        builder.attach(&mut session)?;
        session.execute("SET maintenance_work_mem = '3GB'; SET max_parallel_maintenance_workers = 0")?;
        Ok(Self { session, builder, cluster, wear })
    }

    fn load(&mut self, set: &HardSet) -> Result<()> {
        let (kind, dims) = (set.base.kind().name(), set.family.dims);
        self.session.execute("DROP TABLE IF EXISTS items")?;
        self.session.execute(&format!("CREATE TABLE items (v {kind}({dims}))"))?;
        for first in (0..set.base.len()).step_by(1000) {
            let rows = first..set.base.len().min(first + 1000);
            let text: String = rows.map(|row| set.base.text(row) + "\n").collect();
            self.session.copy("COPY items FROM STDIN", text.as_bytes())?;
        }
        self.session.execute("ANALYZE items")?;
        Ok(())
    }

    fn build(&mut self, set: &HardSet, who: Contestant) -> Result<Outcome> {
        let family = set.family;
        let case = Case { m: family.m.into(), ef_construction: family.ef_construction.into() };
        let sql = indexed::statement("items", &format!("v {}", family.opclass()), case, who.is_external());
        self.session.execute("CHECKPOINT")?;
        self.session.take_notices();
        let (built, cost) = cost(&self.cluster, Some(&self.builder), || self.session.execute(&sql));
        built?;
        let notices = self.session.take_notices();
        indexed::expect_memory(&notices)?;
        let warnings =
            notices.iter().filter(|notice| notice.severity == "WARNING").map(|notice| notice.message.clone());
        let remark = warnings.collect::<Vec<_>>().join("; ");
        if who.is_worn() {
            for time in 0..self.wear.vacuums {
                self.wear(time)?;
            }
        }
        self.session.execute("CHECKPOINT")?;
        let index = set.read(&self.cluster.relation_file(&mut self.session, "items_v_idx")?)?;
        self.session.execute("DROP INDEX items_v_idx")?;
        let searches = set.graph.search_index(&index);
        Ok(Outcome { cpu: cost.cpu(), seconds: cost.seconds, pages: index.pages, searches, remark })
    }

    /// The rows are the same ones afterwards, so that the true neighbors of the queries are, too.
    fn wear(&mut self, time: u32) -> Result<()> {
        self.session.execute(&format!(
            "SELECT setseed({time}::float8 / 1000);
             CREATE TEMP TABLE taken AS SELECT ctid AS place, v FROM items WHERE random() < {};
             DELETE FROM items WHERE ctid IN (SELECT place FROM taken)",
            self.wear.deleted
        ))?;
        self.session.execute("VACUUM items")?;
        Ok(self.session.execute("INSERT INTO items SELECT v FROM taken; DROP TABLE taken")?)
    }
}
