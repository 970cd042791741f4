//! Coalescers written for the bench: what one would write without this library.
//!
//! All three merge by the same rules, those of the kernel's GRO for TCP over IPv4, and link buffers
//! instead of copying. They differ in how packets of one flow find each other.

use super::plain::Plain;
use crate::loops::coalesce::Coalescer;
use crate::loops::frames::{Frame, Frames};
use crate::peers::library::Item;
use hashbrown::HashMap;
use packtrain_measure::random::mix;
use packtrain_offload::checksum;
use std::collections::VecDeque;
use std::rc::Rc;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
/// The longest IP packet.
const IP_BYTES_MAX: u32 = 65_535;

/// Addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    addresses: u64,
    ports: u32,
}

impl Key {
    fn hash(self) -> u64 {
        mix(self.addresses ^ u64::from(self.ports).rotate_left(32))
    }
}

/// A packet that may be merged.
#[derive(Clone, Copy, Debug)]
struct Segment {
    key: Key,
    sequence: u32,
    headers: u32,
    payload: u32,
    /// Nothing may follow it.
    last: bool,
}

/// Parses a TCP segment with payload and nothing unusual.
fn parse(packet: &[u8]) -> Option<Segment> {
    let ip = packet.get(ETHERNET..)?;
    let tcp = ip.get(IPV4..)?;
    if packet.get(12..14)? != [8, 0] || ip[0] != 0x45 || ip[9] != 6 || tcp.len() < 20 {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let is_fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3FFF != 0;
    let tcp_bytes = usize::from(tcp[12] >> 4) * 4;
    let (ack, psh) = (0x10, 0x08);
    if total != ip.len() || is_fragment || tcp_bytes < 20 || tcp[13] & !psh != ack {
        return None;
    }
    // Always, as in `inet_gro_receive()`: merging writes a new one, and would hide a wrong one.
    if !checksum::sum(&ip[..IPV4]).is_valid() {
        return None;
    }
    let payload = total
        .checked_sub(IPV4 + tcp_bytes)
        .filter(|&bytes| bytes > 0)?;
    Some(Segment {
        key: Key {
            addresses: u64::from_ne_bytes(ip[12..20].try_into().ok()?),
            ports: u32::from_ne_bytes(tcp[..4].try_into().ok()?),
        },
        sequence: u32::from_be_bytes(tcp[4..8].try_into().ok()?),
        headers: (ETHERNET + IPV4 + tcp_bytes) as u32,
        payload: payload as u32,
        last: tcp[13] & psh != 0,
    })
}

/// True if the transport checksum is right.
fn is_right(packet: &[u8]) -> bool {
    let (ip, tcp) = packet[ETHERNET..].split_at(IPV4);
    let address = |at: usize| [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]];
    let bytes = tcp.len() as u32;
    let mut sum = checksum::pseudo_header_v4(address(12), address(16), 6, bytes);
    sum.add(tcp);
    sum.is_valid()
}

/// A packet that others were merged into.
#[derive(Clone, Copy, Debug)]
struct Held {
    key: Key,
    head: Frame,
    next_sequence: u32,
    size: u32,
    headers: u32,
}

/// What became of a packet that was offered to one of its flow.
enum Offered {
    Merged,
    /// And that is all: give it out.
    Full,
    /// Give out the held one, and hold this.
    Refused,
}

impl Held {
    const fn new(segment: &Segment, head: Frame) -> Self {
        Self {
            key: segment.key,
            head,
            next_sequence: segment.sequence.wrapping_add(segment.payload),
            size: segment.payload,
            headers: segment.headers,
        }
    }

