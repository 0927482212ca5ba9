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
pub(crate) enum IndexValue<'a> {
    AsItIs(&'a [u8]),
    /// Components, and the norm to divide them by.
    Divided(&'a [u8], f64),
    /// Components in half precision, and the norm.
    DividedHalves(&'a [u8], f64),
    /// The number of entries, and the entries.
    Sparse(&'a [u8], &'a [u8]),
}

impl IndexValue<'_> {
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

/// The bytes of a varlena, header included.
///
/// # Safety
/// It must be one, and live as long as the result.
unsafe fn bytes_of<'a>(value: *mut pg_sys::varlena) -> &'a [u8] {
    // SAFETY: as promised by the caller.
    unsafe { std::slice::from_raw_parts(value.cast::<u8>(), pgrx::varsize_any(value)) }
}

/// As pgvector's `l2_normalize`: in double precision, then rounded.
fn divided(component: f32, norm: f64) -> f32 {
    (f64::from(component) / norm) as f32
}

/// Components of a halfvec that are converted at once. pgvector's own functions take several times as long, since they convert one at a
/// time, and without the processor's instructions for it.
const HALVES: usize = 64;

/// The norm that pgvector's `halfvec_l2_norm` computes; `None` if the order of its additions may matter.
fn norm_of_halves(components: &[u8]) -> Option<f64> {
    /// The square of any half is a multiple of 2^-48: sums below this are exact in double precision.
    const EXACT: f64 = 32.0;
    const LANES: usize = 8;
    let (mut halves, mut wide, mut sums) = ([f16::ZERO; HALVES], [0f32; HALVES], [0f64; LANES]);
    let (components, _) = components.as_chunks();
    for components in components.chunks(HALVES) {
        // The rest of the last chunk stays zero.
        wide.fill(0.0);
        widen(components, &mut halves, &mut wide);
        for wide in wide.as_chunks::<LANES>().0 {
            sums.iter_mut().zip(wide).for_each(|(sum, &x)| *sum += f64::from(x) * f64::from(x));
        }
    }
    let square: f64 = sums.iter().sum();
    (square < EXACT).then(|| square.sqrt())
}

/// As pgvector's `halfvec_l2_normalize`.
fn divide_halves(components: &[u8], norm: f64, out: &mut [u8]) {
    let (mut halves, mut wide) = ([f16::ZERO; HALVES], [0f32; HALVES]);
    let ((components, _), (out, _)) = (components.as_chunks(), out.as_chunks_mut());
    for (components, out) in components.chunks(HALVES).zip(out.chunks_mut(HALVES)) {
        widen(components, &mut halves, &mut wide);
        wide.iter_mut().for_each(|x| *x = divided(*x, norm));
        halves.convert_from_f32_slice(&wide);
        out.iter_mut().zip(halves).for_each(|(out, half)| *out = half.to_le_bytes());
    }
}

/// Converts at most [`HALVES`] components to single precision.
fn widen(components: &[[u8; 2]], halves: &mut [f16; HALVES], wide: &mut [f32; HALVES]) {
    let count = components.len();
    halves.iter_mut().zip(components).for_each(|(half, &component)| *half = f16::from_le_bytes(component));
    halves[..count].convert_to_f32_slice(&mut wide[..count]);
}

impl Column {
    /// The value to index; `None` if pgvector would not index the row. The result borrows from the table's page or the current
    /// memory context.
    ///
    /// # Safety
    /// `datum` must be a value of the column, not null, and live as long as the result.
    pub(crate) unsafe fn index_value<'a>(&self, datum: pg_sys::Datum) -> Result<Option<IndexValue<'a>>, Failure> {
        // SAFETY: the column's types are varlenas; functions of pgvector get what pgvector would give them.
        unsafe {
            let mut value = pg_sys::pg_detoast_datum(datum.cast_mut_ptr());
            if let Some(check) = self.check {
                pg_guard_ffi_boundary(|| check(value.cast()));
            }
            let mut norm = None;
            if let Some(function) = self.norm {
                let found = self.norm_of(value, function);
                if found <= 0.0 {
                    return Ok(None);
                }
                norm = Some(found);
            }
            if norm.is_some() && self.value_type == ValueType::SparseVec {
                value = pg_sys::DirectFunctionCall1Coll(self.normalize, self.collation, value.into()).cast_mut_ptr();
                norm = None;
            }
            self.payload(bytes_of(value), norm).map(Some)
        }
    }

    /// The norm of a value, which pgvector's `function` computes.
    ///
    /// # Safety
    /// `value` must be a value of the column, as a varlena with its usual header.
    unsafe fn norm_of(&self, value: *mut pg_sys::varlena, function: *mut pg_sys::FmgrInfo) -> f64 {
        // SAFETY: as promised by the caller.
        unsafe {
            if self.value_type == ValueType::HalfVec
                && let Some(norm) = bytes_of(value).get(HEADER..).and_then(norm_of_halves)
            {
                return norm;
            }
            let norm = pg_sys::FunctionCall1Coll(function, self.collation, value.into());
            f64::from_datum(norm, false).unwrap_or_default()
        }
    }

    /// The bytes behind the header, checked against the column.
    fn payload<'a>(&self, value: &'a [u8], norm: Option<f64>) -> Result<IndexValue<'a>, Failure> {
        let malformed = || {
            Failure::new(PgSqlErrorCode::ERRCODE_DATA_EXCEPTION, "value does not fit the dimensions of its column")
                .detail(format!("Expected a {} of {} dimensions.", self.value_type.name(), self.dims))
        };
        if self.value_type == ValueType::SparseVec {
            let count = value.get(HEADER..HEADER + 4).ok_or_else(malformed)?;
            let entries = value.get(SPARSE_HEADER..).ok_or_else(malformed)?;
            if count.len() + entries.len() > MAX_VALUE_BYTES {
                // The message of pgvector's check, which not all columns have.
                let message =
                    format!("sparsevec cannot have more than {MAX_SPARSEVEC_NNZ} non-zero elements for hnsw index");
                return Err(Failure::new(PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message));
            }
            return Ok(IndexValue::Sparse(count, entries));
        }
        let elements = value.get(HEADER..).ok_or_else(malformed)?;
        if self.value_type.value_len(self.dims) != Some(elements.len()) {
            return Err(malformed());
        }
        Ok(match norm {
            None => IndexValue::AsItIs(elements),
            Some(norm) if self.value_type == ValueType::HalfVec => IndexValue::DividedHalves(elements, norm),
            Some(norm) => IndexValue::Divided(elements, norm),
        })
    }
}
