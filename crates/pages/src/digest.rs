use graph::HeapTid;
use highway::{HighwayHash, HighwayHasher, Key};

/// A digest of a set of rows, in any order.
///
/// It consists of the number of rows and the sum of their keyed hashes: without the key, nobody can lose, repeat, swap or alter
/// a row unnoticed. The client digests what it sends under a random key that it never sends.
#[derive(Clone)]
pub struct RowDigest {
    key: [u64; 4],
    sum: u128,
    rows: u64,
}

impl RowDigest {
    /// The digest of no row.
    #[must_use]
    pub fn new(key: [u64; 4]) -> Self {
        Self { key, sum: 0, rows: 0 }
    }

    /// Adds a row: its heap TID and the bytes of its value without pgvector's header.
    pub fn add(&mut self, tid: HeapTid, value: &[u8]) {
        self.add_parts(tid, [&[], value]);
    }

    /// [`Self::add`] for a value in two parts.
    pub(crate) fn add_parts(&mut self, tid: HeapTid, value: [&[u8]; 2]) {
        let mut hasher = HighwayHasher::new(Key(self.key));
        hasher.append(&tid.0);
        value.iter().for_each(|part| hasher.append(part));
        let [low, high] = hasher.finalize128();
        self.sum = self.sum.wrapping_add(u128::from(high) << 64 | u128::from(low));
        self.rows += 1;
    }

    /// The number of rows added.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

impl PartialEq for RowDigest {
    /// Whether both hold the same rows. Digests under different keys are never equal, unless both are empty.
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows && self.sum == other.sum
    }
}

impl Eq for RowDigest {}

/// Without the key.
impl std::fmt::Debug for RowDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowDigest").field("rows", &self.rows).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use graph::HeapTid;

    use super::RowDigest;

    fn digest(key: u64, rows: &[(u16, &[u8])]) -> RowDigest {
        let mut digest = RowDigest::new([key; 4]);
        rows.iter().for_each(|&(offset, value)| digest.add(HeapTid::new(7, offset), value));
        digest
    }

    #[test]
    fn rows_count_but_not_their_order() {
        let rows = digest(1, &[(1, b"one"), (2, b"two")]);
        assert_eq!(rows, digest(1, &[(2, b"two"), (1, b"one")]));
        for other in [
            digest(1, &[(1, b"two"), (2, b"one")]),
            digest(1, &[(1, b"one"), (1, b"one"), (2, b"two")]),
            digest(1, &[(1, b"one")]),
            digest(1, &[(1, b"one"), (2, b"twp")]),
            digest(2, &[(1, b"one"), (2, b"two")]),
        ] {
            assert_ne!(rows, other);
        }
    }

    #[test]
    fn a_value_in_parts_is_the_same_value() {
        let mut parts = RowDigest::new([3; 4]);
        parts.add_parts(HeapTid::new(1, 1), [b"ab", b"cde"]);
        let mut whole = RowDigest::new([3; 4]);
        whole.add(HeapTid::new(1, 1), b"abcde");
        assert_eq!(parts, whole);
    }
}
