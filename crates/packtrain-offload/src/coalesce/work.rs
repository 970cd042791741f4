//! What happens to a packet: found, judged, merged, held, handed on.

use super::entry::{Ids, State, TEMPLATE_BYTES};
use super::finish;
use super::packet::{AppendError, Packet};
use super::parse::{self, Class, Parsed};
use super::rules::{self, Fields, Start, Verdict};
use super::shape::Masks;
use super::stats::{FlushReason, NotTaken, Stats};
use super::storage::Queued;
use super::table::Table;
use super::{Config, Done, Finish, Semantics, Window};
use crate::offload::ChecksumState;
use crate::sort::{self, Keyed, Scratch};

/// A coalescer taken apart, so that its parts can be borrowed one by one.
pub(super) struct Work<'w, P> {
    pub config: &'w Config,
    pub masks: &'w mut Masks,
    pub table: Table<'w, P>,
    pub queue: &'w mut [Queued<P>],
    pub keys: &'w mut [Keyed],
    pub words: &'w mut [u32],
    pub queued: &'w mut usize,
    pub sorting: bool,
    pub window: &'w mut Window,
    pub stats: &'w mut Stats,
    pub now: u64,
}

impl<P: Packet> Work<'_, P> {
    #[inline]
    pub(super) fn prefetch(&self, ahead: &[Option<(P, Parsed)>]) {
        if self.sorting || self.table.entries.len() <= IN_CACHE {
            return;
        }
        for (_, parsed) in ahead.iter().flatten() {
            crate::prefetch::read(self.table.set_line(parsed.hash));
        }
        for (_, parsed) in ahead.iter().flatten() {
            if let Some(entry) = self.table.candidate(parsed.hash) {
                crate::prefetch::read(entry);
                crate::prefetch::read(&entry.packet);
            }
        }
        for (_, parsed) in ahead.iter().flatten() {
            let entry = self.table.candidate(parsed.hash);
            if let Some(packet) = entry.and_then(|entry| entry.packet.as_ref()) {
                packet.prefetch();
            }
        }
    }

    pub(super) fn take(&mut self, packet: P, parsed: Parsed, sink: &mut impl FnMut(P, &Done)) {
        self.window.packets += 1;
        match parsed.class {
            Class::Stranger(why) => self.pass(packet, why, sink),
            Class::OfAnyFlow(why) => {
                self.run_queue(sink);
                self.flush_all(FlushReason::Refused, sink);
                self.pass(packet, why, sink);
            }
            Class::Candidate | Class::OfFlow(_) if self.sorting => {
                if *self.queued == self.queue.len() {
                    self.run_queue(sink);
                }
                self.queue[*self.queued].put(packet, parsed);
                *self.queued += 1;
            }
            Class::Candidate | Class::OfFlow(_) => self.step(packet, &parsed, sink),
        }
    }

    /// Sorted mode: the queued packets, flow by flow.
    pub(super) fn run_queue(&mut self, sink: &mut impl FnMut(P, &Done)) {
        let count = core::mem::take(self.queued);
        if count == 0 {
            return;
        }
        self.stats.sorted_windows += 1;
        let (keys, spare) = self.keys.split_at_mut(self.queue.len());
        for (index, (key, queued)) in keys.iter_mut().zip(&self.queue[..count]).enumerate() {
            *key = Keyed {
                key: queued.hash(),
                index: index as u64,
            };
        }
        let mut scratch = Scratch {
            spare,
            words: self.words,
        };
        // In order of arrival if it could not be done; `StorageError` rules that out.
        let grouped = sort::group(&mut keys[..count], &mut scratch);
        debug_assert!(grouped.is_ok(), "storage was checked");
        let mut last = None;
        for at in 0..count {
            let Keyed { key, index } = self.keys[at];
            if last != Some(key) {
                last = Some(key);
                self.window.groups += 1;
                self.flush_all(FlushReason::Timeout, sink);
            }
            if let Some((packet, parsed)) = self.queue[index as usize].take() {
                self.step(packet, &parsed, sink);
            }
        }
        self.flush_all(FlushReason::Timeout, sink);
    }

    /// One packet of a flow.
    fn step(&mut self, packet: P, new: &Parsed, sink: &mut impl FnMut(P, &Done)) {
        let head = packet.head();
        let found = self.table.find(new.hash, |held, held_packet| {
            let held_head = held.headers().unwrap_or_else(|| held_packet.head());
            parse::same_flow(held_head, held.shape, head, new.shape)
        });
        if let Class::OfFlow(why) = new.class {
            if let Some(held) = found {
                self.flush_one(held, FlushReason::Refused, sink);
            }
            return self.pass(packet, why, sink);
        }
        let Some(held) = found else {
            return self.hold(packet, new, Ids::Undecided, sink);
        };
        match self.verdict(held, &packet, new) {
            Verdict::Refuse(reason) => {
                let ids = self.ids_after(held, &packet, new);
                self.flush_one(held, reason, sink);
                self.hold(packet, new, ids, sink);
            }
            Verdict::Merge { then, ids } => self.merge(held, packet, new, then, ids, sink),
        }
    }

    #[inline]
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
            || !self.masks.agree(new.shape, held_head, head)
        {
            return Verdict::Refuse(rules::mismatch(self.config, new));
        }
        rules::continues(self.config, held, held_head, new, head)
    }

    /// What a packet begins with that is held after `held`, which it does not continue.
    fn ids_after(&self, held: u32, packet: &P, new: &Parsed) -> Ids {
        let entry = &self.table.entries[held as usize];
        let Some(held_packet) = &entry.packet else {
            return Ids::Undecided;
        };
        let held_head = (entry.state.headers()).unwrap_or_else(|| held_packet.head());
        if rules::repeats(self.config, &entry.state, held_head, new, packet.head()) {
            Ids::Sealed
        } else {
            Ids::Undecided
        }
    }

    #[inline]
    fn merge(
        &mut self,
        index: u32,
        packet: P,
        new: &Parsed,
        then: Option<FlushReason>,
        ids: Ids,
        sink: &mut impl FnMut(P, &Done),
    ) {
        let header_bytes = new.shape.header_bytes() as u32;
        let payload = header_bytes..header_bytes + new.payload_bytes;
        let fields = (self.config.semantics == Semantics::Stream && new.shape.kind().is_tcp())
            .then(|| Fields::of(new.shape, packet.head()));
        let sum = (self.config.finish == Finish::Complete).then(|| payload_sum(&packet, new));
        let headers =
            (packet.checksum() == ChecksumState::None).then(|| new.transport_sum(packet.head()));
        let entry = &mut self.table.entries[index as usize];
        let (state, Some(held)) = (&mut entry.state, &mut entry.packet) else {
            return;
        };
        let sum = sum.map(|sum| finish::join(sum_so_far(state, held), state.payload_bytes, sum));
        let result = match headers {
            Some(headers) => {
                self.stats.summed_bytes += u64::from(new.payload_bytes);
                held.append_checked(packet, payload, headers)
            }
            None => held
                .append(packet, payload)
                .map_err(|packet| (AppendError::Full, packet)),
        };
        match result {
            Ok(()) => {
                state.ids = ids;
                let absorbed = advance(state, new);
                self.stats.absorbed += u64::from(absorbed);
                if let Some(head) = kept_up_to_date(state, held, fields.is_some() || sum.is_some())
                {
                    if let Some(fields) = fields {
                        fields.store(new.shape, head);
                    }
                    if let Some(sum) = sum {
                        parse::store16(head, new.shape.checksum_at(), sum);
                    }
                }
                if let Some(reason) = then {
                    self.flush_one(index, reason, sink);
                }
            }
            Err((AppendError::Full, packet)) => self.start_over(index, packet, new, sink),
            Err((AppendError::Checksum, packet)) => {
                self.flush_one(index, FlushReason::Refused, sink);
                self.pass(packet, NotTaken::BadChecksum, sink);
            }
        }
    }

    fn start_over(&mut self, held: u32, packet: P, new: &Parsed, sink: &mut impl FnMut(P, &Done)) {
        self.flush_one(held, FlushReason::Full, sink);
        self.hold(packet, new, Ids::Undecided, sink);
    }

    /// A packet whose flow is not held: it is held, or handed on.
    fn hold(&mut self, mut packet: P, new: &Parsed, ids: Ids, sink: &mut impl FnMut(P, &Done)) {
        if let Start::Pass(why) = rules::start(self.config, new, packet.head()) {
            return self.pass(packet, why, sink);
        }
        if packet.checksum() == ChecksumState::None {
            let mut sum = new.transport_sum(packet.head());
            let header_bytes = new.shape.header_bytes() as u32;
            sum.add_sum(packet.sum(header_bytes..new.ip_end));
            self.stats.summed_bytes += u64::from(new.payload_bytes);
            if !sum.is_valid() {
                return self.pass(packet, NotTaken::BadChecksum, sink);
            }
        }
        if packet.head_mut(new.shape.header_bytes()).is_none() {
            return self.pass(packet, NotTaken::Shared, sink);
        }
        // Only `Stream` holds padded packets.
        if packet.bytes() > new.ip_end {
            packet.truncate(new.ip_end);
        }
        while let Some(oldest) = self.table.in_the_way(new.hash) {
            self.window.evictions += 1;
            self.flush_one(oldest, FlushReason::Evict, sink);
        }
        let now = self.now;
        let entry = self.table.begin(new.hash, packet);
        if let Some(packet) = &entry.packet {
            let head = packet.head();
            entry.state.begin(new, head, now, packet.aside());
            entry.state.ids = ids;
        }
    }

    fn pass(&mut self, packet: P, why: NotTaken, sink: &mut impl FnMut(P, &Done)) {
        self.stats.not_taken.add(why);
        self.stats.emitted += 1;
        if why == NotTaken::BadChecksum {
            self.stats.bad_checksums += 1;
        }
        sink(packet, &Done::Passed(why));
    }

    pub(super) fn flush_all(&mut self, reason: FlushReason, sink: &mut impl FnMut(P, &Done)) {
        while let Some(oldest) = self.table.oldest() {
            self.flush_one(oldest, reason, sink);
        }
    }

    pub(super) fn flush_one(
        &mut self,
        index: u32,
        reason: FlushReason,
        sink: &mut impl FnMut(P, &Done),
    ) {
        let Some((state, mut packet)) = self.table.take(index) else {
            return;
        };
        self.stats.flushes.add(reason);
        self.stats.emitted += 1;
        if state.count > 1
            && let Some(merged) = finish::finish(self.config, state, &mut packet, reason)
        {
            self.stats.supers += 1;
            self.stats.merged += u64::from(state.count);
            return sink(packet, &Done::Merged(merged));
        }
        sink(packet, &Done::Alone(reason));
    }
}

