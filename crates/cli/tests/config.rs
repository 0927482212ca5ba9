//! Settings from flags, environment and file.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn run(arguments: &[&str], variables: &[(&str, &str)], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lantern-index"));
    command.args(arguments).envs(variables.iter().copied()).current_dir(dir).stdin(Stdio::null());
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn show_says_where_each_value_comes_from() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("c.toml"), "[serve]\nport = 9000\n\nthreads = 3\nhost = \"a \\\"b\\\"\"\n").unwrap();
    let variables = [("LANTERN_INDEX_THREADS", "4"), ("LANTERN_INDEX_ALLOW_PLAINTEXT_BEYOND_LOOPBACK", "yes")];
    let output = run(&["config", "show", "--config", "c.toml"], &variables, dir.path());
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let line =
        |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
    assert!(line("port = 9000").ends_with("# c.toml:2"), "{text}");
    assert!(line("threads = 4").ends_with("# LANTERN_INDEX_THREADS"), "{text}");
    assert!(
        line("allow-plaintext-beyond-loopback = true").ends_with("# LANTERN_INDEX_ALLOW_PLAINTEXT_BEYOND_LOOPBACK")
    );
    assert!(line("# engine = \"bulk\"").ends_with("# default"), "{text}");
    assert!(line("# cert =").ends_with("# not set"), "{text}");

    // What it prints is a file that says the same.
    fs::write(dir.path().join("again.toml"), &text).unwrap();
    let again = said(&run(&["config", "show"], &[("LANTERN_INDEX_CONFIG", "again.toml")], dir.path()));
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.rsplit_once(" # ").map_or(line, |(value, _)| value).trim().to_owned()).collect()
    };
    assert_eq!(values(&again), values(&text));
}

#[test]
fn check_finds_all_mistakes() {
    let dir = TempDir::new().unwrap();
    let toml = "[serve]\ncert = \"absent.pem\"\nkey = \"absent.pem\"\n";
    fs::write(dir.path().join("absent.toml"), toml).unwrap();
    fs::write(dir.path().join("wrong.toml"), "[serve]\nport = -1\nhots = \"x\"\n").unwrap();
    let cases: [(&str, &str, &[&str]); 4] = [
        ("wrong.toml", "4", &["wrong.toml:2: port", "wrong.toml:3: ", "did you mean host?"]),
        ("wrong.toml", "many", &["wrong.toml:2: port", "wrong.toml:3: ", "LANTERN_INDEX_THREADS: "]),
        ("absent.toml", "4", &["[serve]: cannot read certificate file absent.pem"]),
        ("nowhere.toml", "4", &["nowhere.toml: cannot be read"]),
    ];
    for (file, threads, expected) in cases {
        for arguments in [["config", "check", "--config", file], ["serve", "--port=0", "--config", file]] {
            let output = run(&arguments, &[("LANTERN_INDEX_THREADS", threads)], dir.path());
            assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", said(&output));
            if arguments[0] == "config" {
                let text = said(&output);
                assert!(expected.iter().all(|part| text.contains(part)), "{file}: {text}");
            }
        }
    }
    let help = run(&["serve", "--config", "wrong.toml", "--help"], &[], dir.path());
    assert!(help.status.success() && said(&help).contains("--status-port"), "{}", said(&help));
    fs::write(dir.path().join("right.toml"), "[serve]\nidle-timeout = '5m'\n").unwrap();
    let output = run(&["config", "check", "--config=right.toml"], &[], dir.path());
    assert!(output.status.success() && said(&output).contains("no mistakes"), "{}", said(&output));
}

#[test]
fn files_that_are_no_configuration() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("binary"), [0xff; 64]).unwrap();
    fs::write(dir.path().join("long"), vec![b'#'; (1 << 20) + 1]).unwrap();
    fs::write(dir.path().join("deep"), format!("a = {}", "[".repeat(100_000))).unwrap();
    for file in ["binary", "long", "deep", "."] {
        let output = run(&["config", "check", "--config", file], &[], dir.path());
        assert_eq!(output.status.code(), Some(64), "{file}: {}", said(&output));
        assert!(said(&output).contains(&format!("  {file}:")), "{}", said(&output));
    }
}
