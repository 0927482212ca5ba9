use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use harness::{PgConfig, pgvector_version};

use crate::arguments::TestOptions;
use crate::build::Profile;
use crate::system::System;
use crate::unpacked::{self, Processor};
use crate::{aarch64, apt, build, install, setup, step, test_tools, versions};

mod counts;
mod pgvector;
mod space;

use counts::{Counts, test};

/// The package of the integration tests.
const INTEGRATION: &str = "lantern-index-tests";

/// Further releases of a whole run: the newest, which Debian has with the newest pgvector, and the one before, with fewer tests.
const OTHERS: [(u32, Part); 2] = [(18, Part::IntegrationBut(&ONCE)), (17, Part::Files(&DATABASE))];

/// Integration tests of the daemons, the documents and the harness, which do not depend on the releases of PostgreSQL and pgvector.
const ONCE: [&str; 13] = [
    "access",
    "architecture",
    "deploy",
    "documents",
    "fuzz",
    "harness",
    "main_job",
    "queue",
    "rate_limit",
    "resolver",
    "router",
    "strangers",
    "type_info",
];

/// The tests that depend most on the releases of PostgreSQL and pgvector.
const DATABASE: [&str; 6] = ["concurrently", "dml", "durability", "edge_tables", "sql_cases", "upgrade"];

/// Integration tests that wait for timeouts most of the time: twice as many run at a time as there are processors.
const WAITING: [&str; 6] = ["failures", "faults", "hostile", "maintain", "parallel_scan", "router"];

/// What to do where a release cannot be fetched.
pub const INSTEAD: &str = "`--pg` names other releases to test with";

/// Which tests to run.
#[derive(Clone, Copy)]
pub enum Part<'a> {
    /// Unit and integration tests.
    All,
    /// What the command line names.
    Named(&'a str),
    /// Files of integration tests.
    Files(&'a [&'a str]),
    /// All files of integration tests but these.
    IntegrationBut(&'a [&'a str]),
}

/// Set-up, checks and tests, or a part of them; on the PostgreSQL found here (a whole run: and on [`OTHERS`]), or on one release.
pub fn run(options: &TestOptions) -> Result<()> {
    options.check()?;
    let (name, pg) = (options.name.as_deref(), options.pg);
    match name {
        Some("fmt") => return format(),
        Some("neon") => return aarch64::kernels(),
        Some("aarch64") => return report(&aarch64::run(pg)?),
        None => {
            space::check()?;
            format()?;
        }
        _ => {}
    }
    let native = setup::run(None, false)?;
    match name {
        Some("clippy") => return clippy(&native),
        Some("versions") => return versions::check(native.major),
        _ => {}
    }
    if matches!(name, None | Some("unit")) {
        test_tools::install()?;
    }
    if name == Some("unit") {
        return report(&[unit(&native)?]);
    }
    if [None, Some("integration"), Some("type_info")].contains(&name) {
        fetch_sources()?;
    }
    let releases = releases(name, pg, &native)?;
    if name.is_none() {
        clippy(&native)?;
        versions::check(native.major)?;
    }
    let mut summaries = Vec::new();
    for (config, part) in &releases {
        let other = options.pgvector.as_ref().map(|version| unpacked::with_pgvector(config, version)).transpose()?;
        let config = other.as_ref().unwrap_or(config);
        install::install(config, Profile::Demo)?;
        let runnable = unpacked::is_ours(config)?.then(|| unpacked::runnable(config)).transpose()?;
        let config = runnable.as_ref().map_or(config, |runnable| &runnable.config);
        if name == Some("pgvector") {
            return pgvector::run(config, build::demo_program()?);
        }
        summaries.push(on(config, *part)?);
    }
    report(&summaries)
}

/// Gets pgvector's sources for a test, which passes without them.
fn fetch_sources() -> Result<()> {
    if System::own().is_debian() {
        if !apt::has_program("dpkg-source") {
            apt::install(&["dpkg-dev".to_owned()])?;
        }
        super::pgvector::fetch_sources()?;
    }
    Ok(())
}

/// The PostgreSQL releases to test on, with the tests for each.
fn releases<'a>(name: Option<&'a str>, pg: Option<u32>, native: &PgConfig) -> Result<Vec<(PgConfig, Part<'a>)>> {
    let mut parts = vec![(pg.unwrap_or(native.major), name.map_or(Part::All, Part::Named))];
    if name.is_none() && pg.is_none() {
        // What does not depend on PostgreSQL is tested once.
        parts.extend(OTHERS.into_iter().filter(|(major, _)| *major != native.major));
    }
    let prepare = |major| {
        if major == native.major { Ok(native.clone()) } else { unpacked::prepare(major, Processor::Own, INSTEAD) }
    };
    parts.into_iter().map(|(major, part)| Ok((prepare(major)?, part))).collect()
}

/// Unit tests, those of the harness as well.
fn unit(config: &PgConfig) -> Result<Summary> {
    let of_members = [&build::EVERYTHING[..], &["--exclude", INTEGRATION]].concat();
    let counts = test(config, &of_members, &[])? + test(config, &["-p", INTEGRATION, "--lib"], &[])?;
    Ok(Summary::new(config, counts))
}

