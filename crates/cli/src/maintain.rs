use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, anyhow};
use database::Dsn;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use maintain::{Action, Event, Index, Outcome, Plan, Settings, Step, Stepped, metrics};
use service::{Shutdown, Size, harmless, lock};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args;
use crate::failure::Failure;

/// The exit code if something is left to do: a plan not carried out, a closed window, lagging replicas.
const LEFT: u8 = 3;
/// The length of a progress bar, whose position is a fraction.
const LENGTH: u64 = 1000;

pub fn run(arguments: &args::Maintain) -> Result<(), Failure> {
    let texts = if arguments.dsns.is_empty() { vec![String::new()] } else { arguments.dsns.clone() };
    let dsns: Result<Vec<Dsn>, _> = texts.iter().map(|text| Dsn::parse(text)).collect();
    let dsns = dsns.map_err(Failure::usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start threads")?;
    let result = runtime.block_on(all(arguments, &dsns));
    // A name server that does not answer would keep a thread from ending.
    runtime.shutdown_background();
    result
}

async fn all(arguments: &args::Maintain, dsns: &[Dsn]) -> Result<(), Failure> {
    // On SIGTERM, SIGINT and SIGHUP the current step is interrupted and its leftovers are dropped.
    let Shutdown { drain: stop, abort } = Shutdown::on_signals().context("cannot handle signals")?;
    // `nohup` starts programs with SIGHUP ignored.
    let is_ignored = fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status));
    if !is_ignored {
        let (mut hangup, stop) = (signal(SignalKind::hangup()).context("cannot handle signals")?, stop.clone());
        tokio::spawn(async move {
            hangup.recv().await;
            stop.cancel();
        });
    }
    let settings = Settings {
        rebuild: arguments.rebuild,
        drop_leftovers: arguments.drop_leftovers,
        external: arguments.external,
        jobs: arguments.jobs.into(),
        window: arguments.window,
        max_lag: arguments.max_lag,
        max_transaction: arguments.max_transaction,
        patience: arguments.patience,
    };
    let reporter = Arc::new(Reporter::new().context("cannot draw")?);
    let (mut whole, mut steps, mut failed, mut unseen) = (Plan::default(), Vec::new(), Vec::new(), Vec::new());
    let work = async {
        for dsn in dsns {
            // If a server does not answer, continue with the next one.
            match one(arguments, dsn, &settings, &stop, reporter.clone()).await {
                Ok(Some((plan, done, errors))) => {
                    whole.steps.extend(plan.steps);
                    whole.notes.extend(plan.notes);
                    steps.extend(done);
                    failed.extend(errors);
                }
                Ok(None) => unseen.push(format!("stopped before the indexes of {} were examined", dsn.place())),
                Err(error) => failed.push(error.to_string()),
            }
        }
    };
    tokio::select! {
        () = work => {}
        // Keepalive does not find a server that hangs while its machine answers.
        () = abort.cancelled() => {
            say("lantern-index: stopped by a second signal: a rebuild may go on in the server, or leave an invalid index for --drop-leftovers");
            return Err(Failure::Said(LEFT));
        }
    }
    let ended = |stepped: &Stepped| matches!(stepped.outcome, Outcome::Done | Outcome::Good);
    let left = whole.due().count() - steps.iter().filter(|stepped| ended(stepped)).count();
    if let Some(path) = &arguments.textfile
        && let Err(error) = write(path, &metrics::text(&whole, &steps, left, failed.len() + unseen.len()))
    {
        failed.push(format!("cannot write {}: {error}", path.display()));
    }
    let errors: Vec<&String> = failed.iter().chain(&unseen).collect();
    if arguments.json {
        let report = serde_json::json!({ "plan": whole.steps, "notes": whole.notes, "steps": steps, "left": left, "errors": errors });
        crate::print(format!("{report:#}\n"))?;
    }
    errors.iter().for_each(|error| say(&format!("lantern-index: {error}")));
    let broken = steps.iter().filter(|stepped| matches!(stepped.outcome, Outcome::Failed(_))).count();
    match (broken + failed.len(), left) {
        (0, 0) if !stop.is_cancelled() => Ok(()),
        (0, _) => Err(Failure::Said(LEFT)),
        (_, _) => Err(Failure::Said(1)),
    }
}

