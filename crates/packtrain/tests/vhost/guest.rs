//! A guest and its front end, as far as a port can tell: memory that is shared, split rings in it,
//! and the messages of the protocol. It writes its memory as a file, so nothing here is unsafe.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{IoSlice, write};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::time::Timespec;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub const MRG_RXBUF: u64 = 1 << 15;
pub const CTRL_VQ: u64 = 1 << 17;
pub const MQ: u64 = 1 << 22;
pub const INDIRECT: u64 = 1 << 28;
pub const EVENT_IDX: u64 = 1 << 29;
pub const PROTOCOL: u64 = 1 << 30;
pub const VERSION_1: u64 = 1 << 32;
/// Everything about checksums, TSO and USO, both ways.
pub const OFFLOADS: u64 = 0x01C0_0000_0000_3B83;

pub const GET_FEATURES: u32 = 1;
pub const SET_FEATURES: u32 = 2;
pub const SET_OWNER: u32 = 3;
pub const SET_MEM_TABLE: u32 = 5;
pub const SET_VRING_NUM: u32 = 8;
pub const SET_VRING_ADDR: u32 = 9;
pub const SET_VRING_BASE: u32 = 10;
pub const GET_VRING_BASE: u32 = 11;
pub const SET_VRING_KICK: u32 = 12;
pub const SET_VRING_CALL: u32 = 13;
pub const GET_PROTOCOL_FEATURES: u32 = 15;
pub const SET_PROTOCOL_FEATURES: u32 = 16;
pub const GET_QUEUE_NUM: u32 = 17;
pub const SET_VRING_ENABLE: u32 = 18;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const TABLE: u16 = 4;

/// Where the guest has its memory, and where its front end has it.
pub const GUEST_BASE: u64 = 0x4000_0000;
pub const USER_BASE: u64 = 0x7F00_0000_0000;
/// Memory of each ring: its parts, then its tables, then its buffers.
const RING_BYTES: u64 = 8 << 20;
const PARTS_BYTES: u64 = 64 << 10;
const TABLES_BYTES: u64 = 64 << 10;
/// Room for any packet with its header.
const LARGE_BYTES: u64 = 66 << 10;

/// What the guest negotiates.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub features: u64,
    pub pairs: usize,
    /// Descriptors of each ring.
    pub size: u16,
    /// Bytes of each buffer to receive into.
    pub buffer: u64,
}

impl Options {
    pub fn new(features: u64) -> Self {
        let mergeable = features & MRG_RXBUF != 0;
        Self {
            features: features | PROTOCOL,
            pairs: 1,
            size: 128,
            buffer: if mergeable { 1600 } else { LARGE_BYTES },
        }
    }

    /// With several pairs of rings.
    pub fn with_pairs(features: u64, pairs: usize) -> Self {
        let one = Self::new(features);
        Self { pairs, ..one }
    }
}

/// One ring, as the driver in the guest has it.
pub struct Ring {
    size: u16,
    at: u64,
    pub avail: u16,
    pub seen: u16,
    free: Vec<u16>,
    pub kick: OwnedFd,
    pub call: OwnedFd,
    /// The guest has seen all and sleeps: what is used next is announced by a call.
    pub sleeps: bool,
}

pub struct Guest {
    pub stream: UnixStream,
    pub memory: File,
    pub options: Options,
    pub rings: Vec<Ring>,
    /// Received and not yet whole: header and bytes.
    pub received: u64,
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

impl Guest {
    /// Connects, and starts all rings, with all buffers to receive into.
    pub fn new(stream: UnixStream, options: Options) -> Self {
        let mut guest = Self::connected(stream, options);
        guest.set_up();
        guest
    }

    /// A guest whose front end has sent nothing yet.
    pub fn connected(stream: UnixStream, options: Options) -> Self {
        let memory = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        let count = 2 * options.pairs + 1;
        ftruncate(&memory, RING_BYTES * count as u64).expect("its length");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time");
        let rings = (0..count).map(|index| Ring {
            size: options.size,
            at: RING_BYTES * index as u64,
            avail: 0,
            seen: 0,
            free: (0..options.size / 2).rev().collect(),
            kick: event(),
            call: event(),
            sleeps: false,
        });
        Self {
            stream,
            memory: File::from(memory),
            options,
            rings: rings.collect(),
            received: 0,
        }
    }

