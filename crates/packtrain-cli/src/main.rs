//! The packtrain program: it parses arguments, calls the libraries and prints.

mod args;
mod blast;
mod compare;
mod demo;
mod doctor;
mod exit;
mod experiment;
mod fifo;
mod forward;
mod in_force;
mod joint;
mod json;
mod live;
mod ping;
mod plan;
mod print;
mod privileges;
mod replay;
mod report;
mod rfc2544;
mod signals;
mod stream;
mod summary;
mod table;
mod tool;
mod words;

use args::{Arguments, Command};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory, Parser};
use exit::{Exit, Failure};
use std::error::Error;
use std::ffi::OsString;
use std::io::{Write, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    let result = match &arguments.command {
        Command::Forward(args) => forward::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Experiment(args) => experiment::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Blast(args) => blast::run(args),
        Command::Ping(args) => ping::run(args),
        Command::Stream(args) => stream::run(args),
        Command::Rfc2544(args) => rfc2544::run(args),
    };
    ended(result)
}

fn ended(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { exit, line }) => {
            print::error_line(&line);
            exit.into()
        }
    }
}

/// Prints the result of clap: help and version on standard output, an error in one line on standard
/// error.
fn explain(error: &clap::Error) -> ExitCode {
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if error.use_stderr() && !is_help {
        print::error_line(&usage_error(error, std::env::args_os().skip(1)));
        return Exit::Usage.into();
    }
    let printed = error.print().and_then(|()| stdout().flush());
    if is_help {
        // The help went to standard error. If that is closed, the failure cannot be reported.
        return Exit::Usage.into();
    }
    ended(print::written(printed))
}

/// The error, a suggestion, and where the help is. `words` are the arguments.
fn usage_error(error: &clap::Error, words: impl Iterator<Item = OsString>) -> String {
    let mut line = what_is_wrong(error);
    let all = Arguments::command();
    let mut command = &all;
    let mut names = String::new();
    for word in words {
        let Some(found) = command.find_subcommand(&word) else {
            break;
        };
        names.extend([found.get_name(), " "]);
        command = found;
    }
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let known = |kind| match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let suggested = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let names = all.get_subcommands().map(clap::Command::get_name);
            nearest(&of(ContextKind::InvalidSubcommand), names)
        }
        ErrorKind::InvalidValue => {
            let values = known(ContextKind::ValidValue);
            nearest(
                &of(ContextKind::InvalidValue),
                values.iter().map(String::as_str),
            )
        }
        ErrorKind::UnknownArgument => {
            let options: Vec<_> = command.get_arguments().filter_map(Arg::get_long).collect();
            let word = of(ContextKind::InvalidArg);
            let option = word.strip_prefix("--");
            let found = option.and_then(|option| nearest(option, options.into_iter()));
            found.map(|option| format!("--{option}"))
        }
        _ => None,
    };
    if let Some(suggested) = suggested {
        line.push_str(&format!("; did you mean '{suggested}'?"));
    }
    if error.kind() == ErrorKind::MissingRequiredArgument {
        let positionals = command.get_positionals();
        let all: Vec<_> = positionals.map(ToString::to_string).collect();
        if !all.is_empty() {
            line.push_str(&format!("; write packtrain {names}{}", all.join(" ")));
        }
    }
    line + &format!("; see packtrain {names}--help")
}

/// The one of `known` that `word` is likely to stand for, if there is one: letters are wrong in a
/// third of it at most, or it is an abbreviation.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let wrong = |one: &str| strsim::damerau_levenshtein(word, one);
    let is_abbreviation = |one: &str| {
        let mut letters = one.chars();
        word.len() > 2
            && one.chars().next() == word.chars().next()
            && word.chars().all(|c| letters.any(|letter| letter == c))
    };
    let is_like = |one: &&str| 3 * wrong(one) <= one.len().max(3) || is_abbreviation(one);
    let nearest = known.filter(is_like).min_by_key(|one| wrong(one));
    nearest.map(str::to_owned)
}

/// The wrong word and what can be there instead.
fn what_is_wrong(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let argument = text(ContextKind::InvalidArg);
    let option = argument.split(' ').next().unwrap_or_default();
    let value = text(ContextKind::InvalidValue);
    match error.kind() {
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("{option} needs a value: write {argument}")
        }
        ErrorKind::InvalidValue => {
            let values = text(ContextKind::ValidValue);
            format!("{option} cannot be '{value}'; write one of {values}")
        }
        ErrorKind::ValueValidation => {
            let why = error.source().map_or_else(String::new, ToString::to_string);
            let name = option.trim_start_matches('-');
            // Settings of the framework name themselves and the value.
            if why.starts_with(name) {
                return format!("--{why}");
            }
            format!("{option} cannot be '{value}': {why}")
        }
        ErrorKind::MissingRequiredArgument => format!("missing: {argument}"),
        ErrorKind::UnknownArgument => format!("unexpected argument '{argument}'"),
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand);
            let known = Arguments::command();
            let known: Vec<_> = known
                .get_subcommands()
                .map(clap::Command::get_name)
                .collect();
            format!(
                "unknown command '{word}'; the commands are {}",
                known.join(", ")
            )
        }
        _ => {
            // The error is the first paragraph; tips and usage follow.
            let text = error.render().to_string();
            let lines = text.lines().map(str::trim);
            let what: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let what = what.join(" ");
            what.strip_prefix("error: ").unwrap_or(&what).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_one_that_is_like_it() {
        let commands = || ["forward", "plan", "blast", "ping", "rfc2544"].into_iter();
        let options = || ["a", "b", "sizes", "through", "json", "final-duration"].into_iter();
        for (word, found) in [
            ("fwd", Some("forward")),
            ("forwrad", Some("forward")),
            ("blst", Some("blast")),
            ("rfc", Some("rfc2544")),
            ("nothing", None),
            ("p", None),
        ] {
            assert_eq!(nearest(word, commands()).as_deref(), found, "{word}");
        }
        for (word, found) in [
            ("frames", None),
            ("size", Some("sizes")),
            ("jso", Some("json")),
            ("duration", None),
        ] {
            assert_eq!(nearest(word, options()).as_deref(), found, "{word}");
        }
    }
}
