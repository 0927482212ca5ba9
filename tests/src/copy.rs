use anyhow::{Context, Result};
use half::f16;
use protocol::ValueType;

use crate::{Session, Vectors};

/// The type of a vector column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// `vector(n)`: binary32.
    Vector,
    /// `halfvec(n)`: binary16.
    Halfvec,
}

impl Column {
    /// The type.
    pub fn value_type(self) -> ValueType {
        match self {
            Self::Vector => ValueType::Vector,
            Self::Halfvec => ValueType::HalfVec,
        }
    }

    /// The type's name in SQL.
    pub fn name(self) -> &'static str {
        self.value_type().name()
    }
}

/// Makes a table `(id int, v TYPE(dims))` and fills it; ids are row numbers.
pub fn copy_rows(session: &mut Session, table: &str, column: Column, vectors: &Vectors) -> Result<()> {
    session.execute(&format!("CREATE TABLE {table} (id int, v {}({}))", column.name(), vectors.dims()))?;
    fill_rows(session, table, column, vectors)
}

/// Fills a table that exists.
pub fn fill_rows(session: &mut Session, table: &str, column: Column, vectors: &Vectors) -> Result<()> {
    let mut data = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    let dims = u16::try_from(vectors.dims()).context("too many dimensions")?;
    for row in 0..vectors.rows() {
        let id = u32::try_from(row).context("too many rows")?;
        data.extend_from_slice(&2u16.to_be_bytes());
        data.extend_from_slice(&4u32.to_be_bytes());
        data.extend_from_slice(&id.to_be_bytes());
        let width = if column == Column::Vector { 4 } else { 2 };
        data.extend_from_slice(&(4 + width * u32::from(dims)).to_be_bytes());
        data.extend_from_slice(&dims.to_be_bytes());
        data.extend_from_slice(&[0; 2]);
        for &value in vectors.row(row) {
            match column {
                Column::Vector => data.extend_from_slice(&value.to_be_bytes()),
                Column::Halfvec => data.extend_from_slice(&f16::from_f32(value).to_be_bytes()),
            }
        }
    }
    data.extend_from_slice(&u16::MAX.to_be_bytes());
    session.copy(&format!("COPY {table} FROM STDIN (FORMAT binary)"), &data)?;
    session.execute(&format!("ANALYZE {table}"))?;
    Ok(())
}
