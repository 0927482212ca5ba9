//! The tables of every database: all types, few and no rows, values that nearly fill a page.

use harness::{Metric, Random, ValueType};

/// A table `(id int, v TYPE)`.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    pub name: &'static str,
    pub kind: ValueType,
    pub dims: usize,
    pub rows: usize,
    pub metric: Metric,
}

/// All tables.
pub const ALL: [Table; 9] = [
    table("vector_l2", ValueType::Vector, 128, 1000, Metric::L2),
    table("vector_cosine", ValueType::Vector, 384, 1000, Metric::Cosine),
    table("vector_wide", ValueType::Vector, 1900, 500, Metric::L2),
    table("halfvec_ip", ValueType::HalfVec, 200, 1500, Metric::InnerProduct),
    table("bit_hamming", ValueType::Bit, 256, 1500, Metric::Hamming),
    table("bit_jaccard", ValueType::Bit, 64, 600, Metric::Jaccard),
    table("sparsevec_l2", ValueType::SparseVec, 3000, 800, Metric::L2),
    table("vector_one", ValueType::Vector, 3, 1, Metric::L1),
    table("vector_none", ValueType::Vector, 3, 0, Metric::L2),
];

/// The table whose pages take some seconds at 100 KB/s.
pub const MIDDLE: usize = 0;
/// The table with the most bytes.
pub const WIDE: usize = 2;
/// Tables whose builds take some time.
pub const LARGE: [usize; 5] = [0, 1, 2, 3, 6];
/// The table with a single row.
pub const ONE: usize = 7;

const fn table(name: &'static str, kind: ValueType, dims: usize, rows: usize, metric: Metric) -> Table {
    Table { name, kind, dims, rows, metric }
}

/// The number of clusters of values.
const CENTERS: usize = 12;
/// The spread of values around their center; centers have variance 1 in each dimension.
const SPREAD: f32 = 0.8;

impl Table {
    /// The type of the column.
    pub fn column(&self) -> String {
        format!("{}({})", self.kind.name(), self.dims)
    }

    /// Bytes of values that are sent to a builder for the table.
    pub fn bytes(&self) -> u64 {
        let value = match self.kind {
            ValueType::Vector => 4 * self.dims,
            ValueType::HalfVec => 2 * self.dims,
            ValueType::Bit => self.dims / 8,
            ValueType::SparseVec => 8 * entries(self.dims),
        };
        ((value + 6) * self.rows) as u64
    }

    /// Lines for `COPY … FROM STDIN`: the rows, some of them equal or NULL, or `queries` other values.
    pub fn lines(&self, seed: u64, queries: Option<usize>) -> String {
        let mut random = Random::new(seed ^ self.dims as u64);
        let centers: Vec<Vec<f32>> = (0..CENTERS).map(|_| random.normals(self.dims)).collect();
        let mut random = Random::new(seed ^ self.dims as u64 ^ queries.map_or(1, |_| 2) << 32);
        let (mut lines, mut last) = (String::new(), String::new());
        for id in 0..queries.unwrap_or(self.rows) {
            if id % 40 != 39 || queries.is_some() {
                last = self.text(&mut random, &centers[id % CENTERS]);
            }
            let value = if queries.is_none() && id % 100 == 57 { "\\N" } else { &last };
            lines += &format!("{id}\t{value}\n");
        }
        lines
    }

    fn text(&self, random: &mut Random, center: &[f32]) -> String {
        let values: Vec<f32> = center.iter().map(|x| x + SPREAD * random.normal()).collect();
        match self.kind {
            ValueType::Vector | ValueType::HalfVec => {
                // Of unit length, for the inner product.
                let norm = values.iter().map(|x| x * x).sum::<f32>().sqrt();
                let texts: Vec<String> = values.iter().map(|x| format!("{:.5}", x / norm)).collect();
                format!("[{}]", texts.join(","))
            }
            ValueType::Bit => values.iter().map(|&x| if x > 0.0 { '1' } else { '0' }).collect(),
            ValueType::SparseVec => {
                // Values of a center have mostly the same dimensions.
                let mut largest: Vec<usize> = (0..self.dims).collect();
                largest.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
                largest.truncate(entries(self.dims));
                largest.sort_unstable();
                let texts: Vec<String> =
                    largest.iter().map(|&index| format!("{}:{:.4}", index + 1, values[index])).collect();
                format!("{{{}}}/{}", texts.join(","), self.dims)
            }
        }
    }
}

/// The number of nonzero entries of a sparse value.
fn entries(dims: usize) -> usize {
    dims / 50
}
