/// A distance that pgvector has operator classes for. Smaller is nearer.
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
    /// Every metric.
    pub const ALL: [Self; 6] = [Self::L2, Self::InnerProduct, Self::Cosine, Self::L1, Self::Hamming, Self::Jaccard];

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
