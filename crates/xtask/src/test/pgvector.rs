//! pgvector's own tests, with every hnsw index built externally: their output may differ only in pgvector's messages about its own
//! builds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use harness::{Account, Builder, BuilderOptions, Cluster, PgConfig, Scratch, pgvector_version};

mod output;

use crate::{apt, pgvector, step};

/// Runs its regression tests and those of its TAP tests that concern hnsw.
pub fn run(config: &PgConfig, program: PathBuf) -> Result<()> {
    let version = pgvector_version(config).context("there is no pgvector")?;
    if !has_ipc_run() {
        apt::install(&["libipc-run-perl".to_owned()])?;
    }
    let source = pgvector::source(&version)?;
    let suite = Suite::new(config, &source, program)?;
    println!("\nPostgreSQL {}, pgvector {version}, each hnsw index built externally", config.version);
    let mut findings = suite.regression()?;
    findings.extend(suite.tap()?);
    let builds = suite.builder.metric("lantern_index_builds_total")?;
    println!("\n{builds} external builds, {} findings", findings.len());
    findings.iter().for_each(|finding| println!("\n{finding}"));
    ensure!(builds > 0.0, "no build was external");
    ensure!(findings.is_empty(), "some of pgvector's tests differ");
    Ok(())
}

/// Whether Perl has IPC::Run, which `PostgreSQL::Test` needs. That module itself comes with PostgreSQL's headers.
fn has_ipc_run() -> bool {
    step::output(Command::new("perl").args(["-MIPC::Run", "-e", "1"])).is_ok()
}

/// pgvector's tests, in a folder that PostgreSQL's account may write to.
struct Suite<'a> {
    config: &'a PgConfig,
    account: Option<Account>,
    builder: Builder,
    settings: String,
    scratch: Scratch,
}

impl<'a> Suite<'a> {
    fn new(config: &'a PgConfig, source: &Path, program: PathBuf) -> Result<Self> {
        let builder = Builder::start_with(&BuilderOptions::default().by(program))?;
        let settings = format!("{}hnsw.external_index = on\n", builder.settings());
        let scratch = Scratch::new("pgvector", 0o755)?;
        let account = Account::for_postgres()?;
        step::output(Command::new("cp").arg("-R").arg(source.join("test")).arg(scratch.path()))?;
        for folder in ["out", "tmp"] {
            fs::create_dir(scratch.path().join(folder))?;
        }
        fs::write(
            scratch.path().join("external.conf"),
            // A container's /dev/shm is small.
            format!("{settings}dynamic_shared_memory_type = mmap\n"),
        )?;
        if let Some(account) = account {
            for folder in ["", "out", "tmp"] {
                account.own(&scratch.path().join(folder))?;
            }
        }
        Ok(Self { config, account, builder, settings, scratch })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let path = format!("{}:{}", self.config.bindir.display(), env::var("PATH").unwrap_or_default());
        command.current_dir(self.scratch.path()).env("PATH", path).env("LC_ALL", "C").env_remove("PGPORT");
        if let Some(account) = self.account {
            account.apply(&mut command);
        }
        command
    }

    /// PostgreSQL's folder of what tests need.
    fn postgres_tests(&self) -> PathBuf {
        self.config.pkglibdir.join("pgxs/src/test")
    }

    /// Compares what each script prints.
    fn regression(&self) -> Result<Vec<String>> {
        let cluster = Cluster::start_with(self.config.clone(), &self.settings)?;
        let names = names(&self.path("test/sql"), "sql")?;
        let mut regress = self.command(&self.postgres_tests().join("regress/pg_regress"));
        // A script writes files to `results/` and reads them again.
        regress.current_dir(self.path("out"));
        regress.arg(format!("--inputdir={}", self.path("test").display()));
        regress.arg(format!("--outputdir={}", self.path("out").display()));
        regress.arg(format!("--bindir={}", self.config.bindir.display()));
        regress.arg(format!("--host={}", cluster.dir().display()));
        regress.args(["--port=5432", "--user=postgres", "--load-extension=vector"]).args(&names);
        let said = step::timed("pgvector's regression tests", || Ok(regress.output()?))?;
        let mut findings = Vec::new();
        for name in &names {
            let text = |path: String| {
                fs::read_to_string(self.path(&path))
                    .with_context(|| format!("pg_regress left no {path}:\n{}", String::from_utf8_lossy(&said.stdout)))
            };
            let expected = text(format!("test/expected/{name}.out"))?;
            let printed = text(format!("out/results/{name}.out"))?;
            findings.extend(output::difference(&expected, &printed).map(|lines| format!("{name}.sql\n{lines}")));
        }
        println!("{} scripts: {} print something else", names.len(), findings.len());
        Ok(findings)
    }

    /// Runs the Perl programs.
    fn tap(&self) -> Result<Vec<String>> {
        let mut findings = Vec::new();
        for name in names(&self.path("test/t"), "pl")?.iter().filter(|name| name.contains("hnsw")) {
            let mut perl = self.command(Path::new("perl"));
            perl.arg("-I").arg(self.postgres_tests().join("perl")).arg(format!("test/t/{name}.pl"));
            perl.env("TESTDIR", self.path("tmp"))
                .env("TESTDATADIR", self.path("tmp"))
                .env("TESTLOGDIR", self.path("tmp"));
            perl.env("PG_REGRESS", self.postgres_tests().join("regress/pg_regress"));
            perl.env("TEMP_CONFIG", self.path("external.conf")).env("HOME", self.path("tmp"));
            let log = self.path("out").join(format!("{name}.log"));
            let file = fs::File::create(&log)?;
            perl.stdout(file.try_clone()?).stderr(file);
            let status = step::timed(name, || perl.status().context("cannot run perl"))?;
            let text = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
            let judged = output::judge(&String::from_utf8_lossy(&text), status.success());
            println!("{name}: {judged}");
            findings.extend(judged.findings.into_iter().map(|finding| format!("{name}.pl\n{finding}")));
        }
        Ok(findings)
    }
}

/// The files of a folder, without their extension.
fn names(dir: &Path, extension: &str) -> Result<Vec<String>> {
    let files = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let paths = files.flatten().map(|entry| entry.path());
    let paths = paths.filter(|path| path.extension().is_some_and(|own| own == extension));
    let mut names: Vec<String> = paths.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort_unstable();
    ensure!(!names.is_empty(), "{} has no tests", dir.display());
    Ok(names)
}
