//! `--parquet` in a build without the feature `parquet`.

use super::args::ReplayArgs;
use super::found::Found;
use crate::exit::{Exit, Failure};
use crate::signals::Stop;
use packtrain_capture::replay::Options;

/// Refuses the option.
///
/// # Errors
///
/// A usage error, always.
pub fn check(_: &ReplayArgs, _: &[Options]) -> Result<(), Failure> {
    Err(Failure::new(
        Exit::Usage,
        "--parquet: this build has no Parquet: build with `cargo build --release -p packtrain-cli \
         --features parquet`",
    ))
}

/// As [`check`], which comes first.
///
/// # Errors
///
/// A usage error, always.
pub fn run(args: &ReplayArgs, _: &str, runs: &[Options], _: &Stop) -> Result<Found, Failure> {
    check(args, runs).and(Ok(Found::default()))
}
