//! Coalescing.

use crate::loops::coalesce::{Engine, Merging, Schedule, shuffle};
use crate::loops::contest::Side;
use crate::loops::memory::LINE_BYTES;
use crate::loops::prefetch;
use crate::loops::sizes::WINDOW;
use crate::loops::trains::{Kind, Train};
use crate::loops::work::{Mode, Work};
use packtrain_offload::checksum::{self, Sum};
use packtrain_offload::coalesce::{self, Coalescer, Config, Done, Owned, Packet, Semantics};
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_offload::virtio_net::{self, HeaderLen};
use std::ops::Range;

/// Pieces that a merged packet can have: more than 64 KB needs.
const PIECES: usize = 64;
/// A full frame on Ethernet.
const DATA_BYTES: usize = 1536;

/// A packet in one frame, or in several: merged packets become its pieces, in order, as for a
/// vectored write. The fields that change when one is added are first, in one cache line with the
/// first of the pieces.
#[derive(Debug)]
#[repr(C, align(64))]
struct Frame {
    /// Bytes in this frame.
    len: u32,
    /// Which of them count, once it is a piece of another packet.
    part: Range<u32>,
    /// Bytes of the whole packet.
    total: u32,
    count: u32,
    checksum: ChecksumState,
    pieces: [Option<Gathered>; PIECES],
    data: [u8; DATA_BYTES],
}

/// A packet as a pointer to its first frame.
#[derive(Debug)]
struct Gathered(Box<Frame>);

impl Gathered {
    fn new() -> Self {
        Self(Box::new(Frame {
            len: 0,
            part: 0..0,
            total: 0,
            count: 0,
            checksum: ChecksumState::None,
            pieces: [const { None }; PIECES],
            data: [0; DATA_BYTES],
        }))
    }
}

impl Packet for Gathered {
    #[inline]
    fn head(&self) -> &[u8] {
        &self.0.data[..self.0.len as usize]
    }

    #[inline]
    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.0.data[..self.0.len as usize].get_mut(..bytes)
    }

    #[inline]
    fn bytes(&self) -> u32 {
        self.0.total
    }

    #[inline]
    fn checksum(&self) -> ChecksumState {
        self.0.checksum
    }

    /// Of the first frame: only unmerged packets are summed.
    #[inline]
    fn sum(&self, range: Range<u32>) -> Sum {
        checksum::sum(&self.head()[range.start as usize..range.end as usize])
    }

    fn truncate(&mut self, bytes: u32) {
        self.0.len = self.0.len.min(bytes);
        self.0.total = self.0.total.min(bytes);
    }

    #[inline(always)]
    fn append(&mut self, mut tail: Self, payload: Range<u32>) -> Result<(), Self> {
        let frame = &mut *self.0;
        // A place in use does not come up: there are as many as `count` says.
        let Some(place @ None) = frame.pieces.get_mut(frame.count as usize) else {
            return Err(tail);
        };
        frame.total += payload.end - payload.start;
        frame.count += 1;
        tail.0.part = payload;
        *place = Some(tail);
        Ok(())
    }

    #[inline]
    fn prefetch(&self) {
        prefetch::read(&*self.0);
    }
}

/// Packets that were received and not yet taken, the next one last: taking some moves none of the
/// others, as in a ring of descriptors.
struct Loaded<P>(Vec<P>);

impl<P> Loaded<P> {
    fn new(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    fn push(&mut self, packet: P) {
        self.0.insert(0, packet);
    }

    /// The next ones.
    #[inline]
    fn burst(&mut self, count: usize) -> impl Iterator<Item = P> {
        let rest = self.0.len() - count;
        self.0.drain(rest..).rev()
    }
}

/// Frames and a coalescer, as a port would have them.
struct InFrames {
    coalescer: Coalescer<Gathered, Owned<Gathered>>,
    checksum: ChecksumState,
    free: Vec<Gathered>,
    loaded: Loaded<Gathered>,
    out: Vec<Gathered>,
}

impl InFrames {
    fn new(config: Config, schedule: &Schedule, verify: bool) -> Result<Self, String> {
        let coalescer = coalescer(config)?;
        let (count, train) = (schedule.frames(), schedule.train());
        let at = train.header_bytes();
        let mut free: Vec<Gathered> = (0..count).map(|_| Gathered::new()).collect();
        for packet in &mut free {
            packet.0.data[at..at + train.payload().len()].copy_from_slice(train.payload());
        }
        shuffle(&mut free);
        let checksum = if verify {
            ChecksumState::None
        } else {
            ChecksumState::Unnecessary
        };
        Ok(Self {
            coalescer,
            checksum,
            free,
            loaded: Loaded::new(count),
            out: Vec::with_capacity(count),
        })
    }
}

fn coalescer<P: Packet>(config: Config) -> Result<Coalescer<P, Owned<P>>, String> {
    Coalescer::new(config, Owned::for_config(&config)).map_err(|error| error.to_string())
}

impl Engine for InFrames {
    fn load(&mut self, train: &mut Train, flow: u32) {
        let mut packet = self.free.pop().expect("what is given out is taken back");
        let frame = &mut *packet.0;
        frame.len = train.write(flow, &mut frame.data) as u32;
        frame.total = frame.len;
        frame.count = 0;
        frame.checksum = self.checksum;
        self.loaded.push(packet);
    }

