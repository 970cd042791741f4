//! The words that threads exchange: positions, the head with its state and flags, stamps.

use crate::policy::dispatch::RingState;

/// The kind of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProducerKind {
    /// An application that submits packets.
    Application,
    /// A lane, which transmits the packets of an RX queue.
    Lane,
}

/// Bits below a position, for a state and flags, or for a count.
const LOW_BITS: u32 = 8;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

/// The bits of the state.
const STATE: u64 = 0x0f;
/// A producer waits for space.
pub(super) const WAITERS: u64 = 0x10;
/// The ring accepts nothing more from applications.
const SHUT: u64 = 0x20;
/// The ring accepts nothing more from lanes.
const CLOSED: u64 = 0x40;
/// The TX worker needs the consumer role.
const ATTENTION: u64 = 0x80;

/// The flags that close a ring to `to`. A ring that is closed to lanes is closed to applications.
pub(super) const fn closing(to: ProducerKind) -> u64 {
    match to {
        ProducerKind::Application => SHUT,
        ProducerKind::Lane => SHUT | CLOSED,
    }
}

/// `position + items`. A position is the number of items since the start times 256, so sums and
/// differences wrap without a mask, after 2^56 items (two years at 10^9 a second). The number of
/// slots is a power of two, so their indices wrap with the positions.
#[inline(always)]
pub(super) const fn after(position: u64, items: u64) -> u64 {
    position.wrapping_add(items << LOW_BITS)
}

/// Items from `from` to `to`. If `from` is ahead, more than any capacity.
#[inline(always)]
pub(super) const fn distance(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) >> LOW_BITS
}

/// Whether `to` is at least `items` ahead of `from`; false if it is behind.
#[inline(always)]
pub(super) const fn reaches(from: u64, items: u64, to: u64) -> bool {
    to.wrapping_sub(from).cast_signed() >= (items << LOW_BITS).cast_signed()
}

/// The index of a position among `mask` + 1 elements, a power of two.
#[inline(always)]
pub(super) const fn index(position: u64, mask: usize) -> usize {
    (position >> LOW_BITS) as usize & mask
}

/// The index of a position times two to the power of `LOG`, without a mask.
#[inline(always)]
pub(super) const fn index_times<const LOG: u32>(position: u64) -> usize {
    const { assert!(LOG <= LOW_BITS) };
    // The bits below a position are 0.
    (position >> (LOW_BITS - LOG)) as usize
}

#[inline(always)]
const fn bits(state: RingState) -> u64 {
    match state {
        RingState::Idle => 0,
        RingState::Busy => 1,
        RingState::Abdicated => 2,
        RingState::Stalled => 3,
        RingState::Gap => 4,
    }
}

/// The head: the position up to which slots are reserved, the state, and the flags. One word, so
/// the step that reserves slots also tells the producer whether a consumer will see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head(pub(super) u64);

impl Head {
    /// Without flags.
    #[inline(always)]
    pub(super) const fn new(position: u64, state: RingState) -> Self {
        Self(position | bits(state))
    }

    #[inline(always)]
    pub(super) const fn position(self) -> u64 {
        self.0 & !LOW_MASK
    }

    #[inline(always)]
    pub(super) const fn state(self) -> RingState {
        match self.0 & STATE {
            0 => RingState::Idle,
            1 => RingState::Busy,
            2 => RingState::Abdicated,
            3 => RingState::Stalled,
            _ => RingState::Gap,
        }
    }

    /// Whether the ring is busy and no flag changes what a producer does.
    #[inline(always)]
    pub(super) const fn is_busy_only(self) -> bool {
        self.0 & (LOW_MASK & !WAITERS) == bits(RingState::Busy)
    }

    #[inline(always)]
    pub(super) const fn has_attention(self) -> bool {
        self.0 & ATTENTION != 0
    }

    #[inline(always)]
    pub(super) const fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    #[inline(always)]
    pub(super) const fn is_closed(self, to: ProducerKind) -> bool {
        let flag = match to {
            ProducerKind::Application => SHUT,
            ProducerKind::Lane => CLOSED,
        };
        self.0 & flag != 0
    }

    /// Advanced by `items`, with the same state and flags.
    #[inline(always)]
    pub(super) const fn forward(self, items: u64) -> Self {
        Self(after(self.0, items))
    }

    /// The same position and flags.
    #[inline(always)]
    pub(super) const fn with_state(self, state: RingState) -> Self {
        Self(self.0 & !STATE | bits(state))
    }

    #[inline(always)]
    pub(super) const fn without_attention(self) -> Self {
        Self(self.0 & !ATTENTION)
    }

    #[inline(always)]
    pub(super) const fn with_attention(self) -> Self {
        Self(self.0 | ATTENTION)
    }
}

/// The most items of one stamp. A longer batch has several.
pub(super) const STAMP_ITEMS_MAX: u64 = 64;
const _: () = assert!(STAMP_ITEMS_MAX < LOW_MASK);

/// The position of the first item of a batch, and the number of items. The producer writes it to
/// the place of that position, after the items. A stamp of an earlier lap has another position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) u64);

impl Stamp {
    /// The stamp of a place where nothing was published yet. No batch has this count.
    pub(super) const NONE: Self = Self(LOW_MASK);

    #[inline(always)]
    pub(super) const fn new(position: u64, items: u64) -> Self {
        Self(position | items)
    }

    /// Items published at `position`, if the stamp is of that position.
    #[inline(always)]
    pub(super) const fn items_at(self, position: u64) -> Option<u64> {
        let items = self.0.wrapping_sub(position);
        // A count of 0 wraps and is refused.
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
    const STATES: [RingState; 5] = [
        RingState::Idle,
        RingState::Busy,
        RingState::Abdicated,
        RingState::Stalled,
        RingState::Gap,
    ];

    #[test]
    fn a_head_keeps_position_state_and_flags_apart() {
        for position in [0, 1, 12_345, LAST].map(|items| after(0, items)) {
            for (state, flags) in STATES
                .into_iter()
                .flat_map(|state| (0..16).map(move |flags| (state, flags << 4)))
            {
                let head = Head(Head::new(position, state).0 | flags);
                let parts =
                    |head: Head| (head.position(), head.state(), head.0 & LOW_MASK & !STATE);
                assert_eq!(parts(head), (position, state, flags));
                assert_eq!(head.has_waiters(), flags & 0x10 != 0);
                assert_eq!(head.is_closed(ProducerKind::Application), flags & 0x20 != 0);
                assert_eq!(head.is_closed(ProducerKind::Lane), flags & 0x40 != 0);
                assert_eq!(head.has_attention(), flags & 0x80 != 0);
                assert_eq!(
                    head.is_busy_only(),
                    state == RingState::Busy && flags & 0xe0 == 0
                );
                assert_eq!(parts(head.forward(3)), (after(position, 3), state, flags));
                for next in STATES {
                    assert_eq!(parts(head.with_state(next)), (position, next, flags));
                }
                let attended = head.with_attention();
                assert_eq!(parts(attended), (position, state, flags | 0x80));
                let cleared = attended.without_attention();
                assert_eq!(parts(cleared), (position, state, flags & !0x80));
            }
        }
    }

    #[test]
    fn a_ring_closed_to_lanes_is_closed_to_applications() {
        let shut = Head(closing(ProducerKind::Application));
        assert!(shut.is_closed(ProducerKind::Application) && !shut.is_closed(ProducerKind::Lane));
        let closed = Head(closing(ProducerKind::Lane));
        assert!(
            closed.is_closed(ProducerKind::Application) && closed.is_closed(ProducerKind::Lane)
        );
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
