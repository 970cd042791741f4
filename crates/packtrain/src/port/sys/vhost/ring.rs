//! A split virtqueue of a guest (virtio 1.2 §2.7), seen from the device.
//!
//! The guest writes descriptors and the avail ring at any time, and nothing of them is taken for
//! granted: indices, lengths and addresses are read once and checked, chains end after a bounded
//! number of descriptors. A bad chain costs one packet. An avail index that says more chains than
//! the ring has costs the ring, since it is unknown then which of them are meant.
//!
//! Chains complete in the order in which the guest made them available.

mod chain;

use super::bell::signal;
use super::features::Form;
use super::memory::{Memory, Piece};
use super::message::RingAddresses;
use crate::plant::planted;
use crate::port::virtqueue::{
    DESCRIPTOR_BYTES, ELEMENTS_AT, INDEX_AT, NO_INTERRUPT, NO_NOTIFY, SIZE_MAX, USED_BYTES, WRITE,
    avail_event_at, passed, used_event_at,
};
use chain::{CHAIN_DESCRIPTORS_MAX, Chain, Live, Walk, Way};
use rustix::io::write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

pub(in crate::port) use chain::BadChain;

/// The most pieces of the chains of one packet: 64 KiB in buffers of 256 bytes take 257.
const PIECES_MAX: usize = 2 * CHAIN_DESCRIPTORS_MAX;
/// The most chains of one packet.
const CHAINS_MAX: usize = CHAIN_DESCRIPTORS_MAX;
/// Descriptors that a poll may read beyond those that its packets need, and that packets to the
/// guest may leave for later ones. One that is in no cache costs up to 0.4 us: 0.1 ms a poll.
const BUDGET: i32 = 256;
/// Bad chains in a row, without a good one between them, that break the ring: as many as a ring of
/// QEMU's default size has. A driver that makes them does not recover.
const BAD_ROW_MAX: u32 = 256;
/// Bytes of the longer form of the virtio-net header.
pub(in crate::port) const HEADER_BYTES_MAX: usize = 12;

/// Why a packet was not put into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) enum NoPut {
    /// The ring is not in use.
    Off,
    /// The guest has to add buffers first.
    NoBuffers,
    /// The guest's buffers are too short for it, also if it adds more.
    Long,
    /// The guest's chains have cost more descriptors than its packets need.
    Costly,
}

/// A place in the pieces of a chain.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::port) struct Cursor {
    piece: usize,
    at: usize,
}

/// One ring. It is off until it has memory, a place and a kick descriptor.
#[derive(Debug)]
pub(in crate::port) struct Ring {
    form: Form,
    memory: Arc<Memory>,
    size: u16,
    addresses: RingAddresses,
    kick: Option<Arc<OwnedFd>>,
    call: Option<OwnedFd>,
    error: Option<OwnedFd>,
    /// Where the thread of the front end is told that the ring is broken.
    pub(in crate::port) alarm: Option<Arc<OwnedFd>>,
    enabled: bool,
    live: Option<Live>,
    /// The index of the next chain to take.
    next: u16,
    /// The avail index when it was last read.
    seen: u16,
    /// The index of the next used element, and the one that the guest knows.
    used: u16,
    published: u16,
    /// The guest was called since the ring started.
    called: bool,
    /// The avail index at which the last packet found too few buffers.
    waits_at: Option<u16>,
    /// Kicks are switched off (without `EVENT_IDX`), or may be: by a port that had the ring before.
    suppressed: bool,
    /// Several queues wait for the kicks of this ring.
    pub(in crate::port) shared: bool,
    /// The first descriptor of the chain that was taken.
    head: u16,
    /// The pieces of the chain, or of the chains of a packet.
    pieces: Vec<Piece>,
    /// The chains of a packet to the guest.
    chains: Vec<Chain>,
    /// Chains for packets to the guest that were bad.
    bad: u64,
    /// Descriptors that may still be read. A chain is read whole, so it may be less than none.
    budget: i32,
    /// Bad chains since the last good one.
    bad_row: u32,
    /// How often the guest broke the ring, and why it is off, if it is for that.
    breaks: u64,
    broken: Option<&'static str>,
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            form: Form::default(),
            memory: Arc::default(),
            size: 0,
            addresses: RingAddresses::default(),
            kick: None,
            call: None,
            error: None,
            alarm: None,
            enabled: false,
            live: None,
            next: 0,
            seen: 0,
            used: 0,
            published: 0,
            called: false,
            waits_at: None,
            suppressed: false,
            shared: false,
            head: 0,
            pieces: Vec::with_capacity(PIECES_MAX),
            chains: Vec::with_capacity(CHAINS_MAX),
            bad: 0,
            budget: BUDGET,
            bad_row: 0,
            breaks: 0,
            broken: None,
        }
    }
}

