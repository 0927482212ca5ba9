//! Counts, as users write and read them.

/// Parses a count: `250000`, or with a unit of `k`, `M` or `B` (thousand, million, billion), as in `100k`, `2.5M` or `1B`.
pub fn parse(text: &str) -> Result<u64, String> {
    let (number, digits) = match text.trim_end_matches(|c: char| c.is_ascii_alphabetic()) {
        number if number.len() == text.len() => (number, 0),
        number => match &text[number.len()..] {
            "k" => (number, 3),
            "M" => (number, 6),
            "B" => (number, 9),
            _ => return Err("the unit must be k, M or B, as in 2.5M".to_owned()),
        },
    };
    let (whole, part) = number.split_once('.').map_or((number, ""), |(whole, part)| (whole, part));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || (number.len() > whole.len() && !is_number(part)) {
        return Err(format!("\"{text}\" is not a number such as 250000, 100k or 2.5M"));
    }
    let part = part.trim_end_matches('0');
    if part.len() > digits {
        return Err("is not a whole number".to_owned());
    }
    format!("{whole}{part}{}", "0".repeat(digits - part.len())).parse().map_err(|_| "is too much".to_owned())
}

/// As [`parse`], but rejects 0.
pub fn parse_some(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("must be more than 0".to_owned()),
        number => Ok(number),
    }
}

/// Bytes with a unit, rounded to about three digits.
pub fn bytes(bytes: u64) -> String {
    let (mut number, mut units) = (bytes as f64, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].iter());
    let mut unit = units.next();
    while number >= 1024.0
        && let Some(next) = units.next()
    {
        (number, unit) = (number / 1024.0, Some(next));
    }
    let digits = if bytes < 1024 || number >= 100.0 { 0 } else { 1 };
    format!("{number:.digits$} {}", unit.unwrap_or(&""))
}

/// `1 thread`, `2 threads`.
pub fn of(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::{bytes, of, parse, parse_some};

    #[test]
    fn counts_may_have_a_unit_and_decimals() {
        for (text, number) in [
            ("0", 0),
            ("250000", 250_000),
            ("100k", 100_000),
            ("1M", 1_000_000),
            ("2.5M", 2_500_000),
            ("2.50M", 2_500_000),
            ("0.001k", 1),
            ("1.5B", 1_500_000_000),
            ("3.0", 3),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(number), "{text}");
        }
        for bad in [
            "",
            "M",
            "1.M",
            ".5M",
            "1.5",
            "1.0005k",
            "-1",
            "+1",
            "1m",
            "1K",
            "1 M",
            "1e6",
            "1.2.3M",
            "1,000",
            "2MM",
            "18446744073709552k",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!((parse_some("1k"), parse_some("0k").is_err()), (Ok(1000), true));
    }

    #[test]
    fn bytes_are_rounded_to_three_digits() {
        let cases =
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (99 << 20, "99.0 MiB"), (8_300_000_000, "7.7 GiB")];
        for (number, text) in cases {
            assert_eq!(bytes(number), text);
        }
        assert!(bytes(u64::MAX).ends_with(" PiB"));
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([of(0, "thread"), of(1, "thread"), of(2, "thread")], ["0 threads", "1 thread", "2 threads"]);
    }
}