    /// The burst is the whole of what is loaded, or its first packets.
    fn receive(&mut self, count: usize) {
        let out = &mut self.out;
        let mut sink = |packet: Gathered, _: &Done| out.push(packet);
        let burst = self.loaded.burst(count);
        self.coalescer.push_burst(0, burst, &mut sink);
    }

    fn flush(&mut self) {
        let out = &mut self.out;
        self.coalescer.flush(&mut |packet, _| out.push(packet));
    }

    fn collect(&mut self) -> usize {
        let given = self.out.len();
        for mut packet in self.out.drain(..) {
            let pieces = packet.0.pieces.iter_mut();
            self.free.extend(pieces.map_while(Option::take));
            self.free.push(packet);
        }
        given
    }
}

/// The coalescer of a work. A table for all flows that there can be at once, as its user would
/// size it.
fn config(work: Work) -> Config {
    let (semantics, mode, flows) = match work {
        Work::Acks { flows } => (Semantics::Stream, Mode::Hash, flows),
        Work::Windows { mode, .. } => (Semantics::Reversible, mode, WINDOW as u32),
        _ => (Semantics::Reversible, Mode::Hash, work.flows()),
    };
    let mut config = Config::new(semantics, LinkType::Ethernet, flows.max(64));
    config.mode = match mode {
        Mode::Hash => coalesce::Mode::Hash,
        Mode::Sorted => coalesce::Mode::Sorted,
        Mode::Auto => coalesce::Mode::Auto,
    };
    config.queue = WINDOW as u32;
    config
}

pub fn merging(work: Work) -> Result<Box<dyn Side>, String> {
    let schedule = Schedule::of(work).ok_or("merges nothing")?;
    let verify = matches!(work, Work::Burst { verify: true, .. });
    let engine = InFrames::new(config(work), &schedule, verify)?;
    Ok(Box::new(Merging::new(engine, schedule)))
}

/// One flow in the place of the many of `work`, in the same bursts and held as long.
pub fn one_flow(work: Work) -> Result<Box<dyn Side>, String> {
    let schedule = Schedule::of(work).ok_or("merges nothing")?.of_one_flow();
    let engine = InFrames::new(config(work), &schedule, false)?;
    Ok(Box::new(Merging::new(engine, schedule)))
}

/// Bytes of the cache lines that `work` touches between two flushes: the table, and of each packet
/// the line that is about it and those with its headers.
pub fn touched_bytes(work: Work) -> Result<usize, String> {
    let schedule = Schedule::of(work).ok_or("merges nothing")?;
    let headers = schedule.train().header_bytes();
    let packet = LINE_BYTES + headers.next_multiple_of(LINE_BYTES);
    Ok(config(work).needs().bytes::<Gathered>() + schedule.hold * packet)
}

/// Room in front of a packet for a virtio-net header.
const OFFSET: usize = 16;
/// Room for the largest IP packet.
const CAPACITY: usize = OFFSET + 65_535;

/// A packet in one buffer with room for what is merged into it: a TUN write.
#[derive(Debug)]
struct Contiguous(Box<Buffer>);

#[derive(Debug)]
struct Buffer {
    bytes: usize,
    data: Box<[u8]>,
    /// Buffers whose payload was copied here, to be used again.
    copied: Vec<Contiguous>,
}

impl Contiguous {
    fn new() -> Self {
        Self(Box::new(Buffer {
            bytes: 0,
            data: vec![0; CAPACITY].into(),
            copied: Vec::with_capacity(PIECES),
        }))
    }

    /// Writes the virtio-net header in front of the packet.
    fn describe(&mut self, done: &Done) {
        let header = match done {
            Done::Merged(merged) => {
                virtio_net::describe(merged.checksum, merged.gso, Some(&merged.layout))
            }
            _ => virtio_net::describe(ChecksumState::Unnecessary, None, None),
        };
        const LEN: HeaderLen = HeaderLen::Legacy;
        let out = &mut self.0.data[OFFSET - LEN.bytes()..OFFSET];
        header.encode(out, LEN).expect("there is room for a header");
    }
}

impl Packet for Contiguous {
    #[inline]
    fn head(&self) -> &[u8] {
        &self.0.data[OFFSET..OFFSET + self.0.bytes]
    }

    #[inline]
    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.0.data[OFFSET..OFFSET + self.0.bytes].get_mut(..bytes)
    }

