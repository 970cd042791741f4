//! State that the threads of one transfer share: source and destination, time limits, and results.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::payload::Datagrams;
use super::transfer::{Amount, Transfer};
use crate::cpu::Usage;
use crate::error::LabError;
use crate::netns::Netns;

/// How long one socket call waits before it checks whether the transfer has to end.
pub(super) const QUANTUM: Duration = Duration::from_millis(50);

/// Source and destination.
pub(super) struct Way<'a> {
    pub from: &'a Netns,
    pub to: &'a Netns,
    pub address: IpAddr,
}

/// The result of one end of one stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End {
    pub bytes: u64,
    pub hash: u64,
    pub calls: u64,
    /// Of its thread.
    pub cpu: Usage,
    /// When the last byte arrived, since the start; 0 of an end that only sends.
    pub elapsed: Duration,
    /// Of a receiver of datagrams: all, and those since the mark.
    pub datagrams: [Datagrams; 2],
}

/// The time limits, shared by the threads of one transfer.
pub(super) struct Limits<'a> {
    pub transfer: &'a Transfer,
    pub start: Instant,
    /// Set by the first thread that fails, so that the others end, too.
    abort: AtomicBool,
    /// Set when enough was sent, for [`Amount::Open`].
    over: Option<&'a AtomicBool>,
}

impl<'a> Limits<'a> {
    pub(super) fn new(transfer: &'a Transfer) -> Self {
        Self {
            transfer,
            start: Instant::now(),
            abort: AtomicBool::new(false),
            over: None,
        }
    }

    /// The same for senders that stop when `over` is set.
    pub(super) fn until(transfer: &'a Transfer, over: &'a AtomicBool) -> Self {
        Self {
            over: Some(over),
            ..Self::new(transfer)
        }
    }

    /// Whether a sender that has `sent` so many bytes or packets ends: its time is over. One that
    /// had no CPU in that time sends once, unless it has a rate.
    pub(super) fn ends(&self, sent: u64) -> bool {
        let is_timed = matches!(self.transfer.amount, Amount::Time(_));
        (sent > 0 || !is_timed) && self.time_is_up()
    }

    /// Whether the sending time is over; never for an amount in bytes.
    pub(super) fn time_is_up(&self) -> bool {
        match self.transfer.amount {
            Amount::Time(time) => self.start.elapsed() >= time,
            Amount::Open => self.over.is_some_and(|over| over.load(Ordering::Relaxed)),
            Amount::Bytes(_) => false,
        }
    }

    pub(super) fn abort(&self) {
        self.abort.store(true, Ordering::Relaxed);
    }

    /// Whether the caller has stopped the transfer, or a thread has failed.
    pub(super) fn cancelled(&self) -> Result<(), LabError> {
        let stop = self
            .transfer
            .stop
            .as_ref()
            .is_some_and(|stop| stop.load(Ordering::Relaxed));
        if stop || self.abort.load(Ordering::Relaxed) {
            Err(LabError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Whether to continue to wait, after a quantum without progress. `idle` is the time of the
    /// last progress.
    pub(super) fn check(
        &self,
        what: &'static str,
        idle: Instant,
        bytes: u64,
    ) -> Result<(), LabError> {
        self.cancelled()?;
        if idle.elapsed() >= self.transfer.stall {
            return Err(LabError::Stalled {
                what,
                after: idle.elapsed(),
                bytes,
            });
        }
        self.check_limit(what, bytes)
    }

    /// Checked after each call, since one that never waits checks nothing: whether to go on, of
    /// every 64th call.
    pub(super) fn check_call(
        &self,
        what: &'static str,
        calls: u64,
        bytes: u64,
    ) -> Result<(), LabError> {
        if calls.is_multiple_of(64) {
            self.cancelled()?;
            self.check_limit(what, bytes)?;
        }
        Ok(())
    }

    /// Whether the whole transfer is still within its time.
    pub(super) fn check_limit(&self, what: &'static str, bytes: u64) -> Result<(), LabError> {
        if self.start.elapsed() >= self.transfer.limit {
            return Err(LabError::TimeLimit {
                what,
                limit: self.transfer.limit,
                bytes,
            });
        }
        Ok(())
    }
}

/// Whether a socket call should be repeated: after its timeout, or a signal.
pub(crate) fn is_pause(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::IpVersion;

    #[test]
    fn a_sender_whose_time_is_over_has_sent_once() {
        let transfer = |amount| Transfer::udp(IpVersion::V4, amount);
        let over = transfer(Amount::Time(Duration::ZERO));
        let ends = |transfer: &Transfer| [0, 1].map(|sent| Limits::new(transfer).ends(sent));
        assert_eq!(ends(&over), [false, true]);
        assert_eq!(ends(&transfer(Amount::Bytes(1))), [false, false]);
    }

    #[test]
    fn a_time_limit_is_no_stall() {
        let mut transfer = Transfer::tcp(IpVersion::V4, Amount::Bytes(1));
        transfer.limit = Duration::ZERO;
        let said = |limits: Limits<'_>| {
            let idle = Instant::now();
            let error = limits.check("tcp send", idle, 7).unwrap_err();
            assert_eq!(
                limits.check_limit("tcp send", 7).is_err(),
                limits.transfer.limit.is_zero()
            );
            error.to_string()
        };
        let late = "tcp send did not end within 0 ms, its time limit; 7 bytes arrived";
        assert_eq!(said(Limits::new(&transfer)), late);
        transfer.limit = Duration::from_secs(3600);
        transfer.stall = Duration::ZERO;
        assert!(said(Limits::new(&transfer)).starts_with("tcp send stalled: no progress for"));
    }
}
