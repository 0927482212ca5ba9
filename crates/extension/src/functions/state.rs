//! `lantern_index.index_state(index, …)`: judges an index by a few pages, for the view `lantern_index.indexes`.

use pages::{MetaPage, PAGE_SIZE, Page, PageBytes, PageSource, Tuple, is_new, one_of_each_part};
use pgrx::prelude::*;

use super::live::LivePages;
use super::verdict::{Facts, Judged, Usage};
use super::words::UNKNOWN;
use super::{bigint, unreadable};
use crate::{hook, options};

/// The most pages that are read: milliseconds, even from a disk. Pages of elements and of their neighbors may alternate, so one page is
/// drawn at random from each of this many equal parts of the index.
const PAGES: u32 = 48;

const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;

/// A row of the result.
type Row = (Option<i64>, Option<i32>, Option<i32>, Option<bool>, Option<f64>, String, Option<String>, Option<String>);

/// `scans` and `dead_share` (of the index's rows) come from PostgreSQL's statistics, `checked` (the advice of the last check) from the table
/// `checks`. `expression` is the indexed expression, or NULL for a column.
#[pg_extern]
#[allow(clippy::type_complexity)] // the row, column by column
fn lantern_index_index_state(
    index: pg_sys::Oid,
    scans: Option<i64>,
    dead_share: Option<f64>,
    checked: Option<&str>,
    pgvector: Option<&str>,
) -> TableIterator<
    'static,
    (
        name!(size, Option<i64>),
        name!(m, Option<i32>),
        name!(ef_construction, Option<i32>),
        name!(external, Option<bool>),
        name!(deleted_share, Option<f64>),
        name!(advice, String),
        name!(reason, Option<String>),
        name!(expression, Option<String>),
    ),
> {
    // SAFETY: called with an oid, in a transaction.
    let row = unsafe { state(index, scans.unwrap_or_default(), dead_share, checked, pgvector) };
    TableIterator::new(row)
}

/// `None` if there is no such hnsw index (any more).
unsafe fn state(
    index_oid: pg_sys::Oid,
    scans: i64,
    dead_share: Option<f64>,
    checked: Option<&str>,
    pgvector: Option<&str>,
) -> Option<Row> {
    let unknown = |why: &str| Some((None, None, None, None, None, UNKNOWN.to_owned(), Some(why.to_owned()), None));
    // SAFETY: the index is read only while it is locked. The lock is not waited for: a list of all indexes must not wait for one
    // rebuild.
    unsafe {
        let table = pg_sys::IndexGetRelation(index_oid, true);
        if table == pg_sys::Oid::INVALID {
            return None;
        }
        let select = pg_sys::ACL_SELECT as pg_sys::AclMode;
        if pg_sys::pg_class_aclcheck(table, pg_sys::GetUserId(), select) != pg_sys::AclResult::ACLCHECK_OK {
            return unknown("you may not read the table");
        }
        if !pg_sys::ConditionalLockRelationOid(index_oid, LOCK) {
            return unknown("the index is locked by another session");
        }
        if pg_sys::get_rel_relkind(index_oid) as u8 != pg_sys::RELKIND_INDEX {
            pg_sys::UnlockRelationOid(index_oid, LOCK);
            return None;
        }
        let index = pg_sys::index_open(index_oid, pg_sys::NoLock as pg_sys::LOCKMODE);
        let row = if !hook::is_hnsw_handler((*index).rd_amhandler) {
            None
        } else if let Some(why) = unreadable(index) {
            unknown(why)
        } else {
            let sample = Sample::of(index);
            let judged = Facts {
                usage: usage(&*(*index).rd_index),
                scans,
                dead_share,
                checked,
                is_whole: sample.blocks <= 1 + PAGES,
                deleted: sample.deleted,
                live: sample.live,
                unreadable: sample.unreadable,
                problem: sample.problem.as_deref(),
            }
            .judge(pgvector);
            let Judged { advice, reason } = judged;
            let options = options::of(index);
            let of_meta = |get: fn(&MetaPage) -> u16| sample.meta.as_ref().map(|meta| i32::from(get(meta)));
            Some((
                Some(bigint(u64::from(sample.blocks) * PAGE_SIZE as u64)),
                of_meta(|meta| meta.m),
                of_meta(|meta| meta.ef_construction),
                Some(options.external),
                sample.deleted_share(),
                advice.to_owned(),
                reason,
                expression(index, table),
            ))
        };
        pg_sys::index_close(index, LOCK);
        row
    }
}