/// The front end's side: set up, start and stop.
impl Ring {
    /// Sets the number of descriptors of a ring that is off.
    ///
    /// # Errors
    ///
    /// One sentence.
    pub(in crate::port) fn set_size(&mut self, size: u32) -> Result<(), String> {
        if size == 0 || size > SIZE_MAX || !size.is_power_of_two() {
            return Err(format!(
                "a ring of {size} descriptors, not a power of two up to {SIZE_MAX}"
            ));
        }
        if self.live.is_some() {
            return Err("a ring to be resized while it is in use".to_owned());
        }
        self.size = size as u16;
        Ok(())
    }

    /// Sets the place of the ring. A ring in use moves.
    ///
    /// # Errors
    ///
    /// One sentence.
    pub(in crate::port) fn set_addresses(&mut self, at: RingAddresses) -> Result<(), String> {
        self.addresses = at;
        self.renew()
    }

    /// Sets the index of the next chain of a ring that is off.
    ///
    /// # Errors
    ///
    /// One sentence.
    pub(in crate::port) fn set_base(&mut self, base: u32) -> Result<(), String> {
        if self.live.is_some() {
            return Err("the index of a ring to be set while it is in use".to_owned());
        }
        self.next = u16::try_from(base)
            .map_err(|_| format!("a ring to begin at {base}, more than 65535"))?;
        Ok(())
    }

    /// Sets the memory of the guest. A ring in use moves.
    ///
    /// # Errors
    ///
    /// One sentence: the ring is not in that memory, and is off.
    pub(in crate::port) fn set_memory(&mut self, memory: &Arc<Memory>) -> Result<(), String> {
        self.memory = Arc::clone(memory);
        self.renew()
    }

    /// Sets what the guest has negotiated. A ring in use stays in use.
    ///
    /// # Errors
    ///
    /// One sentence: the ring has no room for what it needs, and is off.
    pub(in crate::port) fn set_form(&mut self, form: Form) -> Result<(), String> {
        // The parts of the ring have the form that they were found for.
        self.publish();
        self.form = form;
        self.renew()
    }

    /// Sets whether packets pass.
    pub(in crate::port) const fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Sets where the guest is told of used chains, and tells it: it may have missed what became
    /// used while there was no descriptor, or another one. It expects calls for nothing.
    pub(in crate::port) fn set_call(&mut self, call: Option<OwnedFd>) {
        self.call = call;
        self.called = false;
        self.call();
    }

    /// Sets where the front end is told that the ring is broken.
    pub(in crate::port) fn set_error(&mut self, error: Option<OwnedFd>) {
        self.error = error;
    }

    /// Starts the ring. One that runs goes on with another descriptor.
    ///
    /// # Errors
    ///
    /// One sentence: the ring is not in the guest's memory, and is off.
    pub(in crate::port) fn start(&mut self, kick: Arc<OwnedFd>) -> Result<(), String> {
        self.kick = Some(kick);
        if self.live.is_some() {
            return Ok(());
        }
        let live = self.place()?;
        self.seen = self.next;
        // A ring goes on where it was: also that of a guest whose front end has connected again.
        self.used = live.used.load(INDEX_AT, Ordering::Relaxed);
        self.published = self.used;
        (self.called, self.waits_at, self.broken) = (false, None, None);
        (self.budget, self.bad_row) = (BUDGET, 0);
        // The flags in the guest's memory survive a stop, and the process that set them.
        self.suppressed = true;
        self.live = Some(live);
        Ok(())
    }

