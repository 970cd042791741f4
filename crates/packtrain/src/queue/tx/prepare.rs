//! The software offloads of a TX queue: segmentation, checksums, VLAN tags, and the fit.

use super::TxQueue;
use super::source::First;
use crate::driver::{Features, Fit, TxDescriptors};
use crate::limits::TX_STAGED_PACKETS_MAX;
use crate::packet::{Burst, Packet};
use crate::plant::planted;
use crate::queue::fit::{Fitted, fit};
use crate::queue::segment::{Segmentation, complete_checksum, insert_vlan_tag};
use crate::stats::DropReason;
use packtrain_offload::limits::VLAN_TAGS_MAX;

impl<T: TxDescriptors> TxQueue<T> {
    /// Moves packets from the front of `burst` to here, as many as fit. Packets that need no work
    /// in software go to `fitted` while no packet before them does.
    pub(super) fn stage(&mut self, burst: &mut Burst) {
        let (features, limits) = (self.features, &self.limits);
        if self.staged.waiting.is_empty() && self.staged.again.is_empty() {
            while self.staged.fitted.len() < TX_STAGED_PACKETS_MAX
                && let Some(packet) = burst.pop_if(|packet| limits.takes_as_is(packet, features))
            {
                self.staged.fitted.push_back(packet);
            }
            if planted!(LostPacket) {
                self.staged.fitted.pop_back();
            }
        }
        while self.staged.waiting.packets() < TX_STAGED_PACKETS_MAX
            && let Some(packet) = burst.pop()
        {
            self.staged.waiting.push_back(packet);
        }
    }

    /// Does the work in software, and moves packets to `fitted`.
    #[inline(never)]
    pub(super) fn prepare(&mut self) {
        // One at a time from `again`: so a further refusal puts at most one back, and `again` stays
        // within its bound.
        while self.staged.fitted.len()
            < if self.staged.again.is_empty() {
                TX_STAGED_PACKETS_MAX
            } else {
                1
            }
        {
            let Some(packet) = self.next_prepared() else {
                return;
            };
            self.fit(packet);
        }
    }

    fn fit(&mut self, packet: Packet) {
        match fit(packet, &self.limits, &self.arena) {
            Ok((packet, how)) => {
                self.count_fitted(how);
                self.staged.fitted.push_back(packet);
            }
            Err(unfit) => {
                // A packet that could not be padded was neither collapsed nor copied.
                if unfit.packet.bytes() >= self.limits.min_packet_bytes {
                    self.counters.collapse_failed.add(1);
                    let copied = self.limits.fit == Fit::Defrag;
                    self.counters.defrag_failed.add(u64::from(copied));
                }
                self.drop_packet(unfit.reason, &unfit.packet);
            }
        }
    }

    fn count_fitted(&self, how: Fitted) {
        let counters = &self.counters;
        let copied = match how {
            Fitted::AsIs => return,
            Fitted::Collapsed { copied } => {
                counters.collapse.add(1);
                copied
            }
            Fitted::Defragged { copied } => {
                counters.collapse_failed.add(1);
                counters.defrag.add(1);
                copied
            }
        };
        counters.fit_bytes_copied.add(copied as u64);
    }

    /// The next packet with all its work in software done, from `again` first.
    fn next_prepared(&mut self) -> Option<Packet> {
        loop {
            let mut packet = self.next_whole()?;
            match self.finish(&mut packet) {
                Ok(()) => return Some(packet),
                Err(reason) => self.drop_packet(reason, &packet),
            }
        }
    }

    /// The next packet that needs no (further) segmentation, from `again` first.
    fn next_whole(&mut self) -> Option<Packet> {
        loop {
            let from_again = !self.staged.again.is_empty();
            let source = if from_again {
                &mut self.staged.again
            } else {
                &mut self.staged.waiting
            };
            let mut packet = match source.first()? {
                First::Whole(packet) => packet,
                First::Segmenting(segmentation) => {
                    let partial = self.features.contains(segmentation.checksum_feature());
                    match segmentation.next(&self.arena, partial) {
                        Some(Ok(segment)) => {
                            self.counters.gso_sw_wire_packets.add(1);
                            if !partial {
                                self.counters.csum_sw.add(1);
                            }
                            return Some(segment);
                        }
                        Some(Err((reason, wire_packets))) => self.drops.add(reason, wire_packets),
                        None => source.end_segmenting(),
                    }
                    continue;
                }
            };
            // Before it is cut: all its segments but the last are of one length.
            if self.limits.mtu.is_exceeded_by(&packet) {
                self.drop_packet(DropReason::Mtu, &packet);
                continue;
            }
            let missing = Features::needed_by(packet.meta()).without(self.features);
            // With one tag more in its bytes, the layout could not describe the packet, and it
            // could not be segmented.
            let tags = packet.meta().layout.map_or(0, |layout| layout.vlans);
            let deep = missing.contains(Features::VLAN) && usize::from(tags) >= VLAN_TAGS_MAX;
            let whole = missing.without(Features::VLAN).is_empty() && !deep;
            if packet.meta().gso.is_none() || whole {
                return Some(packet);
            }
            // The tag first: then it is inserted once and not for each segment.
            let tagged = if deep {
                Ok(())
            } else {
                self.finish_tag(&mut packet)
            };
            match tagged {
                Ok(()) => self.start_segmenting(packet, from_again),
                Err(reason) => self.drop_packet(reason, &packet),
            }
        }
    }

    /// Does the remaining work in software of a packet that needs no segmentation.
    fn finish(&self, packet: &mut Packet) -> Result<(), DropReason> {
        self.finish_tag(packet)?;
        if !Features::needed_by(packet.meta())
            .without(self.features)
            .is_empty()
        {
            complete_checksum(packet)?;
            self.counters.csum_sw.add(1);
        }
        Ok(())
    }

    fn finish_tag(&self, packet: &mut Packet) -> Result<(), DropReason> {
        if packet.meta().vlan.is_some() && !self.features.contains(Features::VLAN) {
            insert_vlan_tag(packet)?;
        }
        Ok(())
    }

    fn start_segmenting(&mut self, packet: Packet, from_again: bool) {
        let accounted = u64::from(packet.meta().wire_packets);
        let source = if from_again {
            &mut self.staged.again
        } else {
            &mut self.staged.waiting
        };
        match Segmentation::new(packet) {
            Ok(segmentation) => {
                // From here on each segment accounts for itself.
                let segments = u64::from(segmentation.left());
                self.counters
                    .expanded
                    .add(segments.saturating_sub(accounted));
                self.counters
                    .absorbed
                    .add(accounted.saturating_sub(segments));
                self.counters.gso_sw_packets.add(1);
                source.start(segmentation);
            }
            Err((reason, packet)) => self.drop_packet(reason, &packet),
        }
    }
}
