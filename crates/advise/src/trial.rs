//! One graph of the sample, searched as pgvector would search the index.

use std::array;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};

use distance::{Kernel, kernel};
use graph::HeapTid;
use hnsw::{BuildSpec, Finished, RowBatch, Searcher};
use pgvector::{MAX_EF_SEARCH, Metric, ValueType};
use rayon::prelude::*;

use crate::choice::{Choice, Measured, least_ef};
use crate::curve::{Curve, Point};
use crate::exact::Limit;
use crate::growth::{Growth, Searched};
use crate::question::HALF_A_MISS;
use crate::run::Context;
use crate::values::Values;
use crate::{AdviseError, Question};

/// Rows per batch given to the engine.
const BATCH: usize = 1000;
/// Rows per block in the made-up heap TIDs of the sample.
const BLOCK: usize = 200;
/// The factor from one `ef_search` to the next.
const STEP: f64 = 1.25;
/// The fewest points of a curve: two would suffice to extrapolate to a smaller `ef_search`.
const POINTS: usize = 3;
/// The share of all visits that the cached elements should cover.
const HOT: f64 = 0.9;

/// An index that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) value_type: ValueType,
    pub(crate) m: u16,
    pub(crate) ef_construction: u16,
}

impl Candidate {
    /// Whether a choice was derived from this candidate.
    pub(crate) fn is(&self, choice: &Choice) -> bool {
        (self.value_type, self.m, self.ef_construction) == (choice.value_type, choice.m, choice.ef_construction)
    }

    /// Whether the index has binary codes of another type's values: queries rerank its results by the full values.
    pub(crate) fn is_reranked(&self, question: &Question) -> bool {
        self.value_type == ValueType::Bit && question.value_type != ValueType::Bit
    }
}

/// The sample converted to the type of an index.
pub(crate) struct Form<'a> {
    pub(crate) rows: Cow<'a, Values>,
    pub(crate) queries: Cow<'a, Values>,
}

impl<'a> Form<'a> {
    /// `None` if a value is too large for the type.
    pub(crate) fn new(context: &Context<'a>, value_type: ValueType) -> Option<Self> {
        if value_type == context.question.value_type {
            return Some(Self { rows: Cow::Borrowed(context.rows), queries: Cow::Borrowed(context.queries) });
        }
        let converted = |values: &Values| values.converted(value_type).map(Cow::Owned);
        Some(Self { rows: converted(context.rows)?, queries: converted(context.queries)? })
    }
}

/// A graph of the first rows of the sample.
pub(crate) struct Trial<'a> {
    context: &'a Context<'a>,
    form: &'a Form<'a>,
    candidate: Candidate,
    kernel: Kernel,
    /// Whether results are reranked by the table's values.
    reranked: bool,
    /// The limits of each query among these rows.
    limits: &'a [Limit],
    finished: Finished,
    rows: usize,
    seconds: f64,
}

