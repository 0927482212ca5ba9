//! Determines the layout of pgvector's structure from what its words point to.

/// What a word of the structure is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    Null,
    /// The address of a function that a library exports.
    Function(String),
    /// Another address in a library.
    Unnamed,
    /// No address of a library.
    Other,
}

impl Word {
    /// pgvector's functions that divide a value by its norm; type bit has none.
    fn may_be_normalize(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Function(name) => {
                matches!(name.as_str(), "l2_normalize" | "halfvec_l2_normalize" | "sparsevec_l2_normalize")
            }
            Self::Unnamed | Self::Other => false,
        }
    }

    /// pgvector exports none of its functions that check a value; only type sparsevec has one.
    fn may_be_check(&self) -> bool {
        matches!(self, Self::Null | Self::Unnamed)
    }
}

/// The positions of the functions, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) normalize: usize,
    pub(crate) check: usize,
}

impl Layout {
    /// pgvector 0.7.0 to 0.8.6: `maxDimensions`, `normalize`, `checkValue`.
    pub(crate) const FIRST: Self = Self { normalize: 1, check: 2 };
    /// pgvector 0.8.7: a function that counts dimensions precedes `normalize`.
    pub(crate) const WITH_DIMS: Self = Self { normalize: 2, check: 3 };

    /// `None` if the words fit no known layout. A word is read only if all layouts still possible have it.
    pub(crate) fn of(word: impl Fn(usize) -> Word) -> Option<Self> {
        let first = word(1);
        let layout = match &first {
            _ if first.may_be_normalize() => Self::FIRST,
            Word::Function(_) => Self::WITH_DIMS,
            _ => return None,
        };
        (word(layout.normalize).may_be_normalize() && word(layout.check).may_be_check()).then_some(layout)
    }
}
