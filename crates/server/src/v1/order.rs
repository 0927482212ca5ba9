use hnsw::BuildSpec;
use pgvector::Metric;
use protocol::Tuples;
use protocol::v1::BuildOrder;

use super::unit::Units;

/// How a Lantern client's rows are prepared.
#[derive(Clone, Debug)]
pub(crate) struct Lantern {
    /// Normalises values where the metric is cosine.
    units: Option<Units>,
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
        (spec, Self { units: (metric == Metric::Cosine).then(|| Units::new(value_type, dims)) })
    }

    /// The rows as pgvector would index them, without those that pgvector skips.
    pub(crate) fn prepare(&mut self, rows: Tuples) -> Tuples {
        match &mut self.units {
            Some(units) => units.make(&rows),
            None => rows,
        }
    }

    /// Logs a warning if the values suggest that the client meant inner product.
    pub(crate) fn remark(&self) {
        let Some(units) = &self.units else { return };
        let (zeros, scaled) = (units.zeros(), units.scaled());
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
