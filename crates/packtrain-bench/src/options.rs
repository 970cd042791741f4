//! The command line of a bench, and its exit status.

use std::fmt::Display;
use std::process::ExitCode;

/// The arguments of the bench `name`.
///
/// # Errors
///
/// The status to exit with, `usage` printed: 0 if only help is wanted (`None`), 2 if an option is
/// wrong.
pub fn parsed<A>(
    name: &str,
    usage: &str,
    arguments: Result<Option<A>, String>,
) -> Result<A, ExitCode> {
    match arguments {
        Ok(Some(arguments)) => Ok(arguments),
        Ok(None) => {
            println!("{usage}");
            Err(ExitCode::SUCCESS)
        }
        Err(wrong) => {
            eprintln!("{name}: {wrong}\n{usage}");
            Err(ExitCode::from(2))
        }
    }
}

/// The exit status after `result` of the bench `name`: 1 if a goal that decides is missed
/// (`false`), 4 after an error, which is printed.
pub fn status<E: Display>(name: &str, result: Result<bool, E>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(4)
        }
    }
}

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
