//! What does each pass of the engine gain? Builds several sets with one pass left out at a time.

use anyhow::Result;
use benches::hard::HardSet;
use benches::{EFS, GraphSet, Searches};
use clap::Args;
use harness::hard::{FAMILIES, drawn};
use harness::{PgConfig, cpu_seconds};
use hnsw::{EngineKind, Pass, Remedy};

use super::contest::{alternate, median};
use super::flags;
use super::markdown::Table;
use super::options::SetOptions;
use super::results::Results;
use super::set::Set;

/// The values of ef_search in the report, as positions in [`EFS`].
const SHOWN: [usize; 3] = [0, 2, 4];

/// The sets, and how they are built.
#[derive(Args)]
pub struct Ablation {
    /// Sets as for --set, which may have `:ip` or another metric appended, and families of hard data, drawn-N included
    #[arg(
        value_name = "SET",
        value_delimiter = ',',
        default_value = "wordnet-384,wordnet-1152,fashion-mnist,crowd-cosine,far-clusters-l2,positive-lognormal-ip"
    )]
    sets: Vec<String>,
    /// Passes to leave out, for instance refinement [default: each]
    #[arg(long, value_name = "PASS", value_delimiter = ',', value_parser = pass)]
    without: Vec<Pass>,
    #[command(flatten)]
    set: SetOptions,
    /// Options of the index; families of hard data have their own
    #[arg(long, default_value_t = 16)]
    m: u16,
    #[arg(long, default_value_t = 64)]
    ef_construction: u16,
    /// Rounds; in each round every contestant builds once
    #[arg(long, value_name = "N", value_parser = flags::positive::<usize>, default_value = "3")]
    rounds: usize,
    /// Threads; 0 takes one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// What builds the graph.
#[derive(Clone, Copy, PartialEq)]
enum Contestant {
    Whole,
    Without(Pass),
    /// Insertion one by one, as in pgvector, instead of the passes.
    Insertion,
}

/// A build and its searches.
struct Outcome {
    cpu: f64,
    searches: Searches,
    pages: f64,
    remedy: Remedy,
}

/// Measures, and writes a report.
pub fn run(arguments: &Ablation) -> Result<()> {
    let mut results = Results::new("ablation", &PgConfig::require()?)?;
    results.markdown(
        "Each pass left out by itself, and the graph by insertion, as pgvector builds it. CPU seconds, elements visited and pages read per query at ef_search 40 as ratios to those of all passes, \
         CPU seconds as medians; recall@10 at ef_search 10, 40, 200 as differences; what the guard did.\n",
    );
    for name in &arguments.sets {
        let set = arguments.find(name)?;
        let mut contestants = vec![Contestant::Whole, Contestant::Insertion];
        let passes = if arguments.without.is_empty() { &Pass::ALL[..] } else { &arguments.without };
        contestants.extend(passes.iter().copied().map(Contestant::Without));
        let rounds = alternate(arguments.rounds, &contestants, |round, &who| {
            let outcome = arguments.measure(&set, who, round == 0)?;
            println!("{name}, round {}, {}: {:.2} s of CPU time", round + 1, who.title(), outcome.cpu);
            Ok(outcome)
        })?;
        results.heading(&format!("{name}: {} rows", set.rows()));
        results.table("Builds", &table(&contestants, &rounds));
        results.write()?;
    }
    results.finish()
}

impl Ablation {
    fn find(&self, name: &str) -> Result<GraphSet> {
        let (name, metric) = name.split_once(':').map_or((name, None), |(name, metric)| (name, Some(metric)));
        let drawn = name.strip_prefix("drawn-").and_then(|number| number.parse().ok()).map(drawn);
        if let Some(family) = FAMILIES.iter().find(|family| family.name == name).or(drawn) {
            let rows = self.set.rows.unwrap_or(60_000);
            return Ok(HardSet::make(family, 1, rows, self.set.queries)?.graph);
        }
        let metric = metric.map(benches::metric).transpose().map_err(anyhow::Error::msg)?;
        let options = SetOptions { metric: metric.or(self.set.metric), ..self.set.clone() };
        let set = Set::find(name, &options)?;
        GraphSet::of_vectors(&set.base, &set.queries, set.metric, self.m, self.ef_construction)
    }

    /// Results of searches are the same in every round, so only the first round searches.
    fn measure(&self, set: &GraphSet, who: Contestant, search: bool) -> Result<Outcome> {
        let before = cpu_seconds(std::process::id());
        let finished = match who {
            Contestant::Whole => set.build(EngineKind::Bulk, self.threads)?,
            Contestant::Without(pass) => set.build_without(pass, self.threads)?,
            Contestant::Insertion => set.build(EngineKind::Insertion, self.threads)?,
        };
        let cpu = cpu_seconds(std::process::id()) - before;
        let searches = if search { set.search(&finished) } else { Searches::default() };
        let [pages] = if search { set.pages_read(&finished, [EFS[SHOWN[1]]])? } else { [0.0] };
        Ok(Outcome { cpu, searches, pages, remedy: finished.report.remedy })
    }
}

impl Contestant {
    fn title(self) -> String {
        match self {
            Self::Whole => "all passes".to_owned(),
            Self::Without(pass) => format!("without {}", pass.name()),
            Self::Insertion => "insertion".to_owned(),
        }
    }
}

/// Parses the name of a pass.
fn pass(word: &str) -> Result<Pass, String> {
    let name = |pass: Pass| pass.name().replace(' ', "-");
    let known = || format!("one of {} is needed", Pass::ALL.map(name).join(", "));
    Pass::ALL.into_iter().find(|&pass| name(pass) == word).ok_or_else(known)
}

fn table(contestants: &[Contestant], rounds: &[Vec<Outcome>]) -> Table {
    let mut table = Table::new(["", "CPU", "recall@10 at 10", "at 40", "at 200", "visited", "pages", "guard"]);
    let cpu = |of: &[Outcome]| median(of.iter().map(|outcome| outcome.cpu)).unwrap_or_default();
    let recall = |of: &[Outcome], shown: usize| of[0].searches.recall[shown][1];
    let (visited, pages) = (|of: &[Outcome]| of[0].searches.visited[SHOWN[1]], |of: &[Outcome]| of[0].pages);
    let whole = &rounds[0];
    for (&who, of) in contestants.iter().zip(rounds) {
        let mut cells = vec![who.title()];
        if who == Contestant::Whole {
            cells.push(format!("{:.2} s", cpu(of)));
            cells.extend(SHOWN.map(|shown| format!("{:.4}", recall(of, shown))));
            cells.extend([format!("{:.0}", visited(of)), format!("{:.0}", pages(of))]);
        } else {
            cells.push(format!("{:.2}", cpu(of) / cpu(whole)));
            cells.extend(SHOWN.map(|shown| format!("{:+.4}", recall(of, shown) - recall(whole, shown))));
            cells.extend([visited(of) / visited(whole), pages(of) / pages(whole)].map(|ratio| format!("{ratio:.2}")));
        }
        cells.push(of[0].remedy.name().to_owned());
        table.row(cells);
    }
    table
}