    /// All that QEMU sends, in its order: rings are enabled before features are set.
    pub fn set_up(&mut self) {
        self.begin();
        for index in 0..2 * self.options.pairs {
            self.start(index);
        }
        self.barrier();
        for pair in 0..self.options.pairs {
            self.post_all(2 * pair);
        }
    }

    /// Everything but the rings.
    fn begin(&mut self) {
        self.ask(GET_FEATURES);
        // Several queues, if there are, and acknowledgements.
        let offered = self.ask(GET_PROTOCOL_FEATURES);
        assert_eq!(offered & !1, 0b1000);
        self.number(SET_PROTOCOL_FEATURES, offered & 1);
        self.ask(GET_QUEUE_NUM);
        self.say(SET_OWNER, &[], &[]);
        for index in 0..2 * self.options.pairs {
            self.state(SET_VRING_ENABLE, index, 1);
        }
        self.number(SET_FEATURES, self.options.features);
        self.share(&[self.region()]);
    }

    /// All of its memory: guest address, bytes, user address and offset.
    pub fn region(&self) -> (u64, u64, u64, u64) {
        let bytes = RING_BYTES * self.rings.len() as u64;
        (GUEST_BASE, bytes, USER_BASE, 0)
    }

    /// Goes on with its rings as they are, over a new connection.
    pub fn resume(&mut self, stream: UnixStream) {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time");
        self.stream = stream;
        self.begin();
        for index in 0..2 * self.options.pairs {
            self.start_at(index, self.used(index));
        }
        self.barrier();
    }

    /// Gives a ring that runs another descriptor for kicks.
    pub fn renew_kick(&mut self, index: usize) {
        self.rings[index].kick = event();
        let number = (index as u64).to_le_bytes();
        let kick = self.rings[index].kick.as_fd();
        send(&self.stream, SET_VRING_KICK, &number, &[kick]);
        self.barrier();
    }

    /// Has the port know the memory, in regions of guest address, bytes, user address and offset.
    pub fn share(&mut self, regions: &[(u64, u64, u64, u64)]) {
        let mut table = [regions.len() as u32, 0].map(u32::to_le_bytes).concat();
        for (guest, bytes, user, offset) in regions {
            table.extend(
                [guest, bytes, user, offset]
                    .map(|word| word.to_le_bytes())
                    .concat(),
            );
        }
        let fds: Vec<_> = regions.iter().map(|_| self.memory.as_fd()).collect();
        send(&self.stream, SET_MEM_TABLE, &table, &fds);
    }

    /// Starts a ring where it is.
    pub fn start(&mut self, index: usize) {
        self.start_at(index, self.rings[index].avail);
    }

    /// Starts a ring at the chain with the index `base`.
    pub fn start_at(&mut self, index: usize, base: u16) {
        self.state(SET_VRING_NUM, index, self.rings[index].size.into());
        self.state(SET_VRING_BASE, index, base.into());
        let mut address = [index as u32, 0].map(u32::to_le_bytes).concat();
        let [descriptors, used, avail] = self.parts(index);
        let parts = [descriptors, used, avail, 0];
        address.extend(parts.map(u64::to_le_bytes).concat());
        self.say(SET_VRING_ADDR, &address, &[]);
        let ring = &self.rings[index];
        let number = (index as u64).to_le_bytes();
        send(&self.stream, SET_VRING_KICK, &number, &[ring.kick.as_fd()]);
        send(&self.stream, SET_VRING_CALL, &number, &[ring.call.as_fd()]);
    }

    /// Where a ring has its descriptors, used elements and available chains: user addresses.
    pub fn parts(&self, index: usize) -> [u64; 3] {
        let user = USER_BASE + self.rings[index].at;
        [user, user + USED, user + AVAIL]
    }

    /// Leaves a ring without a descriptor for calls.
    pub fn forget_call(&self, index: usize) {
        self.number(SET_VRING_CALL, index as u64 | 1 << 8);
        self.barrier();
    }

    /// Gives a ring another descriptor for calls.
    pub fn renew_call(&mut self, index: usize) {
        self.rings[index].call = event();
        let number = (index as u64).to_le_bytes();
        let call = self.rings[index].call.as_fd();
        send(&self.stream, SET_VRING_CALL, &number, &[call]);
        self.barrier();
    }

    pub fn say(&self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        send(&self.stream, request, payload, fds);
    }

    pub fn number(&self, request: u32, value: u64) {
        self.say(request, &value.to_le_bytes(), &[]);
    }

