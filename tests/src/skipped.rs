use std::io::{Write, stderr};

/// Says that a test, or a part of it, is not run. The message goes to stderr directly, since `cargo test` hides what a passing test prints.
pub fn skipped(what: &str) {
    let _ = writeln!(stderr(), "skipped: {what}");
}
