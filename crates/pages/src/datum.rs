use pgvector::{MAX_SPARSEVEC_NNZ, ValueType};

use crate::format::{ELEMENT_DATUM, put, read_u16, read_u32};
use crate::tuple::long_enough;
use crate::{IndexMeta, PageError, Tid};

/// The length in bytes that a value must have: given by type and dimensions or, for a sparsevec, by its own count of entries.
#[must_use]
pub fn value_len(meta: &IndexMeta, value: &[u8]) -> usize {
    meta.value_type.value_len(meta.dims).unwrap_or_else(|| {
        let nnz = if value.len() < 4 { 0 } else { read_u32(value, 0) as usize };
        4 + 8 * nnz.min(MAX_SPARSEVEC_NNZ)
    })
}

/// The length of the datum for a value of this length: varlena header, fixed fields and the value.
pub(crate) fn datum_len(value_type: ValueType, value_len: usize) -> usize {
    match value_type {
        ValueType::Vector | ValueType::HalfVec | ValueType::Bit => 8 + value_len,
        // The value begins with its count, which is one of the fixed fields.
        ValueType::SparseVec => 12 + value_len,
    }
}

/// Writes the datum of a value into the zeroed `out`.
pub(crate) fn write_datum(meta: &IndexMeta, value: &[u8], out: &mut [u8]) {
    let len = datum_len(meta.value_type, value.len());
    put(out, 0, &((len as u32) << 2).to_le_bytes());
    // Vectors have a 16-bit count and 16 zero bits, other types a 32-bit count: the same bytes, as vectors have few dimensions.
    put(out, 4, &meta.dims.to_le_bytes());
    if meta.value_type == ValueType::SparseVec {
        put(out, 8, &value[..4]);
        put(out, 16, &value[4..]);
    } else {
        put(out, 8, value);
    }
}

/// A value on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datum<'a> {
    /// The value without pgvector's header, in two consecutive parts: a sparsevec's count is not adjacent to its indices. The
    /// first part is empty for other types.
    pub value: [&'a [u8]; 2],
    /// Bytes of the whole datum.
    pub len: usize,
}

impl<'a> Datum<'a> {
    /// Reads the datum at the start of `bytes` and checks it against its type: length, dimensions, reserved fields, padding
    /// bits, order of sparse indices. `tid` is the tuple for error messages.
    ///
    /// # Errors
    /// [`PageError::Datum`] or [`PageError::DatumLimit`] names the first field that is wrong; [`PageError::TupleLen`] if bytes are missing.
    pub fn parse(value_type: ValueType, dims: u32, tid: Tid, bytes: &'a [u8]) -> Result<Self, PageError> {
        let check = |field, found: u32, expected: usize| {
            let (found, expected) = (i64::from(found), expected as i64);
            if found == expected { Ok(()) } else { Err(PageError::Datum { tid, field, found, expected }) }
        };
        let at_most = |field, found: u32, limit: u32| {
            let (found, limit) = (i64::from(found), i64::from(limit));
            if found <= limit { Ok(()) } else { Err(PageError::DatumLimit { tid, field, found, bound: "most", limit }) }
        };
        at_most("dimensions", dims, value_type.max_dims())?;
        let head = datum_len(value_type, if value_type == ValueType::SparseVec { 4 } else { 0 });
        long_enough(tid, ELEMENT_DATUM + bytes.len(), ELEMENT_DATUM + head)?;
        let nnz = if value_type == ValueType::SparseVec { read_u32(bytes, 8) } else { 0 };
        at_most("nnz", nnz, MAX_SPARSEVEC_NNZ as u32)?;
        let nnz = nnz as usize;
        let len = datum_len(value_type, value_type.value_len(dims).unwrap_or(4 + 8 * nnz));
        check("varlena header", read_u32(bytes, 0), len << 2)?;
        long_enough(tid, ELEMENT_DATUM + bytes.len(), ELEMENT_DATUM + len)?;
        match value_type {
            ValueType::Vector | ValueType::HalfVec => {
                check("dimensions", read_u16(bytes, 4).into(), dims as usize)?;
                check("unused field", read_u16(bytes, 6).into(), 0)?;
            }
            ValueType::Bit => {
                check("dimensions", read_u32(bytes, 4), dims as usize)?;
                let pad = len * 8 - 64 - dims as usize;
                check("pad bits", (bytes[len - 1] & ((1u16 << pad) - 1) as u8).into(), 0)?;
            }
            ValueType::SparseVec => {
                check("dimensions", read_u32(bytes, 4), dims as usize)?;
                check("unused field", read_u32(bytes, 12), 0)?;
                check_indices(tid, dims, &bytes[16..16 + 4 * nnz])?;
                return Ok(Self { value: [&bytes[8..12], &bytes[16..len]], len });
            }
        }
        Ok(Self { value: [&[], &bytes[8..len]], len })
    }
}

