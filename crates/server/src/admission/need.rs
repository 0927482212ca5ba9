use hnsw::BuildSpec;
use pages::Estimate;

/// The memory of a build, from its parameters and the number of rows and bytes of values known so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// The parameters that do not depend on the number of rows.
    shape: Estimate,
    /// Whether values vary in length, so that their mean is known only as they arrive.
    varying: bool,
    threads: u32,
    /// Rows whose values are in memory; values of later rows are in the spool.
    in_memory: u64,
}

/// Rows assumed if the client gives no estimate.
const ROWS_UNKNOWN: u64 = 10_000;

/// Bytes assumed for a sparse value before any has arrived: 64 entries.
pub(crate) const SPARSE_VALUE: usize = 4 + 8 * 64;

/// Bytes for frames in flight, and the other fixed needs of a check or of advice.
pub(crate) const FIXED: u64 = 12 << 20;

impl Need {
    pub(crate) fn new(spec: &BuildSpec, threads: u32) -> Self {
        let fixed = spec.value_type.value_len(spec.dims);
        let value_len = fixed.unwrap_or(SPARSE_VALUE);
        let (value_type, dims) = (spec.value_type, spec.dims);
        let shape = Estimate { value_type, dims, value_len, m: spec.m, rows: 0, elements: 0 };
        Self { shape, varying: fixed.is_none(), threads, in_memory: u64::MAX }
    }

    /// The threads that the memory is for.
    pub(crate) fn threads(&self) -> u32 {
        self.threads
    }

    /// The same build with the values of all but the first `rows` rows in the spool.
    pub(crate) fn spooled_after(self, rows: u64) -> Self {
        Self { in_memory: rows, ..self }
    }

    /// Whether values go to the spool.
    pub(crate) fn is_spooled(&self) -> bool {
        self.in_memory < u64::MAX
    }

    /// Bytes of memory for the client's estimate of rows (0 if unknown).
    pub(crate) fn at_first(&self, estimated_rows: u64) -> u64 {
        let rows = if estimated_rows == 0 { ROWS_UNKNOWN } else { estimated_rows };
        self.of(Estimate { rows, elements: rows, ..self.shape })
    }

    /// Bytes of memory for `rows` rows, given that the `seen` rows so far have `seen_bytes` bytes of values.
    pub(crate) fn of_rows(&self, rows: u64, seen: u64, seen_bytes: u64) -> u64 {
        let value_len = match seen_bytes.checked_div(seen) {
            Some(mean) if self.varying => usize::try_from(mean + 1).unwrap_or(usize::MAX),
            _ => self.shape.value_len,
        };
        self.of(Estimate { rows, elements: rows, value_len, ..self.shape })
    }

    fn of(&self, estimate: Estimate) -> u64 {
        let in_memory = Estimate { elements: estimate.elements.min(self.in_memory), ..estimate };
        estimate.spooled_memory_bytes(self.threads).saturating_add(in_memory.values_bytes())
    }
}

#[cfg(test)]
mod tests {
    use hnsw::{BuildSpec, Metric};
    use pgvector::ValueType;

    use super::Need;

    fn need(value_type: ValueType, dims: u32) -> Need {
        Need::new(&BuildSpec::new(value_type, Metric::L2, dims, 16, 64), 4)
    }

    #[test]
    fn more_rows_need_more_and_nothing_overflows() {
        let need = need(ValueType::Vector, 128);
        assert!(need.at_first(1_000_000) > need.at_first(100_000) + 900_000 * 512);
        assert_eq!(need.at_first(0), need.at_first(10_000));
        assert_eq!(need.of_rows(5000, 10, 10 * 512), need.at_first(5000));
        assert!(need.at_first(u64::MAX) > u64::MAX / 2);
    }

    #[test]
    fn values_in_the_spool_need_no_memory() {
        let need = need(ValueType::Vector, 128);
        let (all, half) = (need.spooled_after(0), need.spooled_after(50_000));
        assert_eq!(need.at_first(100_000) - all.at_first(100_000), 100_000 * (512 + 128));
        assert_eq!(need.at_first(100_000) - half.at_first(100_000), 50_000 * (512 + 128));
        assert_eq!(need.at_first(4000), half.at_first(4000));
    }

    #[test]
    fn sparse_values_count_by_their_mean_length() {
        let need = need(ValueType::SparseVec, 1000);
        assert!(need.of_rows(10_000, 100, 100 * 4000) > need.at_first(10_000) + 10_000 * 3000);
        assert!(need.of_rows(10_000, 100, 100 * 12) < need.at_first(10_000));
    }
}
