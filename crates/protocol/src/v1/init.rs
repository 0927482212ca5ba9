use pgvector::{EF_CONSTRUCTION_RANGE, M_RANGE, Metric, ValueType, min_ef_construction};

use super::V1Error;
use crate::LANTERN_V1_MAGIC;

/// The bytes of [`Init`] after the magic.
pub const INIT_BYTES: usize = 44;

/// A client's request, after the magic that chose the protocol: eleven numbers in usearch's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// 1 for product quantization.
    pub pq: u32,
    /// usearch's metric: 1 cosine, 3 squared l2, 8 hamming. Clients also send 1 for inner product.
    pub metric: u32,
    /// usearch's scalar kind: 0 and 1 f32, 3 f16, 5 bits.
    pub quantization: u32,
    /// Dimensions.
    pub dims: u32,
    /// Neighbors per element and layer, twice as many at layer 0.
    pub m: u32,
    /// `ef_construction`.
    pub ef_construction: u32,
    /// Not used by a build; 0.
    pub ef: u32,
    /// For product quantization.
    pub centroids: u32,
    /// For product quantization.
    pub subvectors: u32,
    /// Not used: clients send 100000 for every table.
    pub capacity: u32,
    /// Bits per dimension: 32, 16 or 1.
    pub element_bits: u32,
}

/// A valid request for a build, within pgvector's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildOrder {
    /// The type of the values.
    pub value_type: ValueType,
    /// The metric.
    pub metric: Metric,
    /// Dimensions; for bits, rounded up to whole bytes.
    pub dims: u32,
    /// Neighbors per element and layer.
    pub m: u16,
    /// `ef_construction`.
    pub ef_construction: u16,
}

impl Init {
    /// The message with its magic.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 4 + INIT_BYTES] {
        let mut bytes = [0; 4 + INIT_BYTES];
        let (fields, _) = bytes.as_chunks_mut::<4>();
        fields[0] = LANTERN_V1_MAGIC;
        for (field, number) in fields[1..].iter_mut().zip(self.numbers()) {
            *field = number.to_le_bytes();
        }
        bytes
    }

    /// Reads the bytes after the magic; every value is accepted.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; INIT_BYTES]) -> Self {
        let number = |at: usize| {
            let field: [u8; 4] = std::array::from_fn(|byte| bytes[4 * at + byte]);
            u32::from_le_bytes(field)
        };
        Self {
            pq: number(0),
            metric: number(1),
            quantization: number(2),
            dims: number(3),
            m: number(4),
            ef_construction: number(5),
            ef: number(6),
            centroids: number(7),
            subvectors: number(8),
            capacity: number(9),
            element_bits: number(10),
        }
    }

    fn numbers(&self) -> [u32; 11] {
        let Self { pq, metric, quantization, dims, m, .. } = *self;
        let Self { ef_construction, ef, centroids, subvectors, capacity, element_bits, .. } = *self;
        [pq, metric, quantization, dims, m, ef_construction, ef, centroids, subvectors, capacity, element_bits]
    }

    /// The build that is requested. Clients announce cosine and inner product by the same number; `inner_product` says which is meant.
    ///
    /// # Errors
    /// If pgvector does not support the type, the metric or a number.
    pub fn order(&self, inner_product: bool) -> Result<BuildOrder, V1Error> {
        if self.pq != 0 {
            return Err(V1Error::ProductQuantization);
        }
        let (value_type, expected) = match self.quantization {
            0 | 1 => (ValueType::Vector, 32),
            3 => (ValueType::HalfVec, 16),
            5 => (ValueType::Bit, 1),
            other => return Err(V1Error::Quantization(other)),
        };
        if self.element_bits != expected {
            return Err(V1Error::ElementBits { found: self.element_bits, expected });
        }
        let metric = match (self.metric, value_type) {
            (1, ValueType::Vector | ValueType::HalfVec) if inner_product => Metric::InnerProduct,
            (1, ValueType::Vector | ValueType::HalfVec) => Metric::Cosine,
            (3, ValueType::Vector | ValueType::HalfVec) => Metric::L2,
            (8, ValueType::Bit) => Metric::Hamming,
            (metric, _) => return Err(V1Error::Metric { metric, quantization: self.quantization }),
        };
        let dims = within("number of dimensions", self.dims, 1, value_type.max_dims())?;
        let m = within("m", self.m, (*M_RANGE.start()).into(), (*M_RANGE.end()).into())? as u16;
        let (least, most) = (min_ef_construction(m).into(), (*EF_CONSTRUCTION_RANGE.end()).into());
        let ef_construction = within("ef_construction", self.ef_construction, least, most)? as u16;
        // Unused bits of the last byte count as dimensions: nothing requires clients to clear them.
        let dims = if value_type == ValueType::Bit { dims.next_multiple_of(8) } else { dims };
        Ok(BuildOrder { value_type, metric, dims, m, ef_construction })
    }
}

