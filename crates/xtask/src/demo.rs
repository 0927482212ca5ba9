use anyhow::{Result, ensure};
use harness::{Builder, BuilderOptions, Cluster, Column, Metric, copy_rows, data_set, exact_neighbors};

use crate::arguments::DemoOptions;
use crate::build::Profile;
use crate::{build, install, setup, step};

mod measure;
mod table;

use measure::{Measured, Place};

/// ef_search values at which recall is compared.
const EF_SEARCH: [u32; 3] = [40, 100, 200];
/// By how much the external index's recall may be below that of the index built in the database.
const MARGIN: f64 = 0.01;
const NEIGHBORS: usize = 10;

/// Builds the same index in the database and outside of it, and compares.
pub fn run(options: &DemoOptions) -> Result<()> {
    let (base, queries) = data_set("minilm-384")?;
    let rows = options.rows.unwrap_or(base.rows());
    ensure!((100..=base.rows()).contains(&rows), "--rows: the sample has {} rows, take at least 100", base.rows());
    let base = base.truncated(rows);

    let config = setup::run(None, options.pgvector.replace)?;
    install::check_rights(&config)?;
    let program = build::demo_program()?;
    install::install(&config, Profile::Demo)?;

    let builder = Builder::start_with(&BuilderOptions::default().by(program))?;
    println!("\nA builder listens on {} (TLS), its status on http://{}/", builder.address(), builder.status_address());
    let start = || Cluster::start_with(config, &builder.settings());
    let cluster = step::timed("starting a throw-away PostgreSQL cluster", start)?;
    let mut session = cluster.database("demo")?;

    step::timed(&format!("loading {rows} sentence embeddings of {} dimensions", base.dims()), || {
        copy_rows(&mut session, "items", Column::Vector, &base)?;
        copy_rows(&mut session, "queries", Column::Vector, &queries)?;
        Ok(session.execute("CHECKPOINT")?)
    })?;
    let exact = step::timed(&format!("finding the true neighbors of {} queries", queries.rows()), || {
        Ok(exact_neighbors(&base, &queries, Metric::Cosine, NEIGHBORS))
    })?;

    let stage = measure::Stage { cluster: &cluster, builder: &builder, exact: &exact };
    let inside = stage.measure(&mut session, Place::Database)?;
    session.execute("DROP INDEX items_v_idx")?;
    let outside = stage.measure(&mut session, Place::Builder)?;

    println!("\n{}", table::render(rows, &inside, &outside));
    let verdict = verdict(&inside, &outside);
    if let Ok(sentence) = &verdict {
        println!("\n{sentence}");
    }
    drop(session);
    if options.keep {
        let psql =
            format!("{} -h {} -U postgres demo", cluster.config().program("psql").display(), cluster.dir().display());
        println!("\nStill running. To look around:\n    {psql}\nTo stop it:");
        println!("    {}\n    {}", cluster.keep(), builder.keep());
    }
    verdict.map(drop)
}

/// The comparison of recalls in a sentence; an error if the external index's is more than [`MARGIN`] lower at some `ef_search`.
fn verdict(inside: &Measured, outside: &Measured) -> Result<String> {
    for ((ef, inside), outside) in EF_SEARCH.iter().zip(&inside.recall).zip(&outside.recall) {
        ensure!(
            *outside >= inside - MARGIN,
            "At ef_search {ef} the external index has recall {outside:.3}, more than {MARGIN} below \
             the {inside:.3} of the index built in the database."
        );
    }
    Ok(format!(
        "The external index's recall is within {MARGIN} of that of the index built in the database, or better, at each \
         ef_search ({}).",
        EF_SEARCH.map(|ef| ef.to_string()).join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recall_lower_by_more_than_the_margin_is_an_error() {
        let with = |recall: [f64; 3]| Measured { recall: recall.to_vec(), ..Measured::default() };
        let inside = with([0.95, 0.97, 0.99]);
        assert!(verdict(&inside, &with([0.945, 0.975, 0.981])).is_ok());
        let error = verdict(&inside, &with([0.95, 0.97, 0.979])).unwrap_err().to_string();
        assert!(error.starts_with("At ef_search 200 "), "{error}");
    }
}
