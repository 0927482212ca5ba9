//! Extrapolates a measured graph to an index of the whole table.

use pages::{Estimate, PAGE_SIZE};
use pgvector::{MAX_EF_SEARCH, ValueType};

use crate::Question;
use crate::curve::Curve;
use crate::growth::{Growth, Searched};
use crate::trial::Candidate;

/// A possible index, with its expected recall and costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The type of the indexed values.
    pub value_type: ValueType,
    /// Neighbors per element.
    pub m: u16,
    /// Candidates considered when neighbors are chosen.
    pub ef_construction: u16,
    /// `hnsw.ef_search` of the queries.
    pub ef_search: u16,
    /// Rows that a query reads from the table to rerank them by their full values; 0 without reranking.
    pub reranked: u16,
    /// Expected recall@k of the queries, 0 to 1.
    pub recall: f64,
    /// Elements that a search compares with the query, on average.
    pub visited: f64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes of the most visited elements, which together receive 90 % of the visits.
    pub cached_bytes: u64,
    /// Bytes that a query reads: elements of the index, and pages of the table for reranked rows.
    pub read_bytes: f64,
    /// Seconds that this builder needs for the graph.
    pub build_seconds: f64,
    /// Memory in bytes that a builder needs.
    pub builder_memory_bytes: u64,
}

/// A candidate that was tried, and the expected recall and visits of its index of the whole table.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// The type of the indexed values.
    pub value_type: ValueType,
    /// Neighbors per element.
    pub m: u16,
    /// Candidates considered when neighbors are chosen.
    pub ef_construction: u16,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// By ascending `ef_search`.
    pub points: Vec<Expected>,
}

/// Expected recall and visits at one `ef_search`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// `hnsw.ef_search` of the queries.
    pub ef_search: u16,
    /// Expected recall@k of the queries, 0 to 1.
    pub recall: f64,
    /// Elements that a search compares with the query, on average.
    pub visited: f64,
}

/// A candidate with the measurements of its graph.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) candidate: Candidate,
    /// The recall that searches of the sample must reach.
    pub(crate) aim: f64,
    /// For `k` neighbors.
    pub(crate) curve: Curve,
    /// For [`Question::wide`] neighbors.
    pub(crate) wide: Curve,
    /// Rows of the graph.
    pub(crate) rows: usize,
    pub(crate) seconds: f64,
    pub(crate) elements_per_row: f64,
    /// The share of the elements, most visited first, that receive 90 % of the visits.
    pub(crate) hot_share: f64,
    /// Mean bytes of a value in the index.
    pub(crate) value_len: usize,
    pub(crate) growth: Growth,
    /// Whether graphs of several sizes have been measured, so that they show the growth of this candidate itself.
    pub(crate) refined: bool,
}

/// The least `ef_search` with which searches of the whole table reach the recall `aim`, extrapolated from the curve of a graph of `rows`
/// rows. If none reaches it, the least one that reaches the target; if none does, pgvector's limit.
pub(crate) fn least_ef(question: &Question, aim: f64, curve: &Curve, rows: usize, growth: Growth) -> usize {
    let scale = growth.ef_search(rows, question.rows);
    // Some curves end exactly at the target: a rounding error must not yield the limit.
    let reaches = |ef: usize, recall: f64| curve.misses_at(ef as f64 / scale) <= 1.0 - recall + 1e-9;
    let most = usize::from(MAX_EF_SEARCH);
    let recall = if reaches(most, aim) { aim } else { question.target };
    let (mut low, mut high) = (question.k, most);
    while low < high {
        let middle = (low + high) / 2;
        (low, high) = if reaches(middle, recall) { (low, middle) } else { (middle + 1, high) };
    }
    low
}

