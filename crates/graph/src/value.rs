/// A type that pgvector indexes with HNSW.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// `vector`: f32 elements.
    Vector,
    /// `halfvec`: f16 elements.
    HalfVec,
    /// `bit`: packed bits, the first in the most significant bit of the first byte.
    Bit,
    /// `sparsevec`: a u32 count, that many i32 indices (0-based, ascending), then that many f32 values.
    SparseVec,
}

impl ValueType {
    /// The bytes of a value of `dims` dimensions, without pgvector's header; `None` where the length varies by value.
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

/// Where the values of a graph's elements are.
pub trait ElementValues: Sync {
    /// The bytes of an element's value in its type's encoding, without pgvector's header.
    fn value(&self, element: u32) -> &[u8];
}
