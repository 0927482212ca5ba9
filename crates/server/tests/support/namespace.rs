use std::process::Command;

/// Runs an ignored test of this program in a namespace of its own, of the kind that `unshare` calls `kind`. Skips it if `probe` fails in
/// one: the system may not allow namespaces, or lack the program.
pub fn run_in_namespace(kind: &str, probe: &[&str], test: &str) {
    let namespace = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", kind]).args(words);
        command
    };
    if !namespace(probe).status().is_ok_and(|status| status.success()) {
        return harness::skipped_for_lack(&format!(
            "{test}: `{}` fails in a namespace, or there may be none",
            probe.join(" ")
        ));
    }
    let program = std::env::current_exe().unwrap();
    let mut inside = namespace(&[program.to_str().unwrap(), "--ignored", "--exact", test, "--nocapture"]);
    let output = inside.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
