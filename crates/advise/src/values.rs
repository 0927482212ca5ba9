//! The values of a sample, as received and converted to another type.

use distance::Elements;
use half::f16;
use pgvector::{Metric, ValueType};

/// Concatenated values of one type, encoded as in pgvector but without the varlena header.
#[derive(Clone, Debug)]
pub struct Values {
    value_type: ValueType,
    dims: u32,
    bytes: Vec<u8>,
    /// The end of each value in bytes, for types of varying length; else empty.
    ends: Vec<usize>,
}

impl Values {
    /// An empty list of values.
    #[must_use]
    pub fn new(value_type: ValueType, dims: u32) -> Self {
        Self { value_type, dims, bytes: Vec::new(), ends: Vec::new() }
    }

    /// Appends values; `lengths` has the bytes of each one for types of varying length, else nothing.
    pub fn extend(&mut self, values: &[u8], lengths: impl IntoIterator<Item = usize>) {
        if self.value_type.value_len(1).is_none() {
            let mut end = self.bytes.len();
            self.ends.extend(lengths.into_iter().map(|length| {
                end += length;
                end
            }));
        }
        self.bytes.extend_from_slice(values);
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.value_type.value_len(self.dims).map_or(self.ends.len(), |len| self.bytes.len() / len.max(1))
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits off the values from number `at` on.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        let from = if at == 0 { 0 } else { self.range(at - 1).end };
        let bytes = self.bytes.split_off(from);
        let mut ends = if self.ends.is_empty() { Vec::new() } else { self.ends.split_off(at) };
        ends.iter_mut().for_each(|end| *end -= from);
        Self { value_type: self.value_type, dims: self.dims, bytes, ends }
    }

    /// The value at a position.
    #[must_use]
    pub fn get(&self, number: usize) -> &[u8] {
        &self.bytes[self.range(number)]
    }

    /// Mean bytes of a value.
    pub(crate) fn mean_len(&self) -> usize {
        self.bytes.len().checked_div(self.len()).unwrap_or_default()
    }

    pub(crate) fn elements(&self) -> Elements {
        Elements::of(self.value_type)
    }

    fn range(&self, number: usize) -> std::ops::Range<usize> {
        match self.value_type.value_len(self.dims) {
            Some(len) => number * len..(number + 1) * len,
            None => number.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[number],
        }
    }

    /// The values as pgvector indexes them for a metric: normalised for cosine, without those of norm zero.
    #[must_use]
    pub fn prepared(self, metric: Metric) -> Self {
        if metric != Metric::Cosine {
            return self;
        }
        let mut kept = Self::new(self.value_type, self.dims);
        kept.bytes.reserve(self.bytes.len());
        let mut value = Vec::new();
        for number in 0..self.len() {
            value.clear();
            value.extend_from_slice(self.get(number));
            if normalise(self.value_type, &mut value) {
                kept.extend(&value, [value.len()]);
            }
        }
        kept
    }

    /// Whether all values of a `vector` column can be cast to `halfvec`, for cosine without losing their direction.
    pub(crate) fn fit_halfvec(&self, metric: Metric) -> bool {
        let mut decoded = vec![0.0; self.dims as usize];
        (0..self.len()).all(|number| {
            distance::decode(self.elements(), self.get(number), &mut decoded);
            fits_halfvec(&decoded) && (metric != Metric::Cosine || keeps_direction(&decoded))
        })
    }

    /// The values as `halfvec` or `bit`, converted as in pgvector; `None` if one is too large for the type.
    #[must_use]
    pub fn converted(&self, to: ValueType) -> Option<Self> {
        let mut converted = Self::new(to, self.dims);
        converted.bytes.reserve(to.value_len(self.dims)? * self.len());
        let mut decoded = vec![0.0; self.dims as usize];
        for number in 0..self.len() {
            distance::decode(self.elements(), self.get(number), &mut decoded);
            match to {
                ValueType::HalfVec => {
                    if !fits_halfvec(&decoded) {
                        return None;
                    }
                    converted.bytes.extend(decoded.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()));
                }
                ValueType::Bit => converted.bytes.extend(decoded.chunks(8).map(bits)),
                ValueType::Vector | ValueType::SparseVec => return None,
            }
        }
        Some(converted)
    }
}

fn fits_halfvec(components: &[f32]) -> bool {
    components.iter().all(|&x| f16::from_f32(x).is_finite())
}

/// Whether the cast to `halfvec` turns a vector by less than one part in 256. Components below 6e-5 lose precision, and below 3e-8 all of
/// it.
fn keeps_direction(components: &[f32]) -> bool {
    let squares = |of: fn(f32) -> f32| components.iter().map(|&x| f64::from(of(x)).powi(2)).sum::<f64>();
    squares(|x| f16::from_f32(x).to_f32() - x) * 65_536.0 <= squares(|x| x)
}

