use std::str::FromStr;

use harness::Column;

/// Parses a number of at least 1.
pub fn positive<T: FromStr + PartialOrd + From<u8>>(word: &str) -> Result<T, String> {
    let number: T = word.parse().map_err(|_| "not a number".to_owned())?;
    if number >= T::from(1) { Ok(number) } else { Err("at least 1 is needed".to_owned()) }
}

pub fn column(word: &str) -> Result<Column, String> {
    let column = [Column::Vector, Column::Halfvec].into_iter().find(|column| column.name() == word);
    column.ok_or_else(|| "vector or halfvec is needed".to_owned())
}
