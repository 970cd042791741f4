//! Packets to prepare, in order, some of them partly segmented.

use crate::packet::Packet;
use crate::queue::segment::Segmentation;
use std::collections::VecDeque;

/// The most partly segmented packets of a source. Each removed feature puts packets back in front
/// of the one that is being segmented, so there is at most one for each feature.
const SEGMENTING_MAX: usize = 16;

pub(super) fn wire_packets(queue: &VecDeque<Packet>) -> u64 {
    queue.iter().map(|p| u64::from(p.meta().wire_packets)).sum()
}

/// Packets to prepare. A packet that is being segmented keeps its place among them.
#[derive(Debug)]
pub(super) struct Backlog {
    queue: VecDeque<Packet>,
    /// Packets that are being segmented, the next one last. Each has the number of packets behind
    /// it, which does not change if packets are put in front.
    segmenting: Vec<(usize, Segmentation)>,
}

/// The next packet of a source.
pub(super) enum First<'a> {
    /// A packet that is being segmented. It stays in the source.
    Segmenting(&'a mut Segmentation),
    /// A whole packet. It was removed.
    Whole(Packet),
}

impl Backlog {
    pub(super) fn with_capacity(packets: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(packets),
            segmenting: Vec::with_capacity(SEGMENTING_MAX),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.segmenting.is_empty()
    }

    /// Whole packets, without those that are being segmented.
    pub(super) fn packets(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn wire_packets(&self) -> u64 {
        let partial = self.segmenting.iter().map(|(_, one)| u64::from(one.left()));
        partial.sum::<u64>() + wire_packets(&self.queue)
    }

    pub(super) fn frame_bytes(&self) -> u64 {
        let partial = self.segmenting.iter().map(|(_, one)| one.frame_bytes());
        let whole = self.queue.iter().map(Packet::frame_bytes);
        partial.chain(whole).sum()
    }

    pub(super) fn push_back(&mut self, packet: Packet) {
        self.queue.push_back(packet);
        for (behind, _) in &mut self.segmenting {
            *behind += 1;
        }
    }

    pub(super) fn push_front(&mut self, packet: Packet) {
        self.queue.push_front(packet);
    }

    /// The next packet.
    pub(super) fn first(&mut self) -> Option<First<'_>> {
        if let Some((behind, next)) = self.segmenting.last_mut()
            && *behind == self.queue.len()
        {
            return Some(First::Segmenting(next));
        }
        self.queue.pop_front().map(First::Whole)
    }

    /// Makes `next` the next packet.
    pub(super) fn start(&mut self, next: Segmentation) {
        self.segmenting.push((self.queue.len(), next));
    }

    /// Removes the packet that is being segmented and comes next.
    pub(super) fn end_segmenting(&mut self) {
        self.segmenting.pop();
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.segmenting.clear();
    }
}
