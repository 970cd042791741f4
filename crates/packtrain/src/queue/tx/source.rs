//! Packets to prepare, in order, some of them half cut.

use crate::packet::Packet;
use crate::queue::segment::Cutting;
use std::collections::VecDeque;

/// Packets whose cutting a later one may overtake: none is half cut for a feature that others in
/// front still had, but once for each feature that is given up.
const CUTS: usize = 16;

pub(super) fn wire_packets(queue: &VecDeque<Packet>) -> u64 {
    queue.iter().map(|p| u64::from(p.meta().wire_packets)).sum()
}

/// Packets to prepare. A packet that is being cut has its place among them.
#[derive(Debug)]
pub(super) struct Source {
    queue: VecDeque<Packet>,
    /// Packets being cut, the first in line last. Each with the number of packets behind it, so
    /// that what is put in front does not move it.
    cuts: Vec<(usize, Cutting)>,
}

/// What is first in line.
pub(super) enum First<'a> {
    /// A packet that is being cut.
    Cut(&'a mut Cutting),
    /// A packet that was taken out.
    Whole(Packet),
}

impl Source {
    pub(super) fn with_capacity(packets: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(packets),
            cuts: Vec::with_capacity(CUTS),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.cuts.is_empty()
    }

    /// Whole packets, those being cut not counted.
    pub(super) fn packets(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn wire_packets(&self) -> u64 {
        let cuts = self.cuts.iter().map(|(_, cut)| u64::from(cut.left()));
        cuts.sum::<u64>() + wire_packets(&self.queue)
    }

    pub(super) fn push_back(&mut self, packet: Packet) {
        self.queue.push_back(packet);
        for (behind, _) in &mut self.cuts {
            *behind += 1;
        }
    }

    pub(super) fn push_front(&mut self, packet: Packet) {
        self.queue.push_front(packet);
    }

    /// What is first in line: a whole packet is taken out, one being cut stays.
    pub(super) fn first(&mut self) -> Option<First<'_>> {
        if let Some((behind, cut)) = self.cuts.last_mut()
            && *behind == self.queue.len()
        {
            return Some(First::Cut(cut));
        }
        self.queue.pop_front().map(First::Whole)
    }

    /// `cut` comes next.
    pub(super) fn start(&mut self, cut: Cutting) {
        self.cuts.push((self.queue.len(), cut));
    }

    /// The packet that was being cut first is at its end.
    pub(super) fn end_cut(&mut self) {
        self.cuts.pop();
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.cuts.clear();
    }
}
