/// Access to the values of a graph's elements.
pub trait ElementValues: Sync {
    /// The bytes of an element's value in the encoding of its type, without pgvector's header.
    fn value(&self, element: u32) -> &[u8];
}