/// Whether a process with this status, as in `/proc/PID/status`, ignores SIGHUP.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

/// Examines the indexes of a server and carries out the requested steps, even if the plan cannot be printed. Returns the plan, the steps and
/// the errors; `None` if it was told to stop before the indexes were examined.
async fn one(
    arguments: &args::Maintain,
    dsn: &Dsn,
    settings: &Settings,
    stop: &CancellationToken,
    reporter: Arc<Reporter>,
) -> Result<Option<(Plan, Vec<Stepped>, Vec<String>)>, anyhow::Error> {
    // Looking changes nothing, so a stop need not wait for a server that does not answer.
    let (plan, errors) = tokio::select! {
        plan = maintain::look(dsn) => plan?,
        () = stop.cancelled() => return Ok(None),
    };
    let mut errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if !arguments.json && (errors.is_empty() || !plan.steps.is_empty()) {
        errors.extend(crate::print(text(&plan, settings)).err().map(|error| error.to_string()));
    }
    if !(settings.rebuild || settings.drop_leftovers) {
        return Ok(Some((plan, Vec::new(), errors)));
    }
    let steps = maintain::work(dsn, &plan, settings, stop, move |step, event| reporter.report(step, event)).await;
    Ok(Some((plan, steps, errors)))
}

/// Prints a line at the begin and end of each step; in between a progress bar, if stderr is a terminal.
struct Reporter {
    all: MultiProgress,
    style: ProgressStyle,
    bars: Mutex<BTreeMap<String, ProgressBar>>,
}

impl Reporter {
    fn new() -> Result<Self, anyhow::Error> {
        let style = ProgressStyle::with_template("  [{bar:40}] {prefix}: {wide_msg}")?.progress_chars("=> ");
        Ok(Self { all: MultiProgress::new(), style, bars: Mutex::default() })
    }

    fn report(&self, step: &Step, event: Event<'_>) {
        let name = harmless(&format!("{}: {}", step.index.database, step.index.index));
        let mut bars = lock(&self.bars);
        let words = match event {
            Event::Progress(phase, share) => {
                let bar = bars.entry(name.clone()).or_insert_with(|| {
                    self.all.add(ProgressBar::new(LENGTH).with_style(self.style.clone()).with_prefix(name))
                });
                bar.set_position((share.unwrap_or_default() * LENGTH as f64) as u64);
                return bar.set_message(phase.to_owned());
            }
            Event::Begun => format!("{} …", step.action.name()),
            Event::Note(note) => note.to_owned(),
            Event::Ended(outcome) => {
                if let Some(bar) = bars.remove(&name) {
                    self.all.remove(&bar);
                }
                match outcome {
                    Outcome::Postponed(why) | Outcome::Stopped(why) | Outcome::Failed(why) => {
                        format!("{}: {why}", metrics::name(outcome))
                    }
                    Outcome::Done | Outcome::Good => metrics::name(outcome).to_owned(),
                }
            }
        };
        self.all.suspend(|| say(&format!("{name}: {words}")));
    }
}

/// Prints a line on stderr, without control characters: owners of tables choose the names in it. Rebuilds continue if nobody reads stderr
/// any more.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", harmless(&line.replace('\n', " ")));
}

