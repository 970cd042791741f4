//! Flushing: handing on held packets, one or all of them, oldest first.

use super::done::Done;
use super::entry::State;
use super::finish;
use super::inner::Core;
use super::packet::Packet;
use super::stats::FlushReason;
use super::table::Table;
use crate::prefetch;

/// Packets between one step and the next, at most.
pub(super) const STEP: usize = 8;

impl<P: Packet> Table<'_, P> {
    /// Flushes everything held, oldest first.
    #[inline(always)]
    pub(super) fn flush_all(
        &mut self,
        core: &mut Core,
        reason: FlushReason,
        sink: &mut impl FnMut(P, &Done),
    ) {
        if core.ring.live() > core.near {
            return self.flush_all_ahead(core, reason, sink);
        }
        while let Some((state, packet)) = self.take_oldest(&mut core.ring) {
            emit(core, state, packet, reason, sink);
        }
    }

    #[inline(never)]
    fn flush_all_ahead(
        &mut self,
        core: &mut Core,
        reason: FlushReason,
        sink: &mut impl FnMut(P, &Done),
    ) {
        let capacity = self.entries.len();
        let after = |index: u32, steps: usize| {
            let index = index as usize + steps * STEP;
            if index < capacity {
                index
            } else {
                index - capacity
            }
        };
        while let Some(index) = self.oldest(&mut core.ring) {
            // More than `IN_CACHE` entries are more than two steps.
            let two = &self.entries[after(index, 2) % capacity];
            self.prefetch_slot(two);
            if let Some(packet) = &two.packet {
                packet.prefetch();
            }
            if let Some(packet) = &self.entries[after(index, 1) % capacity].packet {
                let head = packet.head();
                prefetch::read(head);
                prefetch::read(&head[head.len().min(64)..]);
            }
            if let Some((state, packet)) = self.take(&mut core.ring, index) {
                emit(core, state, packet, reason, sink);
            }
        }
    }
}

/// Hands on a packet that was held.
#[inline(always)]
pub(super) fn emit<P: Packet>(
    core: &mut Core,
    state: &State,
    mut packet: P,
    reason: FlushReason,
    sink: &mut impl FnMut(P, &Done),
) {
    let Core {
        config,
        masks,
        stats,
        ..
    } = core;
    stats.flushes.add(reason);
    stats.emitted += 1;
    if state.count > 1
        && let Some(merged) = finish::finish(config, masks.recent(), state, &mut packet, reason)
    {
        stats.supers += 1;
        stats.merged += u64::from(state.count);
        return sink(packet, &Done::Merged(merged));
    }
    sink(packet, &Done::Alone(reason));
}
