//! The alert rules and the dashboard in `deploy/` are well-formed, and use only metrics that daemons export.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::{env, fs};

use lantern_index_service::{Activity, Role, Tls};
use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Runs promtool, Prometheus' checker: from `PATH`, or where `cargo xtask test` has put it.
fn promtool(arguments: &[&str], input: &str) -> Output {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools/promtool");
    let program = if own.is_file() { own } else { "promtool".into() };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().unwrap_or_else(|error| panic!("no promtool ({error}): `cargo xtask test unit` gets it"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn check(arguments: &[&str], input: &str) {
    let output = promtool(arguments, input);
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
}

fn exposition() -> String {
    let dir = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| dir.path().join(name));
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&cert, pair.cert.pem()).unwrap();
    fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let activity = Activity::new(Role::Builder, "0.1.0", false).unwrap();
    activity.set_tls(Arc::new(Tls::open(&cert, &key, None).unwrap()));
    activity.exposition().unwrap()
}

/// All strings under the key `expr`.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    Value::String(text) if key == "expr" => found.push(text.clone()),
                    field => expressions(field, found),
                }
            }
        }
        _ => {}
    }
}

/// The dashboard's expressions, with Grafana's variables replaced.
fn dashboard() -> Vec<String> {
    let text = fs::read_to_string(deploy().join("grafana/lantern-index.json")).unwrap();
    let mut found = Vec::new();
    expressions(&serde_json::from_str(&text).unwrap(), &mut found);
    let with = |text: &str| {
        text.replace("$__rate_interval", "5m").replace("$__range", "3h").replace("=~\"$instance\"", "=~\".*\"")
    };
    found.iter().map(|text| with(text)).collect()
}

#[test]
fn metrics_follow_the_conventions() {
    check(&["check", "metrics"], &exposition());
}

#[test]
fn alert_rules_are_valid_and_fire_when_they_should() {
    let folder = deploy().join("prometheus");
    let rules = folder.join("lantern-index.rules.yml");
    check(&["check", "rules", "--lint=all", "--lint-fatal", rules.to_str().unwrap()], "");
    check(&["check", "config", folder.join("scrape.yml").to_str().unwrap()], "");
    check(&["test", "rules", folder.join("lantern-index.rules.test.yml").to_str().unwrap()], "");
}

#[test]
fn the_dashboard_s_expressions_are_valid_promql() {
    let expressions = dashboard();
    assert!(expressions.len() > 20, "{expressions:?}");
    let rules: Vec<Value> = expressions
        .iter()
        .enumerate()
        .map(|(index, text)| serde_json::json!({ "record": format!("dashboard:{index}"), "expr": text }))
        .collect();
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    // JSON is YAML as well.
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), rules.to_string()).unwrap();
    check(&["check", "rules", file.path().to_str().unwrap()], "");
}

#[test]
fn metrics_in_rules_and_dashboard_are_exported() {
    let exposition = exposition();
    let rules = fs::read_to_string(deploy().join("prometheus/lantern-index.rules.yml")).unwrap();
    let dashboard = dashboard();
    let mut used = BTreeSet::new();
    for text in dashboard.iter().map(String::as_str).chain([rules.as_str()]) {
        for (at, _) in text.match_indices("lantern_index_") {
            let rest = &text[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let labels =
                rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(labels, _)| labels);
            for label in labels.split(',').map(str::trim).filter(|label| label.contains("=\"")) {
                used.insert((&rest[..end], label.to_owned()));
            }
            used.insert((&rest[..end], String::new()));
        }
    }
    assert!(used.len() > 25, "{used:?}");
    for (name, label) in used {
        let exported = exposition.lines().any(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']) && rest.contains(&label))
        });
        assert!(exported, "{name} with {label:?} is not exported");
    }
}

#[test]
fn panels_have_names_and_do_not_overlap() {
    let text = fs::read_to_string(deploy().join("grafana/lantern-index.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()));
        assert!(place("x") + place("w") <= 24);
        for (x, y) in (place("x")..place("x") + place("w"))
            .flat_map(|x| (place("y")..place("y") + place("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert((x, y)), "{} overlaps", panel["title"]);
        }
    }
}
