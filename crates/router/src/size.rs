use protocol::{Hello, ValueType};

/// What a builder takes besides its rows.
const BASE_BYTES: u64 = 256 << 20;
/// Bytes of the graph per row and neighbor: measured 1.8 KB at m = 16.
const GRAPH_BYTES_PER_NEIGHBOR: u64 = 113;
/// Entries of a sparsevec, of which the dimensions say nothing.
const SPARSE_ENTRIES: u64 = 200;

/// Memory in bytes that the build will take: an estimate, as good as the client's count of rows. Without one, as much as
/// there is.
pub(crate) fn memory(hello: &Hello) -> u64 {
    if hello.estimated_rows == 0 {
        return u64::MAX;
    }
    let dims = u64::from(hello.dims);
    let value = match hello.value_type {
        ValueType::Vector => 4 * dims,
        ValueType::HalfVec => 2 * dims,
        ValueType::Bit => dims.div_ceil(8),
        ValueType::SparseVec => 4 + 8 * SPARSE_ENTRIES.min(dims),
    };
    let row = value + GRAPH_BYTES_PER_NEIGHBOR * u64::from(hello.m);
    BASE_BYTES.saturating_add(hello.estimated_rows.saturating_mul(row))
}

#[cfg(test)]
pub(crate) mod tests {
    use protocol::{Hello, Metric, ValueType};

    use super::memory;

    pub(crate) fn hello() -> Hello {
        Hello {
            protocol_min: 2,
            protocol_max: 2,
            capabilities: 0,
            value_type: ValueType::Vector,
            metric: Metric::L2,
            dims: 3,
            m: 16,
            ef_construction: 64,
            estimated_rows: 0,
            page_size: 8192,
            client_version: String::new(),
            server_version: String::new(),
            label: String::new(),
            token: String::new(),
        }
    }

    #[test]
    fn memory_grows_with_the_rows() {
        let million = Hello { dims: 1536, estimated_rows: 1_000_000, ..hello() };
        assert_eq!(memory(&million) >> 30, 7);
        assert_eq!(memory(&hello()), u64::MAX);
        assert_eq!(memory(&Hello { estimated_rows: 10, ..hello() }) >> 20, 256);
        assert_eq!(memory(&Hello { estimated_rows: u64::MAX, ..hello() }), u64::MAX);
        assert!(memory(&Hello { value_type: ValueType::SparseVec, dims: 1_000_000_000, ..million }) >> 30 < 8);
    }
}
