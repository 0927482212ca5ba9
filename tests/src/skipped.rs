use std::env;
use std::io::{Write, stderr};

/// Says that a test, or a part of it, does not apply. The message goes to stderr directly, since `cargo test` hides what a passing test prints.
pub fn skipped(what: &str) {
    let _ = writeln!(stderr(), "skipped: {what}");
}

/// Skips a test because this machine lacks something that it needs, except in CI (the variable `CI` is `true`), which must have it: there
/// nobody reads what a passing test says.
pub fn skipped_for_lack(what: &str) {
    assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "CI must not skip: {what}");
    skipped(what);
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::skipped_for_lack;

    #[test]
    fn ci_skips_nothing_for_lack() {
        let inside = |ci: &str| {
            let mut inside = Command::new(env::current_exe().unwrap());
            inside.args(["skipped::tests::something_is_lacking", "--exact", "--ignored", "--nocapture"]).env("CI", ci);
            let output = inside.output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (passed, said) = inside("");
        assert!(passed && said.contains("skipped: a thing"), "{said}");
        let (passed, said) = inside("true");
        assert!(!passed && said.contains("CI must not skip: a thing"), "{said}");
    }

    #[test]
    #[ignore = "ci_skips_nothing_for_lack runs it"]
    fn something_is_lacking() {
        skipped_for_lack("a thing");
    }
}
