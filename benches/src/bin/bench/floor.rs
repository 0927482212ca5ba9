use std::time::Instant;

use anyhow::Result;
use harness::{Builder, BuilderOptions};

use super::contest::{alternate, median};
use super::markdown::Table;
use super::options::{BenchOptions, Case};
use super::stage::{INDEX, Stage, create_index};

/// The unavoidable work, and the build that is compared with it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    /// Reading the column out of the database.
    Copy,
    /// Writing and logging the pages of the finished index: PostgreSQL copies them to another tablespace.
    Pages,
    /// The whole build, with encryption or without.
    External { tls: bool },
}

impl Work {
    const ALL: [Self; 4] = [Self::Copy, Self::Pages, Self::External { tls: true }, Self::External { tls: false }];

    fn name(self) -> &'static str {
        match self {
            Self::Copy => "COPY of the column out",
            Self::Pages => "writing and logging the same pages",
            Self::External { tls: true } => "CREATE INDEX, external",
            Self::External { tls: false } => "the same without TLS",
        }
    }
}

/// The whole build against what the database has to do in any case.
pub fn measure(stage: &mut Stage<'_>, options: &BenchOptions) -> Result<Table> {
    let case = options.cases()[0];
    let plain = Builder::start_with(&BuilderOptions {
        program: Some(stage.tools.program.clone()),
        tls: false,
        ..BuilderOptions::default()
    })?;
    stage.session.execute("SET allow_in_place_tablespaces = on")?;
    stage.session.execute("CREATE TABLESPACE elsewhere LOCATION ''")?;
    let rounds = alternate(options.rounds, &Work::ALL, |_, &work| run(stage, work, case, &plain))?;
    let medians: Vec<f64> = rounds.iter().map(|rounds| median(rounds.iter().copied()).unwrap_or_default()).collect();
    let floor = medians[0] + medians[1];
    let mut table = Table::new(&[&case.to_string(), "seconds", "times the floor"]);
    for (work, seconds) in Work::ALL.iter().zip(&medians) {
        table.row([work.name().to_owned(), format!("{seconds:.3}"), format!("{:.2}", seconds / floor)]);
    }
    Ok(table)
}

fn run(stage: &mut Stage<'_>, work: Work, case: Case, plain: &Builder) -> Result<f64> {
    let seconds = match work {
        Work::Copy => timed(stage, "COPY (SELECT v FROM items) TO STDOUT (FORMAT binary)")?,
        Work::Pages => {
            stage.create_index(super::peer::Peer::External, case)?;
            stage.session.execute("CHECKPOINT")?;
            timed(stage, &format!("ALTER INDEX {INDEX} SET TABLESPACE elsewhere"))?
        }
        Work::External { tls: true } => stage.create_index(super::peer::Peer::External, case)?.seconds,
        Work::External { tls: false } => {
            create_index(&stage.cluster, &mut stage.session, stage.set, Some(plain), case)?.seconds
        }
    };
    stage.session.execute(&format!("DROP INDEX IF EXISTS {INDEX}"))?;
    Ok(seconds)
}

fn timed(stage: &mut Stage<'_>, sql: &str) -> Result<f64> {
    let start = Instant::now();
    stage.session.execute(sql)?;
    Ok(start.elapsed().as_secs_f64())
}
