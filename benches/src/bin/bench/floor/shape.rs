//! The tables to measure.

use std::fmt;

use harness::Column;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub column: Column,
    pub dims: usize,
    /// Whether values are stored in the table whatever their size (STORAGE PLAIN).
    pub plain: bool,
}

impl Shape {
    /// Parses a shape such as `vector-768` or `halfvec-1536:plain`.
    pub fn parse(word: &str) -> Result<Self, String> {
        let wanted = || "TYPE-DIMS or TYPE-DIMS:plain is needed, where TYPE is vector or halfvec".to_owned();
        let (name, plain) = word.strip_suffix(":plain").map_or((word, false), |name| (name, true));
        let (kind, dims) = name.split_once('-').ok_or_else(wanted)?;
        let column = super::super::flags::column(kind)?;
        let dims = dims.parse().map_err(|_| wanted())?;
        match (2..=2000).contains(&dims) {
            true => Ok(Self { column, dims, plain }),
            false => Err("2 to 2000 dimensions are measured".to_owned()),
        }
    }

    /// Bytes of a value.
    pub fn value_bytes(self) -> usize {
        match self.column {
            Column::Vector => 4 * self.dims,
            Column::Halfvec => 2 * self.dims,
        }
    }

    /// The SQL definition of the columns, for an empty table.
    pub fn definition(self) -> String {
        format!("id int, v {}({})", self.column.name(), self.dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = if self.plain { ":plain" } else { "" };
        write!(f, "{}-{}{plain}", self.column.name(), self.dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_parsed_and_printed() {
        for (name, column, dims, plain, bytes) in [
            ("vector-768", Column::Vector, 768, false, 3072),
            ("halfvec-1536:plain", Column::Halfvec, 1536, true, 3072),
        ] {
            let shape = Shape::parse(name).unwrap();
            assert_eq!(shape, Shape { column, dims, plain });
            assert_eq!((shape.to_string(), shape.value_bytes()), (name.to_owned(), bytes));
        }
        for nonsense in ["vector", "bit-64", "vector-x", "vector-768:external", "vector-9999", "vector-1"] {
            assert!(Shape::parse(nonsense).is_err(), "{nonsense}");
        }
    }
}
