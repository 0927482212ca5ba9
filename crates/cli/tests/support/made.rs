use std::net::TcpStream;

use pages::Estimate;
use protocol::{Hello, Metric, TuplesWriter, ValueType};

use super::{Client, hello};

/// A build whose values are generated while they are sent.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    pub value_type: ValueType,
    pub dims: u32,
    pub m: u16,
    pub rows: u64,
}

impl Made {
    pub fn value_len(&self) -> usize {
        self.estimate().value_len
    }

    pub fn estimate(&self) -> Estimate {
        let value_len = self.value_type.value_len(self.dims).expect("no sparse values here");
        let &Self { value_type, dims, m, rows } = self;
        Estimate { value_type, dims, value_len, m, rows, elements: rows }
    }

    pub fn hello(&self) -> Hello {
        let metric = if self.value_type == ValueType::Bit { Metric::Hamming } else { Metric::L2 };
        let ef_construction = 64.max(2 * self.m);
        let (value_type, m, estimated_rows) = (self.value_type, self.m, self.rows);
        Hello { value_type, metric, m, ef_construction, estimated_rows, ..hello(self.dims) }
    }

    /// Sends all rows and the end of the rows.
    pub fn send(&self, client: &mut Client<TcpStream>) {
        self.send_rows(client);
        client.end_of_rows(self.rows);
    }

    pub fn send_rows(&self, client: &mut Client<TcpStream>) {
        let mut random = fastrand::Rng::with_seed(1);
        let mut writer = TuplesWriter::new(false);
        for row in 0..self.rows {
            let ([b0, b1, b2, b3], offset) = (((row / 50) as u32).to_le_bytes(), (row % 50 + 1) as u8);
            writer.push_with([b2, b3, b0, b1, offset, 0], |out| match self.value_type {
                ValueType::Vector => {
                    (0..self.dims).for_each(|_| out.extend(random.f32().to_le_bytes()));
                }
                // Half-precision numbers from 0.125 to 0.5.
                ValueType::HalfVec => {
                    (0..self.dims).for_each(|_| out.extend((0x3000 | random.u16(..0x800)).to_le_bytes()));
                }
                _ => (0..self.value_len()).for_each(|_| out.push(random.u8(..))),
            });
            if writer.is_full() || row + 1 == self.rows {
                client.batch(&mut writer);
            }
        }
    }
}
