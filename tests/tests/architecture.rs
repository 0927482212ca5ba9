//! Are dependencies and `unsafe` only where `crates/README.md` says, and which clocks may the code use?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Dependencies for I/O, and the crates that may have them.
const EDGES: [(&str, &[&str]); 6] = [
    ("tokio", &["service", "server", "router", "database", "maintain", "cli"]),
    ("tokio-rustls", &["service", "server", "router", "database"]),
    ("tokio-postgres", &["database"]),
    ("pgrx", &["extension"]),
    ("kube", &["router"]),
    ("usearch", &["hnsw"]),
];

/// Files that may read the wall clock, to display it or to compare it with other machines' clocks.
const TIME_OF_DAY: [&str; 4] =
    ["cli/src/gen_cert.rs", "service/src/activity.rs", "service/src/certificate.rs", "service/src/ticket.rs"];

/// The direct dependencies of each crate, without dev-dependencies, by their names in `crates/README.md`.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(harness::root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| short(value["name"].as_str().unwrap()).to_owned();
    let members = metadata["packages"].as_array().unwrap();
    members
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            (name(package), dependencies.filter(|dependency| dependency["kind"].is_null()).map(name).collect())
        })
        .collect()
}

/// The name of a package in `crates/README.md`.
fn short(package: &str) -> &str {
    if package == "lantern-index" { "cli" } else { package.strip_prefix("lantern-index-").unwrap_or(package) }
}

fn readme() -> String {
    fs::read_to_string(harness::root().join("crates/README.md")).unwrap()
}

/// What a text has between backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn crates_use_what_the_table_says() {
    let mut members = dependencies();
    // The harness may use all.
    members.remove("tests").unwrap();
    let readme = readme();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| [`")?.strip_suffix(" |")?.split_once('`'));
    let mut table: BTreeMap<&str, &str> = rows.map(|(name, row)| (name, row.rsplit(" | ").next().unwrap())).collect();
    assert_eq!(table.keys().collect::<Vec<_>>(), members.keys().collect::<Vec<_>>(), "crates in the table, and all");
    assert!(table.remove("benches").unwrap().starts_with("any of the above"));
    for (member, may_use) in table {
        let used = members[member].iter().filter(|used| *used == "tests" || members.contains_key(*used));
        assert_eq!(used.cloned().collect::<BTreeSet<_>>(), quoted(may_use), "{member} uses, and may use");
    }
}

#[test]
fn unsafe_code_is_only_where_the_invariants_say() {
    let readme = readme();
    let (_, rest) = readme.split_once("* `unsafe` only in ").unwrap();
    let named = quoted(rest.split_once("denied elsewhere").unwrap().0);
    let crates = harness::root().join("crates");
    let mut found = BTreeSet::new();
    for file in sources(&crates) {
        if !fs::read_to_string(&file).unwrap().contains("(unsafe_code)") {
            continue;
        }
        let name = file.strip_prefix(&crates).unwrap().display().to_string();
        let (member, path) = name.split_once("/src/").unwrap();
        found.insert(member.to_owned());
        found.extend((path != "lib.rs").then(|| path.to_owned()));
    }
    assert_eq!(found, named);
    for member in fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let manifest = fs::read_to_string(member.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{} has lints of its own", member.display());
    }
}

#[test]
fn postgres_tokio_and_kubernetes_stay_at_the_edges() {
    for (member, uses) in dependencies() {
        if ["xtask", "tests", "benches"].contains(&member.as_str()) {
            continue;
        }
        for (edge, allowed) in EDGES {
            assert!(!uses.contains(edge) || allowed.contains(&member.as_str()), "{member} must not use {edge}");
        }
    }
}

#[test]
fn there_is_one_tls_provider() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--offline", "--prefix", "none", "--edges", "normal"])
        .current_dir(harness::root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8_lossy(&output.stdout);
    assert!(tree.lines().any(|line| line.starts_with("ring ")), "ring is expected");
    assert!(!tree.lines().any(|line| line.starts_with("aws-lc")), "two providers in one process make rustls panic");
}

/// All Rust files below a directory.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => Vec::from_iter(path.extension().is_some_and(|extension| extension == "rs").then_some(path)),
        })
        .collect()
}

/// Limits and durations use monotonic clocks, which never jump.
#[test]
fn nothing_waits_for_the_time_of_day() {
    let crates = harness::root().join("crates");
    for file in sources(&crates) {
        let name = file.strip_prefix(&crates).unwrap().display().to_string();
        if name.starts_with("xtask/") || name.contains("/tests/") || TIME_OF_DAY.contains(&name.as_str()) {
            continue;
        }
        assert!(!fs::read_to_string(&file).unwrap().contains("SystemTime"), "{name} asks for the time of day");
    }
}
