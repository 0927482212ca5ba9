use crate::ProtocolError;

/// The type of the values, as a number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueType {
    /// `vector`: f32 per dimension.
    Vector = 1,
    /// `halfvec`: IEEE 754 binary16 per dimension.
    HalfVec = 2,
    /// `bit`: packed, the first dimension in the most significant bit of the first byte.
    Bit = 3,
    /// `sparsevec`: u32 `nnz`, `nnz` i32 indices (from 0, ascending), `nnz` f32 values.
    SparseVec = 4,
}

impl ValueType {
    /// The bytes of a value of `dims` dimensions; `None` where values differ in length, so that lengths are sent.
    #[must_use]
    pub fn value_len(self, dims: u32) -> Option<u64> {
        let dims = u64::from(dims);
        match self {
            Self::Vector => Some(4 * dims),
            Self::HalfVec => Some(2 * dims),
            Self::Bit => Some(dims.div_ceil(8)),
            Self::SparseVec => None,
        }
    }

    /// Whether pgvector has an operator class for the type with the metric.
    #[must_use]
    pub fn supports(self, metric: Metric) -> bool {
        matches!(metric, Metric::Hamming | Metric::Jaccard) == (self == Self::Bit)
    }

    /// The name in SQL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vector => "vector",
            Self::HalfVec => "halfvec",
            Self::Bit => "bit",
            Self::SparseVec => "sparsevec",
        }
    }
}

impl TryFrom<u8> for ValueType {
    type Error = ProtocolError;

    fn try_from(number: u8) -> Result<Self, ProtocolError> {
        Ok(match number {
            1 => Self::Vector,
            2 => Self::HalfVec,
            3 => Self::Bit,
            4 => Self::SparseVec,
            _ => return Err(ProtocolError::ValueType(number)),
        })
    }
}

/// The distance that the graph is built for, as a number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Metric {
    /// Squared Euclidean distance.
    L2 = 1,
    /// Negative inner product.
    InnerProduct = 2,
    /// Negative inner product of values that the client has normalised.
    Cosine = 3,
    /// Sum of absolute differences.
    L1 = 4,
    /// Number of differing bits.
    Hamming = 5,
    /// 1 - shared bits / bits set in either.
    Jaccard = 6,
}

impl Metric {
    /// The name for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::InnerProduct => "inner product",
            Self::Cosine => "cosine",
            Self::L1 => "l1",
            Self::Hamming => "hamming",
            Self::Jaccard => "jaccard",
        }
    }
}

impl TryFrom<u8> for Metric {
    type Error = ProtocolError;

    fn try_from(number: u8) -> Result<Self, ProtocolError> {
        Ok(match number {
            1 => Self::L2,
            2 => Self::InnerProduct,
            3 => Self::Cosine,
            4 => Self::L1,
            5 => Self::Hamming,
            6 => Self::Jaccard,
            _ => return Err(ProtocolError::Metric(number)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Metric, ValueType};

    #[test]
    fn numbers_go_both_ways() {
        let types: Vec<_> = (0..=u8::MAX).filter_map(|n| ValueType::try_from(n).ok()).map(|t| t as u8).collect();
        let metrics: Vec<_> = (0..=u8::MAX).filter_map(|n| Metric::try_from(n).ok()).map(|m| m as u8).collect();
        assert_eq!((types, metrics), (vec![1, 2, 3, 4], vec![1, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn bit_metrics_are_for_bit_only() {
        assert!(ValueType::Bit.supports(Metric::Jaccard) && !ValueType::Bit.supports(Metric::L2));
        assert!(ValueType::SparseVec.supports(Metric::L1) && !ValueType::HalfVec.supports(Metric::Hamming));
    }
}
