//! How close is the database's side of an external build to its floor: reading the values, and writing and logging as many pages?

mod replay;
mod report;
mod shape;
mod threads;
mod work;

use anyhow::Result;
use clap::Args;

use super::contest::{alternate, median};
use super::flags::positive;
use super::peer::Tools;
use super::results::Results;
use report::Measured;
use shape::Shape;
use threads::{Party, Used};
use work::{Bench, Span, Spans, Work};

/// What to measure.
#[derive(Args, Debug)]
pub struct Floor {
    /// Columns, as TYPE-DIMS: vector or halfvec; with `:plain`, values are never moved to TOAST
    #[arg(
        value_name = "SHAPE",
        value_delimiter = ',',
        value_parser = Shape::parse,
        default_value = "vector-384,vector-768,vector-768:plain,halfvec-1536,vector-1536"
    )]
    shapes: Vec<Shape>,
    #[arg(long, value_name = "N", value_parser = positive::<usize>, default_value = "100000")]
    rows: usize,
    /// Numbers of parallel workers that read the table; others are compared with the first one
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,2")]
    workers: Vec<u32>,
    #[arg(long, value_name = "M", default_value = "16")]
    m: u32,
    #[arg(long, value_name = "EF", default_value = "64")]
    ef_construction: u32,
    /// Rounds; in each round every statement is timed once, except whole builds, which run once
    #[arg(long, value_name = "N", value_parser = positive::<usize>, default_value = "3")]
    rounds: usize,
    /// Connect without TLS
    #[arg(long)]
    no_tls: bool,
    /// Use unlogged tables, whose pages are not logged in the WAL
    #[arg(long)]
    unlogged: bool,
    /// Set `wal_level = minimal`
    #[arg(long)]
    minimal: bool,
    /// Set `wal_compression`
    #[arg(long, value_name = "METHOD", default_value = "off")]
    wal_compression: String,
    /// Builders of the critical path: cores, and how many times faster than one core they build a graph. The default for 16 was measured,
    /// that for 64 is an upper bound by `bench scaling --simulate` (benches/results/2026-11-27-16-cores.md)
    #[arg(long, value_name = "CORES:TIMES", value_delimiter = ',', value_parser = cores, default_value = "16:9,64:28")]
    builders: Vec<(u32, f64)>,
    /// Name of the report in benches/results
    #[arg(long, default_value = "floor")]
    name: String,
}

fn cores(word: &str) -> Result<(u32, f64), String> {
    let parse = || {
        let (cores, times) = word.split_once(':')?;
        let times = times.parse().ok().filter(|&times: &f64| times > 0.0)?;
        Some((cores.parse().ok()?, times))
    };
    parse().ok_or_else(|| "CORES:TIMES is needed, such as 16:13".to_owned())
}

/// Measures, and writes a report.
pub fn run(options: &Floor) -> Result<()> {
    let tools = Tools::find(false)?;
    let mut results = Results::new(&options.name, &tools.config)?;
    for &shape in &options.shapes {
        let mut bench = Bench::new(options, &tools, shape)?;
        let mut works = vec![Work::Copy, Work::Insert, Work::Move];
        works.extend(options.workers.iter().flat_map(|&n| [Work::Read(n), Work::Replay(n)]));
        let mut run = |round: usize, work: Work| {
            let spans = bench.run(work)?;
            println!("{shape}, round {}, {work:?}: {}", round + 1, report::line(&spans));
            anyhow::Ok(spans)
        };
        let mut rounds = alternate(options.rounds, &works, |round, &work| run(round, work))?;
        // The whole build takes longest, and is needed only for the builder's CPU time.
        if let Some(&most) = options.workers.last() {
            works.push(Work::Build(most));
            rounds.push(vec![run(0, Work::Build(most))?]);
        }
        let measured = Measured {
            value_bytes: bench.value_bytes(),
            index_bytes: bench.index_bytes(),
            medians: works.iter().copied().zip(rounds.iter().map(|rounds| medians(rounds))).collect(),
        };
        let place = if bench.out_of_line { "out of line" } else { "in line" };
        results.heading(&format!("{} x {shape}, {place}, index of {} pages", options.rows, bench.blocks));
        results.table("Seconds, and CPU seconds of the busiest thread of each party", &measured.parts());
        results.table("Against the floor", &measured.ratios(&options.workers));
        results.table("Critical path", &measured.critical_path(&options.builders));
        results.raw("All", &report::raw(&works, &rounds));
        results.write()?;
    }
    results.finish()
}

/// The median of each figure.
fn medians(rounds: &[Spans]) -> Spans {
    let of = |at: usize, figure: &dyn Fn(&Span) -> f64| {
        median(rounds.iter().map(|spans| figure(&spans[at]))).unwrap_or_default()
    };
    let spans = rounds.iter().map(Vec::len).min().unwrap_or_default();
    let span = |at| Span {
        seconds: of(at, &|span| span.seconds),
        used: Used {
            busiest: Party::ALL.map(|party| of(at, &|span| span.used.busiest[party as usize])),
            builder: of(at, &|span| span.used.builder),
        },
    };
    (0..spans).map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builders_are_parsed_as_cores_and_speed_up() {
        assert_eq!(cores("64:31.4"), Ok((64, 31.4)));
        for nonsense in ["64", "64:0", "64:-1", "x:2", "64:x"] {
            assert!(cores(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn each_figure_has_its_own_median() {
        let span = |seconds, builder| Span { seconds, used: Used { builder, ..Used::default() } };
        let found = medians(&[vec![span(1.0, 9.0)], vec![span(3.0, 7.0)], vec![span(2.0, 8.0)]]);
        assert_eq!((found[0].seconds, found[0].used.builder), (2.0, 8.0));
    }
}