/// The plan as a table, with notes.
fn text(plan: &Plan, settings: &Settings) -> String {
    let mut rows =
        vec![["database", "index", "size", "deleted", "dead", "advice", "action", "reason"].map(str::to_owned)];
    for Step { index, action } in &plan.steps {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        rows.push([
            harmless(&index.database),
            harmless(&index.index),
            Size(index.size.unsigned_abs()).to_string(),
            percent(index.deleted_share),
            percent(index.dead_share),
            index.advice.clone(),
            action.name().to_owned(),
            harmless(&index.reason),
        ]);
    }
    let widths: Vec<usize> =
        (0..8).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let mut lines: Vec<String> = Vec::new();
    for row in &rows {
        let line: String = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}  ")).collect();
        lines.push(line.trim_end().to_owned());
    }
    lines.push(format!("{} indexes, {} need something.", plan.steps.len(), plan.due().count()));
    lines.extend(disk(plan, settings.jobs));
    lines.extend(plan.notes.iter().map(|note| format!("{}.", harmless(note))));
    let is_leftover = |step: &Step| step.action == Action::Drop;
    if !settings.rebuild && plan.due().any(|step| !is_leftover(step)) {
        lines.push("--rebuild checks and rebuilds them.".to_owned());
    }
    if !settings.drop_leftovers && plan.due().any(is_leftover) {
        lines.push("--drop-leftovers drops what failed REINDEX CONCURRENTLY have left.".to_owned());
    }
    lines.join("\n") + "\n"
}

/// The disk space that `jobs` concurrent rebuilds need; those of one table follow one another. Checks count, as they may lead to rebuilds.
fn disk(plan: &Plan, jobs: usize) -> Option<String> {
    let (mut tables, mut more) = (BTreeMap::new(), "");
    for Step { index: Index { server, database, table, size, valid, .. }, .. } in
        plan.due().filter(|step| step.action != Action::Drop)
    {
        let largest = tables.entry((server, database, table)).or_insert(0);
        *largest = size.unsigned_abs().max(*largest);
        // A failed CREATE INDEX CONCURRENTLY may leave an empty file.
        more = if *valid { more } else { ", and more for an index that is not valid" };
    }
    let mut sizes: Vec<u64> = tables.into_values().collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let bytes = Size(sizes.iter().take(jobs).sum());
    (!sizes.is_empty()).then(|| {
        format!(
            "Rebuilds need up to {bytes} of disk for new indexes and as much for WAL{more}; a client cannot see how much is free."
        )
    })
}

/// Replaces the file atomically, since the collector may read it at any time. The collector runs as another user, so the file is readable by
/// all, whatever the umask.
fn write(path: &Path, text: &str) -> Result<(), anyhow::Error> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let name = path.file_name().ok_or_else(|| anyhow!("it names no file"))?;
    let beside = dir.unwrap_or(Path::new(".")).join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    Ok(written?)
}

#[cfg(test)]
mod tests {
    use maintain::{Action, Index, Plan, Step};

    use super::{disk, ignores_hangup};

    fn step(action: Action, table: &str, size: i64, valid: bool) -> Step {
        Step { index: Index { table: table.to_owned(), size, valid, ..Index::default() }, action }
    }

    #[test]
    fn nohup_is_recognised() {
        let status = |ignored: &str| format!("Name:\tmaintain\nSigBlk:\t0000000000000001\nSigIgn:\t{ignored}\n");
        // SIGHUP is signal 1; Rust's programs ignore SIGPIPE, 13.
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")) && !ignores_hangup(""));
    }

    #[test]
    fn disk_is_that_of_the_largest_concurrent_rebuilds() {
        let rebuilds =
            [("a", 3), ("b", 2), ("b", 1), ("c", 1)].map(|(table, mb)| step(Action::Rebuild, table, mb << 20, true));
        let mut plan = Plan { steps: rebuilds.into(), notes: Vec::new() };
        for (jobs, words) in [(1, "up to 3072 kB of disk"), (2, "up to 5120 kB of disk"), (9, "up to 6144 kB of disk")]
        {
            let said = disk(&plan, jobs).unwrap();
            assert!(said.contains(words) && !said.contains("not valid"), "{said}");
        }
        plan.steps.push(step(Action::Rebuild, "d", 0, false));
        let said = disk(&plan, 1).unwrap();
        assert!(said.contains("and more for an index that is not valid"), "{said}");
        let others = [Action::Drop, Action::Keep].map(|action| step(action, "a", 1 << 20, false));
        assert_eq!(disk(&Plan { steps: others.into(), notes: Vec::new() }, 1), None);
    }
}