    /// Stops the ring, and returns the index of its next chain.
    pub(in crate::port) fn stop(&mut self) -> u16 {
        self.publish();
        self.live = None;
        self.kick = None;
        self.waits_at = None;
        self.next
    }

    /// Stops the ring, and forgets all that was set up.
    pub(in crate::port) fn forget(&mut self) {
        self.stop();
        self.memory = Arc::default();
        (self.form, self.addresses) = (Form::default(), RingAddresses::default());
        (self.size, self.next, self.enabled, self.broken) = (0, 0, false, None);
        (self.call, self.error) = (None, None);
    }

    /// Takes the ring out of use in any state, without a call to the guest.
    pub(in crate::port) fn abandon(&mut self) {
        self.live = None;
    }

    /// Where the kicks of a running ring arrive.
    pub(in crate::port) const fn kick(&self) -> Option<&Arc<OwnedFd>> {
        if self.live.is_none() {
            return None;
        }
        self.kick.as_ref()
    }

    /// Whether packets pass.
    pub(in crate::port) const fn is_running(&self) -> bool {
        self.live.is_some() && self.enabled
    }

    /// Whether it runs and is not enabled: what the guest sends is discarded.
    pub(in crate::port) const fn discards(&self) -> bool {
        self.live.is_some() && !self.enabled
    }

    /// Chains for packets to the guest that were bad, since the start.
    pub(in crate::port) const fn bad(&self) -> u64 {
        self.bad
    }

    /// How often the guest broke the ring since the start, and why it is off, if it is for that.
    pub(in crate::port) const fn breaks(&self) -> (u64, Option<&'static str>) {
        (self.breaks, self.broken)
    }

    /// The index of the next chain to take.
    #[cfg(feature = "internals")]
    pub(in crate::port) const fn next(&self) -> u16 {
        self.next
    }

    /// What the guest has negotiated.
    pub(in crate::port) const fn form(&self) -> Form {
        self.form
    }

    /// Finds the parts of a running ring anew.
    fn renew(&mut self) -> Result<(), String> {
        if self.live.is_none() {
            return Ok(());
        }
        self.publish();
        self.live = None;
        self.live = Some(self.place()?);
        self.suppressed = true;
        Ok(())
    }

    /// The parts of the ring in the guest's memory.
    fn place(&self) -> Result<Live, String> {
        let (size, at) = (usize::from(self.size), self.addresses);
        if size == 0 {
            return Err("a ring to be started without a size".to_owned());
        }
        let event = if self.form.event_idx { 2 } else { 0 };
        let block = |what, address, bytes, align| {
            let block = self.memory.block(address, bytes, align);
            block.ok_or_else(|| {
                format!(
                    "{what} of a ring at {address:#x}, where the front end shares no {bytes} bytes \
                     of memory aligned to {align}"
                )
            })
        };
        let descriptors = block(
            "the descriptors",
            at.descriptors,
            size * DESCRIPTOR_BYTES,
            DESCRIPTOR_BYTES,
        )?;
        Ok(Live {
            memory: Arc::clone(&self.memory),
            descriptors,
            avail: block("the avail ring", at.avail, used_event_at(size) + event, 2)?,
            used: block("the used ring", at.used, avail_event_at(size) + event, 4)?,
            size: self.size,
        })
    }

    /// The guest broke the ring: it is off until the front end starts it again.
    fn give_up(&mut self, why: &'static str) {
        self.publish();
        self.live = None;
        self.breaks += 1;
        self.broken = Some(why);
        if let Some(alarm) = &self.alarm {
            // A full one rings already.
            write(alarm, &1_u64.to_ne_bytes()).unwrap_or(0);
        }
        if let Some(error) = &self.error
            && signal(error).is_err()
        {
            self.error = None;
        }
    }
}