    /// Merges `frame` if the kernel would: next in sequence, all else in the headers the same.
    fn offer(&mut self, frames: &mut Frames, segment: &Segment, frame: Frame) -> Offered {
        let line = frames.line(self.head);
        let (count, total) = (line.frames, line.total);
        let fits = total + segment.payload <= IP_BYTES_MAX + ETHERNET as u32;
        let follows = segment.sequence == self.next_sequence
            && segment.payload <= self.size
            && segment.headers == self.headers;
        if !fits || !follows || !is_alike(frames.packet(self.head), frames.packet(frame), count) {
            return Offered::Refused;
        }
        frames.link(self.head, frame, segment.headers);
        self.next_sequence = self.next_sequence.wrapping_add(segment.payload);
        if segment.payload < self.size || segment.last {
            Offered::Full
        } else {
            Offered::Merged
        }
    }

    /// Makes the headers those of the whole packet, its TCP checksum left to the device.
    fn finish(&self, frames: &mut Frames) -> Frame {
        let line = *frames.line(self.head);
        if line.frames > 1 {
            let packet = frames.packet_mut(self.head);
            let (ip, tcp) = packet[ETHERNET..].split_at_mut(IPV4);
            let total = line.total as usize - ETHERNET;
            ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            let sum = checksum::ipv4_header(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            let address = |at: usize| [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]];
            let bytes = (total - IPV4) as u32;
            let partial = checksum::pseudo_header_v4(address(12), address(16), 6, bytes).fold();
            tcp[16..18].copy_from_slice(&partial.to_be_bytes());
        }
        self.head
    }
}

/// What must not differ beside sequence numbers: link header, type of service, DF, time to live,
/// acknowledgement, window, options; and the identification counts up.
fn is_alike(head: &[u8], next: &[u8], count: u32) -> bool {
    let id = |packet: &[u8]| u16::from_be_bytes([packet[ETHERNET + 4], packet[ETHERNET + 5]]);
    let tcp = ETHERNET + IPV4;
    let options = tcp + 20..tcp + usize::from(head[tcp + 12] >> 4) * 4;
    head[..ETHERNET + 2] == next[..ETHERNET + 2]
        && head[ETHERNET + 6..ETHERNET + 10] == next[ETHERNET + 6..ETHERNET + 10]
        && head[tcp + 8..tcp + 12] == next[tcp + 8..tcp + 12]
        && head[tcp + 14..tcp + 16] == next[tcp + 14..tcp + 16]
        && head[options.clone()] == next[options]
        && id(head).wrapping_add(count as u16) == id(next)
}

/// A hash table of flows, without a bound: the straightforward way.
pub struct Table {
    flows: HashMap<Key, Held>,
    verify: bool,
}

impl Table {
    /// With room for `flows` flows.
    pub fn new(flows: usize, verify: bool) -> Self {
        Self {
            flows: HashMap::with_capacity(flows),
            verify,
        }
    }
}

impl Coalescer for Table {
    fn receive(&mut self, frames: &mut Frames, burst: &[Frame], out: &mut Vec<Frame>) {
        for &frame in burst {
            let segment = parse(frames.packet(frame));
            let right = !self.verify || is_right(frames.packet(frame));
            let Some(segment) = segment.filter(|_| right) else {
                out.push(frame);
                continue;
            };
            match self.flows.entry(segment.key) {
                hashbrown::hash_map::Entry::Vacant(vacant) => {
                    vacant.insert(Held::new(&segment, frame));
                }
                hashbrown::hash_map::Entry::Occupied(mut occupied) => {
                    match occupied.get_mut().offer(frames, &segment, frame) {
                        Offered::Merged => {}
                        Offered::Full => out.push(occupied.remove().finish(frames)),
                        Offered::Refused => {
                            let held = occupied.insert(Held::new(&segment, frame));
                            out.push(held.finish(frames));
                        }
                    }
                }
            }
        }
    }

    fn flush(&mut self, frames: &mut Frames, out: &mut Vec<Frame>) {
        out.extend(self.flows.drain().map(|(_, held)| held.finish(frames)));
    }
}

/// `GRO_HASH_BUCKETS` of the kernel.
const BUCKETS: usize = 8;
/// `MAX_GRO_SKBS`.
const BUCKET_ENTRIES: usize = 8;

/// As many buckets and entries as the kernel has; a full bucket gives out its oldest.
pub struct Buckets {
    buckets: [VecDeque<(u64, Held)>; BUCKETS],
    verify: bool,
}

