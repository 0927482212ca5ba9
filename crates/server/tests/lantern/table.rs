use std::io::{Read, Write};

use half::f16;
use protocol::v1::Init;

use crate::client::{Client, Failure};
use crate::index::Index;

/// The operator classes of the forks, with the metric that they announce.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Opclass {
    Cosine,
    InnerProduct,
    L2,
}

/// A table of vectors; `None` is NULL.
pub struct Table {
    pub opclass: Opclass,
    pub half: bool,
    pub dims: usize,
    pub m: u32,
    pub rows: Vec<Option<Vec<f32>>>,
}

/// Normally distributed random numbers from a seed.
pub struct Numbers(fastrand::Rng);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub fn next(&mut self) -> f32 {
        let sum: f32 = (0..12).map(|_| self.0.f32()).sum();
        sum - 6.0
    }

    pub fn vector(&mut self, dims: usize) -> Vec<f32> {
        (0..dims).map(|_| self.next()).collect()
    }
}

pub fn normalized(vector: &[f32]) -> Vec<f32> {
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.iter().map(|x| x / norm).collect()
}

impl Table {
    /// Rows of normally distributed numbers.
    pub fn random(opclass: Opclass, rows: usize, dims: usize, seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let rows = (0..rows).map(|_| Some(numbers.vector(dims))).collect();
        Self { opclass, half: false, dims, m: 16, rows }
    }

    /// The same table with vectors of length 1.
    pub fn normalized(mut self) -> Self {
        self.rows.iter_mut().flatten().for_each(|row| *row = normalized(row));
        self
    }

    pub fn init(&self) -> Init {
        Init {
            metric: if self.opclass == Opclass::L2 { 3 } else { 1 },
            quantization: if self.half { 3 } else { 1 },
            dims: self.dims as u32,
            m: self.m,
            ef_construction: 64.max(2 * self.m),
            capacity: 100_000,
            element_bits: if self.half { 16 } else { 32 },
            ..Init::default()
        }
    }

    pub fn encode(&self, row: &[f32]) -> Vec<u8> {
        match self.half {
            true => row.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
            false => row.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    fn decode(&self, value: &[u8]) -> Vec<f32> {
        match self.half {
            true => value.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32()).collect(),
            false => value.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
        }
    }

    /// Builds the index of the table.
    pub fn build<S: Read + Write>(&self, stream: S) -> Result<Index, Failure> {
        let mut client = Client::open(stream, self.init());
        client.acknowledged()?;
        self.send(&mut client)?;
        let index = client.finish()?;
        index.check();
        Ok(index)
    }

    pub fn send<S: Read + Write>(&self, client: &mut Client<S>) -> Result<(), Failure> {
        for (row, vector) in self.rows.iter().enumerate() {
            if let Some(vector) = vector {
                client.row(tid(row), &self.encode(vector))?;
            }
        }
        Ok(())
    }

    /// recall@10 of searches with `ef_search` 200, for some queries.
    pub fn recall(&self, index: &Index, queries: usize) -> f64 {
        let mut numbers = Numbers::new(4711);
        let (mut hits, mut wanted) = (0, 0);
        for _ in 0..queries {
            let mut query = numbers.vector(self.dims);
            // Under cosine, pgvector normalises the query and computes inner products with the normalised vectors of the index.
            if self.opclass == Opclass::Cosine {
                query = normalized(&query);
            }
            let in_index = |value: &[u8]| match self.opclass {
                Opclass::L2 => l2(&query, &self.decode(value)),
                Opclass::Cosine | Opclass::InnerProduct => -dot(&query, &self.decode(value)),
            };
            let found: Vec<_> = index.search(in_index, 200).into_iter().take(10).collect();
            let mut exact: Vec<f64> = self.rows.iter().flatten().map(|row| self.exact(&query, row)).collect();
            exact.retain(|distance| distance.is_finite());
            exact.sort_unstable_by(f64::total_cmp);
            let count = exact.len().min(10);
            let limit = exact[count - 1] + 1e-3 * exact[count - 1].abs().max(1e-3);
            wanted += count;
            let row = |tid: [u8; 6]| self.rows[row_of(tid)].as_deref().expect("NULLs are not indexed");
            hits += found.iter().filter(|element| self.exact(&query, row(element.tid)) <= limit).count();
        }
        hits as f64 / wanted as f64
    }

    /// The operator's distance, computed exactly; not finite where it is undefined.
    fn exact(&self, query: &[f32], row: &[f32]) -> f64 {
        let row = self.decode(&self.encode(row));
        match self.opclass {
            Opclass::L2 => l2(query, &row),
            Opclass::InnerProduct => -dot(query, &row),
            Opclass::Cosine => 1.0 - dot(query, &row) / dot(&row, &row).sqrt(),
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn l2(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum()
}

/// TIDs of 50 rows per heap block.
pub fn tid(row: usize) -> [u8; 6] {
    let [b0, b1, b2, b3] = ((row / 50) as u32).to_le_bytes();
    [b2, b3, b0, b1, (row % 50 + 1) as u8, 0]
}

fn row_of(tid: [u8; 6]) -> usize {
    let block = u32::from_le_bytes([tid[2], tid[3], tid[0], tid[1]]) as usize;
    block * 50 + usize::from(tid[4]) - 1
}
