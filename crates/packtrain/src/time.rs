//! Time in the framework: nanoseconds of one clock. The runtime reads it, and each step gets it as
//! an argument.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A point in time, in nanoseconds since an arbitrary start of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The point `ns` nanoseconds after the clock's start.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` moved by `duration`, saturating at the end of time (584 years).
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// A date and time of day, UTC: nanoseconds since 1970, up to the year 2554.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WallTime {
    /// All bits inverted, so that 0 is no time and an `Option` takes no more room.
    inverted: NonZeroU64,
}

const _: () = assert!(size_of::<Option<WallTime>>() == 8);

impl WallTime {
    /// The last time.
    pub const MAX: Self = Self {
        inverted: NonZeroU64::MIN,
    };

    /// The time `ns` nanoseconds after the start of 1970; [`WallTime::MAX`] for `u64::MAX`.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        match NonZeroU64::new(!ns) {
            Some(inverted) => Self { inverted },
            None => Self::MAX,
        }
    }

    /// Nanoseconds since the start of 1970.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        !self.inverted.get()
    }
}

impl fmt::Debug for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WallTime").field(&self.as_nanos()).finish()
    }
}

/// A source of time. A step of a worker gets `now` as an argument instead.
pub trait Clock: Send + Sync {
    /// The current time. Never goes back.
    fn now(&self) -> Instant;
}

/// The machine's monotonic clock, starting at the first one of this process. All of them have the
/// same time.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    start: std::time::Instant,
}

impl MonotonicClock {
    /// The clock. It starts at 0 if it is the first of the process.
    #[must_use]
    pub fn new() -> Self {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        Self {
            start: *START.get_or_init(std::time::Instant::now),
        }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A clock that is moved by hand: for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let now = self.now().after(by);
        self.now.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }
}
