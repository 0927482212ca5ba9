use pgvector::ValueType;

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

impl Elements {
    /// The encoding of a type's values.
    #[must_use]
    pub fn of(value_type: ValueType) -> Self {
        match value_type {
            ValueType::Vector => Self::F32,
            ValueType::HalfVec => Self::F16,
            ValueType::Bit => Self::Bits,
            ValueType::SparseVec => Self::Sparse,
        }
    }
}
