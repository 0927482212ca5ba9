/// Statements that build an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `CREATE INDEX`
    Create,
    /// `CREATE INDEX CONCURRENTLY`
    CreateConcurrently,
    /// `REINDEX INDEX`
    Reindex,
    /// `REINDEX INDEX CONCURRENTLY`
    ReindexConcurrently,
}

impl Form {
    /// All statements.
    pub const ALL: [Self; 4] = [Self::Create, Self::CreateConcurrently, Self::Reindex, Self::ReindexConcurrently];

    /// The statement for an index; `definition` is the part of CREATE INDEX that follows `ON`.
    pub fn sql(self, index: &str, definition: &str) -> String {
        let concurrently = if self.is_concurrent() { "CONCURRENTLY " } else { "" };
        if self.is_reindex() {
            return format!("REINDEX INDEX {concurrently}{index}");
        }
        format!("CREATE INDEX {concurrently}{index} ON {definition}")
    }

    /// Whether it rebuilds an existing index.
    pub fn is_reindex(self) -> bool {
        matches!(self, Self::Reindex | Self::ReindexConcurrently)
    }

    /// Whether a failure may leave an invalid index: the statement commits before it builds.
    pub fn is_concurrent(self) -> bool {
        matches!(self, Self::CreateConcurrently | Self::ReindexConcurrently)
    }
}