/// Entries that are in the first-level cache anyway.
const IN_CACHE: usize = 128;

/// Sum of a packet's payload: from its checksum, which is right, unless that is partial.
fn payload_sum<P: Packet>(packet: &P, new: &Parsed) -> u16 {
    match packet.checksum() {
        ChecksumState::Partial { .. } => packet
            .sum(new.shape.header_bytes() as u32..new.ip_end)
            .fold(),
        ChecksumState::None | ChecksumState::Unnecessary => {
            finish::payload_sum(new.transport_sum(packet.head()))
        }
    }
}

/// Sum of the payload of a held packet: kept where its checksum was once it has more than one.
fn sum_so_far<P: Packet>(state: &State, held: &P) -> u16 {
    let shape = state.shape;
    if state.count > 1 {
        let head = state.headers().unwrap_or_else(|| held.head());
        return parse::load16(head, shape.checksum_at());
    }
    let first = Parsed {
        hash: 0,
        shape,
        seq: 0,
        payload_bytes: state.payload_bytes,
        ip_end: shape.header_bytes() as u32 + state.payload_bytes,
        id: 0,
        flags: 0,
        class: Class::Candidate,
    };
    payload_sum(held, &first)
}

/// Where the headers of a held packet are kept up to date, if they are.
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

/// The held packet has `new` in it now. Says whether one of them was a pure ACK that will never
/// come out again.
#[inline]
fn advance(state: &mut State, new: &Parsed) -> bool {
    let absorbed = new.payload_bytes == 0 || state.payload_bytes == 0;
    state.next_seq = new.seq.wrapping_add(new.payload_bytes);
    state.payload_bytes += new.payload_bytes;
    state.count += 1;
    state.flags |= new.flags & (parse::TCP_FIN | parse::TCP_PSH);
    state.absorbed += u16::from(absorbed);
    // `Reversible` merges nothing larger than the first.
    state.size = state.size.max(new.payload_bytes as u16);
    absorbed
}
