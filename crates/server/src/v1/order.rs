use hnsw::BuildSpec;
use pgvector::Metric;
use protocol::Tuples;
use protocol::v1::BuildOrder;

use super::normalise::Normaliser;

/// How a Lantern client's rows are prepared.
#[derive(Clone, Debug)]
pub(crate) struct Lantern {
    /// Normalises values where the metric is cosine.
    normaliser: Option<Normaliser>,
}

impl Lantern {
    /// The build that a client's order describes.
    pub(crate) fn new(order: &BuildOrder) -> (BuildSpec, Self) {
        let BuildOrder { value_type, metric, dims, .. } = *order;
        // A node of the file has room for one heap TID.
        let spec = BuildSpec {
            rows_per_element: 1,
            ..BuildSpec::new(value_type, metric, dims, order.m, order.ef_construction)
        };
        (spec, Self { normaliser: (metric == Metric::Cosine).then(|| Normaliser::new(value_type, dims)) })
    }

    /// The rows as pgvector would index them, without those that pgvector skips.
    pub(crate) fn prepare(&mut self, rows: Tuples) -> Tuples {
        match &mut self.normaliser {
            Some(normaliser) => normaliser.normalise(&rows),
            None => rows,
        }
    }

    /// Logs how many rows were left out, and warns if the values suggest that the client meant inner product.
    pub(crate) fn remark(&self) {
        let Some(normaliser) = &self.normaliser else { return };
        let (zeros, scaled) = (normaliser.zeros(), normaliser.scaled());
        if zeros > 0 {
            tracing::info!(rows = zeros, "vectors of length 0 are left out, as cosine has no angle for them");
        }
        if scaled > 0 {
            tracing::warn!(
                rows = scaled,
                "vectors that are not of length 1 are indexed by cosine; if the index is one for inner product, which this \
                 client announces as cosine, its answers are wrong: build it with --lantern-inner-product"
            );
        }
    }
}
