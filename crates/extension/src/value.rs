//! From a column's datum to the bytes that the index will hold.

use graph::ValueType;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;

use crate::column::Column;
use crate::failure::Failure;

/// Bytes of pgvector's header before the elements; sparsevec has its own.
const HEADER: usize = 8;
/// `sparsevec`: length word, dimensions, number of entries, unused.
const SPARSE_HEADER: usize = 16;

impl Column {
    /// The value to index, as it travels: pgvector's `HnswFormIndexValue`, without its header. `None` if the row is not to be
    /// indexed. The bytes lie in the current memory context or in `scratch`.
    ///
    /// # Safety
    /// `datum` must be a value of the column, not null.
    pub(crate) unsafe fn element_value<'a>(
        &self,
        datum: pg_sys::Datum,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, Failure> {
        // SAFETY: the column's types are varlenas; functions of pgvector get what pgvector would give them.
        unsafe {
            let mut value = pg_sys::pg_detoast_datum(datum.cast_mut_ptr());
            if let Some(check) = self.check {
                pg_guard_ffi_boundary(|| check(value.cast()));
            }
            let mut norm = None;
            if let Some(function) = self.norm {
                let found = pg_sys::FunctionCall1Coll(function, self.collation, value.into());
                let found = f64::from_datum(found, false).unwrap_or_default();
                if found <= 0.0 {
                    return Ok(None);
                }
                norm = Some(found);
            }
            if norm.is_some() && self.normalize.is_some() {
                value = pg_sys::DirectFunctionCall1Coll(self.normalize, self.collation, value.into()).cast_mut_ptr();
                norm = None;
            }
            let size = pgrx::varsize_any(value);
            let bytes = std::slice::from_raw_parts(value.cast::<u8>(), size);
            self.payload(bytes, norm, scratch).map(Some)
        }
    }

    /// What follows the header, checked against the column and divided by the norm if there is one.
    fn payload<'a>(&self, value: &'a [u8], norm: Option<f64>, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Failure> {
        let malformed = || {
            Failure::new(PgSqlErrorCode::ERRCODE_DATA_EXCEPTION, "value does not fit the dimensions of its column")
                .detail(format!("Expected a {} of {} dimensions.", self.value_type.name(), self.dims))
        };
        if self.value_type == ValueType::SparseVec {
            let entries = value.get(HEADER..HEADER + 4).ok_or_else(malformed)?;
            scratch.clear();
            scratch.extend_from_slice(entries);
            scratch.extend_from_slice(value.get(SPARSE_HEADER..).ok_or_else(malformed)?);
            return Ok(scratch);
        }
        let elements = value.get(HEADER..).ok_or_else(malformed)?;
        if self.value_type.value_len(self.dims) != Some(elements.len()) {
            return Err(malformed());
        }
        let Some(norm) = norm else { return Ok(elements) };
        // As pgvector's l2_normalize: divided in double precision, then rounded.
        scratch.clear();
        let (elements, _) = elements.as_chunks();
        scratch.extend(elements.iter().flat_map(|&x| ((f64::from(f32::from_le_bytes(x)) / norm) as f32).to_le_bytes()));
        Ok(scratch)
    }
}
