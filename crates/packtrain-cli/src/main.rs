//! The packtrain program: it parses arguments, calls the libraries and prints.

mod args;
mod blast;
mod check;
mod compare;
mod demo;
mod doctor;
mod exit;
mod experiment;
mod fifo;
mod forward;
mod guard;
mod guest;
mod joint;
mod json;
mod live;
mod ping;
mod plan;
mod print;
mod privileges;
mod ranges;
mod replay;
mod report;
mod rfc2544;
mod shell;
mod signals;
mod sim;
mod stream;
mod suggest;
mod summary;
mod table;
mod tool;
mod words;

use args::{Arguments, Command};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory, Parser};
use exit::{Exit, Failure};
use packtrain::name::Name;
use std::error::Error;
use std::ffi::OsString;
use std::io::{Write, stdout};
use std::process::ExitCode;
use suggest::nearest;

fn main() -> ExitCode {
    if let Some(ended) = guard::serve(std::env::args_os()) {
        return ended;
    }
    match shell::complete(Arguments::command) {
        Ok(false) => {}
        answered => return ended(answered.map(|_| ())),
    }
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
        Command::Guest(args) => match guest::run(args) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Experiment(args) => experiment::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Blast(args) => blast::run(args),
        Command::Ping(args) => ping::run(args),
        Command::Stream(args) => stream::run(args),
        Command::Rfc2544(args) => rfc2544::run(args),
        Command::Check(args) => check::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Completions(args) => shell::completions(args),
        Command::Man(args) => shell::man(args, Arguments::command()),
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
    let words: Vec<_> = words
        .map(|word| Name::from(word).exact().to_owned())
        .collect();
    let all = Arguments::command();
    let mut command = &all;
    let mut names = String::new();
    for word in &words {
        let Some(found) = command.find_subcommand(word) else {
            break;
        };
        names.extend([found.get_name(), " "]);
        command = found;
    }
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let suggested = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let names = all.get_subcommands().map(clap::Command::get_name);
            nearest(of(ContextKind::InvalidSubcommand), names)
        }
        ErrorKind::InvalidValue => {
            let known = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(values)) => values.as_slice(),
                _ => &[],
            };
            nearest(
                of(ContextKind::InvalidValue),
                known.iter().map(String::as_str),
            )
        }
        ErrorKind::UnknownArgument => {
            let argument = of(ContextKind::InvalidArg);
            if let Some((option, value)) = negative(command, argument, &words) {
                line = format!("{option} cannot be '{value}': {NEGATIVE}");
            }
            let option = argument.strip_prefix("--");
            let options = command.get_arguments().filter_map(Arg::get_long);
            option.and_then(|option| nearest(option, options))
        }
        _ => None,
    };
    if let Some(suggested) = suggested {
        let dashes = match error.kind() {
            ErrorKind::UnknownArgument => "--",
            _ => "",
        };
        line.push_str(&format!("; did you mean '{dashes}{suggested}'?"));
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

/// Why a value below 0 is refused.
const NEGATIVE: &str = "it must not be negative";

fn is_negative(word: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// The option and the value below 0 after it, of which clap says that its first letters are the
/// unknown `argument`.
fn negative<'a>(
    command: &clap::Command,
    argument: &str,
    words: &'a [String],
) -> Option<(&'a str, &'a str)> {
    let takes_value = |word: &str| {
        let name = word.strip_prefix("--");
        let mut all = command.get_arguments();
        let option = all.find(|one| one.get_long() == name);
        name.is_some() && option.is_some_and(|one| one.get_action().takes_values())
    };
    let pair = words.windows(2).find(|pair| {
        is_negative(&pair[1]) && pair[1].starts_with(argument) && takes_value(&pair[0])
    })?;
    Some((&pair[0], &pair[1]))
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
            if is_negative(&value) {
                return format!("{option} cannot be '{value}': {NEGATIVE}");
            }
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
