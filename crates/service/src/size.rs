//! Sizes of memory as operators write and read them.

use std::fmt;

/// Parses a number of bytes: an integer with one of the units `kB`, `MB`, `GB` and `TB`, powers of 1024 as in PostgreSQL's
/// settings.
///
/// # Errors
/// The problem with the text, as part of a sentence.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|_| format!("\"{text}\" does not begin with a number"))?;
    let shift = match unit.trim() {
        "kB" => 10,
        "MB" => 20,
        "GB" => 30,
        "TB" => 40,
        _ => return Err("the unit must be kB, MB, GB or TB, as in 48GB".to_owned()),
    };
    match number.checked_mul(1 << shift) {
        Some(0) => Err("must be more than 0".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err("is too much".to_owned()),
    }
}

/// Bytes as PostgreSQL's `pg_size_pretty` writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["bytes", "kB", "MB", "GB", "TB"];
        let (mut value, mut unit) = (self.0, 0);
        // Switch to the next unit when five digits would be needed.
        while value >= 10 * 1024 && unit + 1 < UNITS.len() {
            value = value / 1024 + (value % 1024) / 512;
            unit += 1;
        }
        write!(out, "{value} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::{Size, parse_size};

    #[test]
    fn sizes_are_written_like_pg_size_pretty() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (64 << 20, "64 MB"),
            (10 << 30, "10 GB"),
            (9 << 30, "9216 MB"),
            (u64::MAX, "16777216 TB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn sizes_are_integers_with_a_unit() {
        for (text, bytes) in [("1kB", 1 << 10), ("64MB", 64 << 20), ("48 GB", 48 << 30), ("2TB", 2 << 40)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "10", "GB", "0MB", "1.5GB", "-1GB", "1gb", "99999999TB", "99999999999999999999kB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
