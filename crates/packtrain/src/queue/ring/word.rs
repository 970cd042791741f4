//! The words that threads exchange: positions, the head with the state in it, stamps.

use crate::stats::Stall;

/// Bits of a position. Positions count items since the ring was made, modulo 2^57: four years at
/// 10^9 a second. Sums and differences wrap; the index of a slot is the low bits of a position,
/// and slots are a power of two, so that indices wrap with them.
const POSITION_BITS: u32 = 57;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

/// No position, where one is asked for.
pub(super) const NOWHERE: u64 = u64::MAX;

/// `position + items`.
#[inline(always)]
pub(super) const fn after(position: u64, items: u64) -> u64 {
    position.wrapping_add(items) & POSITION_MASK
}

/// Items from `from` to `to`. Huge if `from` is ahead.
#[inline(always)]
pub(super) const fn distance(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) & POSITION_MASK
}

/// Who is, or should be, the consumer. In one word with the head, so that whoever reserves space
/// learns in the same step whether somebody is going to look at what it adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing is pending, and nobody is the consumer.
    Idle,
    /// Somebody is the consumer; or the role waits at a gap for a producer to publish.
    Busy,
    /// Busy, and the reason of a stall may have gone away meanwhile.
    Kicked,
    /// Something may be pending, and whoever wrote this has seen to it that somebody comes.
    Abdicated,
    /// The device took no more. Something may be pending; a kick follows when the cause is gone.
    Stalled(Stall),
}

const STATE_BITS: u32 = 4;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;
const _: () = assert!(POSITION_BITS + STATE_BITS <= 64);

impl State {
    #[inline(always)]
    const fn bits(self) -> u64 {
        match self {
            Self::Idle => 0,
            Self::Busy => 1,
            Self::Kicked => 2,
            Self::Abdicated => 3,
            Self::Stalled(Stall::NoDescriptor) => 4,
            Self::Stalled(Stall::LinkDown) => 5,
            Self::Stalled(Stall::Busy) => 6,
            Self::Stalled(Stall::NoMemory) => 7,
            Self::Stalled(Stall::Flush) => 8,
            Self::Stalled(Stall::ByteLimit) => 9,
        }
    }

    #[inline(always)]
    const fn of(bits: u64) -> Self {
        match bits {
            0 => Self::Idle,
            1 => Self::Busy,
            2 => Self::Kicked,
            3 => Self::Abdicated,
            4 => Self::Stalled(Stall::NoDescriptor),
            5 => Self::Stalled(Stall::LinkDown),
            6 => Self::Stalled(Stall::Busy),
            7 => Self::Stalled(Stall::NoMemory),
            8 => Self::Stalled(Stall::Flush),
            _ => Self::Stalled(Stall::ByteLimit),
        }
    }
}

/// The head: up to where space is reserved, and the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head(pub(super) u64);

impl Head {
    #[inline(always)]
    pub(super) const fn new(position: u64, state: State) -> Self {
        Self(position << STATE_BITS | state.bits())
    }

    #[inline(always)]
    pub(super) const fn position(self) -> u64 {
        self.0 >> STATE_BITS
    }

    #[inline(always)]
    pub(super) const fn state(self) -> State {
        State::of(self.0 & STATE_MASK)
    }

    /// Whether this is the state, without taking it apart.
    #[inline(always)]
    pub(super) const fn is(self, state: State) -> bool {
        self.0 & STATE_MASK == state.bits()
    }

    /// Further on by `items`, in the same state.
    #[inline(always)]
    pub(super) const fn forward(self, items: u64) -> Self {
        Self(self.0.wrapping_add(items << STATE_BITS) & (POSITION_MASK << STATE_BITS | STATE_MASK))
    }

    #[inline(always)]
    pub(super) const fn with_state(self, state: State) -> Self {
        Self::new(self.position(), state)
    }
}

const COUNT_BITS: u32 = 64 - POSITION_BITS;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Most items that one stamp can stand for. A longer batch has several.
pub(super) const STAMP_ITEMS_MAX: u64 = 64;
const _: () = assert!(STAMP_ITEMS_MAX < COUNT_MASK);

/// What a producer writes when its items are in their slots: where they begin, and how many. It is
/// in the place of the first one. What is there from an earlier lap has another position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) u64);

impl Stamp {
    /// In a place where nothing was published yet: no stamp of any position has this count.
    pub(super) const NONE: Self = Self(COUNT_MASK);

    #[inline(always)]
    pub(super) const fn new(position: u64, items: u64) -> Self {
        Self(position << COUNT_BITS | items)
    }

    /// Items published at `position`, if it is theirs.
    #[inline(always)]
    pub(super) const fn items_at(self, position: u64) -> Option<u64> {
        let items = self.0 & COUNT_MASK;
        if self.0 >> COUNT_BITS == position && items != COUNT_MASK {
            Some(items)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 10] = [
        State::Idle,
        State::Busy,
        State::Kicked,
        State::Abdicated,
        State::Stalled(Stall::NoDescriptor),
        State::Stalled(Stall::LinkDown),
        State::Stalled(Stall::Busy),
        State::Stalled(Stall::NoMemory),
        State::Stalled(Stall::Flush),
        State::Stalled(Stall::ByteLimit),
    ];

    #[test]
    fn a_head_keeps_position_and_state_apart() {
        for position in [0, 1, 12_345, POSITION_MASK] {
            for state in STATES {
                let head = Head::new(position, state);
                assert_eq!((head.position(), head.state()), (position, state));
                assert!(
                    STATES
                        .iter()
                        .all(|other| head.is(*other) == (*other == state))
                );
                let next = head.forward(3);
                assert_eq!((next.position(), next.state()), (after(position, 3), state));
                let idle = head.with_state(State::Idle);
                assert_eq!((idle.position(), idle.state()), (position, State::Idle));
            }
        }
    }

    #[test]
    fn positions_wrap() {
        assert_eq!(after(POSITION_MASK, 3), 2);
        assert_eq!(distance(POSITION_MASK, 2), 3);
        assert!(distance(2, 1) > 1 << 40);
    }

    #[test]
    fn a_stamp_is_that_of_one_position() {
        let stamp = Stamp::new(POSITION_MASK, STAMP_ITEMS_MAX);
        assert_eq!(stamp.items_at(POSITION_MASK), Some(STAMP_ITEMS_MAX));
        assert_eq!(stamp.items_at(0), None);
        for position in [0, 1, POSITION_MASK] {
            assert_eq!(Stamp::NONE.items_at(position), None);
        }
    }
}
