//! The indexed column: type, metric, dimensions, and pgvector's checks of its values.

use pgrx::prelude::*;
use pgvector::{Metric, ValueType};

use crate::failure::{Failure, IN_DATABASE};
use crate::hook::{self, owned};
use crate::options::IndexOptions;
use crate::type_info::{CheckValue, TypeInfo};

/// Numbers of pgvector's support functions.
const DISTANCE: u16 = 1;
const NORM: u16 = 2;
const TYPE_INFO: u16 = 3;

/// The indexed column or expression.
pub(crate) struct Column {
    pub(crate) value_type: ValueType,
    pub(crate) metric: Metric,
    pub(crate) dims: u32,
    pub(crate) collation: pg_sys::Oid,
    /// For cosine, in builds and checks, pgvector's function for the norm: values are stored normalised, and values of norm zero are not
    /// indexed. Without it, as in `advise`, values are taken as they are.
    pub(crate) norm: Option<*mut pg_sys::FmgrInfo>,
    /// pgvector's function that normalises a sparsevec; `value` divides values of other types by their norm.
    pub(crate) normalize: pg_sys::PGFunction,
    /// pgvector's function that raises an error for a value that cannot be indexed.
    pub(crate) check: Option<CheckValue>,
}

impl Column {
    /// Reads the index's column, with pgvector's checks, in pgvector's order and with its messages.
    ///
    /// # Safety
    /// `index` must be an open hnsw index.
    pub(crate) unsafe fn of(index: pg_sys::Relation, options: IndexOptions) -> Result<Self, Failure> {
        // SAFETY: an open index has at least one column; its support functions are pgvector's.
        unsafe {
            let (mut type_oid, mut typmod, mut collation) = (pg_sys::Oid::INVALID, -1, pg_sys::Oid::INVALID);
            pg_sys::get_atttypetypmodcoll((*index).rd_id, 1, &raw mut type_oid, &raw mut typmod, &raw mut collation);
            let support = |number| function(index, number);
            let SupportFunction { name: distance, symbol, .. } = support(DISTANCE).unwrap_or_default();
            let unsupported = || {
                Failure::new(
                    PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                    "operator class is not supported by external index builds",
                )
                .detail(format!("Its distance function is \"{distance}\"."))
                .hint(IN_DATABASE)
            };
            check_column_count((*(*index).rd_index).indnatts)?;
            // Type vector has no support function `TYPE_INFO`.
            let max_dims = ValueType::Vector.max_dims().cast_signed();
            let mut info = TypeInfo { max_dims, normalize: None, check: None };
            let mut value_type = ValueType::Vector;
            if let Some(SupportFunction { oid, name, symbol }) = support(TYPE_INFO) {
                value_type = self::value_type(&symbol).ok_or_else(unsupported)?;
                let answer = pg_sys::OidFunctionCall0Coll(oid, pg_sys::Oid::INVALID);
                info = TypeInfo::read(answer.cast_mut_ptr(), &name)?;
            }
            let TypeInfo { max_dims, normalize, check } = info;
            let dims = check_parameters(type_oid, typmod, max_dims, options)?;
            let norm = support(NORM);
            let metric =
                metric(value_type, &symbol, norm.as_ref().map(|norm| &*norm.symbol)).ok_or_else(unsupported)?;
            let norm = norm.map(|_| pg_sys::index_getprocinfo(index, 1, NORM));
            Ok(Self { value_type, metric, dims, collation, norm, normalize, check })
        }
    }
}

/// pgvector's development branch for filtered searches has multicolumn indexes with another tuple format.
fn check_column_count(columns: i16) -> Result<(), Failure> {
    if columns == 1 {
        return Ok(());
    }
    let code = PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED;
    Err(Failure::new(code, "external index builds do not support indexes of more than one column")
        .detail(format!("The index has {columns} columns."))
        .hint(IN_DATABASE))
}

