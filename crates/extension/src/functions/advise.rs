//! `lantern_index.advise(relation, column_name, opclass, target_recall, k, queries, max_rows)`

use std::ffi::CStr;

use pgrx::prelude::*;
use pgvector::{HIDDEN_ROWS, MAX_EF_SEARCH, SAMPLE_ROWS, has_other_types, hides_rows, sample_size};
use protocol::{Advice, Ask, BuilderMessage, Hello, MAX_ADVICE_QUERIES, capability};

use super::choices::{self, Names};
use super::sample::{self, Batch};
use super::table::{check_kind, column_of, require_file};
use super::{answer, bigint, read_one, require_select, unsupported};
use crate::build;
use crate::column::Column;
use crate::engage::engage;
use crate::failure::{Failure, Steps, information, or_raise, tell};
use crate::options::IndexOptions;
use crate::progress::{self, Phase, Shown};
use crate::raised;
use crate::rate_limit::RateLimit;
use crate::scan;
use crate::session::Session;
use crate::settings::{self, Settings};

raising_kept!(
    /// The function that SQL calls: it raises the errors of the caller's query unchanged.
    lantern_index_advise_wrapper,
    pg_finfo_lantern_index_advise_wrapper,
    lantern_index_advise_kept_wrapper
);

/// Empty if an error was kept, or if relation or column is NULL.
#[pg_extern]
#[allow(clippy::type_complexity, clippy::too_many_arguments)] // as SQL has them, column by column
fn lantern_index_advise_kept(
    relation: Option<pg_sys::Oid>,
    column_name: Option<&CStr>,
    opclass: Option<&str>,
    target_recall: Option<f64>,
    k: Option<i32>,
    queries: Option<&str>,
    max_rows: Option<i32>,
) -> TableIterator<
    'static,
    (
        name!(statement, String),
        name!(settings, String),
        name!(query, String),
        name!(recall, f64),
        name!(ef_search, i32),
        name!(visited, i64),
        name!(index_bytes, i64),
        name!(cached_bytes, i64),
        name!(build_seconds, f64),
        name!(builder_memory_bytes, i64),
    ),
> {
    let (Some(relation), Some(column_name)) = (relation, column_name) else { return TableIterator::new(None) };
    let advice = raised::until_raised(|| {
        let wanted = or_raise(Wanted::new(opclass, target_recall, k, queries, max_rows));
        // SAFETY: called with an oid and a name, in a transaction with a snapshot.
        let (names, advice) = or_raise(unsafe { advise(relation, column_name, &wanted) });
        (wanted, names, advice)
    });
    let Some((wanted, names, advice)) = advice else { return TableIterator::new(None) };
    let rows = advice.choices.into_iter().map(move |choice| {
        let sql = choices::sql(&names, &choice, wanted.k);
        (
            sql.statement,
            sql.settings,
            sql.query,
            f64::from(choice.recall_ppm) / 1e6,
            i32::from(choice.ef_search),
            bigint(choice.visited),
            bigint(choice.index_bytes),
            bigint(choice.cached_bytes),
            choice.build_ms as f64 / 1e3,
            bigint(choice.memory_bytes),
        )
    });
    TableIterator::new(rows.collect::<Vec<_>>())
}

/// The function's arguments other than table and column.
struct Wanted {
    opclass: Option<String>,
    target_ppm: u32,
    k: u16,
    queries: Option<String>,
    max_rows: u64,
}

impl Wanted {
    /// NULL stands for the default.
    fn new(
        opclass: Option<&str>,
        target: Option<f64>,
        k: Option<i32>,
        queries: Option<&str>,
        max_rows: Option<i32>,
    ) -> Result<Self, Failure> {
        let wrong = |message| Failure::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message);
        let (target, k, max_rows) = (target.unwrap_or(0.95), k.unwrap_or(10), max_rows.unwrap_or(100_000));
        if !(0.5..=0.999).contains(&target) {
            let hint = "Only a scan of the whole table finds all neighbors for certain.";
            return Err(wrong(format!("target_recall must be between 0.5 and 0.999, not {target}")).hint(hint));
        }
        if !(1..=i32::from(MAX_EF_SEARCH)).contains(&k) {
            return Err(wrong(format!("k must be between 1 and {MAX_EF_SEARCH}, not {k}")));
        }
        let Some(rows) = u64::try_from(max_rows).ok().filter(|rows| SAMPLE_ROWS.contains(rows)) else {
            let (least, most) = (SAMPLE_ROWS.start(), SAMPLE_ROWS.end());
            return Err(wrong(format!("max_rows must be between {least} and {most}, not {max_rows}")));
        };
        Ok(Self {
            opclass: opclass.map(str::to_owned),
            target_ppm: (target * 1e6).round() as u32,
            k: k as u16,
            queries: queries.map(str::to_owned),
            max_rows: rows,
        })
    }
}