/// The worker's side.
impl Ring {
    /// Begins a poll of what the guest sends. What earlier polls have read too many of is missing.
    pub(in crate::port) fn begin_poll(&mut self) {
        self.budget = (self.budget + BUDGET).min(BUDGET);
    }

    /// The packet of `bytes` bytes in the chain that was taken is bad: copied in vain.
    pub(in crate::port) fn charge(&mut self, bytes: usize) {
        self.budget -= due(bytes);
    }

    /// Whether the poll has cost its descriptors. It ends, also if there are more chains.
    pub(in crate::port) fn is_exhausted(&self) -> bool {
        self.budget <= 0 && !planted!(DescriptorsUnbounded)
    }

    /// The buffer of the next chain from the guest, if the chain is one descriptor, as that of most
    /// packets, and packets pass. It stays the next one until
    /// [`consume_whole`](Self::consume_whole). Every other chain is one for [`take`](Self::take).
    #[inline]
    pub(in crate::port) fn whole(&mut self) -> Option<Piece> {
        let live = self.live.as_ref();
        let live = live.filter(|_| self.enabled && self.seen != self.next)?;
        self.head = live.head(self.next);
        live.whole(self.head, 0)
    }

    /// Copies from byte `at` of that buffer on.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter.
    #[inline]
    pub(in crate::port) fn read_whole(&self, buffer: Piece, at: usize, out: &mut [u8]) {
        if let Some(live) = &self.live {
            live.memory.read(buffer, at, out);
        }
    }

    /// The first 16 bytes of that buffer, read once.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter.
    #[inline]
    pub(in crate::port) fn front_of_whole(&self, buffer: Piece) -> [u8; 16] {
        let live = self.live.as_ref();
        let words = live.map_or([0; 2], |live| live.memory.words(buffer, 0));
        let mut front = [0; 16];
        front[..8].copy_from_slice(&words[0].to_le_bytes());
        front[8..].copy_from_slice(&words[1].to_le_bytes());
        front
    }

    /// Gives that chain back to the guest. The budget stays as it is: a received packet adds to it
    /// what its descriptor costs.
    #[inline]
    pub(in crate::port) fn consume_whole(&mut self) {
        (self.bad_row, self.waits_at) = (0, None);
        self.suppress();
        self.consume(0);
    }

    /// Reads the next chain from the guest, and returns the bytes of its buffers: at most `most`.
    /// It stays the next one until [`consume`](Self::consume). A bad chain is consumed. `None`
    /// without a chain.
    pub(in crate::port) fn take(&mut self, most: usize) -> Option<Result<usize, BadChain>> {
        let taken = self.take_chain(Way::FromGuest, self.form.header, most)?;
        Some(taken.map(|chain| chain.bytes))
    }

    /// The same for a chain of a request and the room for its answer: returns the request, as much
    /// of it as fits `request`.
    pub(in crate::port) fn take_request(
        &mut self,
        request: &mut [u8],
    ) -> Option<Result<usize, BadChain>> {
        self.take_chain(Way::Both, 0, CHAIN_DESCRIPTORS_MAX)
            .map(|taken| {
                let Chain { writable, .. } = taken?;
                let readable = self.pieces[..writable].iter();
                let bytes = readable.map(Piece::bytes).sum::<usize>().min(request.len());
                self.read(&mut Cursor::default(), &mut request[..bytes]);
                self.pieces.drain(..writable);
                Ok(bytes)
            })
    }

    /// Answers the request that was taken, and consumes it.
    pub(in crate::port) fn answer(&mut self, status: u8) {
        let room = self.pieces.iter().any(|piece| piece.bytes() > 0);
        if room {
            self.write(&mut Cursor::default(), &[status]);
        }
        self.consume(u32::from(room));
        self.publish();
    }

