use std::sync::Arc;
use std::time::Duration;

use protocol::{Done, Phase};

use super::{Activity, Running, Stage};
use crate::report::Subject;
use crate::{Outcome, Refusal, Role};

fn activity(labels: bool) -> Arc<Activity> {
    Arc::new(Activity::new(Role::Builder, "0", labels).unwrap())
}

fn subject() -> Subject {
    Subject { id: 7, label: Some("s.t_i\u{1b}[2J\u{202e}".to_owned()), dims: 8, m: 16, ..Subject::default() }
}

fn begin(activity: &Arc<Activity>) -> Running {
    activity.queue(subject()).begin(100, || Stage {
        phase: Phase::Graph,
        done: 50,
        total: 100,
        spent: [1, 2, 0, 0, 0].map(Duration::from_secs),
    })
}

#[test]
fn the_status_code_follows_the_builds() {
    let activity = activity(false);
    assert_eq!(activity.status().0, 0);
    activity.queue(subject()).refuse(Refusal::Memory, "too large".to_owned());
    drop(activity.queue(subject()));
    assert_eq!(activity.status().0, 0, "a refused build was never begun");
    let first = begin(&activity);
    let second = begin(&activity);
    assert_eq!(activity.status().0, 1);
    first.end(Outcome::Succeeded, None);
    assert_eq!(activity.status().0, 1, "one is still running");
    drop(second);
    assert_eq!(activity.status().0, 2, "dropped without an outcome is a failure");
    begin(&activity).end(Outcome::Succeeded, None);
    assert_eq!(activity.status().0, 3);
    begin(&activity).end(Outcome::Cancelled, Some("client left".to_owned()));
    assert_eq!(activity.status().0, 2);
    let outcomes: Vec<_> = activity.report().ended.iter().map(|build| build.outcome).collect();
    assert_eq!(outcomes.len(), 6);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Refused).count(), 1);
}

#[test]
fn a_build_shows_its_builder() {
    let running = begin(&activity(false));
    let shown = || running.activity.report().builds[0].builder.clone();
    assert_eq!(shown(), None, "a builder's own build");
    running.set_builder("builder-1");
    assert_eq!(shown().as_deref(), Some("builder-1"));
}

#[test]
fn labels_are_shown_only_when_asked_and_never_raw() {
    let hidden = begin(&activity(false));
    assert_eq!(hidden.activity.report().builds[0].subject.label, None);
    let shown = begin(&activity(true));
    let label = shown.activity.report().builds[0].subject.label.clone().unwrap();
    assert_eq!(label, "s.t_i\u{fffd}[2J\u{fffd}");
}

#[test]
fn waiting_builds_have_an_estimate_of_their_wait() {
    let activity = activity(false);
    let running = begin(&activity);
    let waiting: Vec<_> = (1..=2).map(|place| (activity.queue(subject()), place)).collect();
    waiting.iter().for_each(|(queued, place)| queued.place(*place, 10));
    let nameless = activity.queue(subject());
    let report = activity.report();
    let left = report.builds[0].eta_seconds.unwrap();
    let turns: Vec<_> = report.queue.iter().map(|waiting| waiting.eta_seconds).collect();
    // Only one build is running: there is no estimate for the second waiting one.
    assert_eq!(turns, [Some(left), None, None]);
    assert!(left > 0.0 && report.cpu_seconds > 0.0);
    drop((running, nameless));
    assert_eq!(activity.report().queue[0].eta_seconds, None);
}

#[test]
fn reports_have_a_build_s_progress_and_totals() {
    let activity = activity(false);
    let queued = [activity.queue(subject()), activity.queue(subject()), activity.queue(subject())];
    queued[0].place(2, 64);
    queued[1].place(1, 32);
    let positions: Vec<_> = activity.report().queue.iter().map(|waiting| waiting.position).collect();
    assert_eq!(positions, [1, 2, 0]);
    drop(queued);
    let running = begin(&activity);
    running.add_rows(1000);
    let report = activity.report();
    let build = &report.builds[0];
    assert_eq!((build.phase.as_str(), build.done, build.total, build.rows), ("graph", 50, 100, 1000));
    assert!((build.rate - 25.0).abs() < 1e-9, "{}", build.rate);
    assert!(build.eta_seconds.unwrap() >= 2.0);
    assert_eq!(
        (build.memory_bytes, report.memory.reserved_bytes),
        (100, 100),
        "without a function, reservations are added up"
    );
    running.set_memory(70);
    activity.set_memory(1000, || 80);
    let report = activity.report();
    assert_eq!((report.builds[0].memory_bytes, report.memory.reserved_bytes), (70, 80));
    running.set_graph(&Done { elements: 900, ..Done::default() });
    running.add_pages(12);
    running.end(Outcome::Succeeded, None);
    let report = activity.report();
    let ended = &report.ended[0];
    assert_eq!((ended.rows, ended.elements, ended.pages), (1000, 900, 12));
    assert!((ended.phases.graph - 2.0).abs() < 1e-9);
    assert_eq!((ended.memory_bytes, report.memory.limit_bytes), (70, Some(1000)));
}

#[test]
fn the_estimate_grows_while_steps_do_not_advance() {
    let activity = activity(false);
    let stage =
        || Stage { phase: Phase::Graph, done: 99, total: 100, spent: [1, 20, 0, 0, 0].map(Duration::from_secs) };
    let _running = activity.queue(subject()).begin(100, stage);
    let eta = || activity.report().builds[0].eta_seconds.unwrap();
    let first = eta();
    std::thread::sleep(Duration::from_millis(500));
    assert!(eta() > first + 0.2, "{first} and half a second later {}", eta());
}

#[test]
fn refusals_do_not_displace_ended_builds() {
    let activity = activity(false);
    for _ in 0..50 {
        begin(&activity).end(Outcome::Succeeded, None);
    }
    for _ in 0..100 {
        activity.queue(subject()).refuse(Refusal::Options, "no".to_owned());
    }
    let report = activity.report();
    let succeeded = report.ended.iter().filter(|build| build.outcome == Outcome::Succeeded).count();
    assert_eq!((succeeded, report.ended.len()), (40, 50));
    assert!(report.queue.is_empty() && report.builds.is_empty());
}

#[test]
fn samples_count_elements_of_the_graph_phase() {
    let activity = activity(false);
    let running = begin(&activity);
    activity.sample();
    activity.sample();
    assert_eq!(activity.metrics().graph_elements(), 50, "the same steps are not counted twice");
    running.set_graph(&Done { elements: 100, ..Done::default() });
    running.end(Outcome::Succeeded, None);
    assert_eq!(activity.metrics().graph_elements(), 100, "the end counts what samples missed");
    let rates = activity.report().throughput.elements_per_second;
    assert!(rates.iter().any(|&rate| rate > 0.0), "{rates:?}");
}

#[test]
fn a_report_survives_json() {
    let activity = activity(true);
    let _running = begin(&activity);
    let _queued = activity.queue(subject());
    activity.queue(subject()).refuse(Refusal::Memory, "too large".to_owned());
    let report = activity.report();
    let text = serde_json::to_string(&report).unwrap();
    let read: crate::report::Report = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}