/// Runs tests on a PostgreSQL that has the extension.
pub fn on(config: &PgConfig, part: Part) -> Result<Summary> {
    loud(config, "build", &build::PROGRAMS)?;
    let files = files("tests")?;
    let files_but = |others: &[&str]| -> Vec<&str> {
        files.iter().map(String::as_str).filter(|file| !others.contains(file)).collect()
    };
    let counts = match part {
        Part::All => everything(config, &files_but(&[]))?,
        Part::Files(chosen) => of_files(config, chosen)?,
        Part::IntegrationBut(others) => of_files(config, &files_but(others))?,
        Part::Named("integration") => of_files(config, &files_but(&[]))?,
        Part::Named("database") => of_files(config, &files_but(&ONCE))?,
        // Not in a whole run: building Kubernetes takes minutes, and needs Go; the other needs an emulator, and a builder for it.
        Part::Named(file @ ("kubernetes" | "aarch64")) => test(config, &targets(&[], &[file]), &["--ignored"])?,
        Part::Named(file) if files.iter().any(|known| known == file) => of_files(config, &[file])?,
        Part::Named(part) => {
            let counts = test(config, &build::EVERYTHING, &[part])?;
            ensure!(counts.passed + counts.failed > 0, "no test's name contains {part:?}");
            counts
        }
    };
    Ok(Summary::new(config, counts))
}

/// All tests, given the `files` of integration tests.
fn everything(config: &PgConfig, files: &[&str]) -> Result<Counts> {
    let of_members = files_of_members()?;
    let files: Vec<&str> = of_members.iter().map(String::as_str).chain(files.iter().copied()).collect();
    Ok(on_targets(config, &["--lib", "--bins"], &files)? + test(config, &targets(&["--doc"], &[]), &[])?)
}

/// Files of tests.
fn of_files(config: &PgConfig, files: &[&str]) -> Result<Counts> {
    on_targets(config, &[], files)
}

/// Runs the targets that the flags `other` name and files of tests; afterwards, with more threads, the files in [`WAITING`].
fn on_targets(config: &PgConfig, other: &[&str], files: &[&str]) -> Result<Counts> {
    let (waiting, busy): (Vec<&str>, Vec<&str>) = files.iter().copied().partition(|file| WAITING.contains(file));
    let mut counts = Counts::NONE;
    if !other.is_empty() || !busy.is_empty() {
        counts = test(config, &targets(other, &busy), &[])?;
    }
    if !waiting.is_empty() {
        let threads = format!("--test-threads={}", 2 * thread::available_parallelism()?.get());
        counts = counts + test(config, &targets(&[], &waiting), &[&threads])?;
    }
    Ok(counts)
}

/// Cargo's arguments for targets of all members: those that the flags `other` name, and files of tests.
fn targets(other: &[&str], files: &[&str]) -> Vec<String> {
    let files = files.iter().flat_map(|&file| ["--test", file]);
    build::EVERYTHING.into_iter().chain(other.iter().copied()).chain(files).map(str::to_owned).collect()
}

/// What was tested on one PostgreSQL.
pub struct Summary {
    what: String,
    counts: Counts,
}

impl Summary {
    fn new(config: &PgConfig, counts: Counts) -> Self {
        let pgvector = pgvector_version(config).unwrap_or_default();
        Self { what: format!("PostgreSQL {}, pgvector {pgvector}", config.version), counts }
    }
}

fn report(summaries: &[Summary]) -> Result<()> {
    println!();
    let mut total = Counts::NONE;
    for Summary { what, counts } in summaries {
        println!("{what}: {counts}");
        total = total + *counts;
    }
    println!("{}: {total}", rustc()?);
    ensure!(total.failed == 0 && total.complete, "some tests failed");
    Ok(())
}

fn format() -> Result<()> {
    let check = step::shown(build::cargo(None).args(["fmt", "--all", "--check"]));
    check.context("the code is not formatted; `cargo fmt --all` does it")?;
    println!("cargo fmt --check: fine");
    Ok(())
}

fn clippy(config: &PgConfig) -> Result<()> {
    let deny = ["--all-targets", "--", "-D", "warnings"];
    loud(config, "clippy", &[&build::EVERYTHING[..], &deny].concat())?;
    let extension = build::extension_arguments(config.major);
    let extension: Vec<&str> = extension.iter().map(String::as_str).collect();
    loud(config, "clippy", &[&extension[..], &deny].concat())
}

/// Runs a cargo command whose output is wanted.
fn loud(config: &PgConfig, command: &str, arguments: &[&str]) -> Result<()> {
    let done = step::shown(build::cargo(Some(config)).arg(command).args(arguments));
    done.with_context(|| format!("cargo {command} {} failed", arguments.join(" ")))
}

/// The names of a member's test programs: a file, or a folder with `main.rs`, each. Empty if it has none.
fn files(member: impl AsRef<Path>) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for path in entries(&harness::root().join(member).join("tests"))? {
        let is_test = path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").is_file();
        files.extend(path.file_stem().filter(|_| is_test).map(|name| name.to_string_lossy().into_owned()));
    }
    files.sort_unstable();
    Ok(files)
}

/// The names of the test programs of all members but that of the integration tests.
fn files_of_members() -> Result<Vec<String>> {
    let mut files = files("benches")?;
    for member in entries(&harness::root().join("crates"))?.into_iter().filter(|entry| entry.is_dir()) {
        files.extend(self::files(&member)?);
    }
    files.sort_unstable();
    files.dedup();
    Ok(files)
}

/// What is in a folder; nothing if there is no such folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => {
            let paths = entries.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
            paths.with_context(|| format!("cannot read {}", folder.display()))
        }
    }
}

fn rustc() -> Result<String> {
    let text = step::output(Command::new("rustc").arg("--version"))?;
    Ok(text.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_that_are_named_exist() {
        let files = files("tests").unwrap();
        for name in DATABASE.iter().chain(&ONCE).chain(&WAITING) {
            assert!(files.iter().any(|file| file == *name), "{name}");
        }
    }

    #[test]
    fn tests_of_members_are_found() {
        let files = files_of_members().unwrap();
        for name in ["advice", "hard", "page_hashes", "sessions"] {
            assert!(files.iter().any(|file| file == name), "{name} of {files:?}");
        }
        assert!(!files.iter().any(|file| file == "support"));
    }
}
