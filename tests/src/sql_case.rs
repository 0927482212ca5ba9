//! SQL cases: each runs once with external builds and once without, and the results must agree. See `tests/sql/README.md`.

mod outcome;
mod run;
mod script;
mod search;

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::{Builder, Cluster, root};

use outcome::Outcome;

/// Where the indexes of a run are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BuildIn {
    /// By a builder.
    External,
    /// By pgvector, in the database.
    Database,
}

impl BuildIn {
    fn name(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Database => "database",
        }
    }
}

/// The names of the files in `tests/sql`, without `.sql`.
pub fn sql_case_names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("tests/sql")).context("cannot read tests/sql")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".sql").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Runs `tests/sql/NAME.sql` both ways and compares the outcomes.
///
/// # Errors
/// A statement does not do what the file expects, or the runs differ.
pub fn compare_sql_case(cluster: &Cluster, builder: &Builder, name: &str) -> Result<()> {
    let path = root().join("tests/sql").join(format!("{name}.sql"));
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let steps = script::parse(&text).with_context(|| format!("{name}.sql"))?;
    ensure!(steps.iter().any(|step| step.search.is_some() || step.fails.is_some()), "{name}.sql checks nothing");

    let runs = [BuildIn::External, BuildIn::Database].map(|build_in| -> Result<Vec<Outcome>> {
        let database = format!("{name}_{}", build_in.name());
        let mut session = cluster.database(&database)?;
        if build_in == BuildIn::External {
            // Set for the database, so that all sessions and roles use it.
            for (setting, value) in [
                ("", "on".to_owned()),
                ("_host", format!("'{}'", builder.address().ip())),
                ("_port", builder.address().port().to_string()),
                ("_sslrootcert", format!("'{}'", builder.certificate().display())),
            ] {
                session.execute(&format!("ALTER DATABASE {database} SET hnsw.external_index{setting} = {value}"))?;
            }
        }
        drop(session);
        let outcomes = run::run(cluster, &database, build_in, &steps)
            .with_context(|| format!("{name}.sql, built in: {}", build_in.name()))?;
        cluster.session("postgres")?.execute(&format!("DROP DATABASE {database} WITH (FORCE)"))?;
        Ok(outcomes)
    });
    let [external, database] = runs;
    // If both failed, show both errors.
    let (external, database) = match (external, database) {
        (Ok(external), Ok(database)) => (external, database),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => return Err(error),
        (Err(external), Err(database)) => bail!("{external:#}\nand {database:#}"),
    };
    let mut recalls = Vec::new();
    for ((step, external), database) in steps.iter().zip(&external).zip(&database) {
        external.compare(database).with_context(|| format!("{name}.sql, line {}: {}", step.line, step.sql))?;
        recalls.extend(external.recall().zip(database.recall()));
    }
    let recalls: Vec<String> = recalls.iter().map(|(ours, stock)| format!("{ours:.4} ({stock:.4})")).collect();
    println!("{name}: recall external (in the database): {}", recalls.join(", "));
    Ok(())
}
