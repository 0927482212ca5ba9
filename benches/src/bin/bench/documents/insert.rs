//! Inserts per second into an index built externally, and into one built in the database.

use anyhow::{Result, ensure};
use harness::{Vectors, copy_rows, exact_neighbors, step, synthetic};

use super::super::NEIGHBORS;
use super::super::contest::median;
use super::super::markdown::Table;
use super::super::options::Case;
use super::super::set::{SEED, Set};
use super::super::stage::DATABASE;
use super::ground::Ground;
use super::pgbench::{Amount, Load, each};
use super::section::Section;
use super::twins::{Twin, Twins};
use plot::{From, Plot, Scale, Series};

const SOURCE: &str = "Theirs: Jonathan Katz, *Accelerate HNSW indexing and searching with pgvector on Amazon RDS for PostgreSQL* \
(AWS Database Blog): inserts per second of random vectors into an index that is empty at first, pgvector 0.5.1, m = 16, \
ef_construction 64, L2, db.m7g.16xlarge (64 cores), 15 minutes for each figure.";

/// The document's inserts per second by number of clients, on m7g.16xlarge with pgvector 0.5.1.
const THEIRS: [(usize, [u32; 7]); 2] =
    [(128, [309, 541, 950, 1683, 3051, 5489, 8960]), (1536, [71, 130, 238, 442, 772, 1039, 1031])];
const THEIR_CLIENTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const EF_SEARCH: u32 = 40;
pub fn measure(ground: &Ground) -> Result<Section> {
    let sizes = &ground.sizes;
    let mut section = Section::new("inserts per second, by clients", SOURCE);
    let head = THEIR_CLIENTS.map(|clients| format!("clients: {clients}"));
    let mut theirs = Table::new(["dimensions".to_owned()].into_iter().chain(head));
    for (dims, rates) in THEIRS {
        theirs.row([dims.to_string()].into_iter().chain(rates.map(|rate| rate.to_string())));
    }
    section.theirs("inserts per second", theirs);
    for &dims in sizes.dims.as_deref().unwrap_or(&[128, 1536]) {
        of_dimensions(ground, dims, &mut section)?;
    }
    section.text(
        "What differs: their index is empty at first and theirs alone, ours holds rows already, since the question is what inserts cost after \
         an external build; few rows, few clients, and clients that share the cores with the database. Rows come from another table and are \
         sentence embeddings in kind (clusters in a space of fewer dimensions), not independent random numbers. Both tables get the same rows; \
         they take turns. fsync is off, so that figures are of the processor's work and not of a disk's.",
    );
    Ok(section)
}

