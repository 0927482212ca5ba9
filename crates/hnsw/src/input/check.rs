//! Which values does pgvector accept?

use graph::ValueType;
use pgvector::MAX_SPARSEVEC_NNZ;

use crate::{BuildError, BuildSpec};

/// Checks one value as pgvector would have: its length, that all numbers are finite, and for bit and sparse values their form.
pub(crate) fn check(spec: &BuildSpec, row: u64, value: &[u8]) -> Result<(), BuildError> {
    if let Some(expected) = spec.value_type.value_len(spec.dims)
        && value.len() != expected
    {
        return Err(BuildError::ValueLength { row, found: value.len(), expected });
    }
    let problem = match spec.value_type {
        ValueType::Vector => f32_problem(value),
        ValueType::HalfVec => f16_problem(value),
        ValueType::Bit => bit_problem(value, spec.dims),
        ValueType::SparseVec => return check_sparse(spec, row, value),
    };
    problem.map_or(Ok(()), |problem| Err(BuildError::Value { row, problem }))
}

fn f32_problem(value: &[u8]) -> Option<&'static str> {
    const EXPONENT: u32 = 0x7f80_0000;
    let bits = value.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let finite = bits.clone().fold(true, |finite, bits| finite & (bits & EXPONENT != EXPONENT));
    (!finite).then(|| name_problem(bits.map(f32::from_bits).any(f32::is_nan)))
}

fn f16_problem(value: &[u8]) -> Option<&'static str> {
    const EXPONENT: u16 = 0x7c00;
    let bits = value.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let finite = bits.clone().fold(true, |finite, bits| finite & (bits & EXPONENT != EXPONENT));
    (!finite).then(|| name_problem(bits.clone().any(|bits| bits & EXPONENT == EXPONENT && bits & 0x3ff != 0)))
}

fn name_problem(nan: bool) -> &'static str {
    if nan { "not a number" } else { "infinite" }
}

fn bit_problem(value: &[u8], dims: u32) -> Option<&'static str> {
    let unused = (8 - dims % 8) % 8;
    let last = value.last().copied().unwrap_or(0);
    (last & ((1u16 << unused) - 1) as u8 != 0).then_some("padded with bits that are not zero")
}

fn check_sparse(spec: &BuildSpec, row: u64, value: &[u8]) -> Result<(), BuildError> {
    let short = BuildError::ValueLength { row, found: value.len(), expected: 4 };
    let (head, rest) = value.split_first_chunk::<4>().ok_or(short)?;
    let count = u32::from_le_bytes(*head) as usize;
    let fail = |problem| Err(BuildError::Value { row, problem });
    if count > MAX_SPARSEVEC_NNZ {
        const { assert!(MAX_SPARSEVEC_NNZ == 1000) };
        return fail("sparse with more than 1000 non-zero elements");
    }
    if rest.len() != 8 * count {
        return Err(BuildError::ValueLength { row, found: value.len(), expected: 4 + 8 * count });
    }
    let (indices, numbers) = rest.split_at(4 * count);
    let indices = indices.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    if indices.clone().any(|index| index >= spec.dims) || !indices.is_sorted_by(|a, b| a < b) {
        return fail("sparse with indices out of order or range");
    }
    match f32_problem(numbers) {
        Some(problem) => fail(problem),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use graph::ValueType;

    use super::check;
    use crate::testing::sparse;
    use crate::{BuildSpec, testing};

    fn problem(value_type: ValueType, dims: u32, value: &[u8]) -> String {
        let spec = BuildSpec { value_type, ..testing::spec(dims as usize) };
        check(&spec, 7, value).map_or_else(|error| error.to_string(), |()| "fine".into())
    }

    #[test]
    fn dense_values_must_be_finite_and_of_the_right_length() {
        let f32s = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        assert_eq!(problem(ValueType::Vector, 2, &f32s(&[1.0, -0.0])), "fine");
        assert_eq!(problem(ValueType::Vector, 2, &f32s(&[1.0])), "row 7 has a value of 4 bytes, 8 expected");
        assert_eq!(problem(ValueType::Vector, 2, &f32s(&[1.0, f32::NAN])), "row 7 has a value that is not a number");
        assert_eq!(problem(ValueType::Vector, 1, &f32s(&[f32::NEG_INFINITY])), "row 7 has a value that is infinite");
        assert_eq!(problem(ValueType::HalfVec, 1, &[0x00, 0x7c]), "row 7 has a value that is infinite");
        assert_eq!(problem(ValueType::HalfVec, 1, &[0x01, 0x7c]), "row 7 has a value that is not a number");
        assert_eq!(problem(ValueType::HalfVec, 1, &[0xff, 0x7b]), "fine");
    }

    #[test]
    fn bits_beyond_the_length_must_be_zero() {
        assert_eq!(problem(ValueType::Bit, 3, &[0b1110_0000]), "fine");
        assert_eq!(
            problem(ValueType::Bit, 3, &[0b1111_0000]),
            "row 7 has a value that is padded with bits that are not zero"
        );
        assert_eq!(problem(ValueType::Bit, 8, &[0xff]), "fine");
    }

    #[test]
    fn sparse_values_must_have_ordered_indices_and_whole_entries() {
        assert_eq!(problem(ValueType::SparseVec, 10, &sparse(&[(0, 1.0), (9, 2.0)])), "fine");
        assert_eq!(problem(ValueType::SparseVec, 10, &sparse(&[])), "fine");
        let order = "row 7 has a value that is sparse with indices out of order or range";
        assert_eq!(problem(ValueType::SparseVec, 10, &sparse(&[(1, 1.0), (1, 2.0)])), order);
        assert_eq!(problem(ValueType::SparseVec, 10, &sparse(&[(10, 1.0)])), order);
        assert_eq!(problem(ValueType::SparseVec, 10, &[1, 0]), "row 7 has a value of 2 bytes, 4 expected");
        assert_eq!(
            problem(ValueType::SparseVec, 10, &[255, 255, 255, 255]),
            "row 7 has a value that is sparse with more than 1000 non-zero elements"
        );
        let half = &sparse(&[(0, 1.0)])[..8];
        assert_eq!(problem(ValueType::SparseVec, 3, half), "row 7 has a value of 8 bytes, 12 expected");
    }
}
