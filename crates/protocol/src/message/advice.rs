use bytes::{BufMut, BytesMut};

use crate::wire::Reader;
use crate::{MAX_CONTROL_PAYLOAD, ProtocolError, ValueType, value};

/// At the end of a [`Hello`](crate::Hello): asks which index to build, by a sample of the rows, instead of building one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How many of the first values sent are queries; 0 = the builder holds out rows as queries.
    pub queries: u32,
    /// Rows of the whole table.
    pub table_rows: u64,
    /// Neighbors that a query asks for (`k`), 1 to 1000.
    pub k: u16,
    /// The target recall, in millionths.
    pub target_ppm: u32,
}

impl Ask {
    pub(super) fn write(self, out: &mut BytesMut) {
        out.put_u32_le(self.queries);
        out.put_u64_le(self.table_rows);
        out.put_u16_le(self.k);
        out.put_u32_le(self.target_ppm);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, ProtocolError> {
        let Some(queries) = reader.u32_or_end("queries")? else { return Ok(None) };
        let (table_rows, k) = (reader.u64("table_rows")?, reader.u16("k")?);
        Ok(Some(Self { queries, table_rows, k, target_ppm: reader.u32("target_ppm")? }))
    }
}

/// The encoded length of a choice.
const CHOICE_BYTES: usize = 1 + 4 * 2 + 4 + 5 * 8;
/// The most choices that fit into a frame after the fields before them.
const MAX_CHOICES: usize = (MAX_CONTROL_PAYLOAD - 16) / CHOICE_BYTES;

/// The result of a request for advice: the useful choices of index, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Rows of the largest graph that was tried.
    pub rows: u64,
    /// The number of queries.
    pub queries: u32,
    /// The useful choices, best first.
    pub choices: Vec<Choice>,
}

/// An index that could be built, and what is expected of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The type of the values in the index.
    pub value_type: ValueType,
    /// Neighbors per element and layer.
    pub m: u16,
    /// `ef_construction`.
    pub ef_construction: u16,
    /// `ef_search`: the least that is expected to reach the target.
    pub ef_search: u16,
    /// Rows that a query ranks again by their full values; 0 = none.
    pub reranked: u16,
    /// The expected recall, in millionths.
    pub recall_ppm: u32,
    /// Elements that a search compares with its query.
    pub visited: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes of the index that get nine of ten visits.
    pub cached_bytes: u64,
    /// Milliseconds to build its graph.
    pub build_ms: u64,
    /// Bytes of memory that a builder needs.
    pub memory_bytes: u64,
}

impl Advice {
    pub(super) fn write(&self, out: &mut BytesMut) {
        let choices = &self.choices[..self.choices.len().min(MAX_CHOICES)];
        out.put_u64_le(self.rows);
        out.put_u32_le(self.queries);
        out.put_u16_le(u16::try_from(choices.len()).expect("at most MAX_CHOICES"));
        choices.iter().for_each(|choice| choice.write(out));
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Advice", payload);
        let (rows, queries) = (reader.u64("rows")?, reader.u32("queries")?);
        // Fails at the first missing choice: no memory is allocated for a mere count.
        let count = reader.u16("choices")?;
        let choices = (0..count).map(|_| Choice::read(&mut reader)).collect::<Result<_, _>>()?;
        Ok(Self { rows, queries, choices })
    }
}

impl Choice {
    fn write(&self, out: &mut BytesMut) {
        out.put_u8(value::value_type_number(self.value_type));
        for number in [self.m, self.ef_construction, self.ef_search, self.reranked] {
            out.put_u16_le(number);
        }
        out.put_u32_le(self.recall_ppm);
        for number in [self.visited, self.index_bytes, self.cached_bytes, self.build_ms, self.memory_bytes] {
            out.put_u64_le(number);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        Ok(Self {
            value_type: value::value_type(reader.u8("value_type")?)?,
            m: reader.u16("m")?,
            ef_construction: reader.u16("ef_construction")?,
            ef_search: reader.u16("ef_search")?,
            reranked: reader.u16("reranked")?,
            recall_ppm: reader.u32("recall_ppm")?,
            visited: reader.u64("visited")?,
            index_bytes: reader.u64("index_bytes")?,
            cached_bytes: reader.u64("cached_bytes")?,
            build_ms: reader.u64("build_ms")?,
            memory_bytes: reader.u64("memory_bytes")?,
        })
    }
}
