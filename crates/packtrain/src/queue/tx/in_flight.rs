//! Packets in flight, by token: those that the device accepted and has not completed.

use super::doorbell::Doorbell;
use super::limit::ByteLimit;
use super::room::Totals;
use crate::driver::{Completed, Token};
use crate::packet::Packet;
use crate::time::Instant;

/// The packets that the device has.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) in_flight: InFlight,
    pub(super) completed: Completed,
    /// Tokens of packets that a reset returned: as the device reports them, and in order.
    pub(super) returned: Completed,
    pub(super) unsent: Vec<Token>,
    pub(super) bytes: ByteLimit,
    pub(super) doorbell: Doorbell,
    /// Packets that the device accepted since the last [`TxQueue::reclaim`].
    pub(super) unreclaimed: usize,
    /// Packets completed since the start.
    pub(super) totals: Totals,
}

impl Flight {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            in_flight: InFlight::new(slots),
            completed: Completed::with_capacity(slots),
            returned: Completed::with_capacity(slots),
            unsent: Vec::with_capacity(slots),
            bytes: ByteLimit::default(),
            doorbell: Doorbell::default(),
            unreclaimed: 0,
            totals: Totals::default(),
        }
    }
}

/// Packets in flight, at most one for each slot.
#[derive(Debug)]
pub(super) struct InFlight {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The serial number of the last packet put in.
    serial: u64,
    /// The highest serial number that has completed.
    last_completed: u64,
    /// `last_completed` at the last check: packets with lower numbers were overtaken by then.
    overtaken_below: u64,
    checked_at: Instant,
}

#[derive(Debug, Default)]
struct Slot {
    packet: Option<Packet>,
    bytes: u32,
    serial: u64,
    /// Its completion was reported as lost.
    reported: bool,
}

impl InFlight {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            free: (0..slots as u32).rev().collect(),
            serial: 0,
            last_completed: 0,
            overtaken_below: 0,
            checked_at: Instant::default(),
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// The token of the packet that is put in behind the next `ahead` ones. There must be more free
    /// slots.
    #[inline]
    pub(super) fn token(&self, ahead: usize) -> Token {
        Token(self.free[self.free.len() - 1 - ahead])
    }

    /// Stores `packet` under its [`InFlight::token`].
    #[inline]
    pub(super) fn put(&mut self, packet: Packet, bytes: u32) {
        let Some(slot) = self.free.pop() else {
            debug_assert!(false, "no packet is offered without a slot");
            return;
        };
        self.serial += 1;
        // Field by field: a copy of a whole slot would read wider words than were just written,
        // and the CPU would wait until those stores are in the cache.
        let slot = &mut self.slots[slot as usize];
        slot.packet = Some(packet);
        slot.bytes = bytes;
        slot.serial = self.serial;
        slot.reported = false;
    }

    /// Removes a packet; returns it and its bytes. `None` for a token of no packet.
    pub(super) fn take(&mut self, Token(index): Token) -> Option<(Packet, u32)> {
        let slot = self.slots.get_mut(index as usize)?;
        let packet = slot.packet.take()?;
        self.last_completed = self.last_completed.max(slot.serial);
        self.free.push(index);
        Some((packet, slot.bytes))
    }

    /// The serial number of the packet of this token.
    pub(super) fn serial(&self, Token(index): Token) -> u64 {
        let slot = self.slots.get(index as usize);
        slot.map_or(0, |slot| slot.serial)
    }

    /// The tokens of all packets.
    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        let used = self.slots.iter().enumerate();
        used.filter_map(|(index, slot)| slot.packet.is_some().then_some(Token(index as u32)))
    }

    /// Checks for lost completions, about once a second. A completion is lost if later ones had
    /// arrived by the previous check. Returns the number of new ones, and the time of that check.
    /// A slow device loses none by this rule.
    pub(super) fn take_lost(&mut self, now: Instant) -> (usize, Instant) {
        let mut lost = 0;
        for slot in self.slots.iter_mut().filter(|slot| slot.packet.is_some()) {
            if slot.serial < self.overtaken_below && !slot.reported {
                slot.reported = true;
                lost += 1;
            }
        }
        self.overtaken_below = self.last_completed;
        (lost, std::mem::replace(&mut self.checked_at, now))
    }

    /// The wire was at fault: the next check reports no packet as lost. Packets reported before
    /// stay reported.
    pub(super) const fn postpone_lost(&mut self) {
        self.overtaken_below = 0;
    }
}
