//! Which graphs are built, of how many rows of the sample, so that the answer comes within a minute.

use pages::Estimate;
use pgvector::ValueType;

use crate::trial::Candidate;
use crate::{MAX_QUERIES, Question};

/// Neighbors per element that are tried.
const M: [u16; 4] = [8, 16, 24, 32];
/// The `m` of the graphs that show how searches slow down with the rows.
const REFERENCE_M: u16 = 16;
/// pgvector's default, and a wider one that is tried with the reference's `m`.
const EF_CONSTRUCTION: [u16; 2] = [64, 128];
/// Fewer rows are too few to measure with, and an exact search of them takes milliseconds.
const LEAST_ROWS: u64 = 1000;
/// Bytes of values that a thread can build, search and compare within the minute.
const BYTES_PER_THREAD: usize = 75 << 20;
/// The cost of a row's neighbors, in bytes of values.
const PER_ROW: usize = 1 << 10;
/// The most candidates that are measured again, on a graph of another size.
pub(crate) const REFINED: usize = 6;
/// The least number of rows in the largest graph, if the sample has them.
const LEAST_BUILT: usize = 5000;

/// The fewest rows with a value from which advice is given for `k` neighbors.
#[must_use]
pub fn least_rows(k: usize) -> u64 {
    LEAST_ROWS.max(20 * k as u64)
}

/// The peak memory in bytes: the sample as received and converted, and one build at a time.
#[must_use]
pub fn memory_bytes((value_type, dims): (ValueType, u32), value_len: usize, rows: u64, threads: u32) -> u64 {
    let values = rows.saturating_add(MAX_QUERIES as u64).saturating_mul(value_len as u64);
    let m = M[M.len() - 1];
    let rows = rows.min(most_built(value_len, threads as usize) as u64);
    let build = Estimate { value_type, dims, value_len, m, rows, elements: rows }.build_memory_bytes(threads);
    // Three copies of the values: as received, in a `Vec` with spare capacity; normalised; as halfvec and bits. Heaps of neighbors are
    // small.
    values.saturating_mul(3).saturating_add(build)
}

/// The numbers of rows that graphs are built of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// A quarter, half and all of the largest number.
    pub(crate) sizes: [usize; 3],
    /// The index in `sizes` for all candidates but the references.
    pub(crate) others: usize,
}

impl Plan {
    pub(crate) fn new(rows: usize, value_len: usize, threads: usize, k: usize) -> Self {
        let most = most_built(value_len, threads);
        let all = rows.min(most);
        let sizes = [all.div_ceil(4), all.div_ceil(2), all];
        // With few rows, there is time to build all candidates of all rows. In a graph that is too small for k, searches visit nearly all.
        let large_enough = || sizes.iter().position(|&size| size as u64 >= least_rows(k));
        let others = if all <= most / 2 { None } else { large_enough() };
        Self { sizes, others: others.unwrap_or(sizes.len() - 1) }
    }

    /// The number of graphs for these types, if [`REFINED`] candidates are measured again.
    pub(crate) fn steps(&self, types: &[ValueType]) -> usize {
        let of = |&value_type: &ValueType| {
            let references = if shows_growth(value_type, types) { self.sizes.len() } else { 1 };
            references + others(value_type).count()
        };
        REFINED + types.iter().map(of).sum::<usize>()
    }
}

/// Whether graphs of several sizes are built for one of these types. The values of halfvec are nearly those of vector, so that its growth
/// is taken from vector.
pub(crate) fn shows_growth(value_type: ValueType, types: &[ValueType]) -> bool {
    value_type != ValueType::HalfVec || !types.contains(&ValueType::Vector)
}

/// The most rows that a graph is built of.
fn most_built(value_len: usize, threads: usize) -> usize {
    (BYTES_PER_THREAD * threads / (PER_ROW + value_len)).max(LEAST_BUILT)
}

/// The types that an index of the column may have.
pub(crate) fn types(question: &Question) -> Vec<ValueType> {
    use ValueType::{Bit, HalfVec, SparseVec, Vector};
    let all: &[ValueType] = match question.value_type {
        own if question.own_type => &[own],
        Vector => &[Vector, HalfVec, Bit],
        HalfVec => &[HalfVec, Bit],
        Bit => &[Bit],
        SparseVec => &[SparseVec],
    };
    all.iter().copied().filter(|&value_type| question.dims <= value_type.max_dims()).collect()
}

/// The candidate of each type that is built in all three sizes.
pub(crate) fn reference(value_type: ValueType) -> Candidate {
    Candidate { value_type, m: REFERENCE_M, ef_construction: EF_CONSTRUCTION[0] }
}

/// The other candidates of a type.
pub(crate) fn others(value_type: ValueType) -> impl Iterator<Item = Candidate> {
    let by_m = M.into_iter().map(move |m| Candidate { m, ..reference(value_type) });
    let wider = Candidate { ef_construction: EF_CONSTRUCTION[1], ..reference(value_type) };
    by_m.chain([wider]).filter(move |&candidate| candidate != reference(value_type))
}

#[cfg(test)]
mod tests {
    use pgvector::ValueType;

    use super::{Plan, least_rows, memory_bytes};

    #[test]
    fn samples_are_three_times_as_large_as_needed() {
        for k in [1, 50, 51, 1000] {
            assert_eq!(pgvector::sample_size(0, k, u64::MAX), 3 * least_rows(k.into()), "{k}");
        }
    }

    #[test]
    fn large_values_and_few_threads_mean_fewer_rows() {
        let plan = Plan::new(100_000, 4 * 768, 2, 10);
        assert!((35_000..45_000).contains(&plan.sizes[2]) && plan.others == 0, "{plan:?}");
        assert_eq!(Plan::new(100_000, 4 * 768, 32, 10), Plan { sizes: [25_000, 50_000, 100_000], others: 2 });
        assert_eq!(Plan::new(7001, 64_000, 1, 10).sizes, [1250, 2500, 5000]);
        assert!(Plan::new(10_000_000, 4, 2, 10).sizes[2] < 200_000);
    }

    #[test]
    fn many_neighbors_need_larger_graphs() {
        let others = |k| Plan::new(100_000, 4 * 768, 2, k).others;
        assert_eq!([others(100), others(500), others(1000)], [0, 1, 2]);
    }

    #[test]
    fn rows_that_are_in_no_graph_take_the_memory_of_values_alone() {
        let value_len = 4 * 768;
        let of = |rows| memory_bytes((ValueType::Vector, 768), value_len, rows, 2);
        assert_eq!(of(2_000_000) - of(1_000_000), 3_000_000 * value_len as u64);
        assert!(of(20_000) - of(10_000) > 30_000 * value_len as u64, "in the graph");
    }
}