fn of_dimensions(ground: &Ground, dims: usize, section: &mut Section) -> Result<()> {
    let sizes = &ground.sizes;
    let is_large = dims > 512;
    let rows = sizes.rows.unwrap_or(if is_large { 6_000 } else { 20_000 });
    let transactions = sizes.transactions.unwrap_or(if is_large { 600 } else { 2_000 });
    let clients = sizes.clients.clone().unwrap_or(vec![1, 2, 4, 8]);
    let rounds = sizes.rounds.unwrap_or(2);
    let case = Case { m: sizes.m.unwrap_or(16), ef_construction: sizes.ef_construction.unwrap_or(64) };

    let set = ground.set(&format!("synthetic-{dims}"), rows, sizes.queries.unwrap_or(500))?;
    let each_round: usize = clients.iter().map(|&clients| clients * each(transactions, clients)).sum();
    let (all, _) = synthetic(rows + each_round * rounds, 1, dims, SEED);
    let twins = Twins::new(ground, &set, case)?;
    let before = Twin::ALL.map(|twin| twins.recall(&set, &set.exact, &twin.table(), EF_SEARCH));
    load_pool(&twins, &set, &all)?;

    let what = format!("{} inserts into each of two tables", each_round * rounds);
    let rates = step::timed(&what, || {
        let mut rates: Vec<[Vec<f64>; 2]> = vec![Default::default(); clients.len()];
        for round in 0..rounds {
            if ground.is_over() {
                break;
            }
            for (at, &clients) in clients.iter().enumerate() {
                // When compared, both tables have the same number of rows; they take turns in being first.
                for twin in [round % 2, 1 - round % 2] {
                    rates[at][twin].push(inserts_per_second(&twins, &Twin::ALL[twin].table(), clients, transactions)?);
                }
            }
        }
        Ok(rates)
    })?;

    let done = rates.first().map_or(0, |rates| rates[0].len());
    let inserted = done * each_round;
    let mut session = twins.session()?;
    for table in Twin::ALL.map(Twin::table) {
        let count: usize = session.value(&format!("SELECT count(*) FROM {table}"))?;
        ensure!(count == rows + inserted, "{table} has {count} rows instead of {}", rows + inserted);
    }
    let exact = exact_neighbors(&all.truncated(rows + inserted), &set.queries, set.metric, NEIGHBORS);
    let after = Twin::ALL.map(|twin| twins.recall(&set, &exact, &twin.table(), EF_SEARCH));

    let mut head = vec![format!("{}, index built", set.title()), "build, s".to_owned(), "recall@10".to_owned()];
    head.extend(clients.iter().map(|clients| format!("clients: {clients}")));
    head.push("recall@10 after".to_owned());
    let mut table = Table::new(head);
    let middle = |at: usize, twin: usize| median(rates[at][twin].iter().copied()).unwrap_or_default();
    for (twin, (before, after)) in before.into_iter().zip(after).enumerate() {
        let rates = (0..clients.len()).map(|at| format!("{:.0}", middle(at, twin)));
        let (name, seconds) = (Twin::ALL[twin].name(), twins.built[twin].seconds);
        let start = [name.to_owned(), format!("{seconds:.2}"), format!("{:.4}", before?)];
        table.row(start.into_iter().chain(rates).chain([format!("{:.4}", after?)]));
    }
    let ratios = (0..clients.len()).map(|at| format!("{:.2}", middle(at, 0) / middle(at, 1)));
    table.row(["external / database".to_owned(), String::new(), String::new()].into_iter().chain(ratios));
    section.ours(
        &format!(
            "inserts per second, medians of {done} times {transactions} inserts; recall at ef_search {EF_SEARCH} before and after {inserted} inserts"
        ),
        table,
    );
    let series = Twin::ALL.iter().enumerate().map(|(twin, which)| Series {
        name: which.name().to_owned(),
        points: clients
            .iter()
            .enumerate()
            .map(|(at, &clients)| (clients as f64, middle(at, twin), String::new()))
            .collect(),
        ..Series::default()
    });
    section.plot(
        &dims.to_string(),
        Plot {
            title: format!("Inserts per second, {}", set.title()),
            x: "clients".to_owned(),
            y: "inserts per second".to_owned(),
            x_scale: Scale::Logarithmic,
            y_from: From::Zero,
            series: series.collect(),
            ..Plot::default()
        },
    );
    Ok(())
}

/// Makes a table with all rows, and for each twin a sequence with the next row to insert.
fn load_pool(twins: &Twins, set: &Set, all: &Vectors) -> Result<()> {
    let mut session = twins.session()?;
    copy_rows(&mut session, "pool", set.column, all)?;
    session.execute("CREATE UNIQUE INDEX ON pool (id); ANALYZE pool")?;
    for table in Twin::ALL.map(Twin::table) {
        session.execute(&format!("CREATE SEQUENCE next_{table} MINVALUE 0 START {}", set.base.rows()))?;
    }
    session.execute("CHECKPOINT")?;
    Ok(())
}

fn inserts_per_second(twins: &Twins, table: &str, clients: usize, transactions: usize) -> Result<f64> {
    let script =
        format!("INSERT INTO {table} SELECT id, v FROM pool WHERE id = (SELECT nextval('next_{table}')::int);\n");
    let (cluster, database) = (&twins.cluster, DATABASE);
    let load = Load { cluster, database, script: &script, clients, settings: &[], cores: None };
    Ok(load.run(Amount::Transactions(transactions))?.rate)
}
