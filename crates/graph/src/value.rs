/// Where the values of a graph's elements are.
pub trait ElementValues: Sync {
    /// The bytes of an element's value in its type's encoding, without pgvector's header.
    fn value(&self, element: u32) -> &[u8];
}
