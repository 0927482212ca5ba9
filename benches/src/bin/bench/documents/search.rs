//! Searches per second of an index built externally, and of one built in the database.

use anyhow::Result;
use harness::step;

use super::super::cold;
use super::super::contest::median;
use super::super::markdown::Table;
use super::super::options::Case;
use super::super::programs::{self, Visits};
use super::super::set::Set;
use super::super::stage::DATABASE;
use super::ground::Ground;
use super::pgbench::{Amount, Load};
use super::section::Section;
use super::twins::{Twin, Twins};
use plot::{Plot, Series};

const SOURCE: &str = "Theirs: Jonathan Katz, *Accelerate HNSW indexing and searching with pgvector on Amazon RDS for PostgreSQL* \
(AWS Database Blog): 10,000,000 random vectors, pgvector 0.5.1, m = 16, ef_construction 64, all in memory, db.m7g.16xlarge \
(64 cores). It reports no recall.";

const THEIR_EF_SEARCH: [u32; 6] = [20, 40, 80, 200, 400, 800];
/// The document's searches per second on m7g.16xlarge: dimensions, clients, and the rate at each ef_search.
const THEIRS: [(u32, u32, [u32; 6]); 6] = [
    (128, 1, [1120, 671, 371, 173, 88, 47]),
    (128, 8, [6616, 3925, 2228, 1016, 533, 277]),
    (128, 64, [49731, 29967, 17358, 8472, 4510, 2191]),
    (1536, 1, [662, 397, 233, 107, 58, 30]),
    (1536, 8, [3788, 2260, 1307, 609, 335, 180]),
    (1536, 64, [28798, 18506, 9568, 4256, 2237, 1265]),
];
/// Queries with an empty cache.
const COLD: usize = 6;
const COLD_EF_SEARCH: [u32; 2] = [40, 200];

pub fn measure(ground: &Ground) -> Result<Section> {
    let mut section = Section::new("searches per second, by ef_search and clients", SOURCE);
    let head = THEIR_EF_SEARCH.map(|ef| format!("ef {ef}"));
    let mut theirs = Table::new(["dimensions", "clients"].map(str::to_owned).into_iter().chain(head));
    for (dims, clients, rates) in THEIRS {
        theirs.row([dims, clients].into_iter().chain(rates).map(|number| number.to_string()));
    }
    section.theirs("searches per second", theirs);
    for &dims in ground.sizes.dims.as_deref().unwrap_or(&[128, 1536]) {
        of_dimensions(ground, dims, &mut section)?;
    }
    section.text(
        "What differs: thousands of rows instead of ten million, and clients on the database's own cores, so that more clients than \
         cores add nothing. Theirs are independent random numbers, searched by L2; ours resemble embeddings, searched by cosine. Both of our indexes \
         are searched by pgvector; the plots show searches per second against the recall they come with, since at the same ef_search one index may \
         find more than the other.",
    );
    Ok(section)
}

/// The results of one twin.
struct Measured {
    recall: Vec<f64>,
    visits: Vec<Visits>,
    cold: Vec<f64>,
    /// Searches per second, indexed by ef_search, clients, round.
    rates: Vec<Vec<Vec<f64>>>,
}

fn of_dimensions(ground: &Ground, dims: usize, section: &mut Section) -> Result<()> {
    let sizes = &ground.sizes;
    let rows = sizes.rows.unwrap_or(if dims > 512 { 8_000 } else { 30_000 });
    let ef_search = sizes.ef_search.clone().unwrap_or(THEIR_EF_SEARCH.to_vec());
    let clients = sizes.clients.clone().unwrap_or(vec![1, 4]);
    let (rounds, seconds) = (sizes.rounds.unwrap_or(2), sizes.seconds.unwrap_or(1));
    let case = Case { m: sizes.m.unwrap_or(16), ef_construction: sizes.ef_construction.unwrap_or(64) };

    let set = ground.set(&format!("synthetic-{dims}"), rows, sizes.queries.unwrap_or(500))?;
    let mut twins = Twins::new(ground, &set, case)?;
    let mut measured = Vec::new();
    for twin in Twin::ALL {
        measured.push(unhurried(ground, &mut twins, &set, twin, &ef_search, clients.len())?);
    }
    step::timed("searching", || {
        for round in 0..rounds {
            for (at, &ef) in ef_search.iter().enumerate() {
                for (number, &clients) in clients.iter().enumerate() {
                    if ground.is_over() {
                        return Ok(());
                    }
                    for twin in [round % 2, 1 - round % 2] {
                        let rate = searches_per_second(&twins, &set, &Twin::ALL[twin].table(), ef, clients, seconds)?;
                        measured[twin].rates[at][number].push(rate);
                    }
                }
            }
        }
        Ok(())
    })?;

    let built = Twin::ALL.iter().zip(&twins.built).map(|(twin, built)| format!("{} {:.2}", twin.name(), built.seconds));
    let what = format!(
        "{}, m = {}, ef_construction {}; builds, seconds: {}; searches per second, median of {rounds} times {seconds} s",
        set.title(),
        case.m,
        case.ef_construction,
        built.collect::<Vec<_>>().join(", ")
    );
    section.ours(&what, table(&ef_search, &clients, &measured));
    section.plot(&dims.to_string(), plot(&set, &ef_search, &clients, &measured));
    Ok(())
}

