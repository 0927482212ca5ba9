use std::env;
use std::io::{Write, stderr};

/// Says that a test, or a part of it, does not apply. The message goes to stderr directly, since `cargo test` hides what a passing test prints.
pub fn skipped(what: &str) {
    let _ = writeln!(stderr(), "skipped: {what}");
}

/// With this variable, a test that needs what the machine lacks fails: in CI nobody reads what a passing test says.
const SKIP_NOTHING: &str = "LANTERN_INDEX_SKIP_NOTHING";

/// Skips a test because this machine lacks something that it needs, or fails ([`SKIP_NOTHING`]).
pub fn skipped_for_lack(what: &str) {
    assert!(env::var_os(SKIP_NOTHING).is_none(), "{SKIP_NOTHING}: {what}");
    skipped(what);
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::{SKIP_NOTHING, skipped_for_lack};

    #[test]
    fn nothing_is_skipped_if_so_asked() {
        let inside = |variables: &[(&str, &str)]| {
            let mut inside = Command::new(env::current_exe().unwrap());
            inside.args(["skipped::tests::something_is_lacking", "--exact", "--ignored", "--nocapture"]);
            inside.env_remove(SKIP_NOTHING).envs(variables.iter().copied());
            let output = inside.output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (passed, said) = inside(&[]);
        assert!(passed && said.contains("skipped: a thing"), "{said}");
        let (passed, said) = inside(&[(SKIP_NOTHING, "1")]);
        assert!(!passed && said.contains("LANTERN_INDEX_SKIP_NOTHING: a thing"), "{said}");
    }

    #[test]
    #[ignore = "nothing_is_skipped_if_so_asked runs it"]
    fn something_is_lacking() {
        skipped_for_lack("a thing");
    }
}
