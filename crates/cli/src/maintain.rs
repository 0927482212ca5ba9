use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, anyhow};
use maintain::{Dsn, Outcome, Plan, Settings, Step, Stepped, metrics};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args;
use crate::failure::Failure;

/// Something is left to do: a plan that was not carried out, a closed window, replicas that are behind.
const LEFT: u8 = 3;

pub fn run(arguments: &args::Maintain) -> Result<(), Failure> {
    let texts = if arguments.dsns.is_empty() { vec![String::new()] } else { arguments.dsns.clone() };
    let dsns: Result<Vec<Dsn>, _> = texts.iter().map(|text| Dsn::parse(text)).collect();
    let dsns = dsns.map_err(Failure::usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("cannot start threads")?.block_on(all(arguments, &dsns))
}

async fn all(arguments: &args::Maintain, dsns: &[Dsn]) -> Result<(), Failure> {
    let stop = stop_at_signals()?;
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
    let (mut whole, mut steps, mut failed) = (Plan::default(), Vec::new(), Vec::new());
    for dsn in dsns {
        // A server that does not answer keeps nobody from the next one.
        match one(arguments, dsn, &settings, &stop).await {
            Ok((plan, done, errors)) => {
                whole.steps.extend(plan.steps);
                steps.extend(done);
                failed.extend(errors.iter().map(ToString::to_string));
            }
            Err(error) => failed.push(error.to_string()),
        }
    }
    let ended = |stepped: &Stepped| matches!(stepped.outcome, Outcome::Done | Outcome::Good);
    let left = whole.due().count() - steps.iter().filter(|stepped| ended(stepped)).count();
    if arguments.json {
        let report = serde_json::json!({ "plan": whole.steps, "steps": steps, "left": left, "errors": failed });
        println!("{report:#}");
    }
    if let Some(path) = &arguments.textfile {
        write(path, &metrics::text(&whole, &steps, left, failed.len()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    failed.iter().for_each(|error| eprintln!("lantern-index: {error}"));
    let broken = steps.iter().filter(|stepped| matches!(stepped.outcome, Outcome::Failed(_))).count();
    match (broken + failed.len(), left) {
        (0, 0) if !stop.is_cancelled() => Ok(()),
        (0, _) => Err(Failure::Said(LEFT)),
        (_, _) => Err(Failure::Said(1)),
    }
}

async fn one(
    arguments: &args::Maintain,
    dsn: &Dsn,
    settings: &Settings,
    stop: &CancellationToken,
) -> Result<(Plan, Vec<Stepped>, Vec<maintain::Error>), maintain::Error> {
    // Nothing has been begun: a server that does not answer is left to itself.
    let (plan, errors) = tokio::select! {
        plan = maintain::look(dsn) => plan?,
        () = stop.cancelled() => return Ok((Plan::default(), Vec::new(), Vec::new())),
    };
    if !arguments.json {
        print(&plan);
    }
    if !(settings.rebuild || settings.drop_leftovers) {
        return Ok((plan, Vec::new(), errors));
    }
    let steps = maintain::work(dsn, &plan, settings, stop, tell).await;
    Ok((plan, steps, errors))
}

/// SIGTERM and SIGINT end what is under way, and what it leaves is cleared away.
fn stop_at_signals() -> Result<CancellationToken, anyhow::Error> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        told.cancel();
    });
    Ok(stop)
}

/// A line for each step that begins or has ended.
fn tell(step: &Step, outcome: Option<&Outcome>) {
    let name = format!("{}: {}", step.index.database, step.index.index);
    let why = match outcome {
        None => format!("{} …", step.action.name()),
        Some(Outcome::Postponed(why) | Outcome::Stopped(why) | Outcome::Failed(why)) => {
            format!("{}: {why}", outcome.map_or("", metrics::name))
        }
        Some(outcome) => metrics::name(outcome).to_owned(),
    };
    eprintln!("{name}: {why}");
}

fn print(plan: &Plan) {
    let mut rows =
        vec![["database", "index", "size", "deleted", "dead", "advice", "action", "reason"].map(str::to_owned)];
    for Step { index, action } in &plan.steps {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        rows.push([
            index.database.clone(),
            index.index.clone(),
            size(index.size),
            percent(index.deleted_share),
            percent(index.dead_share),
            index.advice.clone(),
            action.name().to_owned(),
            index.reason.clone(),
        ]);
    }
    let widths: Vec<usize> =
        (0..8).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in &rows {
        let line: String = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}  ")).collect();
        println!("{}", line.trim_end());
    }
    let bytes = plan.due().map(|step| step.index.size).max().unwrap_or(0);
    let due = plan.due().count();
    println!("{} indexes, {due} need something.", plan.steps.len());
    if due > 0 {
        println!(
            "A rebuild needs up to {} of disk for the new index and as much for WAL; how much is free, a client cannot know.",
            size(bytes)
        );
    }
}

fn size(bytes: i64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1024.0 {
            return format!("{value:.0} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TB")
}

/// Whole or not at all: the collector may read at any time.
fn write(path: &Path, text: &str) -> Result<(), anyhow::Error> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let name = path.file_name().ok_or_else(|| anyhow!("it names no file"))?;
    let beside = dir.unwrap_or(Path::new(".")).join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    fs::File::create(&beside)?.write_all(text.as_bytes())?;
    fs::rename(&beside, path)?;
    Ok(())
}
