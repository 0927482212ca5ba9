//! Advice: receives a sample of rows and recommends index options.

use std::sync::Arc;

use advise::{AdviseError, Question, Values};
use hnsw::{BuildSpec, Control, EngineKind, Phase, Pool};
use pgvector::ValueType;
use protocol::{Advice, Ask, Choice, MAX_ADVICE_QUERIES, Tuples};

use crate::admission::{FIXED, Reservation, SPARSE_VALUE};
use crate::job::millionths;
use crate::meter::Bound;
use crate::session_error::SessionError;

/// The memory for advice on a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleNeed {
    value_type: ValueType,
    dims: u32,
    /// Bytes of a value, if all have the same length.
    value_len: Option<usize>,
    /// The most rows of the sample, queries included.
    most: u64,
    threads: u32,
}

impl SampleNeed {
    pub(crate) fn new(spec: &BuildSpec, most: u64, threads: u32) -> Self {
        let (value_type, dims) = (spec.value_type, spec.dims);
        Self { value_type, dims, value_len: value_type.value_len(dims), most, threads }
    }

    /// The threads that the memory is for.
    pub(crate) fn threads(&self) -> u32 {
        self.threads
    }

    /// Bytes to reserve before the first row.
    pub(crate) fn at_first(&self) -> u64 {
        self.of(self.value_len.unwrap_or(SPARSE_VALUE))
    }

    /// Bytes for `rows` rows with `bytes` bytes of values.
    fn after(&self, rows: u64, bytes: u64) -> u64 {
        let mean = bytes.checked_div(rows).map_or(SPARSE_VALUE, |mean| usize::try_from(mean + 1).unwrap_or(usize::MAX));
        self.of(self.value_len.unwrap_or(mean))
    }

    fn of(&self, value_len: usize) -> u64 {
        advise::memory_bytes((self.value_type, self.dims), value_len, self.most, self.threads).saturating_add(FIXED)
    }
}

/// Limits a sample to the announced number of rows, and adjusts the memory reservation to their size.
#[derive(Debug)]
pub(crate) struct SampleMeter {
    need: SampleNeed,
    reservation: Arc<Reservation>,
    rows: u64,
    bytes: u64,
}

impl SampleMeter {
    pub(crate) fn new(need: SampleNeed, reservation: Arc<Reservation>) -> Self {
        Self { need, reservation, rows: 0, bytes: 0 }
    }
}

impl Bound for SampleMeter {
    fn add(&mut self, tuples: &Tuples) -> Result<bool, SessionError> {
        self.rows = self.rows.saturating_add(u64::from(tuples.count));
        self.bytes = self.bytes.saturating_add(tuples.values.len() as u64);
        if self.rows > self.need.most {
            return Err(SessionError::Sample { most: self.need.most });
        }
        let (needed, reserved) = (self.need.after(self.rows, self.bytes), self.reservation.bytes());
        if needed <= reserved {
            return Ok(false);
        }
        let grown = self.reservation.resize(needed);
        grown.map_err(|full| SessionError::Outgrown { rows: self.rows, needed, reserved, free: full.free })?;
        Ok(true)
    }

    /// Releases nothing: the whole sample is kept until the answer.
    fn end(&self) {}

    fn reserved(&self) -> u64 {
        self.reservation.bytes()
    }
}

/// The rows of a sample as they arrive: first the queries, if the client sends any.
pub(crate) struct Sample {
    question: Question,
    queries: usize,
    /// The most rows that the client sends, without queries.
    most: u64,
    values: Values,
}

impl Sample {
    pub(crate) fn new(spec: &BuildSpec, ask: &Ask, own_type: bool, control: &Control) -> Self {
        let question = Question {
            value_type: spec.value_type,
            metric: spec.metric,
            dims: spec.dims,
            rows: ask.table_rows,
            target: f64::from(ask.target_ppm) / 1e6,
            k: ask.k.into(),
            own_type,
            seed: spec.seed,
        };
        control.progress().enter(Phase::Rows, spec.expected_rows);
        let most = spec.expected_rows.saturating_sub(ask.queries.into());
        Self { question, queries: ask.queries as usize, most, values: Values::new(spec.value_type, spec.dims) }
    }

    pub(crate) fn add(&mut self, tuples: &Tuples, control: &Control) {
        self.values.extend(&tuples.values, tuples.value_lens().map(|length| length as usize));
        control.progress().add(tuples.count.into());
    }

    /// Builds candidate indexes of the sample and searches them.
    pub(crate) fn advise(
        self,
        engine: EngineKind,
        pool: &Arc<Pool>,
        control: &Control,
    ) -> Result<Advice, SessionError> {
        let mut queries = self.values;
        let rows = queries.split_off(self.queries.min(queries.len()));
        let found = pgvector::rows_found(self.most, self.question.rows, rows.len() as u64);
        let question = Question { rows: found, ..self.question };
        let found = advise::advise(&question, rows, queries, engine, pool, control).map_err(|error| match error {
            AdviseError::Build(error) => error.into(),
            other => SessionError::NoAdvice(other),
        })?;
        let choice = |choice: &advise::Choice| Choice {
            value_type: choice.value_type,
            m: choice.m,
            ef_construction: choice.ef_construction,
            ef_search: choice.ef_search,
            reranked: choice.reranked,
            recall_ppm: millionths(choice.recall),
            visited: choice.visited.round() as u64,
            index_bytes: choice.index_bytes,
            cached_bytes: choice.cached_bytes,
            build_ms: (choice.build_seconds * 1e3).ceil() as u64,
            memory_bytes: choice.builder_memory_bytes,
        };
        Ok(Advice {
            rows: found.rows as u64,
            queries: found.queries as u32,
            choices: found.choices.iter().map(choice).collect(),
        })
    }
}

const _: () = assert!(MAX_ADVICE_QUERIES as usize == advise::MAX_QUERIES);