/// Sends a sample to a builder, which answers with possible indexes.
///
/// # Safety
/// `relation` must be an oid; a snapshot must be active.
unsafe fn advise(relation: pg_sys::Oid, column_name: &CStr, wanted: &Wanted) -> Result<(Names, Advice), Failure> {
    // SAFETY: the table is locked while it is looked at; the lock stays until the end of the transaction.
    unsafe {
        check_kind(relation, "advise")?;
        require_select(relation);
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let table = pg_sys::relation_open(relation, lock);
        require_file(table)?;
        let found = column_of(relation, column_name)?;
        let type_oid = pg_sys::get_atttype(relation, found.number);
        if pg_sys::getBaseType(type_oid) != type_oid {
            // pgvector reads the dimensions from the column, but those of a domain are stored with the domain.
            let (type_name, dims) = (found.value_type.name(), found.dims);
            let code = PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED;
            return Err(Failure::new(code, "hnsw indexes are not for columns of a domain")
                .hint(format!("Change the type of the column to {type_name}({dims}).")));
        }
        let names = Names::new(relation, column_name, &found, wanted.opclass.as_deref())?;
        if read_one(&hides_rows(relation.to_u32())) == Some(true) {
            tell(PgLogLevel::NOTICE, information(HIDDEN_ROWS));
        }
        let blocks = scan::blocks(table);
        // Rows per block as of the last VACUUM or ANALYZE. As the planner, multiply them by the present blocks: the table may have grown.
        let (rows, pages) = ((*(*table).rd_rel).reltuples, (*(*table).rd_rel).relpages);
        let density = (rows > 0.0 && pages > 0).then(|| f64::from(rows) / f64::from(pages));
        pg_sys::relation_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        if blocks == 0 {
            return Err(no_values(&names));
        }
        let column = Column {
            value_type: names.column.value_type,
            metric: names.column.metric,
            dims: names.column.dims,
            collation: pg_sys::Oid::INVALID,
            norm: None,
            normalize: None,
            check: None,
        };
        let _shown = Shown::new(relation, pg_sys::Oid::INVALID);
        let queries = match &wanted.queries {
            Some(queries) => sample::queries(&column, &names.column.queries(queries, MAX_ADVICE_QUERIES))?,
            None => Batch::default(),
        };
        let rows = sample::rows(&names, relation, found.number, blocks, density)?;
        ask(&names, build::label(relation), &column, wanted, rows, queries).map(|advice| (names, advice))
    }
}

/// The conversation with the builder.
///
/// # Safety
/// As for [`advise`].
unsafe fn ask(
    names: &Names,
    label: String,
    column: &Column,
    wanted: &Wanted,
    rows: u64,
    queries: Batch,
) -> Result<Advice, Failure> {
    let options = IndexOptions { external: true, ..IndexOptions::DEFAULT };
    let count = queries.rows();
    let most = sample_size(wanted.max_rows, wanted.k, rows);
    let ask = Ask { queries: count as u32, table_rows: rows, k: wanted.k, target_ppm: wanted.target_ppm };
    let hello = build::hello(label, column, options, most + count);
    let own_type = if read_one(&has_other_types()) == Some(false) { capability::OWN_TYPE } else { 0 };
    let capabilities = hello.capabilities | capability::ADVISE | own_type;
    let hello = Hello { capabilities, ask: Some(ask), ..hello };
    let mut session = engage(&Settings::get(), hello, Steps { quiet: true })?;
    if !session.takes_sample() {
        return Err(unsupported("external indexing server gives no advice"));
    }
    let mut rate_limit = RateLimit::new(settings::max_rate());
    queries.send(&mut session, &mut rate_limit)?;
    progress::enter(Phase::LoadingTuples, most.min(rows));
    // SAFETY: as promised by the caller.
    let sent = unsafe { sample::send(column, &names.column.sample(most, rows), most, &mut session, &mut rate_limit)? };
    if sent == 0 {
        return Err(no_values(names));
    }
    session.end_of_tuples()?;
    let mut advice = receive(&mut session)?;
    // A builder that does not know the capability has tried other types, too.
    advice.choices.retain(|choice| own_type == 0 || choice.value_type == column.value_type);
    let reached = advice.choices.iter().any(|choice| choice.recall_ppm + 1 >= wanted.target_ppm);
    if !reached {
        let report = information("no index is expected to reach the target recall")
            .set_detail("The choices that come nearest are shown, with the highest ef_search.")
            .set_hint("Ask for a lower target_recall.");
        tell(PgLogLevel::NOTICE, report);
    }
    Ok(advice)
}

fn receive(session: &mut Session) -> Result<Advice, Failure> {
    let (advice, done) = answer(session, Phase::TryingIndexes, |message| match message {
        BuilderMessage::Advice(advice) => Some(advice),
        _ => None,
    })?;
    if done.rows != session.rows() {
        return Err(Failure::protocol("The builder has seen other rows than were sent."));
    }
    Ok(advice)
}

fn no_values(names: &Names) -> Failure {
    let (column, relation) = (&names.column.name, &names.relation);
    let message = format!("column {column} of \"{relation}\" has no values to try indexes on");
    Failure::new(PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .hint("Ask again when the table has rows like those that it will have.")
}
