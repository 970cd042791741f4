//! One pass over the captures, with progress on a terminal.

use super::args::ReplayArgs;
use super::input;
use crate::exit::Failure;
use crate::signals::Stop;
use crate::table::scaled;
use crate::tool::Progress;
use packtrain_measure::numbers::elapsed;
use packtrain_replay::{Error, Settings};

/// Shows how far a run is, and ends it when a signal arrives.
///
/// # Errors
///
/// Those of the run.
pub fn watched<T>(
    args: &ReplayArgs,
    stop: &Stop,
    run: impl FnOnce(&mut Settings<'_>) -> Result<T, Error>,
) -> Result<T, Failure> {
    let progress = Progress::new(args.quiet || args.json);
    let mut watch = |now: &packtrain_replay::Progress| {
        progress.say(&progress_line(now));
        !stop.requested()
    };
    let done = run(&mut Settings {
        watch: Some(&mut watch),
        ..Settings::default()
    });
    progress.clear();
    done.map_err(|error| input::of_run(&error, stop.requested()))
}

/// How far a run is, in one line.
fn progress_line(now: &packtrain_replay::Progress) -> String {
    let share = now.bytes_total.filter(|total| *total > 0);
    let share = share.map_or_else(String::new, |total| {
        format!("{:.0} % of ", 100.0 * now.bytes as f64 / total as f64)
    });
    let (bytes, rate) = (now.bytes_total.unwrap_or(now.bytes), now.rate());
    let packets = scaled(now.packets as f64);
    let packets = packets.trim_end();
    let left = now.left().map_or_else(String::new, |left| {
        format!(", {} left", elapsed(left.as_secs_f64()))
    });
    format!(
        "{share}{}B, {packets} packets, {}B/s{left}",
        scaled(bytes as f64),
        scaled(rate)
    )
}
