//! Commands that need neither a builder nor an index.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn run(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lantern-index"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null()).output().unwrap()
}

fn out(arguments: &str) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn estimates() {
    let json: Value = serde_json::from_str(&out("estimate --rows 1000000 --dims 1536 --json")).unwrap();
    // An element and its neighbors fill a page.
    assert_eq!((json["blocks"].as_u64(), json["index_bytes"].as_u64()), (Some(1_000_001), Some(8_192_008_192)));
    let memory = json["builder_memory_bytes"].as_u64().unwrap();
    assert!((6_144_000_000..12_288_000_000).contains(&memory), "{memory}");
    let text = out("estimate --rows 1000000 --dims 1536");
    assert!(text.contains("vector(1536)") && text.contains("7.6 GiB") && text.contains("1000001 blocks"), "{text}");
    let few: Value = serde_json::from_str(&out("estimate --rows 1000000 --dims 1536 --distinct 1 --json")).unwrap();
    assert_eq!(few["elements"].as_u64(), Some(100_000));
    for (wide, narrow) in
        [("vector -m 32", "vector"), ("vector", "halfvec"), ("halfvec", "bit"), ("vector", "sparsevec --nonzero 20")]
    {
        let bytes = |of: &str| -> u64 {
            let json = out(&format!("estimate --rows 20000 --dims 200 --json --type {of}"));
            serde_json::from_str::<Value>(&json).unwrap()["index_bytes"].as_u64().unwrap()
        };
        assert!(bytes(wide) > bytes(narrow), "{wide} {narrow}");
    }
    assert!(out("estimate --rows 0 --dims 3").contains("2 blocks"));
}

#[test]
fn estimates_that_make_no_sense() {
    let cases = [
        ("--rows 10 --dims 0", "0"),
        ("--rows 10 --dims 2001", "at most 2000 dimensions"),
        ("--rows -1 --dims 3", "-1"),
        ("--rows 10 --dims 3 -m 101", "101"),
        ("--rows 10 --dims 3 --distinct 11", "--distinct"),
        ("--rows 10 --dims 3 --type text", "text"),
        ("--rows 10000000000 --dims 2000", "more blocks than PostgreSQL allows"),
        ("--rows 18446744073709551615 --dims 2000", "more blocks than PostgreSQL allows"),
        ("--dims 3", "--rows"),
    ];
    for (arguments, text) in cases {
        let output = run(&format!("estimate {arguments}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments}: {said}");
        assert!(said.contains(text), "{arguments}: {said}");
    }
}

#[test]
fn the_processor() {
    let text = out("cpu");
    assert!(text.contains(std::env::consts::ARCH) && text.contains("kernels "), "{text}");
}

#[test]
fn pages_of_the_manual() {
    let dir = TempDir::new().unwrap();
    out(&format!("man {}", dir.path().join("man").display()));
    let page = |name: &str| fs::read_to_string(dir.path().join("man").join(name)).unwrap();
    let main = page("lantern-index.1");
    assert!(main.contains("Exit codes") && main.contains("arguments, settings or the files they name"), "{main}");
    assert!(!main.contains("completions"), "{main}");
    let serve = page("lantern-index-serve.1");
    assert!(serve.contains("LANTERN_INDEX_STATUS_PORT") && serve.contains("configuration file"), "{serve}");
    let names: Vec<_> = fs::read_dir(dir.path().join("man")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(names.len() >= 8, "{names:?}");
}

#[test]
fn completions_of_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = out(&format!("completions {shell}"));
        assert!(text.contains("status-port") && text.contains("gen-cert"), "{shell}");
    }
    assert_eq!(run("completions tcsh").status.code(), Some(64));
}
