//! The status as text. Control characters in a daemon's texts are replaced, so that they cannot affect the terminal.

use std::fmt::Write;

use indicatif::HumanCount;
use service::report::{BuildReport, EndedReport, QueuedReport, Report, Subject};
use service::{Outcome, printable};

use super::target::Target;
use crate::count::{self, bytes};

/// Length of a progress bar in characters.
const BAR: usize = 24;

/// The whole status, printed once.
pub fn whole(report: &Report, target: &Target) -> String {
    let mut text = format!("{}\n{}\n", headline(report, target), memory(report));
    for builder in &report.builders {
        let builds = count::of(builder.builds.into(), "build");
        let _ = writeln!(text, "  {}: {}, {builds}", printable(&builder.name), printable(&builder.state));
    }
    let mut section = |name: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{name}");
            lines.iter().for_each(|line| _ = writeln!(text, "  {line}"));
        }
    };
    let running = report
        .builds
        .iter()
        .flat_map(|build| [subject(&build.subject), format!("  [{}] {}", bar(build.fraction), progress(build))]);
    section("running", running.collect());
    section("waiting", report.queue.iter().map(waiting).collect());
    section("last builds", report.ended.iter().take(10).map(|build| ended(build, report.now_ms)).collect());
    text
}

/// The daemon's name, version, state and uptime.
pub fn headline(report: &Report, target: &Target) -> String {
    let role = report.role.name();
    let up = span(report.now_ms.saturating_sub(report.started_ms) as f64 / 1e3);
    let threads =
        if report.threads > 0 { format!(", {}", count::of(report.threads.into(), "thread")) } else { String::new() };
    let certificate =
        report.certificate_expires_ms.map(|expires| certificate(expires, report.now_ms)).unwrap_or_default();
    format!(
        "{role} {} at {target}: {}, up {up}{threads}, {}{certificate}",
        printable(&report.software),
        report.readiness.name(),
        count::of(report.connections, "connection")
    )
}

/// For how long the daemon's certificate is valid; times in ms since 1970.
fn certificate(expires: u64, now: u64) -> String {
    let distance = span(expires.abs_diff(now) as f64 / 1e3);
    if expires < now {
        format!(", certificate expired {distance} ago")
    } else {
        format!(", certificate expires in {distance}")
    }
}

/// Memory in one line.
pub fn memory(report: &Report) -> String {
    let memory = report.memory;
    let reserved = bytes(memory.reserved_bytes);
    let limit = memory.limit_bytes.map_or_else(|| "no limit".to_owned(), |limit| format!("of {}", bytes(limit)));
    format!("memory: {reserved} reserved ({limit}), {} in use", bytes(memory.resident_bytes))
}

/// The index that is built, and its client.
pub fn subject(subject: &Subject) -> String {
    let what = format!("{}({}) {}", printable(&subject.value_type), subject.dims, printable(&subject.metric));
    let label = subject.label.as_ref().map(|label| format!("{}  ", printable(label))).unwrap_or_default();
    format!(
        "#{} {label}{what}, m {}, ef {}, from {}",
        subject.id,
        subject.m,
        subject.ef_construction,
        printable(if subject.client.is_empty() { &subject.peer } else { &subject.client })
    )
}

/// The progress of a build.
pub fn progress(build: &BuildReport) -> String {
    let (done, total) = (HumanCount(build.done), HumanCount(build.total));
    let steps = if build.total > 0 { format!("{done} of {total}") } else { done.to_string() };
    let mut text = format!("{:>3.0} %  {} {steps}", (build.fraction * 100.0).floor(), printable(&build.phase));
    if build.rate > 0.0 {
        let _ = write!(text, ", {}/s", HumanCount(build.rate as u64));
    }
    if build.memory_bytes > 0 {
        let _ = write!(text, ", {}", bytes(build.memory_bytes));
    }
    if let Some(seconds) = build.eta_seconds {
        let _ = write!(text, ", ~{} left", span(seconds));
    }
    text
}

/// A waiting build.
pub fn waiting(build: &QueuedReport) -> String {
    let place = if build.position > 0 { format!("{}. ", build.position) } else { String::new() };
    let needs = if build.memory_bytes > 0 { format!(", needs {}", bytes(build.memory_bytes)) } else { String::new() };
    let turn = build.eta_seconds.map(|seconds| format!(", its turn in ~{}", span(seconds))).unwrap_or_default();
    format!("{place}{}, for {}{turn}{needs}", subject(&build.subject), span(build.waiting_seconds))
}

/// How a build ended.
pub fn ended(build: &EndedReport, now_ms: u64) -> String {
    let ago = span(now_ms.saturating_sub(build.ended_ms) as f64 / 1e3);
    let mut text = format!("{:<9} {} ago  {}", build.outcome.name(), ago, subject(&build.subject));
    if build.outcome == Outcome::Succeeded {
        let size = bytes(build.pages.saturating_mul(8192));
        let _ = write!(text, ": {} rows, {size} in {}", HumanCount(build.rows), span(build.seconds));
        if let Some(recall) = build.recall {
            let _ = write!(text, ", recall {recall:.3} at ef_search 40");
        }
        if let Some(self_recall) = build.self_recall {
            let _ = write!(text, ", self-recall {self_recall:.3}");
        }
    } else if let Some(reason) = &build.reason {
        let _ = write!(text, ": {}", printable(reason));
    }
    text
}

fn bar(fraction: f64) -> String {
    let full = (fraction.clamp(0.0, 1.0) * BAR as f64) as usize;
    format!("{}{}", "=".repeat(full), " ".repeat(BAR - full))
}

fn span(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match seconds {
        ..10.0 => format!("{seconds:.1} s"),
        ..90.0 => format!("{seconds:.0} s"),
        _ if minutes < 90 => format!("{minutes} min"),
        _ if minutes < 48 * 60 => format!("{} h {} min", minutes / 60, minutes % 60),
        _ => format!("{} d {} h", minutes / 1440, minutes / 60 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::{bar, certificate, span};

    const DAY: u64 = 86_400_000;

    #[test]
    fn a_certificate_expires_or_has_expired() {
        assert_eq!(certificate(112 * DAY, 100 * DAY), ", certificate expires in 12 d 0 h");
        assert_eq!(certificate(98 * DAY, 100 * DAY), ", certificate expired 2 d 0 h ago");
    }

    #[test]
    fn spans_and_bars_are_rounded() {
        assert_eq!([span(0.25), span(45.0), span(160.0), span(9000.0)], ["0.2 s", "45 s", "3 min", "2 h 30 min"]);
        assert_eq!(bar(0.5), "============            ");
        assert_eq!(bar(7.0).len(), 24);
    }
}
