use crate::ValueType;

/// A distance that pgvector has operator classes for. Smaller is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Squared Euclidean distance.
    L2,
    /// Negative inner product.
    InnerProduct,
    /// Negative inner product of values that have been normalised.
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

    /// The metric of a type by name: `l2`, `ip` or `inner product`, and so on, or an operator class such as `vector_l2_ops`.
    /// Without a name, cosine, or hamming for bits. `None` if the type has no such metric.
    #[must_use]
    pub fn named(value_type: ValueType, name: Option<&str>) -> Option<Self> {
        let Some(name) = name else {
            return Some(if value_type == ValueType::Bit { Self::Hamming } else { Self::Cosine });
        };
        let is_meant = |metric: &Self| {
            name == metric.class() || name == metric.name() || name == metric.operator_class(value_type)
        };
        Self::ALL.into_iter().filter(|&metric| value_type.supports(metric)).find(is_meant)
    }

    /// The operator class of a type, such as `vector_l2_ops`.
    #[must_use]
    pub fn operator_class(self, value_type: ValueType) -> String {
        format!("{}_{}_ops", value_type.name(), self.class())
    }

    /// The operator that queries order by.
    #[must_use]
    pub fn operator(self) -> &'static str {
        match self {
            Self::L2 => "<->",
            Self::InnerProduct => "<#>",
            Self::Cosine => "<=>",
            Self::L1 => "<+>",
            Self::Hamming => "<~>",
            Self::Jaccard => "<%>",
        }
    }

    /// The metric's part of the names of operator classes.
    fn class(self) -> &'static str {
        match self {
            Self::InnerProduct => "ip",
            other => other.name(),
        }
    }
}
