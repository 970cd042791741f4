//! The path of a packet: looked up, judged, merged, held, handed on.

use super::config::{Config, Finish, Semantics};
use super::done::Done;
use super::entry::{First, Ids, State, TEMPLATE_BYTES};
use super::finish;
use super::flush::emit;
use super::header::{load16, store16};
use super::inner::Core;
use super::packet::{AppendError, Packet};
use super::parse::{self, Class, Parsed};
use super::rules::{self, Fields, Start, Verdict};
use super::shape::Shape;
use super::stats::{FlushReason, NotTaken};
use super::storage::Queued;
use super::table::{Room, SEARCH_MAX, Table};
use crate::checksum::Sum;
use crate::offload::ChecksumState;
use crate::sort::{self, Keyed, Scratch};
use core::mem;
use core::ops::Range;

/// A coalescer split into parts, so that each can be borrowed separately.
pub(super) struct Work<'w, P> {
    pub core: &'w mut Core,
    pub table: Table<'w, P>,
    pub queue: &'w mut [Queued<P>],
    pub keys: &'w mut [Keyed],
    pub words: &'w mut [u32],
    pub now: u64,
}

impl<P: Packet> Work<'_, P> {
    /// Takes a packet and parses all of its headers.
    #[inline(never)]
    pub(super) fn take_parsed(&mut self, packet: P, sink: &mut impl FnMut(P, &Done)) {
        let Config {
            link,
            seed,
            semantics,
            ..
        } = self.core.config;
        let parsed = Parsed::of(&packet, link, semantics == Semantics::Reversible, seed);
        match parsed.class {
            Class::Stranger(why) => self.pass(packet, why, sink),
            Class::OfPair(why) => {
                self.flush_pair(&packet, parsed.shape, sink);
                self.pass(packet, why, sink);
            }
            Class::OfAnyFlow(why) => {
                self.run_queue(sink);
                self.table.flush_all(self.core, FlushReason::Refused, sink);
                self.pass(packet, why, sink);
            }
            Class::Candidate | Class::OfFlow(_) if self.core.sorting => {
                if self.core.queued == self.queue.len() {
                    self.run_queue(sink);
                }
                self.queue[self.core.queued].put(packet, parsed);
                self.core.queued += 1;
            }
            Class::Candidate | Class::OfFlow(_) => self.step(packet, &parsed, sink),
        }
    }

    /// Sorted mode: the queued packets, flow by flow.
    #[inline(always)]
    pub(super) fn run_queue(&mut self, sink: &mut impl FnMut(P, &Done)) {
        if self.core.queued > 0 {
            self.sort_queue(sink);
        }
    }

    #[inline(never)]
    fn sort_queue(&mut self, sink: &mut impl FnMut(P, &Done)) {
        let count = mem::take(&mut self.core.queued);
        self.core.stats.sorted_windows += 1;
        let capacity = self.queue.len();
        let (items, spare) = self.keys.split_at_mut(capacity);
        let items = &mut items[..count];
        for (index, (key, queued)) in items.iter_mut().zip(&*self.queue).enumerate() {
            *key = Keyed {
                key: queued.hash(),
                index: index as u64,
            };
        }
        let given = items.as_ptr();
        let words = &mut *self.words;
        // Cannot fail: the storage was checked. If it did, the packets would go on in order of
        // arrival.
        let start = match sort::group(items, &mut Scratch { spare, words }) {
            Ok(grouped) if grouped.as_ptr() != given => capacity,
            Ok(_) | Err(_) => 0,
        };
        let mut last = None;
        for at in start..start + count {
            let Keyed { key, index } = self.keys[at];
            if last != Some(key) {
                last = Some(key);
                self.core.window.groups += 1;
                self.table.flush_all(self.core, FlushReason::Timeout, sink);
            }
            if let Some((packet, parsed)) = self.queue[index as usize].take() {
                self.step(packet, &parsed, sink);
            }
        }
        self.table.flush_all(self.core, FlushReason::Timeout, sink);
    }

    /// Flushes packets held or queued with the addresses of a packet of this shape.
    #[cold]
    fn flush_pair(&mut self, packet: &P, shape: Shape, sink: &mut impl FnMut(P, &Done)) {
        self.run_queue_of_pair(packet, shape, sink);
        let Some(places) = self.table.places(&self.core.ring) else {
            return self.table.flush_all(self.core, FlushReason::Refused, sink);
        };
        let head = packet.head();
        for index in places {
            let entry = &self.table.entries[index];
            let Some(held_packet) = &entry.packet else {
                continue;
            };
            let held = &entry.state;
            let held_head = held.headers().unwrap_or_else(|| held_packet.head());
            if parse::same_pair(held_head, held.shape, head, shape) {
                self.flush_one(index as u32, FlushReason::Refused, sink);
            }
        }
    }

    /// Sorted mode: moves the packets with these addresses from the queue to the table, which
    /// contains only older packets.
    fn run_queue_of_pair(&mut self, packet: &P, shape: Shape, sink: &mut impl FnMut(P, &Done)) {
        if self.core.queued > SEARCH_MAX {
            return self.run_queue(sink);
        }
        let mut kept = 0;
        for at in 0..self.core.queued {
            let Some((queued, parsed)) = self.queue[at].take() else {
                continue;
            };
            if parse::same_pair(queued.head(), parsed.shape, packet.head(), shape) {
                self.step(queued, &parsed, sink);
            } else {
                self.queue[kept].put(queued, parsed);
                kept += 1;
            }
        }
        self.core.queued = kept;
    }

    /// One packet of a flow.
    #[inline(never)]
    fn step(&mut self, packet: P, new: &Parsed, sink: &mut impl FnMut(P, &Done)) {
        if new.class == Class::Candidate && self.table.candidate(new.hash).is_none() {
            return self.hold(packet, new, Ids::Undecided, sink);
        }
        let head = packet.head();
        let found = self.table.find(new.hash, |held, held_packet| {
            let held_head = held.headers().unwrap_or_else(|| held_packet.head());
            parse::same_flow(held_head, held.shape, head, new.shape)
        });
        if new.class != Class::Candidate {
            return self.pass_of_flow(found, packet, new, sink);
        }
        let Some(held) = found else {
            return self.hold(packet, new, Ids::Undecided, sink);
        };
        let verdict = self.verdict(held, &packet, new);
        self.go_on(held, verdict, packet, new, sink);
    }

    fn pass_of_flow(
        &mut self,
        held: Option<u32>,
        packet: P,
        new: &Parsed,
        sink: &mut impl FnMut(P, &Done),
    ) {
        if let Some(held) = held {
            self.flush_one(held, FlushReason::Refused, sink);
        }
        if let Class::OfFlow(why) = new.class {
            self.pass(packet, why, sink);
        }
    }

    fn go_on(
        &mut self,
        held: u32,
        verdict: Verdict,
        packet: P,
        new: &Parsed,
        sink: &mut impl FnMut(P, &Done),
    ) {
        match verdict {
            Verdict::Merge { then, ids } => match (self.merge(held, packet, new, ids), then) {
                (None, None) => {}
                (None, Some(reason)) => self.flush_one(held, reason, sink),
                (Some(left), _) => self.not_merged(held, left, new, sink),
            },
            Verdict::Refuse(reason) => {
                let ids = self.ids_after(held, &packet, new);
                self.flush_one(held, reason, sink);
                self.hold(packet, new, ids, sink);
            }
        }
    }

    /// A packet that continues the held one, but could not be appended.
    #[cold]
    fn not_merged(
        &mut self,
        held: u32,
        (why, packet): (AppendError, P),
        new: &Parsed,
        sink: &mut impl FnMut(P, &Done),
    ) {
        match why {
            AppendError::Full => {
                self.flush_one(held, FlushReason::Full, sink);
                self.hold(packet, new, Ids::Undecided, sink);
            }
            AppendError::Checksum => {
                self.flush_one(held, FlushReason::Refused, sink);
                self.pass(packet, NotTaken::BadChecksum, sink);
            }
        }
    }

    fn verdict(&mut self, held: u32, packet: &P, new: &Parsed) -> Verdict {
        let entry = &self.table.entries[held as usize];
        let Some(held_packet) = &entry.packet else {
            return Verdict::Refuse(FlushReason::Mismatch);
        };
        let held = &entry.state;
        let held_head = held.headers().unwrap_or_else(|| held_packet.head());
        let head = packet.head();
        if held.shape != new.shape
            || held.aside != packet.aside()
            || !self.core.masks.agree(new.shape, held_head, head)
        {
            return Verdict::Refuse(rules::mismatch(&self.core.config, new));
        }
        rules::continues(&self.core.config, held, held_head, new, head)
    }

    /// The initial state for a packet that is held after `held`, which it does not continue.
    fn ids_after(&self, held: u32, packet: &P, new: &Parsed) -> Ids {
        let entry = &self.table.entries[held as usize];
        let Some(held_packet) = &entry.packet else {
            return Ids::Undecided;
        };
        let held_head = (entry.state.headers()).unwrap_or_else(|| held_packet.head());
        if rules::repeats(
            &self.core.config,
            &entry.state,
            held_head,
            new,
            packet.head(),
        ) {
            Ids::Sealed
        } else {
            Ids::Undecided
        }
    }

    /// Merges a packet. Returns it with the reason if that was not possible.
    fn merge(&mut self, index: u32, packet: P, new: &Parsed, ids: Ids) -> Option<(AppendError, P)> {
        let payload = new.payload();
        let fields = (self.core.config.semantics == Semantics::Stream && new.shape.kind().is_tcp())
            .then(|| Fields::of(new.shape, packet.head()));
        let sum = (self.core.config.finish == Finish::Complete).then(|| payload_sum(&packet, new));
        let headers =
            (packet.checksum() == ChecksumState::None).then(|| new.transport_sum(packet.head()));
        let entry = &mut self.table.entries[index as usize];
        let (state, Some(held)) = (&mut entry.state, &mut entry.packet) else {
            return Some((AppendError::Full, packet));
        };
        let sum = sum
            .map(|sum| finish::join(sum_so_far(state, held), u32::from(state.payload_bytes), sum));
        let result = match headers {
            Some(headers) => {
                self.core.stats.summed_bytes += u64::from(new.payload_bytes);
                held.append_checked(packet, payload, headers)
            }
            None => held
                .append(packet, payload)
                .map_err(|packet| (AppendError::Full, packet)),
        };
        if let Err(left) = result {
            return Some(left);
        }
        state.ids = ids;
        let absorbed = state.advance(new);
        self.core.stats.absorbed += u64::from(absorbed);
        if let Some(head) = kept_up_to_date(state, held, fields.is_some() || sum.is_some()) {
            if let Some(fields) = fields {
                fields.store(new.shape, head);
            }
            if let Some(sum) = sum {
                store16(head, new.shape.checksum_at(), sum);
            }
        }
        None
    }

    /// A packet whose flow is not held: it is held, or handed on.
    fn hold(&mut self, mut packet: P, new: &Parsed, ids: Ids, sink: &mut impl FnMut(P, &Done)) {
        if let Start::Pass(why) = rules::start(&self.core.config, new, packet.head()) {
            return self.pass(packet, why, sink);
        }
        let headers = self.sum_of_headers(&packet, new.shape, new.ip_end);
        if let Some(headers) = headers
            && !self.is_right(&packet, headers, new.payload())
        {
            return self.pass(packet, NotTaken::BadChecksum, sink);
        }
        if packet.head_mut(new.shape.header_bytes()).is_none() {
            return self.pass(packet, NotTaken::Shared, sink);
        }
        // Only `Stream` holds padded packets.
        if packet.bytes() > new.ip_end {
            packet.truncate(new.ip_end);
        }
        let room = loop {
            match self.table.room(&self.core.ring, new.hash) {
                Ok(room) => break room,
                Err(oldest) => {
                    self.core.window.evictions += 1;
                    self.flush_one(oldest, FlushReason::Evict, sink);
                }
            }
        };
        let first = First {
            shape: new.shape,
            seq: new.seq,
            payload_bytes: new.payload_bytes,
            ids,
        };
        self.begin(room, &first, packet, headers);
    }

    /// Holds a packet whose checksum is correct; `headers` is the sum of its headers, if it was
    /// verified here.
    #[inline(always)]
    pub(super) fn begin(&mut self, room: Room, first: &First, packet: P, headers: Option<Sum>) {
        let aside = packet.aside();
        let (index, entry) = self.table.begin(&mut self.core.ring, room, packet);
        self.core.last = index;
        let Some(packet) = &entry.packet else { return };
        let head = packet.head();
        entry.state.begin(first, head, self.now, aside);
        if self.core.merges_only()
            && let Some(headers) = headers
        {
            entry.state.keep_sum(headers);
        }
        self.core.masks.note(first.shape, head, &self.core.config);
    }

    /// Sum of the headers, for a packet whose checksum is not marked as verified.
    #[inline(always)]
    pub(super) fn sum_of_headers(&self, packet: &P, shape: Shape, ip_end: u32) -> Option<Sum> {
        (packet.checksum() == ChecksumState::None)
            .then(|| parse::transport_sum(packet.head(), shape, ip_end))
    }

    #[inline(always)]
    pub(super) fn is_right(&mut self, packet: &P, mut headers: Sum, payload: Range<u32>) -> bool {
        self.core.stats.summed_bytes += u64::from(payload.end - payload.start);
        headers.add_sum(packet.sum(payload));
        headers.is_valid()
    }

    pub(super) fn pass(&mut self, packet: P, why: NotTaken, sink: &mut impl FnMut(P, &Done)) {
        self.core.stats.not_taken.add(why);
        self.core.stats.emitted += 1;
        if why == NotTaken::BadChecksum {
            self.core.stats.bad_checksums += 1;
        }
        sink(packet, &Done::Passed(why));
    }

    pub(super) fn flush_one(
        &mut self,
        index: u32,
        reason: FlushReason,
        sink: &mut impl FnMut(P, &Done),
    ) {
        if let Some((state, packet)) = self.table.take(&mut self.core.ring, index) {
            emit(self.core, state, packet, reason, sink);
        }
    }
}

