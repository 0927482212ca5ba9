use anyhow::Result;
use harness::cores;

use super::contest::{alternate, median};
use super::markdown::Table;
use super::options::BenchOptions;
use super::peer::Peer;
use super::programs;
use super::set::Set;
use super::stage::Stage;

/// Divisors of the set's size: parts are built too, to see how the cost per row grows.
const PARTS: [usize; 3] = [16, 4, 1];

/// The graph of the set by fewer threads, and of parts of the set.
pub fn measure(stage: &Stage<'_>, options: &BenchOptions, set: &Set) -> Result<Table> {
    let case = options.cases()[0];
    let mut threads: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count < cores()).collect();
    threads.push(cores());
    let parts: Vec<(usize, Set)> = PARTS
        .into_iter()
        .filter(|part| set.base.rows() / part >= 1000)
        .map(|part| Ok((part, set.part(part)?)))
        .collect::<Result<_>>()?;
    let whole = parts.len() - 1;
    let mut contestants: Vec<(usize, usize)> = threads.iter().map(|&threads| (whole, threads)).collect();
    contestants.extend((0..whole).map(|part| (part, cores())));
    let rounds = alternate(options.rounds, &contestants, |_, &(part, threads)| {
        Ok(programs::graph(stage.tools, Peer::Graph, &parts[part].1, case, threads)?.seconds)
    })?;
    let mut table = Table::new(&[&case.to_string(), "threads", "seconds", "µs per row", "times faster than 1 thread"]);
    let medians: Vec<f64> = rounds.iter().map(|rounds| median(rounds.iter().copied()).unwrap_or_default()).collect();
    for (&(part, threads), &seconds) in contestants.iter().zip(&medians) {
        let rows = parts[part].1.base.rows();
        let faster = if part == whole { format!("{:.2}", medians[0] / seconds) } else { String::new() };
        let each = format!("{:.1}", 1e6 * seconds / rows as f64);
        table.row([format!("{rows} rows"), threads.to_string(), format!("{seconds:.3}"), each, faster]);
    }
    Ok(table)
}