impl Buckets {
    /// All empty.
    pub fn new(verify: bool) -> Self {
        Self {
            buckets: std::array::from_fn(|_| VecDeque::with_capacity(BUCKET_ENTRIES)),
            verify,
        }
    }
}

impl Coalescer for Buckets {
    fn receive(&mut self, frames: &mut Frames, burst: &[Frame], out: &mut Vec<Frame>) {
        for &frame in burst {
            let segment = parse(frames.packet(frame));
            let right = !self.verify || is_right(frames.packet(frame));
            let Some(segment) = segment.filter(|_| right) else {
                out.push(frame);
                continue;
            };
            let hash = segment.key.hash();
            let bucket = &mut self.buckets[hash as usize % BUCKETS];
            insert(bucket, hash, &segment, frame, frames, out);
        }
    }

    fn flush(&mut self, frames: &mut Frames, out: &mut Vec<Frame>) {
        for bucket in &mut self.buckets {
            out.extend(bucket.drain(..).map(|(_, held)| held.finish(frames)));
        }
    }
}

/// Looks through the bucket, from the newest, for the packet's flow; makes room if there is none.
fn insert(
    bucket: &mut VecDeque<(u64, Held)>,
    hash: u64,
    segment: &Segment,
    frame: Frame,
    frames: &mut Frames,
    out: &mut Vec<Frame>,
) {
    let same = |(its, held): &(u64, Held)| *its == hash && held.key == segment.key;
    if let Some(at) = bucket.iter().rposition(same) {
        match bucket[at].1.offer(frames, segment, frame) {
            Offered::Merged => return,
            Offered::Full => {
                out.extend(bucket.remove(at).map(|(_, held)| held.finish(frames)));
                return;
            }
            Offered::Refused => {
                out.extend(bucket.remove(at).map(|(_, held)| held.finish(frames)));
            }
        }
    } else if bucket.len() == BUCKET_ENTRIES {
        out.extend(bucket.pop_front().map(|(_, held)| held.finish(frames)));
    }
    bucket.push_back((hash, Held::new(segment, frame)));
}

/// FreeBSD's `tcp_lro_queue_mbuf()` and `tcp_lro_flush_all()`: packets are queued, sorted by hash
/// and arrival, and then merged with few entries.
pub struct Sorting {
    plain: Rc<Plain>,
    queue: Vec<Item>,
    entries: VecDeque<(u64, Held)>,
}

/// Number of arrival, below the hash.
const ARRIVAL_BITS: u32 = 24;

impl Sorting {
    /// Sorts with the partition of `plain`.
    pub fn new(plain: Rc<Plain>) -> Self {
        Self {
            plain,
            queue: Vec::new(),
            entries: VecDeque::with_capacity(BUCKET_ENTRIES),
        }
    }
}

impl Coalescer for Sorting {
    fn receive(&mut self, frames: &mut Frames, burst: &[Frame], out: &mut Vec<Frame>) {
        for &frame in burst {
            // A device gives its 32 bits of hash for nothing; here they come from the headers.
            let Some(segment) = parse(frames.packet(frame)) else {
                out.push(frame);
                continue;
            };
            let arrival = self.queue.len() as u64;
            self.queue.push(Item {
                key: (segment.key.hash() >> 32) << ARRIVAL_BITS | arrival,
                index: u64::from(frame),
            });
        }
    }

    fn flush(&mut self, frames: &mut Frames, out: &mut Vec<Frame>) {
        self.plain.bits(&mut self.queue);
        for item in self.queue.drain(..) {
            let frame = item.index as Frame;
            match parse(frames.packet(frame)) {
                Some(segment) => {
                    let hash = item.key >> ARRIVAL_BITS;
                    insert(&mut self.entries, hash, &segment, frame, frames, out);
                }
                None => out.push(frame),
            }
        }
        out.extend(self.entries.drain(..).map(|(_, held)| held.finish(frames)));
    }
}
