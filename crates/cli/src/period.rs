use std::time::Duration;

/// Parses a time span: a whole number with a unit of `ms`, `s`, `min` (or `m`) or `h`, as in PostgreSQL's settings.
pub fn parse(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|_| format!("\"{text}\" does not begin with a number"))?;
    let unit_ms = match unit.trim() {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err("the unit must be ms, s, m or h, as in 90s".to_owned()),
    };
    match number.checked_mul(unit_ms) {
        Some(0) => Err("must be longer than 0".to_owned()),
        // More than a year is a mistake, and would overflow timers.
        Some(ms) if ms <= 365 * 24 * 3_600_000 => Ok(Duration::from_millis(ms)),
        _ => Err("must not be longer than a year".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn spans_are_integers_with_a_unit() {
        for (text, ms) in [("1ms", 1), ("30s", 30_000), ("10m", 600_000), ("10min", 600_000), ("2 h", 7_200_000)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "10", "m", "0s", "1.5s", "-1s", "1d", "9999999h", "99999999999999999999s"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
