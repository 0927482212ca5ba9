//! Scaling with threads: builds of the graph alone, measured with few threads, and computed for many from recorded tasks.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use benches::{GraphSet, Makespan};
use clap::Args;
use harness::{PgConfig, cores, step};
use hnsw::{Recorder, Step};

use super::contest::{alternate, median};
use super::flags;
use super::markdown::Table;
use super::options::{Case, SetOptions};
use super::results::Results;
use super::set::Set;

/// Divisors of the number of rows: parts of the set are built too, to see how the cost per row grows.
const PARTS: [usize; 3] = [16, 4, 1];
/// The number of sections in the table: those with the largest loss.
const SHOWN: usize = 16;

/// The set, and numbers of threads.
#[derive(Args)]
pub struct Scaling {
    /// Sets as for `bench`
    #[arg(long = "set", value_name = "LIST", value_delimiter = ',', default_value = "minilm-384")]
    sets: Vec<String>,
    #[command(flatten)]
    set: SetOptions,
    #[arg(long, default_value_t = 16)]
    m: u16,
    #[arg(long, default_value_t = 64)]
    ef_construction: u16,
    /// Rounds; in each round every number of threads builds once; 0 for none
    #[arg(long, value_name = "N", default_value = "1")]
    rounds: usize,
    /// Numbers of threads for which to compute the time from a build by one thread
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = flags::positive::<u16>)]
    simulate: Vec<u16>,
    /// Name of the report in benches/results
    #[arg(long, default_value = "scaling")]
    name: String,
}

/// Measures, and writes a report.
pub fn run(arguments: &Scaling) -> Result<()> {
    ensure!(arguments.rounds > 0 || !arguments.simulate.is_empty(), "neither --rounds nor --simulate asks for a build");
    let mut results = Results::new(&arguments.name, &PgConfig::require()?)?;
    let case = Case { m: arguments.m.into(), ef_construction: arguments.ef_construction.into() };
    for name in &arguments.sets {
        let set = Set::find(name, &arguments.set)?;
        results.heading(&format!("{}, {case}", set.title()));
        if arguments.rounds > 0 {
            arguments.measure(&set, &mut results)?;
        }
        if !arguments.simulate.is_empty() {
            arguments.simulated(&set, &mut results)?;
        }
        results.write()?;
    }
    results.finish()
}

impl Scaling {
    /// Measures the graph of the set with fewer threads, and graphs of parts of the set.
    fn measure(&self, set: &Set, results: &mut Results) -> Result<()> {
        let mut threads: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count < cores()).collect();
        threads.push(cores());
        let fits = |part: &usize| set.base.rows() / part >= 1000 || *part == 1;
        let parts: Vec<GraphSet> =
            PARTS.into_iter().filter(fits).map(|part| self.graph_set(set, part)).collect::<Result<_>>()?;
        let whole = parts.len() - 1;
        let mut contestants: Vec<(usize, usize)> = threads.iter().map(|&threads| (whole, threads)).collect();
        contestants.extend((0..whole).map(|part| (part, cores())));
        let rounds = alternate(self.rounds, &contestants, |_, &(part, threads)| {
            let (_, steps) = parts[part].build_recorded(Recorder::of_sections(), threads)?;
            Ok(Sections::of(after_intake(&steps).1))
        })?;
        let medians: Vec<Sections> = rounds.iter().map(|rounds| Sections::median(rounds)).collect();
        let mut table = Table::new(["", "threads", "seconds", "µs per row", "times faster than 1 thread"]);
        let one = medians[0].work();
        for (&(part, threads), sections) in contestants.iter().zip(&medians) {
            let (rows, seconds) = (parts[part].rows(), sections.work());
            let faster = if part == whole { format!("{:.2}", one / seconds) } else { String::new() };
            let each = format!("{:.1}", 1e6 * seconds / rows as f64);
            table.row([format!("{rows} rows"), threads.to_string(), format!("{seconds:.3}"), each, faster]);
        }
        results.table("Measured, graph only, after the intake", &table);
        let whole = &medians[..threads.len()];
        // By how much longer the section takes with all cores than it would if it were divided among them.
        let lost = |of: &[Section]| of[of.len() - 1].seconds - of[0].seconds / cores() as f64;
        let of = |name: &&'static str| {
            let by_threads = whole.iter().map(|sections| sections.0.get(name).copied().unwrap_or_default());
            (*name, by_threads.collect::<Vec<Section>>())
        };
        let mut sections: Vec<_> = whole[0].0.keys().map(of).collect();
        sections.sort_by(|a, b| lost(&b.1).total_cmp(&lost(&a.1)));
        let head = ["section".to_owned()].into_iter().chain(threads.iter().map(|threads| format!("ms, {threads}")));
        let mut table = Table::new(head.chain(["ms lost".to_owned(), "serial ms".to_owned()]));
        for (name, of) in sections.iter().take(SHOWN) {
            let last = [lost(of), of[of.len() - 1].serial];
            let seconds = of.iter().map(|section| section.seconds).chain(last);
            table.row([(*name).to_owned()].into_iter().chain(seconds.map(|seconds| format!("{:.1}", 1e3 * seconds))));
        }
        results.table("Sections that lose most with all cores, by wall time at each number of threads", &table);
        Ok(())
    }

    fn simulated(&self, set: &Set, results: &mut Results) -> Result<()> {
        let set = self.graph_set(set, 1)?;
        let (_, steps) =
            step::timed("a build by one thread, recorded", || set.build_recorded(Recorder::of_tasks(), 1))?;
        let (intake, steps) = after_intake(&steps);
        let sections = Sections::of(steps);
        let work = sections.work();
        let serial = sections.0.values().map(|section| section.serial).sum::<f64>();
        results.markdown(&format!(
            "Computed from the tasks of a build by one thread: {work:.2} CPU seconds after the intake ({:.2}), of which {serial:.3} ({:.2} %) belong to \
             no task. Free threads take tasks in the order in which one thread took them. Passes over rows are tasks of 64 to 4,096 rows. Not modelled: \
             memory bandwidth and caches that threads share, and what it costs to hand out tasks.\n",
            Sections::of(intake).work(),
            100.0 * serial / work,
        ));
        let made: Vec<Makespan> = self.simulate.iter().map(|&threads| Makespan::of(steps, threads.into())).collect();
        let mut table = Table::new(["threads", "seconds", "times faster than 1 thread"]);
        for (threads, made) in self.simulate.iter().zip(&made) {
            let faster = format!("{:.1}", work / made.seconds);
            table.row([threads.to_string(), format!("{:.3}", made.seconds), faster]);
        }
        results.table("Computed, graph only", &table);
        let lost =
            |name: &str| made.iter().map(|made| made.idle.get(name).copied().unwrap_or_default()).collect::<Vec<_>>();
        let mut names: Vec<_> = sections.0.keys().map(|&name| (name, lost(name))).collect();
        names.sort_by(|a, b| b.1.last().unwrap_or(&0.0).total_cmp(a.1.last().unwrap_or(&0.0)));
        let mut head = vec!["section".to_owned()];
        head.extend(["steps", "CPU ms", "of these serial", "longest step"].map(str::to_owned));
        head.extend(self.simulate.iter().map(|threads| format!("ms lost at {threads}")));
        let mut table = Table::new(head);
        for (name, lost) in names.into_iter().take(SHOWN) {
            let Section { steps, seconds, serial, longest } = sections.0[name];
            let milliseconds = [seconds, serial, longest].into_iter().chain(lost);
            let cells = milliseconds.map(|seconds| format!("{:.1}", 1e3 * seconds));
            table.row([name.to_owned(), steps.to_string()].into_iter().chain(cells));
        }
        results.table(
            "Sections that lose most, by the time of threads that wait for the section's tasks or for the work before them",
            &table,
        );
        Ok(())
    }

    fn graph_set(&self, set: &Set, part: usize) -> Result<GraphSet> {
        let base = set.base.clone().truncated(set.base.rows() / part);
        GraphSet::of_vectors(&base, &set.queries, set.metric, self.m, self.ef_construction)
    }
}

