/// The place of a row in its table: PostgreSQL's `ItemPointerData`.
///
/// Kept as the six bytes that PostgreSQL stores (block high half, block low half, offset, each a little-endian `u16`): the
/// builder mostly passes it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeapTid(pub [u8; 6]);

impl HeapTid {
    /// The TID of `offset` (1-based line number) in `block`.
    #[must_use]
    pub fn new(block: u32, offset: u16) -> Self {
        let [b0, b1, b2, b3] = block.to_le_bytes();
        let [o0, o1] = offset.to_le_bytes();
        Self([b2, b3, b0, b1, o0, o1])
    }

    /// The heap block.
    #[must_use]
    pub fn block(self) -> u32 {
        let [hi0, hi1, lo0, lo1, _, _] = self.0;
        u32::from_le_bytes([lo0, lo1, hi0, hi1])
    }

    /// The line number in the block, from 1; 0 in an invalid TID.
    #[must_use]
    pub fn offset(self) -> u16 {
        u16::from_le_bytes([self.0[4], self.0[5]])
    }

    /// Block and line number in one integer, in the order of rows in the table.
    #[must_use]
    pub fn place(self) -> u64 {
        u64::from(self.block()) << 16 | u64::from(self.offset())
    }

    /// PostgreSQL's `ItemPointerIsValid`.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.offset() != 0
    }
}

/// The heap TIDs of all elements, in one array.
#[derive(Clone, Debug, Default)]
pub struct HeapTids {
    starts: Vec<u64>,
    tids: Vec<HeapTid>,
}

impl HeapTids {
    /// An empty one with capacity for `elements` elements that have `rows` TIDs in all.
    #[must_use]
    pub fn with_capacity(elements: usize, rows: usize) -> Self {
        let mut starts = Vec::with_capacity(elements + 1);
        starts.push(0);
        Self { starts, tids: Vec::with_capacity(rows) }
    }

    /// Groups the TIDs of rows by element: `owners` has the element of each row, `counts` the number of rows of each
    /// element. The rows of an element keep their order.
    #[must_use]
    pub fn of_rows(tids: &[HeapTid], owners: &[u32], counts: &[u8]) -> Self {
        let mut starts = Vec::with_capacity(counts.len() + 1);
        starts.push(0);
        for (element, &count) in counts.iter().enumerate() {
            starts.push(starts[element] + u64::from(count));
        }
        let (mut next, mut grouped) = (starts.clone(), vec![HeapTid::default(); tids.len()]);
        for (&tid, &owner) in tids.iter().zip(owners) {
            let next = &mut next[owner as usize];
            grouped[*next as usize] = tid;
            *next += 1;
        }
        Self { starts, tids: grouped }
    }

    /// Adds the next element's TIDs.
    pub fn push(&mut self, tids: impl IntoIterator<Item = HeapTid>) {
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.tids.extend(tids);
        self.starts.push(self.tids.len() as u64);
    }

    /// The number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// The number of rows: all elements' TIDs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.tids.len()
    }

    /// The TIDs of one element.
    #[must_use]
    pub fn of(&self, element: u32) -> &[HeapTid] {
        let at = element as usize;
        &self.tids[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// The TIDs of one element, mutable.
    pub fn of_mut(&mut self, element: u32) -> &mut [HeapTid] {
        let at = element as usize;
        &mut self.tids[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::HeapTid;

    #[test]
    fn bytes_are_postgresqls() {
        assert_eq!(HeapTid::new(1, 5).0, [0, 0, 1, 0, 5, 0]);
        let tid = HeapTid::new(0x0001_0203, 77);
        assert_eq!((tid.block(), tid.offset()), (0x0001_0203, 77));
        assert!(!HeapTid::default().is_valid());
        assert!(HeapTid::new(0x0001_0203, 77).place() < HeapTid::new(0x0001_0204, 1).place());
    }
}
