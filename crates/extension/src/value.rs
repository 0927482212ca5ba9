//! Converts a column's datum to the bytes that the index will hold.

use half::f16;
use half::slice::HalfFloatSliceExt;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;
use pgvector::{MAX_SPARSEVEC_NNZ, ValueType};
use protocol::MAX_VALUE_BYTES;

use crate::column::Column;
use crate::failure::Failure;

/// Bytes of pgvector's header before the elements; sparsevec has its own.
const HEADER: usize = 8;
/// `sparsevec`: length word, dimensions, number of entries, unused.
const SPARSE_HEADER: usize = 16;

/// A value to index, borrowed from PostgreSQL: pgvector's `HnswFormIndexValue`, without its header.
pub(crate) enum Element<'a> {
    AsItIs(&'a [u8]),
    /// Components, and the norm to divide them by.
    Divided(&'a [u8], f64),
    /// The same in half precision.
    DividedHalves(&'a [u8], f64),
    /// The number of entries, and the entries.
    Sparse(&'a [u8], &'a [u8]),
}

impl Element<'_> {
    /// The bytes of the value on the wire.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::AsItIs(bytes) | Self::Divided(bytes, _) | Self::DividedHalves(bytes, _) => bytes.len(),
            Self::Sparse(count, entries) => count.len() + entries.len(),
        }
    }

    /// Writes the value in its wire encoding to a slice of that many bytes.
    pub(crate) fn write(&self, out: &mut [u8]) {
        match *self {
            Self::AsItIs(bytes) => out.copy_from_slice(bytes),
            Self::Sparse(count, entries) => {
                let (head, rest) = out.split_at_mut(count.len());
                head.copy_from_slice(count);
                rest.copy_from_slice(entries);
            }
            Self::Divided(components, norm) => {
                let ((components, _), (out, _)) = (components.as_chunks(), out.as_chunks_mut());
                for (out, &component) in out.iter_mut().zip(components) {
                    *out = divided(f32::from_le_bytes(component), norm).to_le_bytes();
                }
            }
            Self::DividedHalves(components, norm) => divide_halves(components, norm, out),
        }
    }
}

/// As pgvector's `l2_normalize`: in double precision, then rounded.
fn divided(component: f32, norm: f64) -> f32 {
    (f64::from(component) / norm) as f32
}

/// As pgvector's `halfvec_l2_normalize`, which takes several times as long, since it converts one component after the other, and without the
/// processor's instructions for that.
fn divide_halves(components: &[u8], norm: f64, out: &mut [u8]) {
    const CHUNK: usize = 64;
    let (mut halves, mut wide) = ([f16::ZERO; CHUNK], [0f32; CHUNK]);
    let ((components, _), (out, _)) = (components.as_chunks(), out.as_chunks_mut());
    for (components, out) in components.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
        let (halves, wide) = (&mut halves[..components.len()], &mut wide[..components.len()]);
        halves.iter_mut().zip(components).for_each(|(half, &component)| *half = f16::from_le_bytes(component));
        halves.convert_to_f32_slice(wide);
        wide.iter_mut().for_each(|x| *x = divided(*x, norm));
        halves.convert_from_f32_slice(wide);
        out.iter_mut().zip(&*halves).for_each(|(out, half)| *out = half.to_le_bytes());
    }
}

impl Column {
    /// The value to index; `None` if pgvector would not index the row. The result borrows from the table's page or the current
    /// memory context.
    ///
    /// # Safety
    /// `datum` must be a value of the column, not null, and live as long as the result.
    pub(crate) unsafe fn element<'a>(&self, datum: pg_sys::Datum) -> Result<Option<Element<'a>>, Failure> {
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
            if norm.is_some() && self.value_type == ValueType::SparseVec {
                value = pg_sys::DirectFunctionCall1Coll(self.normalize, self.collation, value.into()).cast_mut_ptr();
                norm = None;
            }
            let size = pgrx::varsize_any(value);
            self.payload(std::slice::from_raw_parts(value.cast::<u8>(), size), norm).map(Some)
        }
    }

    /// The bytes behind the header, checked against the column.
    fn payload<'a>(&self, value: &'a [u8], norm: Option<f64>) -> Result<Element<'a>, Failure> {
        let malformed = || {
            Failure::new(PgSqlErrorCode::ERRCODE_DATA_EXCEPTION, "value does not fit the dimensions of its column")
                .detail(format!("Expected a {} of {} dimensions.", self.value_type.name(), self.dims))
        };
        if self.value_type == ValueType::SparseVec {
            let count = value.get(HEADER..HEADER + 4).ok_or_else(malformed)?;
            let entries = value.get(SPARSE_HEADER..).ok_or_else(malformed)?;
            if count.len() + entries.len() > MAX_VALUE_BYTES {
                // As pgvector says it, whose check not all columns have.
                let message =
                    format!("sparsevec cannot have more than {MAX_SPARSEVEC_NNZ} non-zero elements for hnsw index");
                return Err(Failure::new(PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message));
            }
            return Ok(Element::Sparse(count, entries));
        }
        let elements = value.get(HEADER..).ok_or_else(malformed)?;
        if self.value_type.value_len(self.dims) != Some(elements.len()) {
            return Err(malformed());
        }
        Ok(match norm {
            None => Element::AsItIs(elements),
            Some(norm) if self.value_type == ValueType::HalfVec => Element::DividedHalves(elements, norm),
            Some(norm) => Element::Divided(elements, norm),
        })
    }
}
