//! `lantern_index.check(index, sample, external)`

use pages::{MetaPage, PAGE_SIZE, Page, PageSource, Report, verify_within};
use pgrx::prelude::*;
use pgvector::M_RANGE;
use protocol::Findings as Answer;

use super::delegate::Begun;
use super::live::LivePages;
use super::owner::{as_owner, hint_at_search_path};
use super::recall::recall;
use super::verdict::Findings;
use super::{bigint, delegate, elements_in, gone, memory, name, read_one, require_select, too_large, unreadable};
use crate::column::Column;
use crate::failure::{Failure, information, or_raise, printable, tell};
use crate::options::IndexOptions;
use crate::{hook, options, raised};

/// The most rows to search for.
const MAX_SAMPLE: i32 = 10_000;

/// Smaller indexes (8 MB) are checked in the backend, which is fast, unless the caller wants a builder.
const WORTH_A_BUILDER: u32 = 1024;

/// A row of the result.
type Row = (i64, i64, i64, i64, i64, i64, i64, Option<f64>, String, String);

raising_kept!(
    /// The function that SQL calls: it raises the errors of an index's expressions unchanged.
    lantern_index_check_wrapper,
    pg_finfo_lantern_index_check_wrapper,
    lantern_index_check_kept_wrapper
);

/// Empty if an error was kept, or if index or sample is NULL.
#[pg_extern]
#[allow(clippy::type_complexity)] // the row, column by column
fn lantern_index_check_kept(
    index: Option<pg_sys::Oid>,
    sample: Option<i32>,
    external: Option<bool>,
) -> TableIterator<
    'static,
    (
        name!(elements, i64),
        name!(rows, i64),
        name!(duplicates, i64),
        name!(deleted, i64),
        name!(unreachable, i64),
        name!(not_full, i64),
        name!(errors, i64),
        name!(recall, Option<f64>),
        name!(advice, String),
        name!(checked_by, String),
    ),
> {
    let (Some(index), Some(sample)) = (index, sample) else { return TableIterator::new(None) };
    let row = raised::until_raised(|| check(index, sample, external));
    if row.is_none() {
        hint_at_search_path();
    }
    TableIterator::new(row)
}

fn check(index: pg_sys::Oid, sample: i32, external: Option<bool>) -> Row {
    // SAFETY: called with an oid, in a transaction with a snapshot. The locks stay until its end.
    unsafe {
        let (table, index) = or_raise(open(index));
        let sample = or_raise(rows_to_search_for(sample));
        let Checked { structure, errors, recall, by } = or_raise(examine(table, index, sample, external));
        let counts = Counts::of(&structure);
        let findings = Findings {
            structure: &structure,
            counts,
            valid: (*(*index).rd_index).indisvalid,
            errors: errors.count,
            first_error: errors.first.as_deref(),
            recall,
            ef_search: &ef_search(),
        };
        let advice = findings.advice(pgvector_version);
        let keep = pg_sys::NoLock as pg_sys::LOCKMODE;
        pg_sys::relation_close(index, keep);
        pg_sys::relation_close(table, keep);
        (
            bigint(counts.elements),
            bigint(structure.rows),
            bigint(structure.duplicates),
            bigint(counts.deleted),
            bigint(counts.unreachable),
            bigint(structure.not_full),
            bigint(errors.count),
            recall,
            advice,
            by.into(),
        )
    }
}

/// The findings, and who made them.
struct Checked {
    structure: Structure,
    errors: Errors,
    recall: Option<f64>,
    by: &'static str,
}

/// Checks by a builder if one is wanted and available, else in this backend.
unsafe fn examine(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    sample: usize,
    external: Option<bool>,
) -> Result<Checked, Failure> {
    // SAFETY: both are open and locked.
    unsafe {
        let worth_it = match LivePages::try_new(index) {
            Ok(pages) => pages.blocks() >= WORTH_A_BUILDER,
            Err(error) => {
                // Without its file nothing else can be said of the index.
                let errors = Errors { count: 1, first: Some(error.to_string()) };
                return Ok(Checked { structure: Structure::default(), errors, recall: None, by: "database" });
            }
        };
        let refused = match external {
            Some(false) => None,
            None if !worth_it => None,
            _ => match ByBuilder::new(index, sample).and_then(|asking| Ok((asking.begin()?, asking))) {
                // If a check fails after a builder has accepted it, repeating it would burden the database.
                Ok((begun, asking)) => return asking.check(begun),
                // A check that an operator cancels while it waits is not repeated either.
                Err(failure) if external == Some(true) || failure.is_cancellation() => return Err(failure),
                Err(failure) => Some(failure),
            },
        };
        if let Some(failure) = &refused {
            let report = information("checking the index in the database, not by a builder");
            tell(PgLogLevel::NOTICE, report.set_detail(printable(failure.message())));
        }
        let (report, errors) = structure(index).map_err(|failure| match refused {
            Some(refused) => failure.also_hint(&format!("A builder needs none of it, but: {}.", refused.message())),
            None => failure,
        })?;
        // A search of a damaged index may fail or crash.
        let sample = if errors.count == 0 { sample } else { 0 };
        let recall = as_owner(table, || recall(table, index, sample));
        Ok(Checked { structure: Structure::of(&report), errors, recall, by: "database" })
    }
}

