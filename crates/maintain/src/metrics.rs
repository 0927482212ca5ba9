//! Findings and outcomes in the format of node_exporter's textfile collector.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::plan::Plan;
use crate::run::{Outcome, Stepped};
use crate::survey::Index;

/// The text of the file. `steps` have ended, `left` are still due; `errors` counts servers and databases that could not be examined.
#[must_use]
pub fn text(plan: &Plan, steps: &[Stepped], left: usize, errors: usize) -> String {
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, values: BTreeMap<String, f64>| {
        _ = writeln!(out, "# HELP lantern_index_maintain_{name} {help}\n# TYPE lantern_index_maintain_{name} gauge");
        for (labels, value) in values {
            _ = writeln!(out, "lantern_index_maintain_{name}{labels} {value}");
        }
    };
    let mut indexes = BTreeMap::new();
    let mut bytes = BTreeMap::new();
    for step in &plan.steps {
        let Index { server, database, advice, size, .. } = &step.index;
        let place = format!("server=\"{}\",database=\"{}\"", escaped(server), escaped(database));
        *indexes.entry(format!("{{{place},advice=\"{advice}\"}}")).or_insert(0.0) += 1.0;
        *bytes.entry(format!("{{{place}}}")).or_insert(0.0) += *size as f64;
    }
    gauge("indexes", "hnsw indexes by the word of advice, before anything was done", indexes);
    gauge("index_bytes", "size of all hnsw indexes", bytes);
    let mut ended: BTreeMap<String, f64> = ["done", "good", "postponed", "stopped", "failed"]
        .map(|outcome| (format!("{{outcome=\"{outcome}\"}}"), 0.0))
        .into();
    for step in steps {
        *ended.entry(format!("{{outcome=\"{}\"}}", name(&step.outcome))).or_default() += 1.0;
    }
    gauge("steps", "steps of the last run by their outcome", ended);
    gauge(
        "seconds",
        "seconds of all steps of the last run",
        BTreeMap::from([(String::new(), steps.iter().map(|step| step.seconds).sum())]),
    );
    gauge("left", "steps that are still due", BTreeMap::from([(String::new(), left as f64)]));
    gauge(
        "errors",
        "servers and databases that could not be examined",
        BTreeMap::from([(String::new(), errors as f64)]),
    );
    out
}

/// The label value of an outcome.
#[must_use]
pub fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Good => "good",
        Outcome::Postponed(_) => "postponed",
        Outcome::Stopped(_) => "stopped",
        Outcome::Failed(_) => "failed",
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::text;
    use crate::plan::{Action, Plan, Step};
    use crate::survey::Index;

    #[test]
    fn the_server_label_distinguishes_databases_of_the_same_name() {
        let of = |server: &str| Step {
            index: Index { server: server.to_owned(), ..Index::default() },
            action: Action::Keep,
        };
        let text = text(&Plan { steps: ["a:5432", "b:5432"].map(of).into(), notes: Vec::new() }, &[], 0, 0);
        for line in
            ["indexes{server=\"a:5432\",database=\"\",advice=\"\"} 1", "index_bytes{server=\"b:5432\",database=\"\"} 0"]
        {
            assert!(text.contains(&format!("lantern_index_maintain_{line}\n")), "{text}");
        }
    }

    #[test]
    fn an_empty_plan_still_has_left_and_errors() {
        let text = text(&Plan::default(), &[], 0, 2);
        assert!(text.contains("lantern_index_maintain_left 0\n"), "{text}");
        assert!(text.contains("lantern_index_maintain_errors 2\n"), "{text}");
        assert!(text.lines().all(|line| line.starts_with('#') || line.starts_with("lantern_index_maintain_")));
    }
}
