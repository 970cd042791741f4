//! What a producer does with a batch that it has just put into the ring.

/// Who has the ring, as a producer saw it while it enqueued. The states are those of iflib's
/// `mp_ring`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Empty, and nobody's (`IDLE`).
    Idle,
    /// Somebody drains it, and looks again before leaving (`BUSY`).
    Draining,
    /// Left by one whose budget was used up, or to the worker, which was asked and has not come yet
    /// (`ABDICATED`).
    Asked,
    /// Nobody drains it, since the device takes nothing (`STALLED`). The worker restarts it, once
    /// the device can go on; a producer does only if its rule says so.
    Stalled,
}

/// What a producer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Who had the ring before.
    pub seen: Seen,
    /// Packets in the ring, with the new ones.
    pub depth: u32,
    /// Packets that the producer has just put there.
    pub batch: u32,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// Whether to become the consumer, if nobody has the ring by then and it has not stalled (but
    /// for a rule that [`restarts`](Rule::restarts)). It may have changed since it was looked at:
    /// if somebody else is faster, there is nothing to do.
    pub drain: bool,
    /// Whether to leave the ring to the worker, and see that it comes. Never together with `drain`.
    /// No system call is needed if the worker does not sleep.
    pub wake: bool,
    /// Packets that may be drained then, at least 1; what is left then is left to the next
    /// producer or to the worker, which is woken if no producer comes. The only producer may go on
    /// where the worker sleeps.
    pub budget: u32,
}

/// What producers do, in one word: [`Rule::to_bits`] goes into an atomic, and they need no lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Depth from which a producer drains, at least 1; [`NEVER`] for none.
    from: u32,
    /// At least 1.
    budget: u16,
    /// Whether a producer that drains also tries a device that took nothing a moment ago.
    restarts: bool,
    /// Whether the worker is asked again although somebody drains, or the device stalls.
    asks_always: bool,
}

const NEVER: u32 = u32::MAX;
const BUDGET_AT: u32 = 32;
const RESTARTS: u64 = 1 << 48;
const ASKS_ALWAYS: u64 = 1 << 49;

impl Rule {
    /// The producer that finds the ring idle drains it, and so does one that finds it left by
    /// another whose budget was used up, as iflib's with `tx_abdicate=0` do.
    #[must_use]
    pub const fn direct(budget: u16) -> Self {
        Self::new(1, budget, false, false)
    }

    /// The worker drains, and is woken when the ring was empty.
    #[must_use]
    pub const fn deferred(budget: u16) -> Self {
        Self::new(NEVER, budget, false, false)
    }

    /// The worker drains, and is asked with every batch.
    #[must_use]
    pub const fn abdicate(budget: u16) -> Self {
        Self::new(NEVER, budget, false, true)
    }

    /// The worker drains, but a producer that sees `depth` packets does it itself.
    #[must_use]
    pub const fn threshold(depth: u32, budget: u16) -> Self {
        Self::new(depth, budget, true, false)
    }

    /// As `threshold`, and a producer leaves a device that took nothing to the worker.
    #[must_use]
    pub const fn gather(depth: u32, budget: u16) -> Self {
        Self::new(depth, budget, false, false)
    }

    const fn new(from: u32, budget: u16, restarts: bool, asks_always: bool) -> Self {
        Self {
            from: if from == 0 { 1 } else { from },
            budget: if budget == 0 { 1 } else { budget },
            restarts,
            asks_always,
        }
    }

    /// The rule as one word.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        let flags = (if self.restarts { RESTARTS } else { 0 })
            | (if self.asks_always { ASKS_ALWAYS } else { 0 });
        self.from as u64 | (self.budget as u64) << BUDGET_AT | flags
    }

    /// The rule of a word. Every word is one.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self::new(
            bits as u32,
            (bits >> BUDGET_AT) as u16,
            bits & RESTARTS != 0,
            bits & ASKS_ALWAYS != 0,
        )
    }

    /// Packets that a producer drains before it leaves the ring to the next one, if there is one,
    /// or to a worker that is awake.
    #[must_use]
    pub const fn budget(self) -> u16 {
        self.budget
    }

    /// Whether a producer that drains also tries a device that took nothing a moment ago.
    #[must_use]
    pub const fn restarts(self) -> bool {
        self.restarts
    }

    /// Whether producers ever drain the ring.
    #[must_use]
    pub const fn producers_drain(self) -> bool {
        self.from != NEVER
    }

    /// Whether the depth of the ring makes a difference, beyond the batch being in it. To look at
    /// it is a cache line that the consumer writes.
    #[must_use]
    pub const fn counts_depth(self) -> bool {
        self.producers_drain() && self.from > 1
    }

    /// What to do with a batch.
    #[must_use]
    pub const fn ask(self, sight: Sight) -> Action {
        let drains = self.producers_drain() && sight.depth >= self.from;
        let (drain, wake) = match sight.seen {
            // Somebody was faster with all of it.
            _ if sight.depth == 0 => (false, false),
            // Who drains may be done before the batch is in the ring, and a stall over: to claim
            // nothing would be to wake the worker then.
            _ if drains => (true, false),
            // The worker was told of the stall, and could do nothing for it now: the device is
            // full, or down.
            Seen::Draining | Seen::Stalled => (false, self.asks_always),
            Seen::Asked => (false, false),
            Seen::Idle => (false, true),
        };
        let budget = if sight.batch > self.budget as u32 {
            sight.batch
        } else {
            self.budget as u32
        };
        Action {
            drain,
            wake,
            budget,
        }
    }
}
