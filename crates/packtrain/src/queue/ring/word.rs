//! The words that threads exchange: positions, the head with the state in it, stamps.

use crate::stats::Stall;

/// Bits below a position, for a state or a count.
const LOW_BITS: u32 = 7;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

/// No position, where one is asked for.
pub(super) const NOWHERE: u64 = u64::MAX;
/// No position either, and a reader has to look again behind a fence.
pub(super) const UNFENCED: u64 = NOWHERE - 1;

/// `position + items`. Positions count items since the ring was made, in units of 128, so that
/// sums and differences wrap by themselves: after 2^57 items, four years at 10^9 a second. Slots
/// are a power of two, so that their indices wrap with them.
#[inline(always)]
pub(super) const fn after(position: u64, items: u64) -> u64 {
    position.wrapping_add(items << LOW_BITS)
}

/// Items from `from` to `to`. Huge if `from` is ahead.
#[inline(always)]
pub(super) const fn distance(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) >> LOW_BITS
}

/// Whether `to` is at least `items` ahead of `from`; false if it is behind.
#[inline(always)]
pub(super) const fn reaches(from: u64, items: u64, to: u64) -> bool {
    to.wrapping_sub(from).cast_signed() >= (items << LOW_BITS).cast_signed()
}

/// The index of a position among as many as a power of two, which is `mask` + 1.
#[inline(always)]
pub(super) const fn index(position: u64, mask: usize) -> usize {
    (position >> LOW_BITS) as usize & mask
}

/// The index of a position times two to the power of `LOG`, without a mask.
#[inline(always)]
pub(super) const fn index_times<const LOG: u32>(position: u64) -> usize {
    const { assert!(LOG <= LOW_BITS) };
    // There is nothing below the position itself.
    (position >> (LOW_BITS - LOG)) as usize
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
        Self(position | state.bits())
    }

    #[inline(always)]
    pub(super) const fn position(self) -> u64 {
        self.0 & !LOW_MASK
    }

    #[inline(always)]
    pub(super) const fn state(self) -> State {
        State::of(self.0 & LOW_MASK)
    }

    /// Whether this is the state, without taking it apart.
    #[inline(always)]
    pub(super) const fn is(self, state: State) -> bool {
        self.0 & LOW_MASK == state.bits()
    }

    /// Further on by `items`, in the same state.
    #[inline(always)]
    pub(super) const fn forward(self, items: u64) -> Self {
        Self(after(self.0, items))
    }

    #[inline(always)]
    pub(super) const fn with_state(self, state: State) -> Self {
        Self::new(self.position(), state)
    }
}

/// Most items that one stamp can stand for. A longer batch has several.
pub(super) const STAMP_ITEMS_MAX: u64 = 64;
const _: () = assert!(STAMP_ITEMS_MAX < LOW_MASK);

/// What a producer writes when its items are in their slots: where they begin, and how many. It is
/// in the place of the first one. What is there from an earlier lap has another position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) u64);

impl Stamp {
    /// In a place where nothing was published yet: no stamp of any position has this count.
    pub(super) const NONE: Self = Self(LOW_MASK);

    #[inline(always)]
    pub(super) const fn new(position: u64, items: u64) -> Self {
        Self(position | items)
    }

    /// Items published at `position`, if it is theirs.
    #[inline(always)]
    pub(super) const fn items_at(self, position: u64) -> Option<u64> {
        let items = self.0.wrapping_sub(position);
        // 0 is no count, and wraps.
        if items.wrapping_sub(1) < STAMP_ITEMS_MAX {
            Some(items)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last position.
    const LAST: u64 = (1 << (64 - LOW_BITS)) - 1;
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
        for position in [0, 1, 12_345, LAST].map(|items| after(0, items)) {
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
        let last = after(0, LAST);
        assert_eq!(after(last, 3), after(0, 2));
        assert_eq!(distance(last, after(0, 2)), 3);
        assert!(distance(after(0, 2), after(0, 1)) > 1 << 40);
        assert_eq!((index(last, 7), index(after(last, 1), 7)), (7, 0));
        assert_eq!(
            index_times::<0>(after(0, 5)),
            index(after(0, 5), usize::MAX)
        );
        assert_eq!(index_times::<4>(after(0, 5)), 5 * 16);
        for (items, reached) in [(2, true), (3, true), (4, false)] {
            assert_eq!(reaches(last, items, after(0, 2)), reached);
        }
        assert!(!reaches(after(0, 2), 1, last));
    }

    #[test]
    fn a_stamp_is_that_of_one_position() {
        let stamp = Stamp::new(after(0, LAST), STAMP_ITEMS_MAX);
        assert_eq!(stamp.items_at(after(0, LAST)), Some(STAMP_ITEMS_MAX));
        assert_eq!(stamp.items_at(0), None);
        for position in [0, 1, LAST].map(|items| after(0, items)) {
            assert_eq!(Stamp::NONE.items_at(position), None);
        }
    }
}