/// Checks that indices ascend and lie within the dimensions.
fn check_indices(tid: Tid, dims: u32, indices: &[u8]) -> Result<(), PageError> {
    let (mut least, most) = (0, i64::from(dims) - 1);
    for found in indices.chunks_exact(4).map(|index| i64::from(read_u32(index, 0).cast_signed())) {
        if !(least..=most).contains(&found) {
            let (bound, limit) = if found < least { ("least", least) } else { ("most", most) };
            return Err(PageError::DatumLimit { tid, field: "index", found, bound, limit });
        }
        least = found + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pgvector::ValueType;

    use super::{Datum, datum_len, value_len, write_datum};
    use crate::{IndexMeta, Tid};

    fn datum(value_type: ValueType, dims: u32, value: &[u8]) -> Vec<u8> {
        let meta = IndexMeta { value_type, dims, m: 16, ef_construction: 64 };
        assert_eq!(value_len(&meta, value), value.len());
        let mut out = vec![0; datum_len(value_type, value.len())];
        write_datum(&meta, value, &mut out);
        let read = Datum::parse(value_type, dims, Tid::new(1, 1), &out).unwrap();
        assert_eq!((read.value.concat(), read.len), (value.to_vec(), out.len()));
        out
    }

    #[test]
    fn headers_are_pgvectors() {
        assert_eq!(datum(ValueType::Vector, 3, &[1; 12])[..8], [0x50, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(datum(ValueType::HalfVec, 64, &[1; 128])[..4], [0x20, 2, 0, 0]);
        assert_eq!(datum(ValueType::Bit, 9, &[0xFF, 0x80]), [0x28, 0, 0, 0, 9, 0, 0, 0, 0xFF, 0x80]);
        let sparse = [1, 0, 0, 0, 5, 0, 0, 0, 9, 9, 9, 9];
        let expected = [0x60, 0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 9, 9, 9, 9];
        assert_eq!(datum(ValueType::SparseVec, 64, &sparse), expected);
    }

    #[test]
    fn broken_fields_are_found() {
        let bad = |value_type, dims, bytes: &[u8]| {
            Datum::parse(value_type, dims, Tid::new(1, 1), bytes).unwrap_err().to_string()
        };
        let bits = [0x28, 0, 0, 0, 9, 0, 0, 0, 0xFF, 0x81];
        assert_eq!(bad(ValueType::Bit, 9, &bits), "(1,1): value with pad bits 1, expected 0");
        assert_eq!(bad(ValueType::Bit, 9, &bits[..9]), "(1,1): tuple of 81 bytes, 82 needed");
        assert_eq!(bad(ValueType::Vector, 3, &[0; 3]), "(1,1): tuple of 75 bytes, 80 needed");
        assert_eq!(bad(ValueType::SparseVec, 9, &[255; 24]), "(1,1): value with nnz 4294967295, must be at most 1000");
        assert_eq!(bad(ValueType::Vector, 2001, &[0; 8]), "(1,1): value with dimensions 2001, must be at most 2000");
        let sparse = |indices: [u8; 2]| {
            let [a, b] = indices;
            let head = [0x80, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
            bad(ValueType::SparseVec, 5, &[&head[..], &[a, 0, 0, 0, b, 0, 0, 0], &[9; 8]].concat())
        };
        assert_eq!(sparse([3, 5]), "(1,1): value with index 5, must be at most 4");
        assert_eq!(sparse([3, 3]), "(1,1): value with index 3, must be at least 4");
    }
}
