//! Numbers and times as people read them.

use crate::units::PREFIXES;

/// A number in about three digits, with separators: `12,345`, `1.23`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if value == value.round() || size >= 100.0 => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let digits = format!("{value:.decimals$}");
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", &*digits),
    };
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut text = sign.to_owned();
    for (at, c) in digits.char_indices() {
        if at > 0 && at < whole && (whole - at).is_multiple_of(3) && value.is_finite() {
            text.push(',');
        }
        text.push(c);
    }
    text
}

/// A round number in as few characters as it needs, for an axis: `0.5`, `10k`.
pub fn scaled(value: f64) -> String {
    let prefix = PREFIXES
        .into_iter()
        .find(|(_, scale)| value.abs() >= *scale);
    let (prefix, scale) = prefix.unwrap_or(("", 1.0));
    let text = number(value / scale);
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