/// A check by a builder.
struct ByBuilder {
    index: pg_sys::Relation,
    column: Column,
    options: IndexOptions,
    sample: usize,
    ef_search: u16,
}

impl ByBuilder {
    /// # Safety
    /// The index must be open and locked while this lives.
    unsafe fn new(index: pg_sys::Relation, sample: usize) -> Result<Self, Failure> {
        // SAFETY: as promised by the caller.
        unsafe {
            let options = built_with(index);
            let column = Column::of(index, options)?;
            let sample = if (*(*index).rd_index).indisvalid { sample } else { 0 };
            Ok(Self { index, column, options, sample, ef_search: ef_search().parse().unwrap_or(40) })
        }
    }

    fn begin(&self) -> Result<Begun, Failure> {
        let &Self { index, ref column, options, sample, ef_search } = self;
        // SAFETY: the index is open and locked, as promised for `new`.
        unsafe { delegate::begin(index, column, options, sample, ef_search) }
    }

    /// Here recall is measured over the index's elements, also those of dead rows that VACUUM has not removed yet.
    fn check(&self, begun: Begun) -> Result<Checked, Failure> {
        let mut answer = begun.finish()?;
        let mut errors = Errors::default();
        if answer.errors > 0 {
            let again = self.begin()?.finish()?;
            errors = in_both((answer.errors, &answer.first_errors), (again.errors, &again.first_errors));
            // The builder is not trusted: its text must suit the client and the database's encoding.
            errors.first = errors.first.map(|first| printable(&first));
            answer = again;
        }
        let recall = (answer.recall_ppm <= 1_000_000 && errors.count == 0).then(|| f64::from(answer.recall_ppm) / 1e6);
        Ok(Checked { structure: Structure::of_answer(&answer), errors, recall, by: "builder" })
    }
}

fn rows_to_search_for(sample: i32) -> Result<usize, Failure> {
    usize::try_from(sample).ok().filter(|_| sample <= MAX_SAMPLE).ok_or_else(|| {
        let message = format!("sample must be between 0 and {MAX_SAMPLE}, not {sample}");
        Failure::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message)
    })
}

/// Opens an hnsw index and its table, the table first, as PostgreSQL locks them.
unsafe fn open(index_oid: pg_sys::Oid) -> Result<(pg_sys::Relation, pg_sys::Relation), Failure> {
    // SAFETY: both relations are locked before they are looked at.
    unsafe {
        let wrong = |what: &str| {
            let message = format!("\"{}\" is {what}", name(index_oid));
            Failure::new(PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE, message)
        };
        match pg_sys::get_rel_relkind(index_oid) as u8 {
            0 => return Err(gone(index_oid)),
            pg_sys::RELKIND_INDEX => {}
            pg_sys::RELKIND_PARTITIONED_INDEX => {
                return Err(wrong("a partitioned index").hint("Check the indexes of its partitions."));
            }
            _ => return Err(wrong("not an index")),
        }
        let table_oid = pg_sys::IndexGetRelation(index_oid, true);
        if table_oid == pg_sys::Oid::INVALID {
            return Err(gone(index_oid));
        }
        require_select(table_oid);
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let table = pg_sys::relation_open(table_oid, lock);
        let index = pg_sys::index_open(index_oid, lock);
        if !hook::is_hnsw_handler((*index).rd_amhandler) {
            return Err(wrong("not an hnsw index"));
        }
        if let Some(problem) = unreadable(index) {
            return Err(Failure::new(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, problem));
        }
        Ok((table, index))
    }
}

/// Errors that two passes over the index both found.
#[derive(Default)]
struct Errors {
    count: u64,
    first: Option<String>,
}

/// Verifies the pages.
///
/// Pages are read one by one while rows may be inserted and deleted, so two pages may contradict each other because one was read
/// before a change and the other after it. Such an error does not recur with the same text in a second pass.
unsafe fn structure(index: pg_sys::Relation) -> Result<(Report, Errors), Failure> {
    // SAFETY: the index is open and locked.
    unsafe {
        // An unknown operator class has values of an unknown type: the verifier infers it from the first one.
        let options = built_with(index);
        let column = Column::of(index, options).ok();
        let value_type = column.as_ref().map(|column| column.value_type);
        let memory = memory();
        if let Some(column) = column {
            refuse_if_too_large(&column, options.m, LivePages::new(index).blocks(), memory)?;
        }
        let read = || {
            let found = verify_within(&mut LivePages::new(index), value_type, memory);
            found.map_err(|error| too_large(error.needed))
        };
        let first = read()?;
        if first.is_ok() {
            return Ok((first, Errors::default()));
        }
        let problems = first.errors;
        let again = read()?;
        let errors = in_both((problems.count(), problems.first()), (again.errors.count(), again.errors.first()));
        let both = format!("{} errors when the index was read first, {} of them again", problems.count(), errors.count);
        tell(PgLogLevel::DEBUG1, information(both));
        Ok((again, errors))
    }
}