/// The signs of eight values, the first in the highest bit: pgvector's `binary_quantize`.
fn bits(values: &[f32]) -> u8 {
    values.iter().enumerate().map(|(at, &x)| u8::from(x > 0.0) << (7 - at)).sum()
}

/// Divides a value by its norm; `false` if the norm is zero.
fn normalise(value_type: ValueType, value: &mut [u8]) -> bool {
    let (elements, components) = match value_type {
        ValueType::SparseVec => {
            // A shorter value comes from a client that does not keep to the format.
            let Some(entries) = value.len().checked_sub(4).map(|bytes| bytes / 8) else { return false };
            (Elements::F32, &mut value[4 + 4 * entries..])
        }
        ValueType::Vector => (Elements::F32, value),
        ValueType::HalfVec => (Elements::F16, value),
        ValueType::Bit => return true,
    };
    let bytes = if elements == Elements::F16 { 2 } else { 4 };
    let mut decoded = vec![0.0; components.len() / bytes];
    distance::decode(elements, components, &mut decoded);
    let norm = decoded.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if norm <= 0.0 {
        return false;
    }
    let divided = decoded.iter().map(|&x| (f64::from(x) / norm) as f32);
    if value_type == ValueType::HalfVec {
        components.as_chunks_mut().0.iter_mut().zip(divided).for_each(|(out, x)| *out = f16::from_f32(x).to_le_bytes());
    } else {
        components.as_chunks_mut().0.iter_mut().zip(divided).for_each(|(out, x)| *out = x.to_le_bytes());
    }
    true
}

#[cfg(test)]
mod tests {
    use pgvector::{Metric, ValueType};

    use super::Values;

    fn vectors(rows: &[[f32; 3]]) -> Values {
        let mut values = Values::new(ValueType::Vector, 3);
        rows.iter().for_each(|row| values.extend(&row.map(f32::to_le_bytes).concat(), []));
        values
    }

    #[test]
    fn values_are_converted_as_pgvector_does_it() {
        let values = vectors(&[[3.0, 0.0, -4.0], [0.0; 3], [1.0, 1e6, 0.0]]);
        assert_eq!(values.len(), 3);
        let bits = values.converted(ValueType::Bit).unwrap();
        assert_eq!([bits.get(0), bits.get(1), bits.get(2)], [&[0b1000_0000], &[0], &[0b1100_0000]]);
        assert!(values.converted(ValueType::HalfVec).is_none(), "a million is too large");
        let fit = |values: &Values, metric| values.fit_halfvec(metric);
        assert!(!fit(&values, Metric::L2) && fit(&vectors(&[[3.0, 0.0, -4.0], [0.0; 3]]), Metric::Cosine));
        let tiny = vectors(&[[3e-7, 1e-8, -4e-7]]);
        assert!(fit(&tiny, Metric::L2) && !fit(&tiny, Metric::Cosine), "its direction is lost");
        let unit = values.prepared(Metric::Cosine);
        assert_eq!(unit.len(), 2, "a vector of norm zero has no direction");
        assert_eq!(unit.get(0), [0.6f32, 0.0, -0.8].map(f32::to_le_bytes).concat());
        let halves = unit.converted(ValueType::HalfVec).unwrap();
        assert_eq!((halves.len(), halves.get(0).len()), (2, 6));
    }

    #[test]
    fn values_of_varying_length_are_split_and_normalised() {
        let sparse = |entries: &[(i32, f32)]| {
            let count = (entries.len() as u32).to_le_bytes().to_vec();
            let indices = entries.iter().flat_map(|(index, _)| index.to_le_bytes());
            count
                .into_iter()
                .chain(indices)
                .chain(entries.iter().flat_map(|(_, x)| x.to_le_bytes()))
                .collect::<Vec<u8>>()
        };
        let rows = [sparse(&[(1, 3.0), (5, 4.0)]), sparse(&[]), sparse(&[(2, -2.0)])];
        let mut values = Values::new(ValueType::SparseVec, 9);
        values.extend(&rows.concat(), rows.iter().map(Vec::len));
        let rest = values.clone().split_off(1);
        assert_eq!((rest.len(), rest.get(1)), (2, &rows[2][..]));
        let unit = values.prepared(Metric::Cosine);
        assert_eq!((unit.len(), unit.get(1)), (2, &sparse(&[(2, -1.0)])[..]));
        assert_eq!(unit.get(0), sparse(&[(1, 0.6), (5, 0.8)]));
        let mut values = Values::new(ValueType::SparseVec, 9);
        values.extend(&[1, 2, 3], [3]);
        assert!(values.prepared(Metric::Cosine).is_empty(), "no number of entries, as of a hostile client");
    }
}
