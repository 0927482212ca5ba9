/// The statement that is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Create,
    CreateConcurrently,
    Reindex,
    ReindexConcurrently,
}

impl Form {
    pub const ALL: [Self; 4] = [Self::Create, Self::CreateConcurrently, Self::Reindex, Self::ReindexConcurrently];

    pub fn sql(self) -> &'static str {
        match self {
            Self::Create => "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)",
            Self::CreateConcurrently => {
                "CREATE INDEX CONCURRENTLY items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)"
            }
            Self::Reindex => "REINDEX INDEX items_idx",
            Self::ReindexConcurrently => "REINDEX INDEX CONCURRENTLY items_idx",
        }
    }

    /// Whether there is an index before.
    pub fn is_reindex(self) -> bool {
        matches!(self, Self::Reindex | Self::ReindexConcurrently)
    }

    /// Whether an index that is not valid may be left of a statement that failed: it has committed before it builds.
    pub fn is_concurrent(self) -> bool {
        matches!(self, Self::CreateConcurrently | Self::ReindexConcurrently)
    }
}
