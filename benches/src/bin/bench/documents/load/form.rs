use super::super::super::NEIGHBORS;

/// What is indexed of the column `v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The vectors.
    Vector,
    /// Half precision.
    Halfvec,
    /// One bit per dimension (binary quantisation); candidates are re-ranked by the vectors in the table.
    Binary,
}

/// Where the index is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the database, by one process.
    Serial,
    /// In the database, with a parallel worker on each further core.
    Parallel,
    External,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::Vector, Self::Halfvec, Self::Binary];

    pub fn name(self) -> &'static str {
        match self {
            Self::Vector => "vector",
            Self::Halfvec => "halfvec",
            Self::Binary => "binary, re-ranked",
        }
    }

    /// Expression and opclass of the index.
    pub fn key(self, dims: usize) -> String {
        match self {
            Self::Vector => "v vector_cosine_ops".to_owned(),
            Self::Halfvec => format!("(v::halfvec({dims})) halfvec_cosine_ops"),
            Self::Binary => format!("(binary_quantize(v)::bit({dims})) bit_hamming_ops"),
        }
    }

    /// The statement that finds the rows nearest to a literal; `candidates` of them are re-ranked.
    pub fn search(self, dims: usize, query: &str, candidates: u32) -> String {
        match self {
            Self::Vector => format!("SELECT id FROM items ORDER BY v <=> {query} LIMIT {NEIGHBORS}"),
            Self::Halfvec => {
                format!("SELECT id FROM items ORDER BY v::halfvec({dims}) <=> {query}::halfvec LIMIT {NEIGHBORS}")
            }
            Self::Binary => format!(
                "SELECT id FROM (SELECT id, v <=> {query} AS distance FROM items \
                 ORDER BY binary_quantize(v)::bit({dims}) <~> binary_quantize({query}::vector) LIMIT {candidates}) near \
                 ORDER BY distance LIMIT {NEIGHBORS}"
            ),
        }
    }
}

impl Place {
    pub const ALL: [Self; 3] = [Self::Serial, Self::Parallel, Self::External];

    pub fn name(self) -> &'static str {
        match self {
            Self::Serial => "database in one process",
            Self::Parallel => "database in parallel",
            Self::External => "external",
        }
    }
}