fn within(what: &'static str, value: u32, min: u32, max: u32) -> Result<u32, V1Error> {
    if (min..=max).contains(&value) { Ok(value) } else { Err(V1Error::Range { what, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::Init;
    use crate::{Metric, ValueType};

    fn cosine() -> Init {
        Init {
            metric: 1,
            quantization: 1,
            dims: 8,
            m: 4,
            ef_construction: 32,
            capacity: 100_000,
            element_bits: 32,
            ..Init::default()
        }
    }

    #[test]
    fn bytes_go_both_ways() {
        let bytes = cosine().to_bytes();
        assert_eq!(bytes[..16], [0x37, 0x33, 0x33, 0x13, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[40..], [0xa0, 0x86, 1, 0, 32, 0, 0, 0]);
        assert_eq!(Init::from_bytes(bytes[4..].try_into().unwrap()), cosine());
    }

    #[test]
    fn requests_that_pgvector_supports_are_builds() {
        let order = cosine().order(false).unwrap();
        assert_eq!((order.value_type, order.metric), (ValueType::Vector, Metric::Cosine));
        assert_eq!((order.dims, order.m, order.ef_construction), (8, 4, 32));
        assert_eq!(cosine().order(true).unwrap().metric, Metric::InnerProduct);
        let half = Init { metric: 3, quantization: 3, element_bits: 16, dims: 4000, ..cosine() }.order(false).unwrap();
        assert_eq!((half.value_type, half.metric, half.dims), (ValueType::HalfVec, Metric::L2, 4000));
        let bits = Init { metric: 8, quantization: 5, element_bits: 1, dims: 33, ..cosine() }.order(false).unwrap();
        assert_eq!((bits.value_type, bits.metric, bits.dims), (ValueType::Bit, Metric::Hamming, 40));
        assert_eq!(Init { quantization: 0, ..cosine() }.order(false).unwrap().value_type, ValueType::Vector);
    }

    #[test]
    fn refusals_name_the_number() {
        let cases: [(Init, &str); 11] = [
            (Init { pq: 1, ..cosine() }, "product quantization is not supported"),
            (Init { metric: 2, ..cosine() }, "metric 2 is not supported for quantization 1"),
            (Init { metric: 8, ..cosine() }, "metric 8 is not supported for quantization 1"),
            (Init { quantization: 2, element_bits: 64, ..cosine() }, "quantization 2 is not supported"),
            (Init { quantization: 3, ..cosine() }, "32 bits per dimension, 16 expected"),
            (Init { element_bits: u32::MAX, ..cosine() }, "4294967295 bits per dimension, 32 expected"),
            (Init { dims: 0, ..cosine() }, "number of dimensions is 0, must be between 1 and 2000"),
            (Init { dims: u32::MAX, ..cosine() }, "number of dimensions is 4294967295"),
            (Init { m: 0, ..cosine() }, "m is 0, must be between 2 and 100"),
            (Init { m: 65536 + 16, ..cosine() }, "m is 65552"),
            (Init { ef_construction: 7, ..cosine() }, "ef_construction is 7, must be between 8 and 1000"),
        ];
        for (init, text) in cases {
            let error = init.order(false).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