impl<'a> Trial<'a> {
    /// Builds the graph of the first `rows` rows.
    pub(crate) fn build(
        context: &'a Context<'a>,
        form: &'a Form<'a>,
        candidate: Candidate,
        rows: usize,
        limits: &'a [Limit],
    ) -> Result<Self, AdviseError> {
        let question = context.question;
        let reranked = candidate.is_reranked(question);
        let metric = if reranked { Metric::Hamming } else { question.metric };
        let Candidate { value_type, m, ef_construction, .. } = candidate;
        let unsupported = AdviseError::Unsupported { value_type, dims: question.dims, metric };
        let kernel = kernel(form.rows.elements(), metric).ok_or(unsupported)?;
        let spec = BuildSpec {
            expected_rows: rows as u64,
            seed: question.seed,
            ..BuildSpec::new(value_type, metric, question.dims, m, ef_construction)
        };
        let before = context.pool.cpu_time();
        let mut engine = hnsw::start(context.engine, spec, context.pool.clone(), context.control.aside())?;
        let varying = candidate.value_type.value_len(1).is_none();
        let (mut tids, mut values, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for (number, batch) in context.order[..rows].chunks(BATCH).enumerate() {
            tids.clear();
            values.clear();
            lengths.clear();
            for (at, &row) in batch.iter().enumerate() {
                let value = form.rows.get(row as usize);
                tids.push(tid(number * BATCH + at));
                values.extend_from_slice(value);
                if varying {
                    lengths.push(value.len() as u32);
                }
            }
            engine.add(RowBatch { tids: &tids, values: &values, lengths: &lengths })?;
        }
        let finished = engine.finish()?;
        // CPU time per thread: wall time would include other work of the machine. A build keeps all threads busy most of the time.
        let cpu = context.pool.cpu_time().saturating_sub(before);
        let seconds = cpu.as_secs_f64() / context.pool.threads() as f64;
        Ok(Self { context, form, candidate, kernel, reranked, limits, finished, rows, seconds })
    }

    /// The measurements, with the visits at the `ef_search` that the whole table needs.
    pub(crate) fn measured(
        &self,
        Curves { own: curve, wide, aim }: Curves,
        growth: Growth,
    ) -> Result<Measured, AdviseError> {
        let ef = least_ef(self.context.question, aim, &curve, self.rows, growth);
        Ok(Measured {
            candidate: self.candidate,
            aim,
            curve,
            wide,
            rows: self.rows,
            seconds: self.seconds,
            elements_per_row: self.finished.graph.len() as f64 / self.rows.max(1) as f64,
            hot_share: self.hot_share(ef)?,
            value_len: self.form.rows.mean_len(),
            growth,
            refined: false,
        })
    }

    /// Searches with ascending `ef_search` until the share of misses is at most `further` of what the aim allows, or pgvector's limit is
    /// reached.
    pub(crate) fn curves(&self, further: f64) -> Result<Curves, AdviseError> {
        let question = self.context.question;
        let (mut own, mut wide) = (Vec::new(), Vec::new());
        let mut ef = question.k;
        let mut aim = question.target;
        loop {
            let found = self.search(ef, None)?;
            own.push(Point { ef, recall: found.own, visited: found.visited });
            // The error at the target is that of the last point below it, or of the first point.
            if found.own < question.target || own.len() == 1 {
                aim = question.aim(found.error);
            }
            let enough = |recall: f64| 1.0 - recall <= further * (1.0 - aim);
            if ef >= question.wide() {
                wide.push(Point { ef, recall: found.wide, visited: found.visited });
            }
            if ef >= usize::from(MAX_EF_SEARCH) || wide.len() >= POINTS && enough(found.own) && enough(found.wide) {
                break;
            }
            ef = ((ef as f64 * STEP).ceil() as usize).max(ef + 2).min(MAX_EF_SEARCH.into());
        }
        let curve = |points: &[Point], k| Curve::new(points, HALF_A_MISS / (self.form.queries.len() * k) as f64);
        let (own, wide) = (curve(&own, question.k), curve(&wide, question.wide()));
        Ok(Curves { own, wide, aim })
    }

    /// The share of the elements, most visited first, that receive 90 % of the visits.
    fn hot_share(&self, ef: usize) -> Result<f64, AdviseError> {
        let visits: Vec<AtomicU32> = (0..self.finished.graph.len()).map(|_| AtomicU32::new(0)).collect();
        self.search(ef, Some(&visits))?;
        let mut visits: Vec<u32> = visits.into_iter().map(AtomicU32::into_inner).collect();
        visits.sort_unstable_by(|a, b| b.cmp(a));
        let wanted = HOT * visits.iter().map(|&visits| f64::from(visits)).sum::<f64>();
        let mut sum = 0.0;
        let hot = visits.iter().take_while(|&&visits| {
            let before = sum;
            sum += f64::from(visits);
            before < wanted
        });
        Ok(hot.count() as f64 / visits.len().max(1) as f64)
    }

    /// Searches all queries with one `ef_search`, and counts visits per element in `visits`.
    fn search(&self, ef: usize, visits: Option<&[AtomicU32]>) -> Result<Found, AdviseError> {
        let queries = &self.form.queries;
        let (k, wide) = (self.context.question.k, self.context.question.wide());
        let one = |searcher: &mut Searcher, query: usize| {
            self.context.control.check()?;
            let value = queries.get(query);
            let mut visited = 0;
            let distance = |element| {
                visited += 1;
                if let Some(visits) = visits {
                    visits[element as usize].fetch_add(1, Ordering::Relaxed);
                }
                (self.kernel)(value, self.finished.values.value(element))
            };
            let found = searcher.search(&self.finished.graph, distance, |_| {}, ef);
            let tids = found.iter().flat_map(|near| self.finished.graph.heap_tids().of(near.element()));
            let (own, limit) = (self.context.queries.get(query), self.limits[query]);
            let (mut hits, mut wide_hits) = (0, 0);
            // Without reranking, the result is the first k rows that the index returns.
            let answered = |at, k| self.reranked || at < k;
            for (at, &tid) in tids.take(if self.reranked { ef } else { wide }).enumerate() {
                let row = self.context.order[number(tid)] as usize;
                let distance = (self.context.kernel)(own, self.context.rows.get(row));
                // Rows at the same distance are equally good results.
                hits += usize::from(answered(at, k) && distance <= limit.own);
                wide_hits += usize::from(answered(at, wide) && distance <= limit.wide);
            }
            let hits = hits.min(k);
            Ok::<_, AdviseError>([hits, hits * hits, wide_hits.min(wide), visited])
        };
        let sum = |a: [usize; 4], b: [usize; 4]| Ok(array::from_fn(|at| a[at] + b[at]));
        let all = || (0..queries.len()).into_par_iter().map_init(Searcher::default, one).try_reduce(|| [0; 4], sum);
        let [hits, squares, wide_hits, visited] = self.context.pool.run(all)?;
        let mean = |sum: usize| sum as f64 / queries.len() as f64;
        let variance = (mean(squares) - mean(hits).powi(2)).max(0.0);
        Ok(Found {
            own: mean(hits) / k as f64,
            error: (variance / queries.len() as f64).sqrt() / k as f64,
            wide: mean(wide_hits) / wide as f64,
            visited: mean(visited),
        })
    }
}

/// The curves for `k` neighbors, and for the `Question::wide` ones that compare graphs of different sizes.
pub(crate) struct Curves {
    pub(crate) own: Curve,
    pub(crate) wide: Curve,
    /// The recall of `k` neighbors that searches of the sample must reach.
    pub(crate) aim: f64,
}

impl Curves {
    /// The curves as those of a graph of `rows` rows.
    pub(crate) fn searched(&self, rows: usize) -> Searched<'_> {
        Searched { rows, own: &self.own, wide: &self.wide }
    }
}

/// Recall of `k` neighbors with its standard error, recall of `Question::wide` neighbors, and mean visits per query.
struct Found {
    own: f64,
    error: f64,
    wide: f64,
    visited: f64,
}

/// The position of a row in the sample as a heap TID.
fn tid(number: usize) -> HeapTid {
    HeapTid::new((number / BLOCK) as u32, (number % BLOCK + 1) as u16)
}

fn number(tid: HeapTid) -> usize {
    tid.block() as usize * BLOCK + usize::from(tid.offset()) - 1
}
