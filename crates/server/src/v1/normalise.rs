use bytes::{BufMut, BytesMut};
use half::f16;
use pgvector::ValueType;
use protocol::{HEAP_TID_BYTES, Tuples};

/// Normalises vectors to unit length, as pgvector does before it indexes them by cosine.
#[derive(Clone, Debug)]
pub(crate) struct Normaliser {
    half: bool,
    value_len: usize,
    zeros: u64,
    scaled: u64,
}

impl Normaliser {
    /// For `vector` and `halfvec`.
    pub(crate) fn new(value_type: ValueType, dims: u32) -> Self {
        let value_len = value_type.value_len(dims).unwrap_or(0);
        Self { half: value_type == ValueType::HalfVec, value_len, zeros: 0, scaled: 0 }
    }

    /// Rows left out because their vector has norm zero.
    pub(crate) fn zeros(&self) -> u64 {
        self.zeros
    }

    /// Rows whose vector did not have norm 1, within rounding.
    pub(crate) fn scaled(&self) -> u64 {
        self.scaled
    }

    /// Returns the rows with normalised vectors, without rows of norm zero.
    pub(crate) fn normalise(&mut self, rows: &Tuples) -> Tuples {
        let mut tids = BytesMut::with_capacity(rows.count as usize * HEAP_TID_BYTES);
        let mut values = BytesMut::with_capacity(rows.values.len());
        let mut count = 0;
        for (tid, value) in rows.tids().zip(rows.values.chunks_exact(self.value_len)) {
            let norm = if self.half { norm(halves(value)) } else { norm(singles(value)) };
            if norm == 0.0 {
                self.zeros += 1;
                continue;
            }
            count += 1;
            tids.put_slice(&tid);
            if (norm - 1.0).abs() <= self.rounding() {
                values.put_slice(value);
                continue;
            }
            // Values that are not finite stay so; the build later refuses them with their row number.
            self.scaled += 1;
            if self.half {
                halves(value).for_each(|x| values.put_slice(&f16::from_f32((x / norm) as f32).to_le_bytes()));
            } else {
                singles(value).for_each(|x| values.put_f32_le((x / norm) as f32));
            }
        }
        Tuples { count, tids: tids.freeze(), lengths: rows.lengths.clone(), values: values.freeze() }
    }

    /// How far the norm of a unit vector may differ from 1 by rounding.
    fn rounding(&self) -> f64 {
        if self.half { 1e-3 } else { 1e-6 }
    }
}

fn norm(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.map(|x| x * x).sum::<f64>().sqrt()
}

fn singles(value: &[u8]) -> impl Iterator<Item = f64> {
    value.as_chunks().0.iter().map(|&bytes| f64::from(f32::from_le_bytes(bytes)))
}

fn halves(value: &[u8]) -> impl Iterator<Item = f64> {
    value.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f64())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use half::f16;
    use pgvector::ValueType;
    use protocol::Tuples;

    use super::{Normaliser, halves, singles};

    fn rows(count: u32, values: Vec<u8>) -> Tuples {
        let tids = (0..count).flat_map(|row| [0, 0, 0, 0, row as u8 + 1, 0]).collect::<Vec<_>>();
        Tuples { count, tids: tids.into(), lengths: Bytes::new(), values: values.into() }
    }

    #[test]
    fn vectors_get_norm_1_and_zero_vectors_are_left_out() {
        let values: Vec<u8> = [3.0f32, 4.0, 0.0, -0.0, 0.6, 0.8].iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut normaliser = Normaliser::new(ValueType::Vector, 2);
        let made = normaliser.normalise(&rows(3, values.clone()));
        assert_eq!((made.count, &made.tids[4..5], &made.tids[10..11]), (2, &[1][..], &[3][..]));
        assert_eq!(singles(&made.values[..8]).map(|x| x as f32).collect::<Vec<_>>(), [0.6, 0.8]);
        assert_eq!(made.values[8..], values[16..], "unit vectors stay as they are");
        assert_eq!((normaliser.zeros(), normaliser.scaled()), (1, 1));
    }

    #[test]
    fn halfvec_values_get_norm_1() {
        let values: Vec<u8> =
            [3.0f32, 4.0, 60000.0, 0.0].iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        let made = Normaliser::new(ValueType::HalfVec, 2).normalise(&rows(2, values));
        let numbers: Vec<_> = halves(&made.values).collect();
        assert!((numbers[0] - 0.6).abs() < 1e-3 && (numbers[1] - 0.8).abs() < 1e-3, "{numbers:?}");
        assert_eq!(numbers[2..], [1.0, 0.0]);
    }

    #[test]
    fn values_that_are_not_finite_stay_so() {
        let values: Vec<u8> = [f32::NAN, 1.0, f32::INFINITY, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let made = Normaliser::new(ValueType::Vector, 2).normalise(&rows(2, values));
        assert!(singles(&made.values[..8]).any(f64::is_nan) && singles(&made.values[8..]).any(f64::is_nan));
        let tiny: Vec<u8> = [f32::MIN_POSITIVE, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(singles(&Normaliser::new(ValueType::Vector, 2).normalise(&rows(1, tiny)).values).next(), Some(1.0));
    }
}
