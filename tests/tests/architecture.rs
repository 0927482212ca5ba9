//! Which crates may depend on which, as in the picture of `crates/README.md`, and which clocks the code may use?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The workspace crates that each crate may depend on; `xtask`, `tests` and `benches` may depend on all.
const ARROWS: [(&str, &[&str]); 17] = [
    ("pgvector", &[]),
    ("distance", &["pgvector"]),
    ("graph", &["pgvector"]),
    ("hnsw", &["pgvector", "distance", "graph"]),
    ("pages", &["pgvector", "graph"]),
    ("advise", &["hnsw", "pages", "distance", "graph", "pgvector"]),
    ("node-file", &["graph"]),
    ("protocol", &["pgvector"]),
    ("trust", &[]),
    ("plot", &[]),
    ("service", &["protocol"]),
    ("server", &["advise", "service", "protocol", "hnsw", "pages", "node-file", "distance", "graph", "pgvector"]),
    ("database", &["trust"]),
    ("maintain", &["database"]),
    (
        "lantern-index",
        &["advise", "server", "router", "database", "maintain", "service", "hnsw", "pages", "pgvector", "plot"],
    ),
    ("extension", &["trust", "protocol", "pages", "graph", "pgvector"]),
    ("router", &["service", "protocol"]),
];

/// Dependencies for I/O, and the crates that may have them.
const EDGES: [(&str, &[&str]); 6] = [
    ("tokio", &["service", "server", "router", "database", "maintain", "lantern-index"]),
    ("tokio-rustls", &["service", "server", "router", "database"]),
    ("tokio-postgres", &["database"]),
    ("pgrx", &["extension"]),
    ("kube", &["router"]),
    ("usearch", &["hnsw"]),
];

/// Files that may read the wall clock, to display it or to compare it with other machines' clocks.
const TIME_OF_DAY: [&str; 5] = [
    "cli/src/gen_cert.rs",
    "service/src/activity.rs",
    "service/src/certificate.rs",
    "service/src/metrics.rs",
    "service/src/ticket.rs",
];

/// The direct dependencies of each crate, without dev-dependencies, by the names of the table above.
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

fn short(package: &str) -> &str {
    package.strip_prefix("lantern-index-").unwrap_or(package)
}

#[test]
fn arrows_point_only_where_they_may() {
    let members = dependencies();
    for (member, uses) in &members {
        if ["xtask", "tests", "benches"].contains(&member.as_str()) {
            continue;
        }
        let (_, allowed) = ARROWS
            .iter()
            .find(|(known, _)| known == member)
            .unwrap_or_else(|| panic!("{member} is a new crate: say in this table what it may use"));
        let ours = uses.iter().filter(|used| members.contains_key(*used));
        let forbidden: Vec<_> = ours.filter(|used| !allowed.contains(&used.as_str())).collect();
        assert!(forbidden.is_empty(), "{member} must not use {forbidden:?}");
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
