//! Sets of hard data: families of rows that are difficult for graph builders.

use std::path::Path;

use anyhow::Result;
use distance::Metric;
use graph::ValueType;
use harness::hard::{Family, ValueKind, Values};

use crate::Index;
use crate::graph_set::{GraphSet, spec};

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
    /// Draws rows and queries, and finds the true neighbors.
    pub fn make(family: &'static Family, seed: u64, rows: usize, queries: usize) -> Result<Self> {
        let (base, queries) = family.make(seed, rows.min(family.most_rows), queries);
        let metric = match family.ops {
            "l2_ops" => Metric::L2,
            "ip_ops" => Metric::InnerProduct,
            "cosine_ops" => Metric::Cosine,
            "l1_ops" => Metric::L1,
            "hamming_ops" => Metric::Hamming,
            _ => Metric::Jaccard,
        };
        let value_type = match family.kind {
            ValueKind::Vector => ValueType::Vector,
            ValueKind::Halfvec => ValueType::HalfVec,
            ValueKind::Bit => ValueType::Bit,
            ValueKind::Sparsevec => ValueType::SparseVec,
        };
        let encode = |values: &Values| -> Vec<Vec<u8>> {
            let each = 0..values.len();
            match metric {
                Metric::Cosine => each.filter_map(|at| values.normalised(at)).collect(),
                _ => each.map(|at| values.value(at).to_vec()).collect(),
            }
        };
        let spec = spec(value_type, metric, family.dims, family.m, family.ef_construction);
        let graph = GraphSet::new(spec, encode(&base), encode(&queries))?;
        Ok(Self { family, base, graph })
    }

    /// Reads an index file.
    pub fn read(&self, path: &Path) -> Result<Index> {
        Index::read(path, self.graph.value_type())
    }
}