    fn take_chain(
        &mut self,
        way: Way,
        least: usize,
        most: usize,
    ) -> Option<Result<Chain, BadChain>> {
        self.live.as_ref()?;
        // It may have been a ring to the guest, of which a packet waited for buffers.
        self.waits_at = None;
        match self.available() {
            Ok(0) => return None,
            Ok(_) => {}
            Err(bad) => return Some(Err(bad)),
        }
        self.suppress();
        self.pieces.clear();
        self.head = self.head_at(0);
        let before = self.budget;
        let walked = self.walk(self.head, way, least, most);
        match walked {
            Ok(chain) => self.budget = (self.budget + due(chain.bytes)).min(before),
            Err(_) if self.gives_up() => return Some(Err(BadChain::Ring)),
            Err(bad) => self.consume_bad(bad),
        }
        Some(walked)
    }

    /// Copies the next bytes of the chain that was taken.
    ///
    /// # Panics
    ///
    /// If the chain has fewer.
    #[inline]
    pub(in crate::port) fn read(&self, from: &mut Cursor, out: &mut [u8]) {
        let Some(live) = &self.live else {
            return;
        };
        let mut out = out;
        while !out.is_empty() {
            let piece = self.pieces[from.piece];
            let n = out.len().min(piece.bytes() - from.at);
            let (now, later) = out.split_at_mut(n);
            live.memory.read(piece, from.at, now);
            from.advance(n, piece);
            out = later;
        }
    }