/// The steps of the intake, and those after the last row, for which the client waits. The latter begin with the first step `rows`; a trial
/// builds another graph and has one later.
fn after_intake(steps: &[Step]) -> (&[Step], &[Step]) {
    steps.split_at(steps.iter().position(|step| matches!(step, Step::Alone("rows", _))).unwrap_or_default())
}

/// The sections of a recorded build with their CPU milliseconds, the longest first, in one line.
pub(super) fn costliest_sections(steps: &[Step]) -> String {
    let mut sections: Vec<_> = Sections::of(steps).0.into_iter().collect();
    sections.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    let each = sections.iter().take(SHOWN).map(|(name, section)| format!("{name} {:.0}", 1e3 * section.seconds));
    each.collect::<Vec<_>>().join(", ")
}

/// The recorded work of a section.
#[derive(Clone, Copy, Default)]
struct Section {
    /// Steps of tasks; each section within a task adds one.
    steps: usize,
    seconds: f64,
    /// Seconds outside of tasks.
    serial: f64,
    /// Seconds of the longest step of a task.
    longest: f64,
}

struct Sections(BTreeMap<&'static str, Section>);

impl Sections {
    fn of(steps: &[Step]) -> Self {
        let mut sections = Self(BTreeMap::new());
        sections.add(steps, true);
        sections
    }

    fn add(&mut self, steps: &[Step], top: bool) {
        for step in steps {
            match step {
                Step::Alone(name, seconds) => {
                    let section = self.0.entry(name).or_default();
                    section.seconds += seconds;
                    if top {
                        section.serial += seconds;
                    } else {
                        section.steps += 1;
                        section.longest = section.longest.max(*seconds);
                    }
                }
                Step::Section(tasks) => tasks.iter().for_each(|task| self.add(task, false)),
            }
        }
    }

    /// The median of each section's seconds.
    fn median(rounds: &[Self]) -> Self {
        let mut sections = rounds.first().map(|first| first.0.clone()).unwrap_or_default();
        for (name, section) in &mut sections {
            let of = |seconds: fn(&Section) -> f64| {
                median(rounds.iter().filter_map(|round| round.0.get(name)).map(seconds)).unwrap_or_default()
            };
            (section.seconds, section.serial) = (of(|section| section.seconds), of(|section| section.serial));
        }
        Self(sections)
    }

    fn work(&self) -> f64 {
        self.0.values().map(|section| section.seconds).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_outside_of_tasks_is_serial() {
        let task = |seconds| vec![Step::Alone("a", seconds)];
        let steps = [Step::Alone("a", 1.0), Step::Section(vec![task(2.0), task(5.0)]), Step::Alone("b", 0.5)];
        let sections = Sections::of(&steps);
        let Section { steps, seconds, serial, longest } = sections.0["a"];
        assert_eq!((steps, seconds, serial, longest), (2, 8.0, 1.0, 5.0));
        assert_eq!((sections.0["b"].serial, sections.work()), (0.5, 8.5));
    }
}
