//! What pgvector's HNSW indexes can hold: value types with their encoding, metrics, limits, and the geometry of pages.
//!
//! Numbers are those of pgvector 0.5 to 0.8 (`hnsw.h`, `vector.h`, `halfvec.h`, `sparsevec.h`) and of PostgreSQL with 8 KiB
//! blocks (`bufpage.h`).

mod limits;
mod metric;
mod page;
mod sql;
mod value_type;

pub use limits::{
    DEFAULT_EF_CONSTRUCTION, DEFAULT_M, EF_CONSTRUCTION_RANGE, HEAP_TIDS_PER_ELEMENT, M_RANGE, MAX_EF_SEARCH,
    MAX_SPARSEVEC_NNZ, MAX_TABLE_DIMS, max_level, min_ef_construction,
};
pub use metric::Metric;
pub use page::{
    ELEMENT_DATUM, LINE_POINTER_LEN, MAX_SLOTS, NEIGHBOR_TIDS, PAGE_HEADER_LEN, PAGE_SIZE, PAGE_SPACE,
    PAGE_SPECIAL_LEN, TID_LEN,
};
pub use sql::{
    HIDDEN_ROWS, SAMPLE_ROWS, SCHEMA, SqlColumn, has_class, has_other_types, hides_rows, rows_found, sample_size,
};
pub use value_type::ValueType;