/// Sum of a packet's payload: from its checksum, which is correct, unless that is partial.
fn payload_sum<P: Packet>(packet: &P, new: &Parsed) -> u16 {
    match packet.checksum() {
        ChecksumState::Partial { .. } => packet.sum(new.payload()).fold(),
        ChecksumState::None | ChecksumState::Unnecessary => {
            finish::payload_sum(new.transport_sum(packet.head()))
        }
    }
}

/// Sum of the payload of a held packet. From the second packet on, the checksum field holds it.
fn sum_so_far<P: Packet>(state: &State, held: &P) -> u16 {
    let shape = state.shape;
    if state.count > 1 {
        let head = state.headers().unwrap_or_else(|| held.head());
        return load16(head, shape.checksum_at());
    }
    let first = Parsed {
        hash: 0,
        shape,
        seq: 0,
        payload_bytes: u32::from(state.payload_bytes),
        ip_end: shape.header_bytes() as u32 + u32::from(state.payload_bytes),
        id: 0,
        flags: 0,
        class: Class::Candidate,
    };
    payload_sum(held, &first)
}

/// The headers of a held packet that are kept up to date, if `wanted`.
#[inline]
fn kept_up_to_date<'a, P: Packet>(
    state: &'a mut State,
    held: &'a mut P,
    wanted: bool,
) -> Option<&'a mut [u8]> {
    let bytes = state.shape.header_bytes();
    if !wanted {
        None
    } else if bytes <= TEMPLATE_BYTES {
        state.template.get_mut(..bytes)
    } else {
        held.head_mut(bytes)
    }
}
