//! The least input that shows a failure.

use std::time::Duration;

use super::bench::{Bench, Found, lines};
use super::packet::{Form, Sent};
use super::packets::{Ground, Step};
use super::probe::{Outcome, SHORT_PATIENCE, Wrong};
use crate::error::ToolError;

/// Runs with smaller input, at most. Each may wait for packets that do not arrive.
const TRIES: usize = 40;
/// A start of the program counts as this many runs, since it may take long.
const START_TRIES: usize = 8;
/// A loss is one now and then if less than one in so many packets of the least list is lost.
const RARE: usize = 100;
/// The cause of a loss that does not show again, or is rare, until all checks have ended.
pub(super) const NOW_AND_THEN: &str = "packets are lost now and then";

impl Bench<'_> {
    /// Makes the input of a failure smaller as long as it fails in the same way: fewer packets, and
    /// fewer segments in a large one. The result is sent again, with the whole patience. A cause
    /// that an earlier check has shown is not looked for again.
    pub(super) fn least(
        &mut self,
        step: Step,
        ground: &Ground,
        outcome: Outcome,
    ) -> Result<Found, ToolError> {
        let cause = outcome.fault.as_ref().map_or("", |fault| &fault.cause);
        if self.causes.contains(cause) {
            return Ok(Found {
                fault: outcome.fault.clone(),
                outcome,
                ..Found::default()
            });
        }
        let short = SHORT_PATIENCE.min(self.options.patience);
        let mut least = step.clone();
        let (mut tries, starts) = (0, self.starts);
        let is_reordered =
            outcome.fault.as_ref().map(|fault| fault.wrong) == Some(Wrong::Reordered);
        if is_reordered && self.options.stops && !step.is_held {
            // A program reorders packets that it reads together. After a stop it reads the same
            // ones together on any machine, so a shorter list shows the fault. If the program's
            // socket has no room for the list, packets are lost, which is another fault.
            least.is_held = true;
            tries += 1;
            if self.fails(&least, ground, &outcome, short)?.is_none() {
                least.is_held = false;
            }
        }
        let mut pieces = 2;
        while least.list.len() > 1 && self.has_tries(tries, starts) {
            let size = least.list.len().div_ceil(pieces);
            let mut shorter = None;
            for start in (0..least.list.len()).step_by(size) {
                let mut candidate = least.clone();
                let end = (start + size).min(candidate.list.len());
                candidate.list.drain(start..end);
                tries += 1;
                if self.fails(&candidate, ground, &outcome, short)?.is_some() {
                    shorter = Some(candidate);
                    break;
                }
                if !self.has_tries(tries, starts) {
                    break;
                }
            }
            match shorter {
                Some(candidate) => (least, pieces) = (candidate, (pieces - 1).max(2)),
                None if size == 1 => break,
                None => pieces = (pieces * 2).min(least.list.len()),
            }
        }
        for index in 0..least.list.len() {
            while self.has_tries(tries, starts) {
                let Some(fewer) = with_fewer_segments(&least.list[index]) else {
                    break;
                };
                let mut candidate = least.clone();
                candidate.list[index] = fewer;
                tries += 1;
                if self.fails(&candidate, ground, &outcome, short)?.is_none() {
                    break;
                }
                least = candidate;
            }
        }
        // The short patience may have taken a delay for a loss.
        let patience = self.options.patience;
        let mut again = self.fails(&least, ground, &outcome, patience)?;
        tries += 1;
        if again.is_none() && least != step {
            again = self.fails(&step, ground, &outcome, patience)?;
            tries += 1;
            least = step;
        }
        let shows_again = again.is_some();
        let mut outcome = again.unwrap_or(outcome);
        let is_rare = !shows_again || outcome.lost * RARE < outcome.went.len();
        if let Some(fault) = &mut outcome.fault {
            if fault.wrong == Wrong::Lost && is_rare {
                fault.cause = NOW_AND_THEN.to_owned();
            } else if !fault.cause.is_empty() {
                self.causes.insert(fault.cause.clone());
            }
        }
        Ok(Found {
            least: lines(&least),
            shows_again: Some(shows_again),
            tries,
            fault: outcome.fault.clone(),
            outcome,
            ..Found::default()
        })
    }

    /// Whether a run may follow `runs` others, before which the program had been started `starts`
    /// times.
    fn has_tries(&self, runs: usize, starts: u64) -> bool {
        let started = (self.starts - starts) as usize;
        runs + START_TRIES * started < TRIES && !self.control.stopped()
    }

    /// The outcome, if it is the same kind of failure. A program that the last one has ended, or
    /// confused, is started again.
    fn fails(
        &mut self,
        step: &Step,
        ground: &Ground,
        as_in: &Outcome,
        patience: Duration,
    ) -> Result<Option<Outcome>, ToolError> {
        if self.end().is_some() || !self.passes()? {
            self.restart()?;
        }
        let kind = |outcome: &Outcome| outcome.fault.as_ref().map(|fault| fault.wrong);
        let outcome = self.step(step, ground, patience)?;
        let is_same = kind(&outcome) == kind(as_in) && outcome.doubt.is_none();
        Ok(is_same.then_some(outcome))
    }
}

/// A large packet with half as many full segments before its last one.
fn with_fewer_segments(sent: &Sent) -> Option<Sent> {
    let Form::Large { packet, size } = &sent.form else {
        return None;
    };
    let full = (packet.payload - 1) / size;
    if full <= 1 {
        return None;
    }
    let mut fewer = packet.clone();
    fewer.payload -= (full - full / 2) * size;
    let form = Form::Large {
        packet: fewer,
        size: *size,
    };
    Some(Sent {
        form,
        ..sent.clone()
    })
}
