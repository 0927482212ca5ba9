use crate::Metric;

/// A type that pgvector indexes with HNSW, and how the elements of its values are encoded, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// `vector`: f32 per dimension.
    Vector,
    /// `halfvec`: IEEE 754 binary16 per dimension.
    HalfVec,
    /// `bit`: packed, the first dimension in the most significant bit of the first byte; unused bits of the last byte are 0.
    Bit,
    /// `sparsevec`: u32 `nnz`, `nnz` i32 indices (from 0, ascending), `nnz` f32 values.
    SparseVec,
}

impl ValueType {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::Vector, Self::HalfVec, Self::Bit, Self::SparseVec];

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

    /// The type with this name in SQL.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value_type| value_type.name() == name)
    }

    /// The most dimensions that an index can have; at least 1 is needed.
    #[must_use]
    pub fn max_dims(self) -> u32 {
        match self {
            Self::Vector => 2_000,
            Self::HalfVec => 4_000,
            Self::Bit => 64_000,
            Self::SparseVec => 1_000_000_000,
        }
    }

    /// The bytes of a value of `dims` dimensions, without pgvector's header; `None` for a sparsevec, whose values differ in length.
    #[must_use]
    pub fn value_len(self, dims: u32) -> Option<usize> {
        let dims = dims as usize;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        assert!(ValueType::ALL.into_iter().all(|value_type| ValueType::named(value_type.name()) == Some(value_type)));
        assert_eq!(ValueType::named("text"), None);
    }

    #[test]
    fn bit_metrics_are_for_bit_only() {
        assert!(ValueType::Bit.supports(Metric::Jaccard) && !ValueType::Bit.supports(Metric::L2));
        assert!(ValueType::SparseVec.supports(Metric::L1) && !ValueType::HalfVec.supports(Metric::Hamming));
    }

    #[test]
    fn values_have_the_bytes_of_their_elements() {
        assert_eq!(ValueType::ALL.map(|value_type| value_type.value_len(9)), [Some(36), Some(18), Some(2), None]);
    }
}