/// Who uses the index, by its entry in `pg_index`.
fn usage(entry: &pg_sys::FormData_pg_index) -> Usage {
    match (entry.indislive, entry.indisready, entry.indisvalid) {
        (true, true, true) => Usage::All,
        (true, true, false) => Usage::Inserts,
        (true, false, _) => Usage::None,
        (false, _, _) => Usage::Dropped,
    }
}

/// The indexed expression; `None` for a column, and while another session locks the table, which PostgreSQL opens to print it.
///
/// # Safety
/// The index must be open.
unsafe fn expression(index: pg_sys::Relation, table: pg_sys::Oid) -> Option<String> {
    // SAFETY: the index is open, and has at least one column.
    unsafe {
        let is_column = (*(*index).rd_index).indkey.values.as_slice(1)[0] != 0;
        if is_column || !pg_sys::ConditionalLockRelationOid(table, LOCK) {
            return None;
        }
        let arguments = [(*index).rd_id.into_datum(), 1i32.into_datum(), true.into_datum()];
        let expression = pgrx::direct_function_call(pg_sys::pg_get_indexdef_ext, &arguments);
        pg_sys::UnlockRelationOid(table, LOCK);
        expression
    }
}

/// The contents of the pages read.
#[derive(Default)]
struct Sample {
    blocks: u32,
    meta: Option<MetaPage>,
    /// Elements with rows.
    live: u64,
    /// Elements without rows.
    deleted: u64,
    unreadable: u64,
    /// Why a page cannot be read at all.
    problem: Option<String>,
}

impl Sample {
    /// # Safety
    /// The index must be open, locked and readable.
    unsafe fn of(index: pg_sys::Relation) -> Self {
        let mut sample = Self::default();
        // SAFETY: as promised by the caller.
        let mut pages = match unsafe { LivePages::try_new(index) } {
            Ok(pages) => pages,
            Err(error) => {
                sample.cannot_read(error.to_string());
                return sample;
            }
        };
        sample.blocks = pages.blocks();
        if sample.blocks == 0 {
            sample.cannot_read("the file is empty".to_owned());
            return sample;
        }
        let mut buffer: Box<PageBytes> = Box::new([0; PAGE_SIZE]);
        sample.read(&mut pages, 0, &mut buffer);
        let data = sample.blocks - 1;
        for at in one_of_each_part(data.min(PAGES).into(), data.into()) {
            sample.read(&mut pages, 1 + at as u32, &mut buffer);
        }
        sample
    }

    fn read(&mut self, pages: &mut LivePages, block: u32, buffer: &mut PageBytes) {
        let page = match pages.read(block, buffer) {
            Ok(bytes) if is_new(bytes) && block > 0 => return,
            Ok(bytes) => Page::parse(block, bytes),
            Err(error) => return self.cannot_read(error.to_string()),
        };
        let Ok(page) = page else { return self.unreadable += 1 };
        if block == 0 {
            self.meta = MetaPage::parse(&page).ok();
            self.unreadable += u64::from(self.meta.is_none());
            return;
        }
        for item in page.items() {
            match item.and_then(|item| Tuple::parse(&item)) {
                Ok(Tuple::Element(element)) if element.deleted() == 0 && element.heap_tids()[0].is_valid() => {
                    self.live += 1;
                }
                Ok(Tuple::Element(_)) => self.deleted += 1,
                Ok(Tuple::Neighbor(_)) => {}
                Err(_) => self.unreadable += 1,
            }
        }
    }

    fn cannot_read(&mut self, problem: String) {
        self.unreadable += 1;
        self.problem.get_or_insert(problem);
    }

    fn deleted_share(&self) -> Option<f64> {
        let all = self.live + self.deleted;
        (all > 0).then(|| self.deleted as f64 / all as f64)
    }
}
