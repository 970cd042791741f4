//! Numbers and times as people read them.

/// Prefixes of numbers, the largest first.
pub const PREFIXES: [(&str, f64); 3] = [("G", 1e9), ("M", 1e6), ("k", 1e3)];

/// A value on the scale of the largest prefix that it reaches, and the prefix: 1.5 and `k`.
pub fn prefixed(value: f64) -> (f64, &'static str) {
    let reaches = |(_, scale): &(_, f64)| value.abs() >= *scale;
    let (prefix, scale) = PREFIXES.into_iter().find(reaches).unwrap_or(("", 1.0));
    (value / scale, prefix)
}

/// A count with its digits in groups of three: `1,234,567`.
pub fn grouped(count: u64) -> String {
    separated(&count.to_string())
}

/// A number in about three digits, with separators: `12,345`, `1.23`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if value == value.round() || size >= 100.0 => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let digits = format!("{size:.decimals$}");
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}{rest}", separated(whole))
}

fn separated(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A round number in as few characters as it needs, for a chart: `0.5`, `10k`.
pub fn scaled(value: f64) -> String {
    let (value, prefix) = prefixed(value);
    let text = number(value);
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{prefix}")
}

/// A time in its two greatest units.
pub fn elapsed(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        for (value, expected) in [
            (0.0, "0"),
            (0.1234, "0.123"),
            (-0.5, "-0.500"),
            (1.0, "1"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (999.6, "1,000"),
            (1234.5, "1,234"),
            (-1234.0, "-1,234"),
            (1_234_567.0, "1,234,567"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(number(value), expected);
        }
        assert_eq!(
            [0.5, 1.0, 1500.0, -20_000.0, 1e6].map(scaled),
            ["0.5", "1", "1.5k", "-20k", "1M"]
        );
        assert_eq!(
            [0, 999, 1000, u64::MAX].map(grouped),
            ["0", "999", "1,000", "18,446,744,073,709,551,615"]
        );
        assert_eq!(elapsed(59.9), "59 s");
        assert_eq!(elapsed(3599.0), "59 min 59 s");
        assert_eq!(elapsed(7200.0), "2 h 0 min");
        assert_eq!(elapsed(93_784.0), "1 d 2 h");
    }
}
