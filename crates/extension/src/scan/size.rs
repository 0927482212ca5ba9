//! The size of a table.

use pgrx::prelude::*;
use pgvector::ValueType;

use crate::column::{Column, type_name};

/// The planner's estimate of a table's rows, whatever an index's predicate. For a table that was never analysed, the planner assumes 32 bytes per
/// value: the result is at most the number of values of `value_len` bytes for which the table's files have room.
///
/// # Safety
/// `heap` must be an open table.
pub(crate) unsafe fn estimate_rows(heap: pg_sys::Relation, value_len: Option<usize>) -> u64 {
    let (mut pages, mut tuples, mut visible) = (0, 0.0, 0.0);
    // SAFETY: as promised by the caller; no widths are asked for.
    unsafe {
        pg_sys::estimate_rel_size(heap, std::ptr::null_mut(), &raw mut pages, &raw mut tuples, &raw mut visible);
        let Some(value_len) = value_len.filter(|_| (*(*heap).rd_rel).reltuples <= 0.0) else { return tuples as u64 };
        let bytes = blocks_with_toast(heap) * u64::from(pg_sys::BLCKSZ);
        (tuples as u64).min(bytes / value_len.max(1) as u64)
    }
}

/// The least bytes that an indexed row takes in the table, for [`estimate_rows`]: those of the indexed column, or of the shortest column that the
/// indexed expression reads. `None` if they vary or are not known.
///
/// # Safety
/// Both relations must be open.
pub(crate) unsafe fn stored_len(heap: pg_sys::Relation, index: pg_sys::Relation, column: &Column) -> Option<usize> {
    // SAFETY: as promised by the caller; the set lives as long as the statement.
    unsafe {
        let expressions = pg_sys::RelationGetIndexExpressions(index);
        if expressions.is_null() {
            return column.value_type.value_len(column.dims);
        }
        let (mut columns, mut at, mut shortest) = (std::ptr::null_mut(), -1, None);
        pg_sys::pull_varattnos(expressions.cast(), 1, &raw mut columns);
        let untyped = is_cast_of_column(pg_sys::list_nth(expressions, 0).cast()).then_some(column.dims);
        loop {
            at = pg_sys::bms_next_member(columns, at);
            if at < 0 {
                return shortest;
            }
            let number = (at + pg_sys::FirstLowInvalidHeapAttributeNumber) as pg_sys::AttrNumber;
            let len = if number > 0 { column_len((*heap).rd_id, number, untyped) } else { None };
            shortest = shortest.into_iter().chain(len).min();
        }
    }
}

/// Whether the expression is a column or a cast of one.
///
/// # Safety
/// It must be an expression.
unsafe fn is_cast_of_column(mut node: *mut pg_sys::Node) -> bool {
    // SAFETY: as promised by the caller; a node's tag tells its type.
    unsafe {
        loop {
            node = match (*node).type_ {
                pg_sys::NodeTag::T_Var => return true,
                pg_sys::NodeTag::T_RelabelType => (*node.cast::<pg_sys::RelabelType>()).arg.cast(),
                pg_sys::NodeTag::T_FuncExpr => {
                    let call = node.cast::<pg_sys::FuncExpr>();
                    if (*call).funcformat == pg_sys::CoercionForm::COERCE_EXPLICIT_CALL {
                        return false;
                    }
                    pg_sys::list_nth((*call).args, 0).cast()
                }
                _ => return false,
            }
        }
    }
}

/// Bytes of each of a column's values; `untyped` are the dimensions to assume if the column's type has none.
///
/// # Safety
/// The table must be open and have the column.
unsafe fn column_len(table: pg_sys::Oid, number: pg_sys::AttrNumber, untyped: Option<u32>) -> Option<usize> {
    let (mut type_oid, mut typmod, mut collation) = (pg_sys::Oid::INVALID, -1, pg_sys::Oid::INVALID);
    // SAFETY: as promised by the caller.
    let name = unsafe {
        pg_sys::get_atttypetypmodcoll(table, number, &raw mut type_oid, &raw mut typmod, &raw mut collation);
        type_name(pg_sys::getBaseTypeAndTypmod(type_oid, &raw mut typmod))
    };
    let value_type = if name == "_float4" { ValueType::Vector } else { ValueType::named(&name)? };
    value_type.value_len(u32::try_from(typmod).ok().filter(|&dims| dims > 0).or(untyped)?)
}

/// # Safety
/// The relation must be open.
pub(crate) unsafe fn blocks(relation: pg_sys::Relation) -> u32 {
    // SAFETY: as promised by the caller.
    unsafe { pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM) }
}

/// The blocks of a table and of its TOAST table.
///
/// # Safety
/// The table must be open.
pub(super) unsafe fn blocks_with_toast(table: pg_sys::Relation) -> u64 {
    const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: as promised by the caller; the TOAST table lives as long as the table.
    unsafe {
        let own = u64::from(blocks(table));
        let toast = (*(*table).rd_rel).reltoastrelid;
        if toast == pg_sys::Oid::INVALID {
            return own;
        }
        let toast = pg_sys::table_open(toast, LOCK);
        let blocks = blocks(toast);
        pg_sys::table_close(toast, LOCK);
        own + u64::from(blocks)
    }
}