    pub fn state(&self, request: u32, index: usize, value: u32) {
        let payload = [index as u32, value].map(u32::to_le_bytes).concat();
        self.say(request, &payload, &[]);
    }

    /// Asks, and returns the answer.
    pub fn ask(&self, request: u32) -> u64 {
        self.say(request, &[], &[]);
        self.answer().expect("an answer")
    }

    /// Waits until all messages so far are handled.
    pub fn barrier(&self) {
        self.ask(GET_FEATURES);
    }

    /// Stops a ring, and returns the index of its next chain.
    pub fn stop(&self, index: usize) -> u64 {
        self.state(GET_VRING_BASE, index, 0);
        let answer = self.answer().expect("an answer");
        assert_eq!(answer as u32, index as u32, "the ring is named");
        answer >> 32
    }

    /// Starts a ring again, whose avail index may be wrong, behind its last used chain.
    pub fn restart(&mut self, index: usize) {
        let base = self.stop(index) as u16;
        self.set_avail(index, base);
        self.rings[index].avail = base;
        self.rings[index].seen = self.used(index);
        self.start(index);
    }

    pub fn answer(&self) -> std::io::Result<u64> {
        let mut reply = [0; 20];
        (&self.stream).read_exact(&mut reply)?;
        Ok(u64::from_le_bytes(reply[12..].try_into().expect("eight")))
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).expect("guest memory");
    }

