use graph::ValueType;

use crate::Content;

/// The bytes before the first node.
pub(crate) const HEAD_BYTES: usize = 136;

/// Makes the head. Clients read nothing of it but the entry point.
pub(crate) fn head(content: &Content, m: u16, nodes: u64, value_len: u64, top: u8, entry: u64) -> [u8; HEAD_BYTES] {
    // usearch's numbers of scalar kinds: of the values, and below of keys (u64) and slots (48 bits).
    let scalar = match content.value_type {
        ValueType::HalfVec => 6,
        ValueType::Bit => 1,
        ValueType::Vector | ValueType::SparseVec => 5,
    };
    let mut head = [0; HEAD_BYTES];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        head[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(b"usearch");
    put(&[2, 0, 8, 0, 14, 0]);
    put(&[content.metric, scalar, 8, 16]);
    put(&nodes.to_le_bytes());
    // No node is deleted.
    put(&[0; 8]);
    put(&u64::from(content.dims).to_le_bytes());
    // At most one node per label; the rest of this part is unused.
    put(&[0; 80 - 41]);
    for number in [nodes, m.into(), 2 * u64::from(m), top.into(), entry, value_len, nodes] {
        put(&number.to_le_bytes());
    }
    debug_assert_eq!(at, HEAD_BYTES);
    head
}
