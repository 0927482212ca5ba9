//! After "Load vector embeddings up to 67x faster with pgvector and Amazon Aurora": loads tables and indexes them, as
//! vectors, as halfvec and binary-quantised.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use harness::{Builder, Session, copy_rows, cores, step};

use super::super::contest::{alternate, median};
use super::super::indexed;
use super::super::options::Case;
use super::super::set::Set;
use super::super::stage::INDEX;
use super::ask;
use super::ground::Ground;
use super::section::Section;

mod form;
mod report;

use form::{Form, Place};

/// The value in the document.
const M: u32 = 16;
const EF_CONSTRUCTION: u32 = 256;
const EF_SEARCH: u32 = 256;

const ROWS: usize = 20_000;
const DIMS: usize = 768;
const QUERIES: usize = 200;
const ROUNDS: usize = 1;

/// Cost and quality of an index, as medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Built {
    seconds: f64,
    /// The size of the index in bytes.
    size: f64,
    recall: f64,
}

/// A set that was loaded once and indexed in all ways.
struct Measured {
    title: String,
    /// Seconds of COPY and ANALYZE.
    load: f64,
    built: Vec<((Form, Place), Built)>,
}

pub fn measure(ground: &Ground) -> Result<Section> {
    let sizes = &ground.sizes;
    let dims = sizes.dims.clone().unwrap_or_else(|| vec![DIMS]);
    let mut all = Vec::new();
    for dims in dims {
        let (rows, queries) = (sizes.rows.unwrap_or(ROWS), sizes.queries.unwrap_or(QUERIES));
        let set = ground.set(&format!("synthetic-{dims}"), rows, queries)?;
        all.push(of_set(ground, &set)?);
    }
    Ok(report::section(&all))
}

fn of_set(ground: &Ground, set: &Set) -> Result<Measured> {
    let sizes = &ground.sizes;
    let (cluster, builder) = (ground.cluster("")?, ground.builder(&[])?);
    let mut session = cluster.database("load")?;
    let start = Instant::now();
    step::timed("loading", || copy_rows(&mut session, "items", set.column, &set.base))?;
    let load = start.elapsed().as_secs_f64();
    let workers = (cores() - 1).max(1);
    session.execute(&format!("ALTER TABLE items SET (parallel_workers = {workers})"))?;
    session.execute("SET client_min_messages = notice")?;
    let case = Case { m: sizes.m.unwrap_or(M), ef_construction: sizes.ef_construction.unwrap_or(EF_CONSTRUCTION) };
    session.execute(&Ground::build_settings(set, case.m, cores()))?;
    let literals = ask::literals(&set.queries);
    let contestants: Vec<(Form, Place)> =
        Form::ALL.into_iter().flat_map(|form| Place::ALL.map(|place| (form, place))).collect();
    let rounds = alternate(sizes.rounds.unwrap_or(ROUNDS), &contestants, |_, &(form, place)| {
        let seconds = create(&mut session, &builder, &form.key(set.base.dims()), place, case)?;
        let size = session.value(&format!("SELECT pg_relation_size('{INDEX}')"))?;
        let recall = search(&mut session, form, set, &literals)?;
        session.execute(&format!("DROP INDEX {INDEX}"))?;
        println!("{}, {}: {seconds:.2} s, recall {recall:.4}", form.name(), place.name());
        Ok(Built { seconds, size, recall })
    })?;
    let middle = |rounds: &[Built]| {
        let of = |get: fn(&Built) -> f64| median(rounds.iter().map(get)).unwrap_or_default();
        Built { seconds: of(|built| built.seconds), size: of(|built| built.size), recall: of(|built| built.recall) }
    };
    let built = contestants.into_iter().zip(rounds.iter().map(|rounds| middle(rounds))).collect();
    Ok(Measured { title: format!("{} rows x {}", set.base.rows(), set.base.dims()), load, built })
}

/// Builds the index and returns the seconds.
fn create(session: &mut Session, builder: &Builder, key: &str, place: Place, case: Case) -> Result<f64> {
    let workers = if place == Place::Parallel { (cores() - 1).max(1) } else { 0 };
    builder.attach(session)?;
    session.execute(&format!("SET max_parallel_maintenance_workers = {workers}"))?;
    session.execute("CHECKPOINT")?;
    Ok(indexed::create(session, &indexed::statement("items", key, case, place == Place::External))?.seconds)
}

fn search(session: &mut Session, form: Form, set: &Set, literals: &[String]) -> Result<f64> {
    session.execute(&format!("SET hnsw.ef_search = {EF_SEARCH}; SET enable_seqscan = off"))?;
    let statements: Vec<String> = literals.iter().map(|query| form.search(set.base.dims(), query, EF_SEARCH)).collect();
    let plan = session.plan(statements.first().context("no queries")?)?;
    ensure!(plan.contains(&format!("Index Scan using {INDEX}")), "the plan does not use the index:\n{plan}");
    let recall = ask::recall(session, &statements, &set.exact)?;
    session.execute("RESET enable_seqscan")?;
    Ok(recall)
}
