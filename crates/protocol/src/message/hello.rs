use std::fmt;

use bytes::{BufMut, BytesMut};

use crate::wire::{Reader, put_text};
use crate::{Ask, Check, Metric, PAGE_SIZE, PROTOCOL_VERSION, ProtocolError, ValueType, capability, value};

/// The first message of a session: what the client wants built.
///
/// Decoding checks only the form. Limits such as [`M_RANGE`](pgvector::M_RANGE) are up to the builder, which refuses with a reason.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// The oldest protocol version the client speaks.
    pub protocol_min: u16,
    /// The newest protocol version the client speaks.
    pub protocol_max: u16,
    /// Optional abilities, one per bit of [`capability`](crate::capability).
    pub capabilities: u64,
    /// The type of the values.
    pub value_type: ValueType,
    /// The metric of the index.
    pub metric: Metric,
    /// Dimensions of every value.
    pub dims: u32,
    /// Neighbors per element and layer; twice as many at layer 0.
    pub m: u16,
    /// `ef_construction`.
    pub ef_construction: u16,
    /// The estimated number of rows, for admission; 0 = unknown.
    pub estimated_rows: u64,
    /// Bytes of a page: [`PAGE_SIZE`].
    pub page_size: u32,
    /// The client's name and version, such as `lantern_index 0.1.0`.
    pub client_version: String,
    /// The database's name and version, such as `PostgreSQL 15.20`.
    pub server_version: String,
    /// A label for the build in status and logs, usually `database.schema.index`; may be empty.
    pub label: String,
    /// The token that authenticates the client; may be empty.
    pub token: String,
    /// The id of the build in logs and status of all parties; empty if the client makes none, as older ones do.
    pub build_id: String,
    /// The check to do instead of a build, with [`capability::CHECK`](crate::capability::CHECK).
    pub check: Option<Check>,
    /// The request for advice instead of a build, with [`capability::ADVISE`](crate::capability::ADVISE).
    pub ask: Option<Ask>,
}

impl Hello {
    /// A request for a build with pgvector's default options and no label, token, id or capabilities.
    #[must_use]
    pub fn new(value_type: ValueType, metric: Metric, dims: u32) -> Self {
        Self {
            protocol_min: PROTOCOL_VERSION,
            protocol_max: PROTOCOL_VERSION,
            capabilities: 0,
            value_type,
            metric,
            dims,
            m: 16,
            ef_construction: 64,
            estimated_rows: 0,
            page_size: PAGE_SIZE as u32,
            client_version: String::new(),
            server_version: String::new(),
            label: String::new(),
            token: String::new(),
            build_id: String::new(),
            check: None,
            ask: None,
        }
    }

    /// Whether the client wants an index built, not a check or advice.
    #[must_use]
    pub fn is_build(&self) -> bool {
        self.check.is_none() && self.ask.is_none()
    }

    /// The estimated number of rows to index, to which limits of rows apply; 0 for a check or advice, whose `estimated_rows` are the elements
    /// of an index or the rows of a sample.
    #[must_use]
    pub fn rows_to_index(&self) -> u64 {
        if self.is_build() { self.estimated_rows } else { 0 }
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u16_le(self.protocol_min);
        out.put_u16_le(self.protocol_max);
        out.put_u64_le(self.capabilities);
        out.put_u8(value::value_type_number(self.value_type));
        out.put_u8(value::metric_number(self.metric));
        out.put_u32_le(self.dims);
        out.put_u16_le(self.m);
        out.put_u16_le(self.ef_construction);
        out.put_u64_le(self.estimated_rows);
        out.put_u32_le(self.page_size);
        put_text(out, &self.client_version);
        put_text(out, &self.server_version);
        put_text(out, &self.label);
        put_text(out, &self.token);
        put_text(out, &self.build_id);
        if let Some(check) = self.check {
            check.write(out);
        }
        if let Some(ask) = self.ask {
            ask.write(out);
        }
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Hello", payload);
        let (protocol_min, protocol_max) = (reader.u16("protocol_min")?, reader.u16("protocol_max")?);
        let capabilities = reader.u64("capabilities")?;
        Ok(Self {
            protocol_min,
            protocol_max,
            capabilities,
            value_type: value::value_type(reader.u8("value_type")?)?,
            metric: value::metric(reader.u8("metric")?)?,
            dims: reader.u32("dims")?,
            m: reader.u16("m")?,
            ef_construction: reader.u16("ef_construction")?,
            estimated_rows: reader.u64("estimated_rows")?,
            page_size: reader.u32("page_size")?,
            client_version: reader.text("client_version")?,
            server_version: reader.text("server_version")?,
            label: reader.text("label")?,
            token: reader.text("token")?,
            build_id: reader.text_or_end("build_id")?,
            check: if capabilities & capability::CHECK == 0 { None } else { Check::read(&mut reader)? },
            ask: if capabilities & capability::ADVISE == 0 { None } else { Ask::read(&mut reader)? },
        })
    }
}

/// All fields, but of the token only whether there is one.
impl fmt::Debug for Hello {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Hello")
            .field("protocol", &(self.protocol_min..=self.protocol_max))
            .field("capabilities", &self.capabilities)
            .field("value_type", &self.value_type)
            .field("metric", &self.metric)
            .field("dims", &self.dims)
            .field("m", &self.m)
            .field("ef_construction", &self.ef_construction)
            .field("estimated_rows", &self.estimated_rows)
            .field("page_size", &self.page_size)
            .field("client_version", &self.client_version)
            .field("server_version", &self.server_version)
            .field("label", &self.label)
            .field("token", &if self.token.is_empty() { "none" } else { "hidden" })
            .field("build_id", &self.build_id)
            .field("check", &self.check)
            .field("ask", &self.ask)
            .finish()
    }
}
