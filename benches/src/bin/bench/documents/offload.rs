//! How do builds, in the database and external ones, affect the database's users?

use anyhow::Result;

mod scene;

use super::super::contest::{alternate, median};
use super::super::markdown::Table;
use super::super::report::number;
use super::super::set::Set;
use super::ground::Ground;
use super::pgbench;
use super::section::Section;
use plot::{From, Plot, Scale, Series};
use scene::{Run, Scene, Setup};

const SOURCE: &str = "Theirs: Lantern, *CREATE INDEX EXTERNALLY: Offloading pgvector Indexing from Postgres* (October 2024): pgbench \
beside a build over 500,000 vectors of 1,536 dimensions, m = 16, ef_construction 128; database with 8 vCPUs, builder with 32, pgbench with 8, each a machine of \
its own. Recall about 93 % both ways.";

pub fn measure(ground: &Ground) -> Result<Section> {
    let sizes = &ground.sizes;
    let dims = sizes.dims.as_ref().and_then(|dims| dims.first().copied()).unwrap_or(1536);
    let rows = sizes.rows.unwrap_or(5_000);
    let set = ground.set(&format!("synthetic-{dims}"), rows, sizes.queries.unwrap_or(200))?;
    let mut scene = Scene::new(ground, &set)?;

    let mut setups = vec![Setup::Database, Setup::External, Setup::Slow];
    if scene.cores.builder.is_some() {
        setups.push(Setup::AllCores);
    }
    let rounds = alternate(sizes.rounds.unwrap_or(1), &setups, |round, &setup| {
        if round > 0 && ground.is_over() {
            return Ok(None);
        }
        let run = scene.run(setup)?;
        println!(
            "round {}, {}: {:.0} TPS before, {:.0} during {:.1} s, recall {:.4}",
            round + 1,
            setup.name(&scene.max_rate),
            run.idle(),
            run.busy(),
            run.built.seconds,
            run.recall
        );
        Ok(Some(run))
    })?;
    let runs: Vec<(String, Vec<Run>)> = setups
        .iter()
        .zip(rounds)
        .map(|(setup, runs)| (setup.name(&scene.max_rate), runs.into_iter().flatten().collect()))
        .collect();

    let mut section = Section::new("transactions per second beside a build", SOURCE);
    section.theirs("pgbench on 8 vCPUs", theirs());
    section.ours(&scene.what(), table(&runs));
    section.ours("transactions per second in the phases of the external builds", phases(&runs));
    section.plot("tps", plot(&set, &runs));
    section.text(&scene.differs());
    Ok(section)
}

fn theirs() -> Table {
    let mut table = Table::new(["setup", "TPS", "% of baseline", "indexing, s"]);
    for (setup, tps, share, seconds) in
        [("baseline", "1654", "100", ""), ("in the database", "588", "36", "1085"), ("external", "1561", "94", "200")]
    {
        table.row([setup, tps, share, seconds].map(str::to_owned));
    }
    table
}

fn table(runs: &[(String, Vec<Run>)]) -> Table {
    let mut table = Table::new([
        "index built",
        "TPS before",
        "TPS during",
        "% kept",
        "p99 before, ms",
        "p99 during, ms",
        "indexing, s",
        "recall@10",
    ]);
    for (name, runs) in runs {
        let of = |get: &dyn Fn(&Run) -> Option<f64>, digits| number(median(runs.iter().filter_map(get)), digits);
        let slow = |from: f64, to: f64, run: &Run| pgbench::latency(&run.transactions, from, to, 0.99);
        table.row([
            name.clone(),
            of(&|run| Some(run.idle()), 0),
            of(&|run| Some(run.busy()), 0),
            of(&|run| Some(100.0 * run.busy() / run.idle()), 1),
            of(&|run| slow(run.idle_from, run.span.0, run), 1),
            of(&|run| slow(run.span.0, run.span.1, run), 1),
            of(&|run| Some(run.built.seconds), 1),
            of(&|run| Some(run.recall), 4),
        ]);
    }
    table
}

fn phases(runs: &[(String, Vec<Run>)]) -> Table {
    let mut table = Table::new(["index built", "scan, s", "% kept", "build, s", "% kept", "pages, s", "% kept"]);
    for (name, runs) in runs {
        let of = |get: &dyn Fn(&Run) -> Option<f64>, digits| number(median(runs.iter().filter_map(get)), digits);
        if runs.iter().all(|run| run.built.phases.is_none()) {
            continue;
        }
        let phase = |at: usize| {
            [of(&|run| Some(run.by_phase()?[at].0), 2), of(&|run| Some(100.0 * run.by_phase()?[at].1 / run.idle()), 0)]
        };
        table.row([name.clone()].into_iter().chain((0..3).flat_map(phase)));
    }
    table
}

/// A plot of transactions per second, from the idle seconds to the end of each setup's first build.
fn plot(set: &Set, runs: &[(String, Vec<Run>)]) -> Plot {
    let line = |(name, runs): &(String, Vec<Run>)| {
        let run = runs.first()?;
        let (begin, end) = run.span;
        let step = ((end - run.idle_from) / 80.0).max(0.5);
        let count = ((end - run.idle_from) / step) as usize;
        let point = |number: usize| {
            let from = run.idle_from + number as f64 * step;
            (from + step / 2.0 - begin, run.rate(from, from + step), String::new())
        };
        Some(Series { name: name.clone(), points: (0..count).map(point).collect(), ..Series::default() })
    };
    Plot {
        title: format!("pgbench beside builds that begin at 0, {}", set.title()),
        x: "seconds".to_owned(),
        y: "transactions per second".to_owned(),
        x_scale: Scale::Linear,
        y_from: From::Zero,
        series: runs.iter().filter_map(line).collect(),
        ..Plot::default()
    }
}
