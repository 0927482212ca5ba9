use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand};

/// Set-up, demo, tests and benchmarks
#[derive(Debug, Parser)]
#[command(
    bin_name = "cargo xtask",
    after_help = "PG_CONFIG, or --pg-config, names the PostgreSQL to use. Without: the newest one that has its headers."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub task: Task,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq, Subcommand)]
pub enum Task {
    /// Install what is missing: PostgreSQL and its headers, libclang, a C++ compiler, pgvector
    Setup(SetupOptions),
    /// Build the extension and put it into a PostgreSQL
    Install(Postgres),
    /// Take out what install put in, and say what remains
    Uninstall(Postgres),
    /// Build the same index in the database and outside, and compare
    Demo(DemoOptions),
    /// Record the demo, and a build that is watched, as animated SVGs
    Picture(Picture),
    /// Make Debian packages of daemon and library in target/dist
    Dist(DistOptions),
    /// All checks and tests, on the PostgreSQL found and on 18; on 17 those that depend most on the database
    Test(TestOptions),
    /// Compare external builds with others, build hard data, repeat measurements of articles; --help lists the options
    Bench(Words),
    /// Run 200 random builds, some of which fail, against one daemon, and print what they leave behind
    Soak,
    /// Run builds of several databases with a fault in each round; --help lists the options
    Chaos(Words),
}

#[derive(Args, Debug, Default, PartialEq, Eq)]
pub struct Postgres {
    /// The PostgreSQL to use
    #[arg(long, value_name = "PATH")]
    pub pg_config: Option<PathBuf>,
}

#[derive(Args, Debug, Default, PartialEq, Eq)]
pub struct SetupOptions {
    #[command(flatten)]
    pub postgres: Postgres,
    #[command(flatten)]
    pub pgvector: Pgvector,
}

#[derive(Args, Debug, Default, PartialEq, Eq)]
pub struct Pgvector {
    /// Replace a pgvector older than 0.8, for all clusters of this PostgreSQL
    #[arg(long = "replace-pgvector")]
    pub replace: bool,
}

#[derive(Args, Debug, Default, PartialEq, Eq)]
pub struct DemoOptions {
    /// Leave the cluster and the builder running
    #[arg(long)]
    pub keep: bool,
    /// How many of the sample's rows to take
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    #[command(flatten)]
    pub pgvector: Pgvector,
}

#[derive(Args, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// Where demo.svg and watch.svg go
    #[arg(value_name = "DIR", default_value = "docs/pictures")]
    pub dir: PathBuf,
}

#[derive(Args, Debug, Default, PartialEq, Eq)]
pub struct DistOptions {
    #[command(flatten)]
    pub postgres: Postgres,
    /// Install the packages on clean systems, use, upgrade and remove them; with --image start PostgreSQL 18 with it
    #[arg(long)]
    pub check: bool,
    /// A system for --check, by its codename; without: this one and Debian 13. Ubuntu's need a mirror:
    /// noble=http://archive.ubuntu.com/ubuntu
    #[arg(long, value_name = "CODENAME[=MIRROR]", requires = "check", conflicts_with = "image")]
    pub on: Vec<CleanSystem>,
    /// Compile again in another folder: the packages must have the same bytes
    #[arg(long, conflicts_with_all = ["image", "quick"])]
    pub twice: bool,
    /// Pack what is built already; with --image compile as the demo does
    #[arg(long)]
    pub quick: bool,
    /// Make the content of CloudNativePG's extension image instead of packages
    #[arg(long)]
    pub image: bool,
}

/// A release of Debian or Ubuntu to try packages on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanSystem {
    pub codename: String,
    pub mirror: Option<String>,
}

impl FromStr for CleanSystem {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (codename, mirror) = match text.split_once('=') {
            Some((codename, mirror)) => (codename, Some(mirror.to_owned())),
            None => (text, None),
        };
        let is_name = !codename.is_empty() && codename.bytes().all(|byte| byte.is_ascii_lowercase());
        let is_address = mirror.as_ref().is_none_or(|mirror| mirror.contains("://"));
        if is_name && is_address {
            Ok(Self { codename: codename.to_owned(), mirror })
        } else {
            Err("not a codename, or CODENAME=MIRROR".to_owned())
        }
    }
}

#[derive(Args, Debug, Default, PartialEq, Eq)]
pub struct TestOptions {
    /// fmt, clippy, versions, unit, integration, database (integration tests but those of daemons and documents), a file of tests/tests, or a
    /// part of a test's name, on the PostgreSQL found; pgvector (pgvector's own regression and TAP tests, with every hnsw index built
    /// externally); neon (the distance kernels for aarch64, cross-compiled and emulated); aarch64 (those kernels, and builds with them; with
    /// --pg, builds in an emulated PostgreSQL); kubernetes (builders as pods, on a control plane built from Go sources once). The last four are
    /// not part of a whole run
    pub name: Option<String>,
    /// On this release only; 17 and 18 are fetched from Debian if not here
    #[arg(long, value_name = "N")]
    pub pg: Option<u32>,
    /// With this release of pgvector instead of the one found, compiled from Debian's source or `PGVECTOR_SOURCE`
    #[arg(long, value_name = "VERSION")]
    pub pgvector: Option<String>,
}

