use protocol::{Hello, Metric, TuplesWriter, ValueType};

/// Random rows of f32 vectors, reproducible from the parameters.
pub struct Rows {
    pub dims: u32,
    pub values: Vec<f32>,
}

impl Rows {
    pub fn new(count: usize, dims: u32) -> Self {
        let mut random = fastrand::Rng::with_seed(1);
        Self { dims, values: (0..count * dims as usize).map(|_| random.f32()).collect() }
    }

    pub fn len(&self) -> usize {
        self.values.len() / self.dims as usize
    }

    /// The rows in frames of at most `batch` rows, with TIDs of 50 rows per heap block.
    pub fn batches(&self, batch: usize) -> impl Iterator<Item = TuplesWriter> {
        let rows: Vec<_> = self.values.chunks(self.dims as usize).enumerate().collect();
        let batches: Vec<_> = rows
            .chunks(batch)
            .map(|rows| {
                let mut writer = TuplesWriter::new(false);
                for (row, value) in rows {
                    let (block, offset) = ((row / 50) as u32, (row % 50 + 1) as u16);
                    let [b0, b1, b2, b3] = block.to_le_bytes();
                    let [o0, o1] = offset.to_le_bytes();
                    let value: Vec<u8> = value.iter().flat_map(|number| number.to_le_bytes()).collect();
                    writer.push([b2, b3, b0, b1, o0, o1], &value);
                }
                writer
            })
            .collect();
        batches.into_iter()
    }
}

/// A valid Hello for `vector` under L2.
pub fn hello(dims: u32) -> Hello {
    Hello {
        client_version: "test 0".to_owned(),
        server_version: "PostgreSQL 15.20".to_owned(),
        label: "items_embedding_idx".to_owned(),
        ..Hello::new(ValueType::Vector, Metric::L2, dims)
    }
}