    pub fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        self.memory
            .read_exact_at(&mut read, at)
            .expect("guest memory");
        read
    }

    pub fn word(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.read(at, 2).try_into().expect("two"))
    }

    /// Where a buffer of a ring is in the file. In the guest it is at [`GUEST_BASE`] and that.
    pub fn buffer(&self, ring: usize, slot: u16) -> u64 {
        let bytes = if ring.is_multiple_of(2) {
            self.options.buffer
        } else {
            LARGE_BYTES
        };
        self.rings[ring].at + PARTS_BYTES + TABLES_BYTES + u64::from(slot) * bytes
    }

    /// Writes a descriptor; `address` is one of the guest.
    pub fn describe(
        &self,
        ring: usize,
        index: u16,
        address: u64,
        bytes: u32,
        flags: u16,
        next: u16,
    ) {
        let at = self.rings[ring].at + u64::from(index) * 16;
        self.write(at, &descriptor(address, bytes, flags, next));
    }

    /// The place of the table of a slot in the file.
    pub fn table(&self, ring: usize, slot: u16) -> u64 {
        self.rings[ring].at + PARTS_BYTES + u64::from(slot) * 64
    }

    /// Makes a chain available, without a kick.
    pub fn push(&mut self, ring: usize, head: u16) {
        let Ring {
            at, avail, size, ..
        } = &mut self.rings[ring];
        let entry = *at + AVAIL + 4 + 2 * u64::from(*avail % *size);
        *avail = avail.wrapping_add(1);
        let (index_at, index) = (*at + AVAIL + 2, *avail);
        self.write(entry, &head.to_le_bytes());
        self.write(index_at, &index.to_le_bytes());
    }

    /// Sets the avail index to any value, valid or not.
    pub fn set_avail(&mut self, ring: usize, index: u16) {
        self.write(self.rings[ring].at + AVAIL + 2, &index.to_le_bytes());
    }

    /// The used index.
    pub fn used(&self, ring: usize) -> u16 {
        self.word(self.rings[ring].at + USED + 2)
    }

    /// The next used element: its head and its bytes.
    pub fn take_used(&mut self, ring: usize) -> Option<(u16, usize)> {
        let used = self.used(ring);
        let Ring { at, seen, size, .. } = &mut self.rings[ring];
        if *seen == used {
            return None;
        }
        let entry = *at + USED + 4 + 8 * u64::from(*seen % *size);
        *seen = seen.wrapping_add(1);
        let words = self.read(entry, 8);
        let word = |at: usize| u32::from_le_bytes(words[at..at + 4].try_into().expect("four"));
        Some((word(0) as u16, word(4) as usize))
    }

    /// Kicks, if the port asks for it.
    pub fn kick(&self, index: usize, added: u16) {
        let ring = &self.rings[index];
        let wanted = if self.options.features & EVENT_IDX != 0 {
            let event = self.word(ring.at + USED + 4 + 8 * u64::from(ring.size));
            ring.avail.wrapping_sub(event).wrapping_sub(1) < added
        } else {
            self.word(ring.at + USED) & 1 == 0
        };
        if wanted {
            write(&ring.kick, &1_u64.to_ne_bytes()).expect("a kick");
        }
    }

    /// Kicks, whether the port asks for it or not.
    pub fn kick_always(&self, index: usize) {
        write(&self.rings[index].kick, &1_u64.to_ne_bytes()).expect("a kick");
    }

    /// Where the used index of a ring is in the file.
    pub fn used_at(&self, index: usize) -> u64 {
        self.rings[index].at + USED + 2
    }

    pub fn header_bytes(&self) -> usize {
        match self.options.features & (VERSION_1 | MRG_RXBUF) {
            0 => 10,
            _ => 12,
        }
    }

    fn reclaim(&mut self, ring: usize) {
        while let Some((head, _)) = self.take_used(ring) {
            let slot = if self.is_indirect() { head } else { head / 2 };
            self.rings[ring].free.push(slot);
        }
    }

    fn is_indirect(&self) -> bool {
        self.options.features & INDIRECT != 0
    }

    /// Whether a slot to send from is free. If none is, a call announces the next one.
    pub fn has_slot(&mut self, ring: usize) -> bool {
        self.reclaim(ring);
        if self.rings[ring].free.is_empty() {
            self.sleep(ring);
            self.reclaim(ring);
        }
        !self.rings[ring].free.is_empty()
    }

    /// A free slot to send from.
    pub fn slot(&mut self, ring: usize) -> Option<u16> {
        match self.has_slot(ring) {
            true => self.rings[ring].free.pop(),
            false => None,
        }
    }

    /// Has the port use a number of pairs, by the control ring, which has to be started; returns
    /// the status in its answer.
    pub fn set_pairs(&mut self, pairs: u16) -> u8 {
        let ring = 2 * self.options.pairs;
        let slot = self.slot(ring).expect("a slot");
        let at = self.buffer(ring, slot);
        let [low, high] = pairs.to_le_bytes();
        self.write(at, &[4, 0, low, high, 0xFF]);
        let table = self.table(ring, slot);
        let address = GUEST_BASE + at;
        let rows = [
            descriptor(address, 2, NEXT, 1),
            descriptor(address + 2, 2, NEXT, 2),
            descriptor(address + 4, 1, WRITE, 0),
        ];
        self.write(table, &rows.concat());
        self.describe(ring, slot, GUEST_BASE + table, 48, TABLE, 0);
        let used = self.used(ring);
        self.push(ring, slot);
        self.kick(ring, 1);
        let until = Instant::now() + Duration::from_secs(60);
        while self.used(ring) == used {
            assert!(Instant::now() < until, "no answer");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.barrier();
        self.read(at + 4, 1)[0]
    }

    /// Sends a packet; false if all slots are in use.
    pub fn send(&mut self, pair: usize, header: &[u8; 12], packet: &[u8]) -> bool {
        let ring = 2 * pair + 1;
        let Some(slot) = self.slot(ring) else {
            return false;
        };
        let at = self.buffer(ring, slot);
        let front = self.header_bytes();
        self.write(at, &[&header[..front], packet].concat());
        let address = GUEST_BASE + at;
        let (front, bytes) = (front as u32, packet.len() as u32);
        if self.is_indirect() {
            let table = self.table(ring, slot);
            // The header alone, the first byte with it or not, and the rest.
            let split = front + u32::from(slot % 2);
            let rows = [
                descriptor(address, split, NEXT, 1),
                descriptor(address + u64::from(split), front + bytes - split, 0, 0),
            ];
            self.write(table, &rows.concat());
            self.describe(ring, slot, GUEST_BASE + table, 32, TABLE, 0);
            self.push(ring, slot);
        } else {
            let data = address + u64::from(front);
            self.describe(ring, 2 * slot, address, front, NEXT, 2 * slot + 1);
            self.describe(ring, 2 * slot + 1, data, bytes, 0, 0);
            self.push(ring, 2 * slot);
        }
        self.kick(ring, 1);
        true
    }

    /// Posts every buffer of a ring to receive into.
    pub fn post_all(&mut self, ring: usize) {
        let slots: Vec<_> = std::mem::take(&mut self.rings[ring].free);
        let count = slots.len() as u16;
        for slot in slots {
            self.post(ring, slot);
        }
        self.kick(ring, count);
        self.sleep(ring);
    }

    /// Sleeps until a call, if everything was seen.
    fn sleep(&mut self, index: usize) {
        let Ring {
            at,
            size,
            seen,
            ref call,
            ..
        } = self.rings[index];
        if self.used(index) != seen {
            return;
        }
        // There is none, or one for something that was seen without it.
        rustix::io::read(call, &mut [0_u8; 8]).unwrap_or(0);
        self.write(at + AVAIL + 4 + 2 * u64::from(size), &seen.to_le_bytes());
        self.rings[index].sleeps = self.used(index) == seen;
    }

    /// Wakes up. What is there was announced.
    fn wake(&mut self, index: usize) {
        let ring = &mut self.rings[index];
        if std::mem::take(&mut ring.sleeps) {
            let mut fds = [PollFd::new(&ring.call, PollFlags::IN)];
            let time = Timespec {
                tv_sec: 5,
                tv_nsec: 0,
            };
            let called = poll(&mut fds, Some(&time)).expect("a poll");
            assert_eq!(called, 1, "a guest that sleeps is called");
        }
    }

    /// Posts one buffer, of two descriptors, or of a table.
    pub fn post(&mut self, ring: usize, slot: u16) {
        let address = GUEST_BASE + self.buffer(ring, slot);
        let bytes = self.options.buffer as u32;
        if self.is_indirect() {
            let table = self.table(ring, slot);
            let rows = [
                descriptor(address, 100, NEXT | WRITE, 1),
                descriptor(address + 100, bytes - 100, WRITE, 0),
            ];
            self.write(table, &rows.concat());
            self.describe(ring, slot, GUEST_BASE + table, 32, TABLE, 0);
            self.push(ring, slot);
        } else {
            self.describe(ring, 2 * slot, address, 60, NEXT | WRITE, 2 * slot + 1);
            self.describe(ring, 2 * slot + 1, address + 60, bytes - 60, WRITE, 0);
            self.push(ring, 2 * slot);
        }
    }

    /// The next received packet with its header. Its buffers are posted again.
    pub fn receive(&mut self, pair: usize) -> Option<([u8; 12], Vec<u8>)> {
        let ring = 2 * pair;
        let front = self.header_bytes();
        let Some((first, mut slots)) = self.take_buffer(ring) else {
            self.sleep(ring);
            return None;
        };
        self.wake(ring);
        let (header, packet) = first.split_at(front);
        let (mut whole, mut packet) = ([0; 12], packet.to_vec());
        whole[..front].copy_from_slice(header);
        let count = u16::from_le_bytes([whole[10], whole[11]]);
        if front == 12 {
            assert!(count > 0, "the number of buffers is set");
            let mergeable = self.options.features & MRG_RXBUF != 0;
            assert!(mergeable || count == 1, "they were not negotiated");
        }
        for _ in 1..count {
            let (more, slot) = self.take_buffer(ring).expect("as many as were announced");
            packet.extend(more);
            slots.extend(slot);
        }
        let added = slots.len() as u16;
        slots.into_iter().for_each(|slot| self.post(ring, slot));
        self.kick(ring, added);
        self.received += 1;
        self.sleep(ring);
        Some((whole, packet))
    }

    fn take_buffer(&mut self, ring: usize) -> Option<(Vec<u8>, Vec<u16>)> {
        let (head, bytes) = self.take_used(ring)?;
        let slot = if self.is_indirect() { head } else { head / 2 };
        assert!(bytes as u64 <= self.options.buffer, "no more than it holds");
        Some((self.read(self.buffer(ring, slot), bytes), vec![slot]))
    }
}

const AVAIL: u64 = 16 << 10;
const USED: u64 = 32 << 10;

pub fn descriptor(address: u64, bytes: u32, flags: u16, next: u16) -> Vec<u8> {
    let mut row = address.to_le_bytes().to_vec();
    row.extend(bytes.to_le_bytes());
    row.extend(flags.to_le_bytes());
    row.extend(next.to_le_bytes());
    row
}

/// Sends a message. The port may have closed the connection.
pub fn send(stream: &UnixStream, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
    let header = [request, 1, payload.len() as u32]
        .map(u32::to_le_bytes)
        .concat();
    send_raw(stream, &[header, payload.to_vec()].concat(), fds);
}

pub fn send_raw(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(with.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let sent = sendmsg(
        stream,
        &[IoSlice::new(bytes)],
        &mut with,
        SendFlags::NOSIGNAL,
    );
    assert!(sent.is_ok_and(|sent| sent == bytes.len()) || sent.is_err());
}