    #[inline]
    fn bytes(&self) -> u32 {
        self.0.bytes as u32
    }

    #[inline]
    fn checksum(&self) -> ChecksumState {
        ChecksumState::None
    }

    #[inline]
    fn sum(&self, range: Range<u32>) -> Sum {
        checksum::sum(&self.head()[range.start as usize..range.end as usize])
    }

    fn truncate(&mut self, bytes: u32) {
        self.0.bytes = self.0.bytes.min(bytes as usize);
    }

    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self> {
        let from = &tail.head()[payload.start as usize..payload.end as usize];
        let at = OFFSET + self.0.bytes;
        let Some(to) = self.0.data.get_mut(at..at + from.len()) else {
            return Err(tail);
        };
        to.copy_from_slice(from);
        self.0.bytes += from.len();
        self.0.copied.push(tail);
        Ok(())
    }

    /// Copies and sums in one pass; a wrong sum leaves what was copied behind the end.
    #[inline]
    fn append_checked(
        &mut self,
        tail: Self,
        payload: Range<u32>,
        headers: Sum,
    ) -> Result<(), (coalesce::AppendError, Self)> {
        let from = &tail.head()[payload.start as usize..payload.end as usize];
        let at = OFFSET + self.0.bytes;
        let Some(to) = self.0.data.get_mut(at..at + from.len()) else {
            return Err((coalesce::AppendError::Full, tail));
        };
        let mut sum = headers;
        sum.add_sum(checksum::copy_and_sum(to, from));
        if !sum.is_valid() {
            return Err((coalesce::AppendError::Checksum, tail));
        }
        self.0.bytes += from.len();
        self.0.copied.push(tail);
        Ok(())
    }
}

/// Buffers and a coalescer, as a program in front of a TUN would have them.
struct ToTun {
    coalescer: Coalescer<Contiguous, Owned<Contiguous>>,
    free: Vec<Contiguous>,
    loaded: Loaded<Contiguous>,
    out: Vec<Contiguous>,
}

impl Engine for ToTun {
    fn load(&mut self, train: &mut Train, flow: u32) {
        let mut packet = self.free.pop().expect("what is given out is taken back");
        // The payload is still in place: merging appends behind it.
        packet.0.bytes = train.write(flow, &mut packet.0.data[OFFSET..]);
        self.loaded.push(packet);
    }

    fn receive(&mut self, count: usize) {
        let out = &mut self.out;
        let mut sink = |mut packet: Contiguous, done: &Done| {
            packet.describe(done);
            out.push(packet);
        };
        let burst = self.loaded.burst(count);
        self.coalescer.push_burst(0, burst, &mut sink);
    }

    fn flush(&mut self) {
        let out = &mut self.out;
        self.coalescer.flush(&mut |mut packet, done| {
            packet.describe(done);
            out.push(packet);
        });
    }

    fn collect(&mut self) -> usize {
        let given = self.out.len();
        for mut packet in self.out.drain(..) {
            self.free.append(&mut packet.0.copied);
            self.free.push(packet);
        }
        given
    }
}

pub fn to_tun(work: Work) -> Result<Box<dyn Side>, String> {
    let schedule = Schedule::of(work).ok_or("merges nothing")?;
    let mut config = Config::new(Semantics::Reversible, LinkType::RawIp, 64);
    config.mode = coalesce::Mode::Hash;
    config.udp = schedule.kind == Kind::Udp;
    let train = schedule.train();
    let at = OFFSET + train.header_bytes();
    let mut free: Vec<Contiguous> = (0..schedule.frames()).map(|_| Contiguous::new()).collect();
    for packet in &mut free {
        packet.0.data[at..at + train.payload().len()].copy_from_slice(train.payload());
    }
    let engine = ToTun {
        coalescer: coalescer(config)?,
        loaded: Loaded::new(free.len()),
        out: Vec::with_capacity(free.len()),
        free,
    };
    Ok(Box::new(Merging::new(engine, schedule)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_be_merged_is() {
        let windows = |mode| Work::Windows { flows: 1024, mode };
        let modes = [Mode::Hash, Mode::Sorted].map(windows);
        for work in Work::all().into_iter().chain(modes) {
            if work.flows() > 2000 {
                continue;
            }
            let (side, merge) = match work {
                Work::Burst { flows, .. } => (merging(work), 64.0 / f64::from(flows.max(2))),
                Work::Held { .. } | Work::Acks { .. } => (merging(work), 4.0),
                Work::Windows { flows: 1024, .. } => (merging(work), 4.0),
                Work::TunWrite { flows, .. } => (to_tun(work), 64.0 / f64::from(flows.max(2))),
                _ => continue,
            };
            let sample = side.unwrap().sample(3);
            assert_eq!(sample.merge, Some(merge), "{work:?}");
        }
    }
}
