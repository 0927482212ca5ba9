//! Prints long steps for developers: their name, and how long they took.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

/// The lines of a log that are shown when a step fails.
const TAIL: usize = 25;

/// Cargo's target directory: this program is in `target/PROFILE`.
pub fn target_dir() -> Result<PathBuf> {
    let own = env::current_exe().context("cannot tell where this program lies")?;
    own.ancestors().nth(2).map(Path::to_owned).context("cannot tell where cargo's target directory is")
}

/// The directory for logs and intermediate files.
pub fn work_dir() -> Result<PathBuf> {
    let dir = target_dir()?.join("xtask");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

/// Runs a command and returns its output. An error has all that it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", program(command)))?;
    let [said, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ensure!(output.status.success(), "{command:?}: {}\n{said}{error}", output.status);
    Ok(said)
}

/// Runs a command whose output the user sees.
pub fn shown(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", program(command)))?;
    ensure!(status.success(), "{}: {status}", program(command));
    Ok(())
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Runs a command that may take long and shows a clock meanwhile. Its output goes to a log, whose end is shown with `hint` on failure.
pub fn command(what: &str, hint: &str, command: &mut Command) -> Result<()> {
    let name: String = what.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let log = work_dir()?.join(format!("{name}.log"));
    let output = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let program = program(command);
    timed(what, || {
        let status = command.status().with_context(|| format!("cannot run {program}"))?;
        if !status.success() {
            let text = fs::read(&log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            let end = lines[lines.len().saturating_sub(TAIL)..].join("\n  ");
            bail!("{what} failed ({program}: {status})\n  {end}\n\nAll of it: {}\n{hint}", log.display());
        }
        Ok(())
    })
}

/// Runs something that may take long, and prints a line with its name and time.
pub fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let bar = spinner(what);
    if bar.is_hidden() {
        println!("{what} ...");
    }
    let start = Instant::now();
    let result = work();
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    match &result {
        Ok(_) => println!("{what}: {seconds:.1} s"),
        Err(_) => println!("{what}: failed after {seconds:.1} s"),
    }
    result
}

/// A spinner on a terminal; hidden elsewhere.
pub fn spinner(what: &str) -> ProgressBar {
    let style = "{spinner} {msg} {elapsed}";
    bar(ProgressBar::new_spinner(), style, what)
}

/// A progress bar from 0 to `length` on a terminal; hidden elsewhere.
pub fn progress(what: &str, length: u64) -> ProgressBar {
    bar(ProgressBar::new(length), "{spinner} {msg} [{bar:30}] {percent}% {elapsed}", what)
}

fn bar(bar: ProgressBar, style: &str, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
