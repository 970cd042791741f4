//! How a worker sleeps without missing what comes meanwhile, and without being woken for nothing.

use crate::sync::{AtomicU32, Ordering, Padded};

/// The worker looks before it sleeps.
const AWAKE: u32 = 0;
/// Somebody rang since the worker looked last.
const RUNG: u32 = 1;
/// The worker is about to block, or does.
const ASLEEP: u32 = 2;

/// Says whether a worker has to be woken. It holds no descriptor: the shell that blocks has an
/// eventfd beside it, which is written to only when [`ring`](Bell::ring) says so.
///
/// A worker looks at its work, and if there was none calls [`try_sleep`](Bell::try_sleep), or asks
/// again and again whether anybody rang ([`heard`](Bell::heard)). If `try_sleep`
/// says true it blocks (in `ppoll`, say, on the eventfd and its devices), and calls
/// [`wake`](Bell::wake) when it runs again, for whatever reason. A ring between the look and the
/// sleep is remembered, so nothing is lost; of many rings only the first one after the worker
/// went to sleep costs a system call.
#[derive(Debug)]
pub struct Bell {
    state: Padded<AtomicU32>,
}

impl Bell {
    /// For a worker that is awake.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Padded(AtomicU32::new(AWAKE)),
        }
    }

    /// Tells the worker to look. True when it sleeps: then, and only then, the caller must make
    /// the descriptor readable that the worker blocks on.
    #[must_use = "a worker that sleeps is woken by its descriptor"]
    pub fn ring(&self) -> bool {
        // A read-modify-write, also where it was rung already: it puts what the caller did before
        // in front of the worker's next look.
        self.state.swap(RUNG, Ordering::AcqRel) == ASLEEP
    }

    /// Whether somebody rang since the worker looked last: what came before that is seen by a look
    /// that follows. It stays rung.
    #[must_use = "who was rung for must look"]
    pub fn is_rung(&self) -> bool {
        self.state.load(Ordering::Acquire) == RUNG
    }

    /// The same, and it is rung no more: for a worker that does not sleep now, and looks after this
    /// at all that it may have been rung for. A load, unless there is something to hear.
    #[must_use = "who was rung for must look"]
    pub fn heard(&self) -> bool {
        self.is_rung() && self.state.swap(AWAKE, Ordering::AcqRel) == RUNG
    }

    /// True when the worker may block now. False when somebody rang since it looked last: it has
    /// to look again.
    #[must_use = "who was rung for must look again"]
    pub fn try_sleep(&self) -> bool {
        let slept = self
            .state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        if slept.is_err() {
            self.state.swap(AWAKE, Ordering::AcqRel);
        }
        slept.is_ok()
    }

    /// The worker runs again. True when it was rung for, false when something else woke it. The
    /// descriptor may be made readable a moment later than this says true.
    pub fn wake(&self) -> bool {
        self.state.swap(AWAKE, Ordering::AcqRel) == RUNG
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}
