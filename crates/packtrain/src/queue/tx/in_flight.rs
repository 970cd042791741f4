//! Packets that the device still reads from, by token.

use crate::driver::Token;
use crate::packet::Packet;

/// Packets that the device has. As many as there are slots.
#[derive(Debug)]
pub(super) struct InFlight {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Packets ever put in: their order.
    serial: u64,
    /// Counts up at each [`InFlight::tick`].
    age: u32,
}

#[derive(Debug, Default)]
struct Slot {
    packet: Option<Packet>,
    bytes: u32,
    serial: u64,
    /// The age when it was put in; [`REPORTED`] once it was found to be too old.
    since: u32,
}

/// Not reported again.
const REPORTED: u32 = u32::MAX;

impl InFlight {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            free: (0..slots as u32).rev().collect(),
            serial: 0,
            age: 0,
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

    /// The token of the next packet.
    pub(super) fn next_token(&self) -> Option<Token> {
        self.free.last().copied().map(Token)
    }

    /// The device keeps `packet`, under [`InFlight::next_token`].
    pub(super) fn put(&mut self, packet: Packet, bytes: u32) {
        let Some(slot) = self.free.pop() else {
            debug_assert!(false, "no packet is offered without a slot");
            return;
        };
        self.serial += 1;
        self.slots[slot as usize] = Slot {
            packet: Some(packet),
            bytes,
            serial: self.serial,
            since: self.age,
        };
    }

    /// Takes a packet out, and the bytes that it was put in with. `None` for a token of no packet.
    pub(super) fn take(&mut self, Token(index): Token) -> Option<(Packet, u32)> {
        let slot = self.slots.get_mut(index as usize)?;
        let packet = slot.packet.take()?;
        self.free.push(index);
        Some((packet, slot.bytes))
    }

    /// The order in which the packet of this token was put in.
    pub(super) fn serial(&self, Token(index): Token) -> u64 {
        let slot = self.slots.get(index as usize);
        slot.map_or(0, |slot| slot.serial)
    }

    /// The tokens of all packets.
    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        let used = self.slots.iter().enumerate();
        used.filter_map(|(index, slot)| slot.packet.is_some().then_some(Token(index as u32)))
    }

    /// Some time has passed, always about as much. Returns the number of packets that were there
    /// for all the time between the last two calls; each is said once.
    pub(super) fn tick(&mut self) -> usize {
        let mut old = 0;
        for slot in self.slots.iter_mut().filter(|slot| slot.packet.is_some()) {
            // `REPORTED` is later than any age.
            if slot.since < self.age {
                slot.since = REPORTED;
                old += 1;
            }
        }
        self.age += 1;
        old
    }

    /// The device had a reason to keep them: their time begins anew. Those that were said to be
    /// lost stay so, or they would be said again after each pause of the wire.
    pub(super) fn forgive(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| slot.since != REPORTED) {
            slot.since = self.age;
        }
    }
}
