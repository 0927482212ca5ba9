//! Measures the recall of an index against an exact search.

use std::collections::HashMap;

use pgrx::PgMemoryContexts;
use pgrx::prelude::*;

use super::rows::{HeapTid, for_each_row};
use super::{memory, too_large};

/// Neighbors wanted: recall@10.
const WANTED: usize = 10;
/// A fixed seed: the same table gives the same sample.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes that a query takes beside its value.
const PER_QUERY: usize = 512;

/// A sampled row's value, with its true neighbors and those that the index found.
struct Query {
    value: pg_sys::Datum,
    /// The least distances in the table, ascending.
    nearest: Vec<f64>,
    /// The distances of the rows that the index found.
    found: Vec<f64>,
}

/// The distance function of an index.
struct Distance {
    /// The function of the operator that queries use.
    function: pg_sys::FmgrInfo,
    collation: pg_sys::Oid,
}

/// Recall@10 of the index for a sample of rows' own values, at the session's settings, against all rows of the same snapshot.
/// Distances are compared, not rows, so rows at equal distance count alike. `None` without values to search for, or if the
/// operator class has no usable distance.
///
/// Reads the table twice, and compares every value with all of the sample.
///
/// # Safety
/// Table and index must be open and locked, and belong together; a snapshot must be active.
pub(super) unsafe fn recall(table: pg_sys::Relation, index: pg_sys::Relation, sample: usize) -> Option<f64> {
    // SAFETY: as promised by the caller. Whatever is left open by an error is closed by the end of the transaction.
    unsafe {
        let entry = (*index).rd_index;
        if sample == 0 || !(*entry).indisvalid || !(*entry).indisready {
            return None;
        }
        let mut distance = Distance::of(index)?;
        let snapshot = pg_sys::RegisterSnapshot(pg_sys::GetActiveSnapshot());
        let mut queries = draw(table, index, snapshot, sample);
        queries.retain(|query| !distance.between(query.value, query.value).is_nan());
        let uncounted = Uncounted::new(index);
        let found = search(table, index, snapshot, &distance, &queries);
        drop(uncounted);
        measure(table, index, snapshot, &mut distance, &mut queries, &found);
        pg_sys::UnregisterSnapshot(snapshot);
        let wanted: usize = queries.iter().map(|query| query.nearest.len()).sum();
        let hits: usize = queries.iter().map(Query::hits).sum();
        (wanted > 0).then(|| hits as f64 / wanted as f64)
    }
}

impl Query {
    fn offer(&mut self, distance: f64) {
        if self.nearest.len() == WANTED && self.nearest.last().is_some_and(|&last| distance >= last) {
            return;
        }
        let at = self.nearest.partition_point(|&nearer| nearer <= distance);
        self.nearest.insert(at, distance);
        self.nearest.truncate(WANTED);
    }

    fn hits(&self) -> usize {
        let limit = self.nearest.last().copied().unwrap_or(f64::NEG_INFINITY);
        self.found.iter().filter(|&&distance| distance <= limit).count()
    }
}

impl Distance {
    /// `None` if the operator class has no ordering operator that returns float8.
    ///
    /// # Safety
    /// `index` must be open.
    unsafe fn of(index: pg_sys::Relation) -> Option<Self> {
        // SAFETY: an open index has a first column.
        unsafe {
            let (family, of) = (*(*index).rd_opfamily, *(*index).rd_opcintype);
            let operator = pg_sys::get_opfamily_member(family, of, of, 1);
            if operator == pg_sys::Oid::INVALID || pg_sys::get_op_rettype(operator) != pg_sys::FLOAT8OID {
                return None;
            }
            let mut function = pg_sys::FmgrInfo::default();
            pg_sys::fmgr_info(pg_sys::get_opcode(operator), &raw mut function);
            Some(Self { function, collation: *(*index).rd_indcollation })
        }
    }

    /// # Safety
    /// Both must be values of the index's type.
    unsafe fn between(&mut self, a: pg_sys::Datum, b: pg_sys::Datum) -> f64 {
        // SAFETY: as promised by the caller; the operator's result is a float8.
        unsafe {
            let distance = pg_sys::FunctionCall2Coll(&raw mut self.function, self.collation, a, b);
            f64::from_datum(distance, false).unwrap_or(f64::NAN)
        }
    }
}

/// Draws rows with equal probability (reservoir sampling).
unsafe fn draw(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    sample: usize,
) -> Vec<Query> {
    let mut random = SEED;
    let mut seen = 0u64;
    let mut queries: Vec<Query> = Vec::new();
    let (mut bytes, limit) = (0, memory());
    // SAFETY: as for `recall`. Only values that are drawn are copied, into the memory of the function call.
    unsafe {
        for_each_row(table, index, snapshot, &mut |_, value| {
            seen += 1;
            let at = if queries.len() < sample { queries.len() } else { below(&mut random, seen) };
            if at < sample {
                let value = pg_sys::pg_detoast_datum_copy(value.cast_mut_ptr());
                bytes += (pgrx::varsize_any(value) + PER_QUERY) as u64;
                let value = pg_sys::Datum::from(value);
                let query = Query { value, nearest: Vec::with_capacity(WANTED + 1), found: Vec::new() };
                if at == queries.len() {
                    queries.push(query);
                } else {
                    let before: *mut pg_sys::varlena = std::mem::replace(&mut queries[at], query).value.cast_mut_ptr();
                    bytes -= (pgrx::varsize_any(before) + PER_QUERY) as u64;
                    pg_sys::pfree(before.cast());
                }
                if bytes > limit {
                    too_large(bytes).hint("Raise maintenance_work_mem, or ask for a smaller sample.").raise();
                }
            }
        });
    }
    queries
}

