use std::fmt;

use graph::HeapTid;

use crate::NO_BLOCK;
use crate::format::TID_LEN;

/// The place of a tuple in the index: PostgreSQL's `ItemPointerData`. Ordered by block, then offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid {
    /// The block, from 0.
    pub block: u32,
    /// The line number in the block, from 1; 0 in an invalid TID.
    pub offset: u16,
}

impl Tid {
    /// The content of an unused slot.
    pub const INVALID: Self = Self { block: NO_BLOCK, offset: 0 };

    /// The TID of `offset` in `block`.
    #[must_use]
    pub const fn new(block: u32, offset: u16) -> Self {
        Self { block, offset }
    }

    /// PostgreSQL's `ItemPointerIsValid`, which checks the offset alone.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.offset != 0
    }

    /// The six bytes on a page: block high half, block low half, offset.
    #[must_use]
    pub fn to_bytes(self) -> [u8; TID_LEN] {
        HeapTid::new(self.block, self.offset).0
    }

    /// Reads the six bytes on a page.
    #[must_use]
    pub fn from_bytes(bytes: [u8; TID_LEN]) -> Self {
        let tid = HeapTid(bytes);
        Self::new(tid.block(), tid.offset())
    }

    /// A number in the order of TIDs, which sorts faster.
    pub(crate) fn to_number(self) -> u64 {
        u64::from(self.block) << 16 | u64::from(self.offset)
    }

    pub(crate) fn from_number(number: u64) -> Self {
        Self::new((number >> 16) as u32, number as u16)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.block, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::Tid;

    #[test]
    fn bytes_are_postgresqls() {
        assert_eq!(Tid::new(1, 5).to_bytes(), [0, 0, 1, 0, 5, 0]);
        assert_eq!(Tid::INVALID.to_bytes(), [255, 255, 255, 255, 0, 0]);
        assert_eq!(Tid::from_bytes(Tid::new(0x0102_0304, 0x0506).to_bytes()), Tid::new(0x0102_0304, 0x0506));
    }
}
