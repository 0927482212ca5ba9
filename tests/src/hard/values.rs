use std::fmt::Write;

use half::f16;
use protocol::ValueType;

/// Values of one type, encoded as the builder receives them: little-endian, without PostgreSQL's headers.
pub struct Values {
    kind: ValueType,
    dims: usize,
    bytes: Vec<u8>,
    /// The end of each value in `bytes`.
    ends: Vec<usize>,
}

impl Values {
    fn new(kind: ValueType, dims: usize) -> Self {
        Self { kind, dims, bytes: Vec::new(), ends: Vec::new() }
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    /// Encodes rows of `dims` numbers as any type: zeros are left out of sparse values, bits are the signs.
    pub(super) fn of_numbers(kind: ValueType, dims: usize, rows: impl Iterator<Item = Vec<f32>>) -> Self {
        match kind {
            ValueType::Bit => Self::bits(dims, rows.map(|row| row.into_iter().map(|x| x > 0.0).collect())),
            ValueType::SparseVec => {
                let sparse = |row: Vec<f32>| (0..).zip(row).filter(|&(_, x)| x != 0.0).collect();
                Self::sparse(dims, rows.map(sparse))
            }
            _ => Self::dense(kind, dims, rows),
        }
    }

    /// Encodes rows of `dims` numbers.
    pub(super) fn dense(kind: ValueType, dims: usize, rows: impl Iterator<Item = Vec<f32>>) -> Self {
        let mut values = Self::new(kind, dims);
        for row in rows {
            assert_eq!(row.len(), dims);
            match kind {
                ValueType::HalfVec => values.bytes.extend(row.into_iter().flat_map(|x| f16::from_f32(x).to_le_bytes())),
                _ => values.bytes.extend(row.into_iter().flat_map(f32::to_le_bytes)),
            }
            values.end();
        }
        values
    }

    /// Encodes rows of `(dimension, number)`, ascending by dimension.
    pub(super) fn sparse(dims: usize, rows: impl Iterator<Item = Vec<(u32, f32)>>) -> Self {
        let mut values = Self::new(ValueType::SparseVec, dims);
        for row in rows {
            values.bytes.extend((row.len() as u32).to_le_bytes());
            values.bytes.extend(row.iter().flat_map(|(dim, _)| dim.to_le_bytes()));
            values.bytes.extend(row.iter().flat_map(|(_, number)| number.to_le_bytes()));
            values.end();
        }
        values
    }

    /// Encodes rows of `dims` bits.
    pub(super) fn bits(dims: usize, rows: impl Iterator<Item = Vec<bool>>) -> Self {
        let mut values = Self::new(ValueType::Bit, dims);
        for row in rows {
            let byte =
                |bits: &[bool]| bits.iter().enumerate().fold(0, |byte, (at, &bit)| byte | u8::from(bit) << (7 - at));
            values.bytes.extend(row.chunks(8).map(byte));
            values.end();
        }
        values
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The column type.
    pub fn kind(&self) -> ValueType {
        self.kind
    }

    /// The bytes of value `at`.
    pub fn value(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    /// Value `at` in the text format of its type.
    pub fn text(&self, at: usize) -> String {
        let value = self.value(at);
        let list = |numbers: Vec<String>| format!("[{}]", numbers.join(","));
        match self.kind {
            ValueType::Vector => list(f32s(value).map(|x| x.to_string()).collect()),
            ValueType::HalfVec => list(f16s(value).map(|x| x.to_string()).collect()),
            ValueType::Bit => {
                (0..self.dims).map(|bit| if value[bit / 8] >> (7 - bit % 8) & 1 == 1 { '1' } else { '0' }).collect()
            }
            ValueType::SparseVec => {
                let count = u32::from_le_bytes([value[0], value[1], value[2], value[3]]) as usize;
                let (dims, numbers) = value[4..].split_at(4 * count);
                let mut text = "{".to_owned();
                for (at, (dim, number)) in dims.chunks_exact(4).zip(f32s(numbers)).enumerate() {
                    let dim = u32::from_le_bytes([dim[0], dim[1], dim[2], dim[3]]) + 1;
                    let comma = if at == 0 { "" } else { "," };
                    _ = write!(text, "{comma}{dim}:{number}");
                }
                text + &format!("}}/{}", self.dims)
            }
        }
    }

    /// Value `at` as an index under cosine stores it: of unit length, with pgvector's rounding. `None` if its norm is zero.
    pub fn normalised(&self, at: usize) -> Option<Vec<u8>> {
        let value = self.value(at);
        let scale = |numbers: Vec<f32>| -> Option<Vec<f32>> {
            let norm = numbers.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
            (norm > 0.0).then(|| numbers.into_iter().map(|x| (f64::from(x) / norm) as f32).collect())
        };
        match self.kind {
            ValueType::Vector => Some(scale(f32s(value).collect())?.into_iter().flat_map(f32::to_le_bytes).collect()),
            ValueType::HalfVec => {
                Some(scale(f16s(value).collect())?.into_iter().flat_map(|x| f16::from_f32(x).to_le_bytes()).collect())
            }
            ValueType::Bit => Some(value.to_vec()),
            ValueType::SparseVec => {
                let head = 4 + (value.len() - 4) / 2;
                let numbers = scale(f32s(&value[head..]).collect())?;
                Some(value[..head].iter().copied().chain(numbers.into_iter().flat_map(f32::to_le_bytes)).collect())
            }
        }
    }
}

fn f16s(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(2).map(|two| f16::from_le_bytes([two[0], two[1]]).to_f32())
}

fn f32s(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

#[cfg(test)]
mod tests {
    use super::{ValueType, Values};

    #[test]
    fn texts_are_those_of_pgvector() {
        let dense = Values::dense(ValueType::Vector, 2, [vec![1.5, -2.0]].into_iter());
        assert_eq!(dense.text(0), "[1.5,-2]");
        let half = Values::dense(ValueType::HalfVec, 2, [vec![1.5, -2.0]].into_iter());
        assert_eq!((half.text(0), half.value(0).len()), ("[1.5,-2]".into(), 4));
        let bits = Values::bits(10, [(0..10).map(|at| at % 3 == 0).collect()].into_iter());
        assert_eq!((bits.text(0), bits.value(0)), ("1001001001".into(), &[0b1001_0010, 0b0100_0000][..]));
        let sparse = Values::sparse(9, [vec![(0, 3.0), (8, 4.0)], vec![]].into_iter());
        assert_eq!((sparse.text(0), sparse.text(1)), ("{1:3,9:4}/9".into(), "{}/9".into()));
        let normalised = sparse.normalised(0).unwrap();
        assert_eq!(normalised[12..], [0.6f32, 0.8].map(f32::to_le_bytes).concat());
        assert!(sparse.normalised(1).is_none());
    }
}
