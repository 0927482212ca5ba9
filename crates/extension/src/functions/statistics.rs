//! The planner's statistics of a column.

use pgrx::prelude::*;

/// From the last ANALYZE; without one, no NULL and no duplicates are assumed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statistics {
    null_fraction: f64,
    /// PostgreSQL's `stadistinct`: the number of distinct values or, if negative, their share of the rows.
    distinct: f64,
}

impl Statistics {
    /// # Safety
    /// `column` must be a column of the relation.
    pub(super) unsafe fn of(relation: pg_sys::Oid, column: pg_sys::AttrNumber) -> Self {
        // SAFETY: the entry is released when its fields have been copied.
        unsafe {
            let cache = pg_sys::SysCacheIdentifier::STATRELATTINH as i32;
            let entry = pg_sys::SearchSysCache3(cache, relation.into(), column.into(), false.into());
            if entry.is_null() {
                return Self { null_fraction: 0.0, distinct: -1.0 };
            }
            let form = pg_sys::GETSTRUCT(entry).cast::<pg_sys::FormData_pg_statistic>();
            let found = Self { null_fraction: (*form).stanullfrac.into(), distinct: (*form).stadistinct.into() };
            pg_sys::ReleaseSysCache(entry);
            found
        }
    }

    /// Rows that are not NULL, of `all`.
    pub(super) fn rows(self, all: u64) -> u64 {
        (all as f64 * (1.0 - self.null_fraction.clamp(0.0, 1.0))).round() as u64
    }

    /// Elements for `rows` of `all` rows: up to ten duplicates share one.
    pub(super) fn elements(self, all: u64, rows: u64) -> u64 {
        let distinct = if self.distinct < 0.0 { -self.distinct * all as f64 } else { self.distinct };
        let distinct = distinct.round() as u64;
        if distinct == 0 || distinct >= rows {
            return rows;
        }
        let share = pgvector::HEAP_TIDS_PER_ELEMENT as u64;
        distinct.saturating_mul(rows.div_ceil(distinct.saturating_mul(share)).max(1)).min(rows)
    }
}
