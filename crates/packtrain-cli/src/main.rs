//! The packtrain program: it parses arguments, calls the libraries and prints.

mod args;
mod bench;
mod demo;
mod exit;
mod forward;
mod joint;
mod json;
mod live;
mod plan;
mod print;
mod replay;
mod signals;
mod table;

use args::{Arguments, Command};
use clap::Parser;
use exit::{Exit, Failure};
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

/// Prints what clap has to say: help and version on standard output, errors on standard error.
fn explain(error: &clap::Error) -> ExitCode {
    // A pipe that was closed early (`--help | head`) is the reader's choice, no failure.
    drop(error.print());
    if error.use_stderr() {
        Exit::Usage.into()
    } else {
        ExitCode::SUCCESS
    }
}
