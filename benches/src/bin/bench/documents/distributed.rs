//! After "Distributed queries for pgvector": one node compared with two nodes behind a head with postgres_fdw and a partitioned table.

use std::time::Duration;

use anyhow::{Result, ensure};
use harness::{Builder, BuilderOptions};

use super::super::options::Case;
use super::super::set::Set;
use super::ask;
use super::ground::Ground;
use super::section::Section;

mod builds;
mod nodes;
mod query;
mod report;

use builds::Builds;
use nodes::{Head, Node};
use query::Form;

/// The value in the document.
const M: u32 = 16;
const EF_CONSTRUCTION: u32 = 256;
const EF_SEARCH: [u32; 8] = [10, 20, 40, 80, 120, 200, 400, 800];

/// The sets, and the rows of a synthetic one.
const SETS: [&str; 2] = ["glove-100", "synthetic-960"];
const ROWS: usize = 15_000;
const QUERIES: usize = 200;
const SECONDS: u64 = 1;

/// Results of searches at one ef_search.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Searched {
    form: Form,
    ef_search: u32,
    recall: f64,
    per_second: f64,
}

/// Results for a set on one node and on two.
struct Measured {
    title: String,
    builds: Builds,
    searched: Vec<Searched>,
    is_cut: bool,
}

pub fn measure(ground: &Ground) -> Result<Section> {
    ensure!(ground.tools.config.major >= 15, "PostgreSQL 15 or newer is wanted, whose head asks both nodes at once");
    let sizes = &ground.sizes;
    let synthetic = |dims: &Vec<usize>| dims.iter().map(|dims| format!("synthetic-{dims}")).collect();
    let sets: Vec<String> = sizes.dims.as_ref().map_or_else(|| SETS.map(str::to_owned).into(), synthetic);
    let (rows, queries) = (sizes.rows.unwrap_or(ROWS), sizes.queries.unwrap_or(QUERIES));
    let all = sets.iter().map(|name| of_set(ground, &ground.set(name, rows, queries)?));
    Ok(report::section(&all.collect::<Result<Vec<_>>>()?))
}

fn of_set(ground: &Ground, set: &Set) -> Result<Measured> {
    let sizes = &ground.sizes;
    let mut single = Node::start(ground, set)?;
    let mut nodes = [Node::start(ground, set)?, Node::start(ground, set)?];
    let mut head = Head::start(ground, set, &nodes)?;
    single.fill(set)?;
    head.fill(set)?;
    nodes.iter_mut().try_for_each(|node| node.session.execute("ANALYZE items"))?;
    let options = BuilderOptions::router(&["--max-builders", "2"]).by(&ground.tools.program);
    let router = Builder::start_with(&options)?;
    let case = Case { m: sizes.m.unwrap_or(M), ef_construction: sizes.ef_construction.unwrap_or(EF_CONSTRUCTION) };
    let builds = builds::measure(&mut single, &mut nodes, &router, set, case)?;

    let literals = ask::literals(&set.queries);
    let mut measured = Measured { title: set.title(), builds, searched: Vec::new(), is_cut: false };
    for &ef_search in sizes.ef_search.as_deref().unwrap_or(&EF_SEARCH) {
        single.session.execute(&format!("SET hnsw.ef_search = {ef_search}"))?;
        head.set_ef_search(ef_search)?;
        for form in Form::ALL {
            measured.is_cut |= ground.is_over();
            if measured.is_cut {
                break;
            }
            let session = if form == Form::OneNode { &mut single.session } else { &mut head.session };
            let statements: Vec<String> = literals.iter().map(|query| form.statement(set.metric, query)).collect();
            form.check_plan(session, &statements[0])?;
            let recall = ask::recall(session, &statements, &set.exact)?;
            let time = Duration::from_secs(sizes.seconds.unwrap_or(SECONDS));
            let per_second = ask::per_second(session, &statements, time)?;
            println!("{}, ef_search {ef_search}: recall {recall:.4}, {per_second:.0} per second", form.name());
            measured.searched.push(Searched { form, ef_search, recall, per_second });
        }
    }
    Ok(measured)
}