    /// Copies `bytes` to the next bytes of the chains.
    #[inline]
    fn write(&self, to: &mut Cursor, bytes: &[u8]) {
        let Some(live) = &self.live else {
            return;
        };
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let piece = self.pieces[to.piece];
            let n = bytes.len().min(piece.bytes() - to.at);
            let (now, later) = bytes.split_at(n);
            live.memory.write(piece, to.at, now);
            to.advance(n, piece);
            bytes = later;
        }
    }

    /// Gives the next chain back to the guest, which has `bytes` bytes written to it.
    pub(in crate::port) fn consume(&mut self, bytes: u32) {
        self.next = self.next.wrapping_add(1);
        self.complete(self.head, bytes);
    }

    /// Gives the bad chain that was taken back, unless it begins nowhere.
    fn consume_bad(&mut self, bad: BadChain) {
        let is_nowhere = self.live.as_ref().is_none_or(|live| self.head >= live.size);
        if bad == BadChain::Index && is_nowhere {
            self.next = self.next.wrapping_add(1);
        } else {
            self.consume(0);
        }
    }

    fn complete(&mut self, head: u16, bytes: u32) {
        let Some(live) = &self.live else {
            return;
        };
        let element = u64::from(head) | u64::from(bytes) << 32;
        let at = ELEMENTS_AT + USED_BYTES * usize::from(self.used & (live.size - 1));
        live.used.write(at, &element.to_le_bytes());
        self.used = self.used.wrapping_add(1);
    }

    /// Puts a packet into the guest's next buffers: `header`, whose number of buffers is set, and
    /// `packet` of `bytes` bytes. The guest sees it after [`publish`](Self::publish).
    ///
    /// # Errors
    ///
    /// [`NoPut`]; the chains are still the guest's next ones.
    pub(in crate::port) fn put<'a>(
        &mut self,
        header: &mut [u8; HEADER_BYTES_MAX],
        bytes: usize,
        packet: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), NoPut> {
        if !self.is_running() {
            return Err(NoPut::Off);
        }
        let total = self.form.header + bytes;
        self.budget += due(total);
        let gathered = self.gather(total);
        self.budget = self.budget.min(BUDGET);
        if let Err(no) = gathered {
            // Buffers that were bad: no doorbell follows a packet that was refused.
            self.publish();
            return Err(no);
        }
        let count = self.chains.len() as u16;
        if self.form.mergeable {
            header[10..].copy_from_slice(&count.to_le_bytes());
        }
        let mut cursor = Cursor::default();
        self.write(&mut cursor, &header[..self.form.header]);
        packet.for_each(|segment| self.write(&mut cursor, segment));
        let mut left = total;
        self.next = self.next.wrapping_add(count);
        for index in 0..self.chains.len() {
            let chain = self.chains[index];
            let written = left.min(chain.bytes);
            left -= written;
            self.complete(chain.head, written as u32);
        }
        self.waits_at = None;
        self.suppress();
        Ok(())
    }

    /// As [`put`](Self::put), into a ring that is running, for a packet in one piece whose chain is
    /// one descriptor with room for all of it. False for every other one: then nothing has changed.
    #[inline]
    pub(in crate::port) fn put_whole(
        &mut self,
        header: &mut [u8; HEADER_BYTES_MAX],
        packet: &[u8],
    ) -> bool {
        let total = self.form.header + packet.len();
        let Some(live) = self.live.as_ref().filter(|_| self.seen != self.next) else {
            return false;
        };
        let head = live.head(self.next);
        let whole = live.whole(head, WRITE).filter(|_| !self.is_exhausted());
        let Some(buffer) = whole.filter(|buffer| buffer.bytes() >= total) else {
            return false;
        };
        if self.form.mergeable {
            header[10..].copy_from_slice(&1_u16.to_le_bytes());
        }
        let header = &header[..self.form.header];
        live.memory.write_packet(buffer, header, packet);
        self.budget = (self.budget + due(total) - 1).min(BUDGET);
        (self.bad_row, self.waits_at) = (0, None);
        self.head = head;
        self.consume(total as u32);
        self.suppress();
        true
    }

    /// Finds chains with room for `total` bytes. Bad ones are given back.
    fn gather(&mut self, total: usize) -> Result<(), NoPut> {
        self.pieces.clear();
        self.chains.clear();
        let (mut room, mut direct) = (0, 0);
        while room < total {
            let known = self.available().map_err(|_| NoPut::Off)?;
            let size = self.live.as_ref().map_or(0, |live| live.size);
            let had = self.chains.len();
            if had >= usize::from(known) {
                // With every descriptor of the ring in use the guest cannot add another one.
                if had > 0 && direct >= usize::from(size) {
                    return Err(NoPut::Long);
                }
                self.waits_at = Some(self.seen);
                return Err(NoPut::NoBuffers);
            }
            if self.is_exhausted() {
                return Err(NoPut::Costly);
            }
            // The header is in the first of them.
            let least = if had == 0 { self.form.header } else { 1 };
            let head = self.head_at(had as u16);
            match self.walk(head, Way::ToGuest, least, total - room) {
                Ok(chain) => {
                    room += chain.bytes;
                    direct += chain.direct;
                    self.chains.push(chain);
                    let is_last = !self.form.mergeable || self.chains.len() == CHAINS_MAX;
                    if is_last && room < total {
                        return Err(NoPut::Long);
                    }
                }
                Err(bad) => {
                    self.bad += 1;
                    if self.gives_up() {
                        return Err(NoPut::Off);
                    }
                    // In their order: those in front of it go back unused.
                    for index in 0..had {
                        self.head = self.chains[index].head;
                        self.consume(0);
                    }
                    self.head = head;
                    self.consume_bad(bad);
                    self.chains.clear();
                    self.pieces.clear();
                    (room, direct) = (0, 0);
                }
            }
        }
        Ok(())
    }

    /// The number of chains that the guest has made available.
    ///
    /// # Errors
    ///
    /// [`BadChain::Ring`]: then the ring is off.
    fn available(&mut self) -> Result<u16, BadChain> {
        let Some(live) = &self.live else {
            return Ok(0);
        };
        let known = self.seen.wrapping_sub(self.next);
        if usize::from(known) > self.chains.len() {
            return Ok(known);
        }
        // What the index says is there is read afterwards.
        self.seen = live.avail.load(INDEX_AT, Ordering::Acquire);
        let count = self.seen.wrapping_sub(self.next);
        if count > live.size {
            self.give_up("has more chains than descriptors");
            return Err(BadChain::Ring);
        }
        Ok(count)
    }

    /// Counts a bad chain. Returns whether the ring is off now: too many were bad.
    fn gives_up(&mut self) -> bool {
        self.bad_row += 1;
        let gives_up = self.bad_row >= BAD_ROW_MAX;
        if gives_up {
            self.give_up("had 256 bad chains in a row");
        }
        gives_up
    }

    /// The first descriptor of the chain that is `ahead` of the next one.
    fn head_at(&self, ahead: u16) -> u16 {
        let index = self.next.wrapping_add(ahead);
        self.live.as_ref().map_or(0, |live| live.head(index))
    }

    /// Reads the descriptors of the chain that begins at `head`, of `least` to `most` bytes, and
    /// adds its buffers to the pieces. To the guest it stops once there is room for `most` bytes.
    fn walk(&mut self, head: u16, way: Way, least: usize, most: usize) -> Result<Chain, BadChain> {
        let Some(live) = &self.live else {
            return Err(BadChain::Ring);
        };
        let mut walk = Walk {
            live,
            indirect: self.form.indirect,
            pieces: &mut self.pieces,
            budget: &mut self.budget,
        };
        let chain = match walk.one(head, way, most) {
            Some(chain) => chain,
            None => walk.each(head, way, most)?,
        };
        if chain.bytes < least {
            return Err(BadChain::Short);
        }
        self.bad_row = 0;
        Ok(chain)
    }

    /// Makes used chains visible to the guest, and calls it if it asked for that.
    ///
    /// Returns the number of times that they were made visible, and of calls: 0 or 1 each.
    pub(in crate::port) fn publish(&mut self) -> (u64, u64) {
        let Some(live) = &self.live else {
            return (0, 0);
        };
        if self.used == self.published {
            return (0, 0);
        }
        live.used.store(INDEX_AT, self.used, Ordering::Release);
        // The guest writes what it asks for and then reads the index; here it is the other way
        // round, so one of the two sees the other.
        fence(Ordering::SeqCst);
        let wanted = if self.form.event_idx {
            let at = used_event_at(usize::from(live.size));
            let event = live.avail.load(at, Ordering::Relaxed);
            passed(event, self.used, self.published) || !self.called
        } else {
            live.avail.load(0, Ordering::Relaxed) & NO_INTERRUPT == 0
        };
        self.published = self.used;
        self.called = true;
        (1, u64::from(wanted && self.call()))
    }

    /// Calls the guest, if it is known where.
    fn call(&mut self) -> bool {
        let Some(call) = &self.call else {
            return false;
        };
        if signal(call).is_err() {
            self.call = None;
        }
        true
    }

    /// Asks the guest for a kick when it adds a chain. Returns whether it has since the last one
    /// was taken, or since a packet found too few.
    pub(in crate::port) fn arm(&mut self) -> bool {
        let Some(live) = &self.live else {
            return false;
        };
        let at = self.waits_at.unwrap_or(self.next);
        if self.form.event_idx {
            let event = avail_event_at(usize::from(live.size));
            live.used.store(event, at, Ordering::Relaxed);
        } else if std::mem::take(&mut self.suppressed) {
            live.used.store(0, 0, Ordering::Relaxed);
        }
        // As in `publish`.
        fence(Ordering::SeqCst);
        live.avail.load(INDEX_AT, Ordering::Acquire) != at
    }

    /// Asks for no kicks while the worker polls. With `EVENT_IDX` the guest sends none, since the
    /// index that was asked for has passed.
    fn suppress(&mut self) {
        if let Some(live) = &self.live
            && !self.form.event_idx
            && !self.suppressed
            && !self.shared
        {
            live.used.store(0, NO_NOTIFY, Ordering::Relaxed);
            self.suppressed = true;
        }
    }

    /// Whether the last packet to the guest waits for buffers.
    pub(in crate::port) const fn is_full(&self) -> bool {
        self.waits_at.is_some()
    }
}

/// The descriptors that a packet of `bytes` bytes may need: one for 256 bytes, a header, a table.
const fn due(bytes: usize) -> i32 {
    4 + (bytes / 256) as i32
}

impl Cursor {
    const fn advance(&mut self, bytes: usize, piece: Piece) {
        self.at += bytes;
        if self.at == piece.bytes() {
            self.piece += 1;
            self.at = 0;
        }
    }
}

#[cfg(test)]
mod tests;
