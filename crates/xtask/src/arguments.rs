use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::bench::{self, Bench};
use crate::dist::DistOptions;

pub const USAGE: &str = "\
usage: cargo xtask TASK

  setup   [--pg-config P]      install what is missing: PostgreSQL and its headers, libclang, a C++ compiler, pgvector
  install [--pg-config P]      build the extension and put it into a PostgreSQL
  demo    [--keep] [--rows N]  build the same index in the database and outside, and compare
  dist    [--check] [--quick]  make Debian packages of daemon and library in target/dist; --check installs, uses and removes
                               them on a clean Debian, --quick packs what is built already
  dist    --image [--check] [--quick]
                               what goes into CloudNativePG's extension image; --check starts PostgreSQL 18 with it, --quick
                               compiles as the demo does
  chaos   [--seed S] [--rounds N] [--kubernetes]
                               builds of several databases with a fault in each round: what was found, and figures; with
                               --kubernetes by builders that are pods, on the control plane of `test kubernetes`
  soak                         200 builds of random shapes and endings against one daemon; prints what is left of them
  test    [NAME] [--pg N]      all checks and tests, on the PostgreSQL found, on 18, and what meets the database on 17; NAME: fmt,
                               clippy, versions, unit, integration, a file of tests/tests, or a part of a test's name, on the
                               PostgreSQL found; --pg N: on release N only (17 and 18 are fetched from Debian if not here)
  test    pgvector [--pg N]    pgvector's own regression and TAP tests, with every hnsw index built externally
  test    aarch64              the kernels for that architecture, cross-compiled and emulated
  test    kubernetes           builders as pods, on a control plane built from Go sources once; no part of a whole run
  bench   [OPTION]...          builds by several means, compared; --help lists the options
  bench   NAME [OPTION]...     offload, load, insert, search, memory or distributed: what articles about pgvector measured,
                               measured here; documents: all of them

PG_CONFIG, or --pg-config, names the PostgreSQL to use. Without: the newest one that has its headers.";

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum Task {
    Help,
    Setup {
        pg_config: Option<PathBuf>,
    },
    Install {
        pg_config: Option<PathBuf>,
    },
    Demo(DemoOptions),
    Dist(DistOptions),
    Soak,
    /// The words are for the program that does it.
    Chaos(Vec<String>),
    Test {
        name: Option<String>,
        pg: Option<u32>,
    },
    Bench(Box<Bench>),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct DemoOptions {
    /// Leave the cluster and the builder running.
    pub keep: bool,
    /// How many of the sample's rows to take.
    pub rows: Option<usize>,
}

/// Reads the command line: few enough words to do without a library, which every fresh clone would compile first.
pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Task> {
    let mut arguments = arguments.peekable();
    if arguments.next_if(|word| word == "bench").is_some() {
        return bench::parse(arguments).map(|bench| Task::Bench(Box::new(bench)));
    }
    if arguments.next_if(|word| word == "chaos").is_some() {
        return Ok(Task::Chaos(arguments.collect()));
    }
    let mut words = Vec::new();
    let (mut keep, mut help, mut rows, mut pg, mut pg_config) = (false, false, None, None, None);
    let (mut check, mut quick, mut image) = (false, false, false);
    while let Some(argument) = arguments.next() {
        let (flag, attached) = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag.to_owned(), Some(value.to_owned())),
            _ => (argument, None),
        };
        let mut value =
            || attached.clone().or_else(|| arguments.next()).with_context(|| format!("{flag} wants a value"));
        match flag.as_str() {
            "--help" | "-h" => help = true,
            "--keep" => keep = true,
            "--check" => check = true,
            "--quick" => quick = true,
            "--image" => image = true,
            "--rows" => rows = Some(value()?.parse().context("--rows wants a number")?),
            "--pg" => pg = Some(value()?.parse().context("--pg wants a release, for instance 17")?),
            "--pg-config" => pg_config = Some(PathBuf::from(value()?)),
            other if other.starts_with('-') => bail!("unknown option {other}\n\n{USAGE}"),
            _ => words.push(flag),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if help || words.is_empty() || words == ["help"] {
        return Ok(Task::Help);
    }
    let is_demo = words[0] == "demo";
    let (is_test, is_dist) = (words[0] == "test", words[0] == "dist");
    let takes_postgres = is_dist || matches!(words[0], "setup" | "install");
    if (!is_demo && (keep || rows.is_some()))
        || (!takes_postgres && pg_config.is_some())
        || (!is_test && pg.is_some())
        || (!is_dist && (check || quick || image))
    {
        bail!("that option does not go with {}\n\n{USAGE}", words[0]);
    }
    match words[..] {
        ["setup"] => Ok(Task::Setup { pg_config }),
        ["install"] => Ok(Task::Install { pg_config }),
        ["demo"] => Ok(Task::Demo(DemoOptions { keep, rows })),
        ["dist"] => Ok(Task::Dist(DistOptions { pg_config, check, quick, image })),
        ["soak"] => Ok(Task::Soak),
        ["test"] => Ok(Task::Test { name: None, pg }),
        ["test", name] => Ok(Task::Test { name: Some(name.to_owned()), pg }),
        _ => bail!("cannot make sense of {:?}\n\n{USAGE}", words.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Task> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn tasks_and_their_options() {
        assert_eq!(words("").unwrap(), Task::Help);
        assert_eq!(words("demo --keep --rows 500").unwrap(), Task::Demo(DemoOptions { keep: true, rows: Some(500) }));
        assert_eq!(
            words("install --pg-config=/x/pg_config").unwrap(),
            Task::Install { pg_config: Some("/x/pg_config".into()) }
        );
        let check = DistOptions { check: true, ..DistOptions::default() };
        assert_eq!(words("dist --check").unwrap(), Task::Dist(check));
        assert_eq!(
            words("test failures --pg 17").unwrap(),
            Task::Test { name: Some("failures".to_owned()), pg: Some(17) }
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "test a b",
            "demo --rows",
            "demo --rows many",
            "test --keep",
            "demo --pg 17",
            "test --pg no",
            "setup --fast",
            "setup --check",
            "dance",
        ] {
            assert!(words(line).is_err(), "{line}");
        }
    }
}
