//! The command line of a bench, and its exit status.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// An option of a command line, and the words after it.
pub struct Word<'a> {
    name: &'a str,
    rest: &'a mut dyn Iterator<Item = String>,
}

impl fmt::Debug for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Word").field(&self.name).finish()
    }
}

impl<'a> Word<'a> {
    /// The option: `--rounds`.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Its value, or the next one of several.
    ///
    /// # Errors
    ///
    /// The problem, as a message: there is none.
    pub fn value(&mut self) -> Result<String, String> {
        self.rest
            .next()
            .ok_or_else(|| format!("{} needs a value", self.name))
    }

    /// Its value, a number from `min` to `max`.
    ///
    /// # Errors
    ///
    /// The problem, as a message: it is no such number.
    pub fn number<N: FromStr + PartialOrd + Display + Copy>(
        &mut self,
        min: N,
        max: N,
    ) -> Result<N, String> {
        let text = self.value()?;
        match text.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(format!("{} is {min} to {max}, not {text}", self.name)),
        }
    }
}

/// Reads the command line of the bench `name` into `arguments`, which has the defaults. `set` takes
/// one option, and returns false if it does not know it. `--help` is known, and the `--bench` that
/// cargo gives to every bench.
///
/// # Errors
///
/// The status to exit with, `usage` printed: 0 if only help is wanted, 2 if an option is wrong.
pub fn read<A>(
    name: &str,
    usage: &str,
    arguments: A,
    set: impl Fn(&mut A, &mut Word<'_>) -> Result<bool, String>,
) -> Result<A, ExitCode> {
    match parse(std::env::args().skip(1), arguments, set) {
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

/// `None` if only help is wanted.
fn parse<A>(
    mut words: impl Iterator<Item = String>,
    mut arguments: A,
    set: impl Fn(&mut A, &mut Word<'_>) -> Result<bool, String>,
) -> Result<Option<A>, String> {
    while let Some(name) = words.next() {
        let mut word = Word {
            name: &name,
            rest: &mut words,
        };
        match &*name {
            "--bench" => {}
            "--help" | "-h" => return Ok(None),
            _ if set(&mut arguments, &mut word)? => {}
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(Some(arguments))
}

/// The options of a bench that measures for a time in each round.
#[derive(Clone, Debug)]
pub struct Timed {
    /// `--rounds`.
    pub rounds: usize,
    /// `--time`: the length of each measurement.
    pub time: Duration,
    /// `--json`: where the rows go.
    pub json: Option<PathBuf>,
}

impl Timed {
    /// One second in each round.
    pub const fn new(rounds: usize) -> Self {
        Self {
            rounds,
            time: Duration::from_secs(1),
            json: None,
        }
    }

    /// Takes `--rounds`, `--time`, `--quick` (4 rounds of 0.4 s) and `--json`; false for another
    /// option.
    ///
    /// # Errors
    ///
    /// The problem with the value, as a message.
    pub fn set(&mut self, word: &mut Word<'_>) -> Result<bool, String> {
        match word.name() {
            "--rounds" => self.rounds = word.number(2, 10_000)?,
            "--time" => self.time = Duration::from_secs_f64(word.number(0.1, 60.0)?),
            "--quick" => (self.rounds, self.time) = (4, Duration::from_millis(400)),
            "--json" => self.json = Some(word.value()?.into()),
            _ => return Ok(false),
        }
        Ok(true)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(line: &str) -> Result<Option<Timed>, String> {
        let words = line.split_whitespace().map(str::to_owned);
        parse(words, Timed::new(16), Timed::set)
    }

    #[test]
    fn a_command_line_is_read() {
        let read = timed("--bench --rounds 2 --time 0.5 --json a/b");
        let read = read.unwrap().expect("arguments");
        assert_eq!((read.rounds, read.time.as_millis()), (2, 500));
        assert_eq!(read.json, Some("a/b".into()));
        let quick = timed("--quick --rounds 7").unwrap().expect("arguments");
        assert_eq!((quick.rounds, quick.time.as_millis()), (7, 400));
        assert!(timed("--rounds 7 --help --rounds x").unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for text in ["0", "1", "10001", "2.5", "NaN", "x"] {
            let error = timed(&format!("--rounds {text}")).unwrap_err();
            assert_eq!(error, format!("--rounds is 2 to 10000, not {text}"));
        }
        for text in ["0", "61", "NaN"] {
            let error = timed(&format!("--time {text}")).unwrap_err();
            assert_eq!(error, format!("--time is 0.1 to 60, not {text}"));
        }
        assert_eq!(timed("--json").unwrap_err(), "--json needs a value");
        assert_eq!(timed("--runds 3").unwrap_err(), "unknown option --runds");
    }
}
