use std::fmt;

/// Bytes as PostgreSQL's `pg_size_pretty` writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

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
    use super::Size;

    #[test]
    fn sizes_look_like_those_of_postgres() {
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
}
