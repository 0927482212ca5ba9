use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use anyhow::Context;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use service::report::Report;

use super::target::Target;
use super::{PERIOD, fetch, text};
use crate::failure::Failure;

/// The length of a progress bar, whose position is a fraction.
const LENGTH: u64 = 1000;

/// A progress bar for each running build, and a line for each build that has ended.
struct View {
    all: MultiProgress,
    head: ProgressBar,
    memory: ProgressBar,
    builds: BTreeMap<u64, ProgressBar>,
    queue: Vec<ProgressBar>,
    /// Builds whose end has been printed, by number and time of the end.
    ended: BTreeSet<(u64, u64)>,
    line: ProgressStyle,
    bar: ProgressStyle,
}

/// Shows the status on a terminal until it is interrupted.
pub fn run(target: &Target, first: &Report) -> Result<(), Failure> {
    let mut view = View::new().context("cannot draw")?;
    view.ended = first.ended.iter().map(|build| (build.subject.id, build.ended_ms)).collect();
    view.show(first, target)?;
    loop {
        thread::sleep(PERIOD);
        match fetch::report(target) {
            Ok(report) => view.show(&report, target)?,
            Err(error) => view.head.set_message(format!("{error:#}")),
        }
    }
}

impl View {
    fn new() -> Result<Self, indicatif::style::TemplateError> {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let line = ProgressStyle::with_template("{wide_msg}")?;
        let bar = ProgressStyle::with_template("  {prefix}\n  [{bar:40}] {wide_msg}")?.progress_chars("=> ");
        let add = || all.add(ProgressBar::new(LENGTH).with_style(line.clone()));
        let (head, memory) = (add(), add());
        Ok(Self { head, memory, all, builds: BTreeMap::new(), queue: Vec::new(), ended: BTreeSet::new(), line, bar })
    }

    fn show(&mut self, report: &Report, target: &Target) -> Result<(), Failure> {
        for build in report.ended.iter().rev() {
            if self.ended.insert((build.subject.id, build.ended_ms)) {
                self.all.println(text::ended(build, report.now_ms)).context("cannot write to stdout")?;
            }
        }
        self.ended.retain(|key| report.ended.iter().any(|build| (build.subject.id, build.ended_ms) == *key));
        self.head.set_message(text::headline(report, target));
        self.memory.set_message(text::memory(report));
        self.builds.retain(|id, bar| {
            let runs = report.builds.iter().any(|build| build.subject.id == *id);
            if !runs {
                self.all.remove(bar);
            }
            runs
        });
        for build in &report.builds {
            let bar = self.builds.entry(build.subject.id).or_insert_with(|| {
                let bar = ProgressBar::new(LENGTH).with_style(self.bar.clone());
                self.all.add(bar.with_prefix(text::subject(&build.subject)))
            });
            bar.set_position((build.fraction * LENGTH as f64) as u64);
            bar.set_message(text::progress(build));
        }
        self.queue.drain(..).for_each(|bar| self.all.remove(&bar));
        for build in &report.queue {
            let bar = self.all.add(ProgressBar::new(LENGTH).with_style(self.line.clone()));
            bar.set_message(format!("  {}", text::waiting(build)));
            self.queue.push(bar);
        }
        Ok(())
    }
}