/// The options that the index was built with. ALTER INDEX may have set others for the next build.
///
/// # Safety
/// The index must be open and locked.
unsafe fn built_with(index: pg_sys::Relation) -> IndexOptions {
    // SAFETY: as promised by the caller.
    let (options, pages) = unsafe { (options::of(index), LivePages::try_new(index)) };
    match pages.ok().and_then(|mut pages| meta(&mut pages)) {
        Some(MetaPage { m, ef_construction, .. }) if M_RANGE.contains(&m) && ef_construction >= 2 * m => {
            IndexOptions { m, ef_construction, ..options }
        }
        _ => options,
    }
}

fn meta(pages: &mut LivePages) -> Option<MetaPage> {
    let mut buffer = [0; PAGE_SIZE];
    MetaPage::parse(&Page::parse(0, pages.read(0, &mut buffer).ok()?).ok()?).ok()
}

/// Refuses an index that is clearly too large before it is read. An index with free space in its pages may need less than estimated, one
/// with many equal rows more.
fn refuse_if_too_large(column: &Column, m: u16, blocks: u32, memory: u64) -> Result<(), Failure> {
    let Some(elements) = elements_in(column, m, blocks) else { return Ok(()) };
    let needed = pages::verify_bytes(elements, elements, blocks);
    if needed / 2 > memory { Err(too_large(needed)) } else { Ok(()) }
}

/// The errors found in both passes: their number, and the text of the first.
fn in_both(a: (u64, &[String]), b: (u64, &[String])) -> Errors {
    let common: Vec<&String> = b.1.iter().filter(|problem| a.1.contains(problem)).collect();
    let all = common.len() == a.1.len() || common.len() == b.1.len();
    // Only the first problems are kept as text.
    let count = if all { a.0.min(b.0) } else { common.len() as u64 };
    Errors { count, first: common.first().map(|&problem| problem.clone()) }
}

/// The contents of the pages, as found by a builder or this backend.
#[derive(Debug, Default)]
pub(super) struct Structure {
    /// `m` of the meta page, if the index has one.
    pub(super) m: Option<u16>,
    live: u64,
    deleted: u64,
    rows: u64,
    duplicates: u64,
    pub(super) not_full: u64,
    /// Elements that are reachable at layer 0.
    reachable: u64,
}

impl Structure {
    fn of(report: &Report) -> Self {
        let layer0 = report.layers.iter().find(|layer| layer.layer == 0);
        Self {
            m: report.meta.map(|meta| meta.m),
            live: report.live,
            deleted: report.deleted,
            rows: report.heap_tids,
            duplicates: report.duplicates,
            not_full: report.not_full,
            reachable: layer0.map_or(0, |layer| layer.reachable),
        }
    }

    /// A builder is not trusted: impossible numbers are clamped.
    fn of_answer(answer: &Answer) -> Self {
        Self {
            m: Some(answer.m).filter(|&m| m > 0),
            live: answer.live,
            deleted: answer.deleted,
            rows: answer.rows,
            duplicates: answer.duplicates.min(answer.rows),
            not_full: answer.not_full,
            reachable: answer.reachable.min(answer.live),
        }
    }
}

/// Numbers of elements in the terms of the SQL function.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    /// Elements that have rows.
    pub(super) elements: u64,
    /// Elements without rows: VACUUM first removes an element's rows, then the links to it, and last marks it as deleted.
    pub(super) deleted: u64,
    /// Elements that are not reachable at layer 0. Those that VACUUM is about to delete are subtracted, as it unlinks them first, so
    /// during a VACUUM this may be too low.
    pub(super) unreachable: u64,
}

impl Counts {
    fn of(structure: &Structure) -> Self {
        let elements = structure.rows - structure.duplicates;
        let empty = structure.live.saturating_sub(elements);
        let unreachable = structure.live - structure.reachable;
        Self {
            elements,
            deleted: structure.deleted.saturating_add(empty),
            unreachable: unreachable.saturating_sub(empty),
        }
    }
}

/// The version of pgvector's SQL objects; the library's may differ if ALTER EXTENSION was forgotten.
fn pgvector_version() -> Option<String> {
    read_one("SELECT extversion FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'vector'")
}

fn ef_search() -> String {
    // SAFETY: the name is static, the value is copied.
    unsafe { hook::owned(pg_sys::GetConfigOption(c"hnsw.ef_search".as_ptr(), true, false)) }.unwrap_or_default()
}
