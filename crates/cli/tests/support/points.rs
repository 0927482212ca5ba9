use std::net::TcpStream;

use half::f16;
use protocol::{Metric, TuplesWriter, ValueType};

use super::Client;

/// Reproducible points around a few centers, with numbers that the type can represent.
pub fn points(value_type: ValueType, metric: Metric, count: usize, dims: usize) -> Vec<Vec<f32>> {
    let mut state = 17_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let centers: Vec<Vec<f32>> = (0..30).map(|_| (0..dims).map(|_| next()).collect()).collect();
    let mut row = |number: usize| -> Vec<f32> {
        let value = centers[number % centers.len()].iter().map(|center| center + 0.6 * next());
        let mut value: Vec<f32> = match value_type {
            ValueType::Vector => value.collect(),
            ValueType::HalfVec => value.map(|x| f16::from_f32(x).to_f32()).collect(),
            ValueType::SparseVec => value.map(|x| if x < 0.0 { 0.0 } else { x }).collect(),
            ValueType::Bit => value.map(|x| f32::from(x > 0.0)).collect(),
        };
        if metric == Metric::Cosine {
            // Normalised, as the extension sends them.
            let norm = value.iter().map(|x| x * x).sum::<f32>().sqrt();
            value.iter_mut().for_each(|x| *x /= norm);
        }
        value
    };
    (0..count).map(&mut row).collect()
}

/// A value as the client sends it.
pub fn encode(value_type: ValueType, row: &[f32]) -> Vec<u8> {
    match value_type {
        ValueType::Vector => row.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ValueType::HalfVec => row.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
        ValueType::Bit => {
            let byte = |bits: &[f32]| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit > 0.0));
            row.chunks(8).map(byte).collect()
        }
        ValueType::SparseVec => {
            let set: Vec<(u32, f32)> = (0u32..).zip(row.iter().copied()).filter(|(_, x)| *x != 0.0).collect();
            let mut bytes = (set.len() as u32).to_le_bytes().to_vec();
            bytes.extend(set.iter().flat_map(|(at, _)| at.to_le_bytes()));
            bytes.extend(set.iter().flat_map(|(_, x)| x.to_le_bytes()));
            bytes
        }
    }
}

impl Client<TcpStream> {
    /// Sends rows with TIDs of 50 per heap block, from block 0 on.
    pub fn values(&mut self, value_type: ValueType, rows: &[Vec<f32>]) {
        let mut writer = TuplesWriter::new(value_type == ValueType::SparseVec);
        for (number, row) in (0u32..).zip(rows) {
            let [b0, b1, b2, b3] = (number / 50).to_le_bytes();
            writer.push([b2, b3, b0, b1, (number % 50 + 1) as u8, 0], &encode(value_type, row));
            if writer.is_full() || number as usize + 1 == rows.len() {
                self.batch(&mut writer);
            }
        }
    }
}
