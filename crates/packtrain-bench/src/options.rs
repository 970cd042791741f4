//! Values of command-line options.

/// The number in `text`, the value of `option`.
///
/// # Errors
///
/// The problem, as a message: it is no number, or not `min` to `max`.
pub fn number(option: &str, text: &str, min: f64, max: f64) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("{option} is {min} to {max}, not {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_its_range() {
        assert_eq!(number("--time", "0.5", 0.1, 60.0), Ok(0.5));
        for text in ["0", "61", "NaN", "x", ""] {
            let error = number("--time", text, 0.1, 60.0).unwrap_err();
            assert_eq!(error, format!("--time is 0.1 to 60, not {text}"));
        }
    }
}