/// The checks of pgvector's `InitBuildState`. Returns the dimensions.
fn check_parameters(type_oid: pg_sys::Oid, typmod: i32, max_dims: i32, options: IndexOptions) -> Result<u32, Failure> {
    if type_oid == pg_sys::VARBITOID {
        let code = PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED;
        return Err(Failure::new(code, "type not supported for hnsw index"));
    }
    let Ok(dims) = u32::try_from(typmod) else {
        let code = PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE;
        return Err(Failure::new(code, "column does not have dimensions"));
    };
    if typmod > max_dims {
        let code = PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED;
        return Err(Failure::new(code, format!("column cannot have more than {max_dims} dimensions for hnsw index")));
    }
    if options.ef_construction < 2 * options.m {
        let code = PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE;
        return Err(Failure::new(code, "ef_construction must be greater than or equal to 2 * m"));
    }
    Ok(dims)
}

/// A type's name, without its schema.
///
/// # Safety
/// Must be called in a transaction.
pub(crate) unsafe fn type_name(type_oid: pg_sys::Oid) -> String {
    // SAFETY: the entry is released when its name has been copied.
    unsafe {
        let entry = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::TYPEOID as i32, type_oid.into());
        if entry.is_null() {
            return String::new();
        }
        let form = pg_sys::GETSTRUCT(entry).cast::<pg_sys::FormData_pg_type>();
        let name = owned((*form).typname.data.as_ptr());
        pg_sys::ReleaseSysCache(entry);
        name.unwrap_or_default()
    }
}

fn value_type(type_info: &str) -> Option<ValueType> {
    match type_info {
        "hnsw_halfvec_support" => Some(ValueType::HalfVec),
        "hnsw_bit_support" => Some(ValueType::Bit),
        "hnsw_sparsevec_support" => Some(ValueType::SparseVec),
        _ => None,
    }
}

/// The metric, by the symbols of support functions. Inner product and cosine share a distance function; only cosine has one for the norm.
fn metric(value_type: ValueType, distance: &str, norm: Option<&str>) -> Option<Metric> {
    use ValueType::{Bit, HalfVec, SparseVec, Vector};
    let metric = match (value_type, distance) {
        (Vector, "vector_l2_squared_distance")
        | (HalfVec, "halfvec_l2_squared_distance")
        | (SparseVec, "sparsevec_l2_squared_distance") => Metric::L2,
        (Vector, "vector_negative_inner_product")
        | (HalfVec, "halfvec_negative_inner_product")
        | (SparseVec, "sparsevec_negative_inner_product") => Metric::InnerProduct,
        (Vector, "l1_distance") | (HalfVec, "halfvec_l1_distance") | (SparseVec, "sparsevec_l1_distance") => Metric::L1,
        (Bit, "hamming_distance") => Metric::Hamming,
        (Bit, "jaccard_distance") => Metric::Jaccard,
        _ => return None,
    };
    match (value_type, metric, norm) {
        (_, metric, None) => Some(metric),
        (Vector, Metric::InnerProduct, Some("vector_norm"))
        | (HalfVec, Metric::InnerProduct, Some("halfvec_l2_norm"))
        | (SparseVec, Metric::InnerProduct, Some("sparsevec_l2_norm")) => Some(Metric::Cosine),
        _ => None,
    }
}

#[derive(Default)]
struct SupportFunction {
    oid: pg_sys::Oid,
    /// Its name in SQL.
    name: String,
    /// Its symbol in pgvector's library; empty for functions of other libraries.
    symbol: String,
}

/// A support function of the first column; `None` if this release of pgvector has no such number.
///
/// # Safety
/// `index` must be an open hnsw index.
unsafe fn function(index: pg_sys::Relation, number: u16) -> Option<SupportFunction> {
    // SAFETY: as promised by the caller; numbers above amsupport are not asked for.
    unsafe {
        if number > (*(*index).rd_indam).amsupport {
            return None;
        }
        let oid = pg_sys::index_getprocid(index, 1, number);
        (oid != pg_sys::Oid::INVALID).then(|| SupportFunction {
            oid,
            name: owned(pg_sys::get_func_name(oid)).unwrap_or_default(),
            symbol: hook::symbol(oid).unwrap_or_default(),
        })
    }
}
