//! Sets of hard data: families of rows that are difficult for graph builders.

use std::path::Path;

use anyhow::Result;
use distance::Metric;
use harness::hard::{Family, Values};
use hnsw::BuildSpec;

use crate::Index;
use crate::graph_set::GraphSet;

/// A family's rows and queries.
pub struct HardSet {
    /// The family.
    pub family: &'static Family,
    /// The rows as values of a table.
    pub base: Values,
    /// The same set, encoded as in an index.
    pub graph: GraphSet,
}

impl HardSet {
    /// Draws rows and queries.
    pub fn make(family: &'static Family, seed: u64, rows: usize, queries: usize) -> Result<Self> {
        let (base, queries) = family.make(seed, rows.min(family.most_rows), queries);
        let encode = |values: &Values| -> Vec<Vec<u8>> {
            let each = 0..values.len();
            match family.metric {
                Metric::Cosine => each.filter_map(|at| values.normalised(at)).collect(),
                _ => each.map(|at| values.value(at).to_vec()).collect(),
            }
        };
        let spec = BuildSpec::new(family.kind, family.metric, family.dims as u32, family.m, family.ef_construction);
        let graph = GraphSet::new(spec, encode(&base), encode(&queries))?;
        Ok(Self { family, base, graph })
    }

    /// Reads an index file.
    pub fn read(&self, path: &Path) -> Result<Index> {
        Index::read(path, self.graph.value_type())
    }
}