/// A random number below `limit`. If it does not fit, `usize::MAX`, which is above any sample.
fn below(random: &mut u64, limit: u64) -> usize {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from((u128::from(*random) * u128::from(limit)) >> 64).unwrap_or(usize::MAX)
}

/// While this lives, scans of an index are not counted: its statistics tell whether queries use it.
struct Uncounted {
    index: pg_sys::Relation,
    counts: *mut pg_sys::PgStat_TableStatus,
    #[cfg(not(any(feature = "pg13", feature = "pg14")))]
    enabled: bool,
}

impl Uncounted {
    /// # Safety
    /// The index must stay open while this lives.
    unsafe fn new(index: pg_sys::Relation) -> Self {
        // SAFETY: as promised by the caller. PostgreSQL keeps both fields when it reads an open index's catalogs again.
        unsafe {
            Self {
                index,
                counts: std::ptr::replace(&raw mut (*index).pgstat_info, std::ptr::null_mut()),
                #[cfg(not(any(feature = "pg13", feature = "pg14")))]
                enabled: std::ptr::replace(&raw mut (*index).pgstat_enabled, false),
            }
        }
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        // SAFETY: the index is open, as promised for `new`. The transaction keeps the counts that it has begun.
        unsafe {
            (*self.index).pgstat_info = self.counts;
            #[cfg(not(any(feature = "pg13", feature = "pg14")))]
            {
                (*self.index).pgstat_enabled = self.enabled;
            }
        }
    }
}

/// Scans the index directly, whatever the planner would choose. Returns the numbers of the queries that found a row, by its TID.
unsafe fn search(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    distance: &Distance,
    queries: &[Query],
) -> HashMap<HeapTid, Vec<usize>> {
    let mut found: HashMap<HeapTid, Vec<usize>> = HashMap::new();
    // SAFETY: as for `recall`; the key lives as long as the scan.
    unsafe {
        let scan = begin_scan(table, index, snapshot);
        let slot = pg_sys::table_slot_create(table, std::ptr::null_mut());
        let mut key = pg_sys::ScanKeyData::default();
        for (number, query) in queries.iter().enumerate() {
            pgrx::check_for_interrupts!();
            pg_sys::ScanKeyEntryInitialize(
                &raw mut key,
                pg_sys::SK_ORDER_BY as i32,
                1,
                1,
                *(*index).rd_opcintype,
                distance.collation,
                distance.function.fn_oid,
                query.value,
            );
            pg_sys::index_rescan(scan, std::ptr::null_mut(), 0, &raw mut key, 1);
            let mut rows = 0;
            while rows < WANTED {
                let tid = pg_sys::index_getnext_tid(scan, pg_sys::ScanDirection::ForwardScanDirection);
                if tid.is_null() {
                    break;
                }
                // Copied before the fetch, which overwrites it with the TID of the row's visible version.
                let tid = tid.cast::<HeapTid>().read_unaligned();
                if pg_sys::index_fetch_heap(scan, slot) {
                    found.entry(tid).or_default().push(number);
                    rows += 1;
                }
            }
        }
        pg_sys::index_endscan(scan);
        pg_sys::ExecDropSingleTupleTableSlot(slot);
    }
    found
}

unsafe fn begin_scan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
) -> pg_sys::IndexScanDesc {
    // SAFETY: as for `recall`.
    unsafe {
        #[cfg(feature = "pg18")]
        return pg_sys::index_beginscan(table, index, snapshot, std::ptr::null_mut(), 0, 1);
        #[cfg(not(feature = "pg18"))]
        return pg_sys::index_beginscan(table, index, snapshot, 0, 1);
    }
}

/// Compares every row with every query.
unsafe fn measure(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    distance: &mut Distance,
    queries: &mut [Query],
    found: &HashMap<HeapTid, Vec<usize>>,
) {
    if queries.is_empty() {
        return;
    }
    // SAFETY: as for `recall`. The memory of a row is freed with its context.
    unsafe {
        let mut context = PgMemoryContexts::new("hnsw index check");
        for_each_row(table, index, snapshot, &mut |tid, value| {
            context.switch_to(|_| {
                let value = pg_sys::Datum::from(pg_sys::pg_detoast_datum(value.cast_mut_ptr()));
                let searches = found.get(&tid);
                for (number, query) in queries.iter_mut().enumerate() {
                    let distance = distance.between(value, query.value);
                    // The cosine distance of a vector of norm zero, which is not in the index.
                    if distance.is_nan() {
                        continue;
                    }
                    query.offer(distance);
                    if searches.is_some_and(|searches| searches.contains(&number)) {
                        query.found.push(distance);
                    }
                }
            });
            context.reset();
        });
    }
}
