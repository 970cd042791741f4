//! The packtrain program: it parses arguments, calls the libraries and prints.

mod args;
mod bench;
mod demo;
mod exit;
mod forward;
mod in_force;
mod joint;
mod json;
mod live;
mod plan;
mod print;
mod replay;
mod signals;
mod table;

use args::{Arguments, Command};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use exit::{Exit, Failure};
use std::ffi::OsStr;
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
        Command::Bench(args) => bench::run(&args.what),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { exit, line }) => {
            print::error_line(&line);
            exit.into()
        }
    }
}

/// Prints what clap has to say: help and version on standard output, a wrong command line in one
/// line on standard error.
fn explain(error: &clap::Error) -> ExitCode {
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if error.use_stderr() && !is_help {
        print::error_line(&usage_error(error, std::env::args_os().nth(1).as_deref()));
        return Exit::Usage.into();
    }
    // A pipe that was closed early (`--help | head`) is the reader's choice, no failure.
    drop(error.print());
    if is_help {
        Exit::Usage.into()
    } else {
        ExitCode::SUCCESS
    }
}

/// What is wrong, what may have been meant, and where to read on. `first` is the first argument.
fn usage_error(error: &clap::Error, first: Option<&OsStr>) -> String {
    let text = error.render().to_string();
    // What is wrong comes first, in one paragraph; tips and usage follow.
    let lines = text.lines().map(str::trim);
    let what: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let what = what.join(" ");
    let mut line = what.strip_prefix("error: ").unwrap_or(&what).to_owned();
    let suggested = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    let suggested = suggested
        .into_iter()
        .find_map(|kind| match error.get(kind) {
            Some(ContextValue::String(one)) => Some(one.clone()),
            Some(ContextValue::Strings(many)) => many.first().cloned(),
            _ => None,
        });
    if let Some(suggested) = suggested {
        line.push_str(&format!("; did you mean '{suggested}'?"));
    }
    let command = Arguments::command();
    let subcommand = first
        .and_then(|first| command.find_subcommand(first))
        .map_or_else(String::new, |found| format!("{} ", found.get_name()));
    line + &format!("; see packtrain {subcommand}--help")
}