impl TestOptions {
    /// Refuses options that the named part would ignore.
    pub fn check(&self) -> Result<()> {
        let takes_pg = !matches!(self.name.as_deref(), Some("fmt" | "clippy" | "versions" | "unit" | "neon"));
        let takes_pgvector = takes_pg && self.name.as_deref() != Some("aarch64");
        for (option, given, taken) in
            [("--pg", self.pg.is_some(), takes_pg), ("--pgvector", self.pgvector.is_some(), takes_pgvector)]
        {
            ensure!(taken || !given, "`test {}` takes no {option}", self.name.as_deref().unwrap_or_default());
        }
        Ok(())
    }
}

/// Arguments that another program parses, `--help` among them.
#[derive(Args, Debug, Default, PartialEq, Eq)]
#[command(disable_help_flag = true)]
pub struct Words {
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use serde_json::Value;

    use super::*;

    fn parse(line: &str) -> Result<Task, clap::Error> {
        Arguments::try_parse_from(["xtask"].into_iter().chain(line.split_whitespace())).map(|all| all.task)
    }

    #[test]
    fn a_clean_system_may_have_a_mirror() {
        let noble =
            CleanSystem { codename: "noble".to_owned(), mirror: Some("http://mirror.example/ubuntu".to_owned()) };
        let trixie = CleanSystem { codename: "trixie".to_owned(), mirror: None };
        let check = DistOptions { check: true, on: vec![trixie, noble], ..DistOptions::default() };
        assert_eq!(
            parse("dist --check --on trixie --on noble=http://mirror.example/ubuntu").unwrap(),
            Task::Dist(check)
        );
    }

    #[test]
    fn arguments_of_other_programs_are_passed_on_unparsed() {
        let words = |line: &str| Words { words: line.split_whitespace().map(str::to_owned).collect() };
        assert_eq!(parse("bench").unwrap(), Task::Bench(Words::default()));
        assert_eq!(parse("bench --help").unwrap(), Task::Bench(words("--help")));
        assert_eq!(parse("bench hard crowd --rows 100").unwrap(), Task::Bench(words("hard crowd --rows 100")));
        assert_eq!(parse("chaos --seed 7 --help").unwrap(), Task::Chaos(words("--seed 7 --help")));
    }

    /// What the steps of workflows run, with the file's name.
    fn scripts() -> Vec<(String, String)> {
        let files =
            fs::read_dir(harness::root().join(".github/workflows")).unwrap().flatten().map(|entry| entry.path());
        let mut scripts = vec![(".ci/run".to_owned(), fs::read_to_string(harness::root().join(".ci/run")).unwrap())];
        for file in files {
            let workflow: Value = serde_yaml_ng::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            for job in workflow["jobs"].as_object().unwrap().values() {
                let runs = job["steps"].as_array().unwrap().iter().filter_map(|step| step["run"].as_str());
                scripts.extend(runs.map(|run| (file.display().to_string(), run.to_owned())));
            }
        }
        scripts
    }

    #[test]
    fn workflows_run_existing_tasks_in_valid_scripts() {
        let mut tasks = 0;
        for (file, script) in scripts() {
            for line in script.lines().filter_map(|line| line.trim().strip_prefix("cargo xtask ")) {
                assert!(parse(line).is_ok(), "{file}: cargo xtask {line}");
                tasks += 1;
            }
            let shell = if script.starts_with("#!") { "bash" } else { "sh" };
            let shell = Command::new(shell).args(["-n", "-c", &script]).output().unwrap();
            assert!(shell.status.success(), "{file}: {}", String::from_utf8_lossy(&shell.stderr));
            for path in script.split_whitespace().filter(|word| word.starts_with(".ci/")) {
                assert!(harness::root().join(path).is_file(), "{file}: {path}");
            }
        }
        assert_eq!(tasks, 5);
    }

    #[test]
    fn commands_are_taken_as_documented() {
        let commands = harness::documented_commands("cargo xtask").unwrap();
        assert!(commands.len() > 30, "few commands are found: {commands:?}");
        for command in commands {
            let parsed = Arguments::try_parse_from(std::iter::once("xtask".to_owned()).chain(command.shown.clone()));
            assert!(parsed.is_ok(), "{command:?}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn options_that_a_part_ignores_are_refused() {
        let check = |line: &str| match parse(line).unwrap() {
            Task::Test(options) => options.check().map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        };
        assert_eq!(check("test unit --pg 18").unwrap_err(), "`test unit` takes no --pg");
        assert_eq!(check("test aarch64 --pgvector 0.8.6").unwrap_err(), "`test aarch64` takes no --pgvector");
        for line in ["test fmt --pg 17", "test clippy --pg 18", "test versions --pgvector 0.8.6", "test neon --pg 18"] {
            assert!(check(line).is_err(), "{line}");
        }
        for line in ["test --pg 18 --pgvector 0.8.6", "test aarch64 --pg 18", "test pgvector --pg 18", "test unit"] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "test a b",
            "demo --rows",
            "demo --rows many",
            "test --keep",
            "demo --pg 17",
            "dist --on trixie",
            "dist --check --on Trixie",
            "dist --check --on noble=mirror",
            "dist --image --twice",
            "test --pg no",
            "setup --fast",
            "setup --check",
            "uninstall --keep",
            "test --replace-pgvector",
            "dance",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