impl Measured {
    /// The searches of its graph.
    pub(crate) fn searched(&self) -> Searched<'_> {
        Searched { rows: self.rows, own: &self.curve, wide: &self.wide }
    }

    /// Size and memory of an index of the whole table.
    fn estimate(&self, question: &Question) -> Estimate {
        let Candidate { value_type, m, .. } = self.candidate;
        let rows = question.rows.max(self.rows as u64);
        let elements = ((rows as f64 * self.elements_per_row).ceil() as u64).clamp(1, rows);
        Estimate { value_type, dims: question.dims, value_len: self.value_len, m, rows, elements }
    }

    /// Recall and visits of searches of the whole table.
    fn expected(&self, question: &Question, ef_search: u16) -> Expected {
        let (ef, Estimate { rows, elements, .. }) = (f64::from(ef_search), self.estimate(question));
        let recall = 1.0 - self.curve.misses_at(ef / self.growth.ef_search(self.rows, rows));
        let visited = self.curve.visited_at(ef) * self.growth.visits(self.rows, rows);
        Expected { ef_search, recall, visited: visited.min(elements as f64) }
    }

    /// All measured points, extrapolated to the whole table.
    pub(crate) fn tried(&self, question: &Question) -> Tried {
        let Candidate { value_type, m, ef_construction } = self.candidate;
        let estimate = self.estimate(question);
        let scale = self.growth.ef_search(self.rows, estimate.rows);
        let efs = self.curve.efs().map(|ef| (ef * scale).round()).filter(|&ef| ef <= f64::from(MAX_EF_SEARCH));
        let points = efs.map(|ef| self.expected(question, ef as u16)).collect();
        Tried { value_type, m, ef_construction, index_bytes: estimate.index_bytes(), points }
    }

    /// The index of the whole table. `threads` are the builder's; `table_value` is the mean size of a value in the table, in bytes.
    pub(crate) fn choice(&self, question: &Question, threads: u32, table_value: usize) -> Choice {
        let Candidate { value_type, m, ef_construction } = self.candidate;
        let estimate = self.estimate(question);
        let Estimate { rows, elements, .. } = estimate;
        let ef = least_ef(question, self.aim, &self.curve, self.rows, self.growth);
        let index_bytes = estimate.index_bytes();
        let Expected { recall, visited, .. } = self.expected(question, ef as u16);
        let reranked = if self.candidate.is_reranked(question) { ef } else { 0 };
        let (n, all) = (self.rows as f64, rows as f64);
        Choice {
            value_type,
            m,
            ef_construction,
            ef_search: ef as u16,
            reranked: reranked as u16,
            recall,
            visited,
            index_bytes,
            cached_bytes: (index_bytes as f64 * self.hot_share).ceil() as u64,
            read_bytes: visited * index_bytes as f64 / elements as f64 + (reranked * row_bytes(table_value)) as f64,
            build_seconds: self.seconds * (all * all.ln()) / (n * n.ln()),
            builder_memory_bytes: estimate.builder_memory_bytes(threads),
        }
    }
}

/// Bytes of the pages read for a row of the table: its own, and for a TOASTed value one page of the TOAST index and the value's pages.
fn row_bytes(value_len: usize) -> usize {
    const IN_ROW: usize = 2000;
    let elsewhere = if value_len > IN_ROW { 1 + value_len.div_ceil(PAGE_SIZE) } else { 0 };
    (1 + elsewhere) * PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use pgvector::{Metric, ValueType};

    use super::least_ef;
    use crate::Question;
    use crate::curve::{Curve, Point};
    use crate::growth::Growth;

    #[test]
    fn a_curve_that_ends_at_the_target_reaches_it() {
        for target in [0.9, 0.95, 0.97, 0.99] {
            let points = [(10, 0.7), (20, 0.8), (40, target)];
            let points = points.map(|(ef, recall)| Point { ef, recall, visited: 10.0 * ef as f64 });
            let (value_type, metric) = (ValueType::Vector, Metric::L2);
            let question =
                Question { value_type, metric, dims: 8, rows: 1000, target, k: 10, own_type: false, seed: 0 };
            let growth = Growth::of(&question, &[]);
            let curve = Curve::new(&points, 1e-4);
            assert_eq!(least_ef(&question, target, &curve, 1000, growth), 40, "{target}");
            assert_eq!(least_ef(&question, target + 0.005, &curve, 1000, growth), 40, "{target}: no more can be had");
            assert_eq!(least_ef(&question, 0.8, &curve, 1000, growth), 20, "{target}");
        }
    }
}
