/// A distance that pgvector has an operator class for. Smaller is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Squared Euclidean distance.
    L2,
    /// Negative inner product.
    InnerProduct,
    /// Negative inner product of values that are normalised already.
    Cosine,
    /// Sum of absolute differences.
    L1,
    /// Number of differing bits.
    Hamming,
    /// 1 - shared bits / bits set in either; 1 when none is shared.
    Jaccard,
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

/// How the elements of a value are encoded, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Elements {
    /// f32 each.
    F32,
    /// IEEE half precision each.
    F16,
    /// Packed bits; unused bits of the last byte are 0.
    Bits,
    /// u32 count, that many i32 indices in ascending order, that many f32 values.
    Sparse,
}