/// Figures that do not depend on timing: recall, visited tuples, pages read with an empty cache.
fn unhurried(
    ground: &Ground,
    twins: &mut Twins,
    set: &Set,
    twin: Twin,
    ef_search: &[u32],
    clients: usize,
) -> Result<Measured> {
    let table = &twin.table();
    let recall = ef_search.iter().map(|&ef| twins.recall(set, &set.exact, table, ef)).collect::<Result<_>>()?;
    let file = twins.cluster.relation_file(&mut twins.session()?, &twin.index())?;
    let visits = programs::visits(&ground.tools, set, &file)?;
    let mut cold = Vec::new();
    for ef in COLD_EF_SEARCH {
        cold.push(cold::pages_per_query(&mut twins.cluster, table, set.metric, ef, COLD)?);
    }
    Ok(Measured { recall, visits, cold, rates: vec![vec![Vec::new(); clients]; ef_search.len()] })
}

fn searches_per_second(twins: &Twins, set: &Set, table: &str, ef: u32, clients: usize, seconds: u64) -> Result<f64> {
    let script = Twins::search_script(set, table);
    let ef = ef.to_string();
    let settings = Twins::search_settings(&ef);
    let (cluster, database) = (&twins.cluster, DATABASE);
    let load = Load { cluster, database, script: &script, clients, settings: &settings, cores: None };
    Ok(load.run(Amount::Seconds(seconds))?.rate)
}

fn table(ef_search: &[u32], clients: &[usize], measured: &[Measured]) -> Table {
    let mut head = vec!["ef_search, index".to_owned(), "recall@10".to_owned()];
    head.extend(clients.iter().map(|clients| format!("clients: {clients}")));
    head.extend(["visited", "pages", "pages read cold"].map(str::to_owned));
    let mut table = Table::new(head);
    for (at, &ef) in ef_search.iter().enumerate() {
        for (twin, measured) in Twin::ALL.iter().zip(measured) {
            let mut row = vec![format!("{ef}, {}", twin.name()), format!("{:.4}", measured.recall[at])];
            let rate =
                |rates: &Vec<f64>| median(rates.iter().copied()).map_or(String::new(), |rate| format!("{rate:.0}"));
            row.extend(measured.rates[at].iter().map(rate));
            let visits = measured.visits.iter().find(|visits| visits.ef == ef);
            row.push(visits.map_or(String::new(), |visits| format!("{:.0}", visits.distances)));
            row.push(visits.map_or(String::new(), |visits| format!("{:.0}", visits.pages)));
            let cold = COLD_EF_SEARCH.iter().position(|&cold| cold == ef);
            row.push(cold.map_or(String::new(), |cold| format!("{:.0}", measured.cold[cold])));
            table.row(row);
        }
    }
    table
}

fn plot(set: &Set, ef_search: &[u32], clients: &[usize], measured: &[Measured]) -> Plot {
    let mut series = Vec::new();
    for (number, clients) in clients.iter().enumerate() {
        for (twin, measured) in Twin::ALL.iter().zip(measured) {
            let point = |(at, ef): (usize, &u32)| {
                Some((median(measured.rates[at][number].iter().copied())?, measured.recall[at], ef.to_string()))
            };
            let points = ef_search.iter().enumerate().filter_map(point).collect();
            series.push(Series { name: format!("{}, clients: {clients}", twin.name()), points, ..Series::default() });
        }
    }
    Plot::of_recall(format!("{} (numbers: ef_search)", set.title()), "searches per second", series)
}
