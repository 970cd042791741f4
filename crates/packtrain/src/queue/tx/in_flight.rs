//! Packets that the device still reads from, by token.

use crate::driver::Token;
use crate::packet::Packet;
use crate::time::Instant;

/// Packets that the device has. As many as there are slots.
#[derive(Debug)]
pub(super) struct InFlight {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Packets ever put in: their order.
    serial: u64,
    /// The last in that order that came back.
    last_back: u64,
    /// As of the last [`InFlight::tick`]: what is before this and still there was overtaken.
    back_at_tick: u64,
    ticked_at: Instant,
}

#[derive(Debug, Default)]
struct Slot {
    packet: Option<Packet>,
    bytes: u32,
    serial: u64,
    /// It was said to be overtaken for too long.
    reported: bool,
}

impl InFlight {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            free: (0..slots as u32).rev().collect(),
            serial: 0,
            last_back: 0,
            back_at_tick: 0,
            ticked_at: Instant::default(),
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
    #[inline]
    pub(super) fn put(&mut self, packet: Packet, bytes: u32) {
        let Some(slot) = self.free.pop() else {
            debug_assert!(false, "no packet is offered without a slot");
            return;
        };
        self.serial += 1;
        // Field by field: a slot that is made elsewhere and copied is read back in wider words than
        // it was written in, for which the CPU waits until the stores are in the cache.
        let slot = &mut self.slots[slot as usize];
        slot.packet = Some(packet);
        slot.bytes = bytes;
        slot.serial = self.serial;
        slot.reported = false;
    }

    /// Takes a packet out, and the bytes that it was put in with. `None` for a token of no packet.
    pub(super) fn take(&mut self, Token(index): Token) -> Option<(Packet, u32)> {
        let slot = self.slots.get_mut(index as usize)?;
        let packet = slot.packet.take()?;
        self.last_back = self.last_back.max(slot.serial);
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

    /// Call it about once in so long. Returns the number of packets that later ones had overtaken
    /// at the last call already, and when that was; each is said once. However long a device needs
    /// for all that it has, it does not lose what it only has not come to.
    pub(super) fn tick(&mut self, now: Instant) -> (usize, Instant) {
        let mut lost = 0;
        for slot in self.slots.iter_mut().filter(|slot| slot.packet.is_some()) {
            if slot.serial < self.back_at_tick && !slot.reported {
                slot.reported = true;
                lost += 1;
            }
        }
        self.back_at_tick = self.last_back;
        (lost, std::mem::replace(&mut self.ticked_at, now))
    }

    /// The device had a reason to keep them: their time begins anew. Those that were said to be
    /// lost stay so, or they would be said again after each pause of the wire.
    pub(super) const fn forgive(&mut self) {
        self.back_at_tick = 0;
    }
}
