//! Coalescing (GRO, LRO): consecutive packets of a flow become one.
//!
//! One engine with two semantics:
//!
//! - [`Semantics::Reversible`] merges only what [`segment`](crate::segment) restores byte for byte:
//!   what goes on to another port may be treated like this. The rules are those of GRO in Linux
//!   (`dev_gro_receive()`, `inet_gro_receive()`, `tcp_gro_receive()`, `udp_gro_receive_segment()`).
//! - [`Semantics::Stream`] merges what leaves the byte stream, its acknowledgements and its windows
//!   as they were: what ends here may be treated like this. The rules are those of `tcp_lro` in
//!   FreeBSD. It also merges pure ACKs.
//!
//! | | `Reversible` | `Stream` |
//! |---|---|---|
//! | must be equal | every header byte but those below | the same, less the next row |
//! | taken over | FIN, PSH | PSH, acknowledgement, window, timestamps |
//! | IPv4 identification | counts up; or stays, with DF | not looked at |
//! | payload | as the first; the last may be shorter; not empty | any; may be empty |
//! | ends a merged packet | FIN, PSH, a shorter payload | nothing but limits |
//! | no flags but | ACK, PSH, FIN, ECE; CWR on the first | ACK, PSH |
//! | options | IPv4: none. TCP: any | IPv4, IPv6: none. TCP: timestamps |
//! | link padding | passed on | cut off |
//! | a repeated ACK | passed on | passed on, unless it opens the window |
//! | an older timestamp or ACK | passed on | passed on |
//!
//! Not compared: lengths, checksums, TCP sequence number (it has to continue exactly). UDP is
//! merged by the rules of `Reversible` in either case, since datagrams have to come apart again:
//! equal sizes, the last may be shorter, 64 at most, and a checksum is needed. Datagrams of VXLAN
//! and GENEVE are passed on, see [`Config::tunnels`].
//!
//! # Order
//!
//! Packets of a flow, which is addresses, ports and protocol, leave in the order in which they
//! came: a packet that does not continue what is held of its flow pushes it out first. That
//! includes those that Linux lets overtake (IPv4 options, wrong checksums). Where the flow cannot
//! be told, everything is pushed out: by a fragment, which has no ports, by headers that are not in
//! one piece ([`Packet::head`]), and by headers of IP, TCP or UDP that contradict themselves, so
//! that [`Layout::parse`] has an error for them. Packets of different flows may change places.
//!
//! # Checksums
//!
//! Nothing is merged whose checksum nobody vouches for: with [`ChecksumState::None`] it is verified
//! here, and the payload read once. A wrong one is passed on as it came, and counted. The IPv4
//! header checksum is always verified.
//!
//! # Bounds
//!
//! Work per packet is bounded whatever the traffic: one set of 12 slots is searched, one entry
//! compared, at most two evicted. What is done once for all entries, when they are linked or handed
//! on, is no more than a step for each that was begun. Nothing is allocated. What is held is
//! bounded by [`Config::flows`] and comes out with one [`Coalescer::flush`]. An entry is evicted
//! only when all are in use, or all slots of its set.

mod ahead;
mod entry;
mod finish;
mod packet;
mod parse;
mod rules;
mod run;
mod shape;
mod stats;
mod storage;
mod table;
mod wide;
mod work;

pub use packet::{AppendError, Packet};
pub use stats::{FlushCounts, FlushReason, NotTaken, NotTakenCounts, Stats};
#[cfg(feature = "alloc")]
pub use storage::Owned;
pub use storage::{Borrowed, Parts, Queued, Storage, StorageError};
pub use table::{Entry, Link, Set};

use crate::layout::{Layout, TunnelPorts};
use crate::limits::IP_LENGTH_MAX;
use crate::offload::{ChecksumState, Gso, LinkType};
use crate::sort::{self, Keyed};
use entry::TICK;

use table::{Ring, Table};
use work::{Core, Work};

/// What may be merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Semantics {
    /// What segmentation restores byte for byte.
    #[default]
    Reversible,
    /// What leaves the byte stream, its acknowledgements and windows as they were.
    Stream,
}

/// How flows are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In a table, as packets come. Best while the flows fit it.
    Hash,
    /// Packets are queued, and grouped by flow when the queue is full or flushed: any number of
    /// flows merge as far as their packets are in one queue. Nothing is held after a flush.
    Sorted,
    /// `Hash`, and `Sorted` while the table overflows.
    #[default]
    Auto,
}

/// What the transport checksum of a merged packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// The pseudo-header sum: for a port that cuts the packet or a kernel that takes it as it is.
    #[default]
    Partial,
    /// The right one over all of the payload: for a stack that verifies it. Made from the checksums
    /// of the parts, without reading the payload.
    Complete,
}

/// How a coalescer works. Made with [`Config::new`], then changed field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// What may be merged.
    pub semantics: Semantics,
    /// How flows are found.
    pub mode: Mode,
    /// What packets start with.
    pub link: LinkType,
    /// Packets held at once: entries of the table, 1 to [`Config::FLOWS_MAX`]; less counts as 1,
    /// and more as that.
    pub flows: u32,
    /// Packets queued at once in sorted mode, 1 to [`sort::ITEMS_MAX`]; none are needed for
    /// [`Mode::Hash`].
    pub queue: u32,
    /// Longest IP datagram to make, in bytes, with the IP header. At most 65 535, for IPv6 too, of
    /// which the length field does not count 40 bytes: it is the limit of Linux.
    pub max_bytes: u32,
    /// Most packets in a merged one, for `Stream`: `lro_ackcnt_lim` of FreeBSD.
    pub ack_limit: u16,
    /// TCP is merged.
    pub tcp: bool,
    /// UDP is merged.
    pub udp: bool,
    /// UDP datagrams to or from these ports, which carry VXLAN and GENEVE, are not merged: Linux
    /// before 6.9 (6.8.5, and later ones of older series) loses a merged one that comes for a
    /// tunnel of its own (CVE-2024-35884, commit 3d010c8031e3; tailscale/tailscale#11026). `None`
    /// merges them like any other datagrams: for who knows that no such kernel gets them, or that
    /// these ports are something else.
    pub tunnels: Option<TunnelPorts>,
    /// IPv4 packets that all have the same identification are merged, if they have DF. To restore
    /// them, segmentation has to be told ([`Gso::fixed_id`]), and a virtio-net header cannot.
    pub fixed_id: bool,
    /// What the checksum of a merged packet is.
    pub finish: Finish,
    /// Makes the table's hash another one, so that nobody outside can aim at a set of it.
    pub seed: u64,
}

impl Config {
    /// Most flows, and most queued packets.
    pub const FLOWS_MAX: u32 = table::FLOWS_MAX as u32;
    /// `TCP_LRO_LENGTH_MAX` of FreeBSD: room for outer headers below 65 535.
    pub const STREAM_BYTES_MAX: u32 = 65_280;

    /// The usual settings: TCP and UDP, `flows` held at once, [`Mode::Auto`] with a queue of 1024
    /// packets. `Stream` finishes checksums, `Reversible` leaves them partial.
    #[must_use]
    pub const fn new(semantics: Semantics, link: LinkType, flows: u32) -> Self {
        let (max_bytes, finish) = match semantics {
            Semantics::Reversible => (IP_LENGTH_MAX as u32, Finish::Partial),
            Semantics::Stream => (Self::STREAM_BYTES_MAX, Finish::Complete),
        };
        Self {
            semantics,
            mode: Mode::Auto,
            link,
            flows,
            queue: 1024,
            max_bytes,
            ack_limit: u16::MAX,
            tcp: true,
            udp: true,
            tunnels: Some(TunnelPorts::ASSIGNED),
            fixed_id: true,
            finish,
            seed: 0,
        }
    }

    /// Elements of the storage that this configuration needs: entries, sets, links, queued packets,
    /// keys, words.
    #[must_use]
    pub const fn needs(&self) -> Needs {
        let flows = clamp(self.flows);
        let queue = match self.mode {
            Mode::Hash => 0,
            Mode::Sorted | Mode::Auto => min(clamp(self.queue), sort::ITEMS_MAX),
        };
        Needs {
            entries: flows,
            sets: table::sets_for(flows),
            links: flows,
            queue,
            keys: 2 * queue,
            words: if queue == 0 { 0 } else { sort::words(queue) },
        }
    }
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

const fn clamp(n: u32) -> usize {
    if n == 0 {
        1
    } else if n > Config::FLOWS_MAX {
        Config::FLOWS_MAX as usize
    } else {
        n as usize
    }
}

/// How many elements of each kind a [`Storage`] has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// [`Entry`], one for each flow.
    pub entries: usize,
    /// [`Set`], a power of two.
    pub sets: usize,
    /// [`Link`], one for each flow.
    pub links: usize,
    /// [`Queued`], for sorted mode.
    pub queue: usize,
    /// [`Keyed`], two for each queued packet.
    pub keys: usize,
    /// Words of scratch for [`sort::group`].
    pub words: usize,
}

impl Needs {
    /// All of it together, in bytes, for packets of type `P`.
    #[must_use]
    pub const fn bytes<P>(&self) -> usize {
        self.entries * size_of::<Entry<P>>()
            + self.sets * size_of::<Set>()
            + self.links * size_of::<Link>()
            + self.queue * size_of::<Queued<P>>()
            + self.keys * size_of::<Keyed>()
            + self.words * size_of::<u32>()
    }
}

/// What a packet has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// As it came: it was not taken.
    Passed(NotTaken),
    /// As it came, after it was held for a while; its checksum was verified. `Stream` has cut link
    /// padding off.
    Alone(FlushReason),
    /// It is several packets now, and its headers say so.
    Merged(Merged),
}

/// What a merged packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// How to cut it again; `None` if its payload is that of one packet (ACKs only), or fits one:
    /// `Stream` merges payloads of any size, and what is below
    /// [`TCP_GSO_SIZE_MIN`](crate::segment::TCP_GSO_SIZE_MIN) is not cut as small again.
    pub gso: Option<Gso>,
    /// What is left to do about its checksum.
    pub checksum: ChecksumState,
    /// Where its headers are.
    pub layout: Layout,
    /// Wire packets in it, without `absorbed`.
    pub pieces: u16,
    /// Pure ACKs that went into it and will never come out: to be booked as absorbed.
    pub absorbed: u16,
    /// Why it was handed on.
    pub reason: FlushReason,
}

/// Merges packets. See the [module](self).
///
/// ```
/// use packtrain_offload::coalesce::{Coalescer, Config, Done, Owned, Semantics};
/// use packtrain_offload::offload::LinkType;
/// # use packtrain_offload::checksum::{self, Sum};
/// # use packtrain_offload::coalesce::Packet;
/// # use packtrain_offload::offload::ChecksumState;
/// # struct Mine(Vec<u8>);
/// # impl Packet for Mine {
/// #     fn head(&self) -> &[u8] { &self.0 }
/// #     fn head_mut(&mut self, n: usize) -> Option<&mut [u8]> { self.0.get_mut(..n) }
/// #     fn bytes(&self) -> u32 { self.0.len() as u32 }
/// #     fn checksum(&self) -> ChecksumState { ChecksumState::None }
/// #     fn sum(&self, r: core::ops::Range<u32>) -> Sum {
/// #         checksum::sum(&self.0[r.start as usize..r.end as usize])
/// #     }
/// #     fn truncate(&mut self, n: u32) { self.0.truncate(n as usize) }
/// #     fn append(&mut self, t: Self, r: core::ops::Range<u32>) -> Result<(), Self> {
/// #         self.0.extend_from_slice(&t.0[r.start as usize..r.end as usize]);
/// #         Ok(())
/// #     }
/// # }
/// # fn received() -> Vec<Mine> { Vec::new() }
/// let config = Config::new(Semantics::Reversible, LinkType::RawIp, 64);
/// let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
/// let mut send = |packet: Mine, done: &Done| { /* write it */ };
/// coalescer.push_burst(0, received(), &mut send);
/// coalescer.flush(&mut send);
/// ```
#[derive(Debug)]
pub struct Coalescer<P, S: Storage<P>> {
    core: Core,
    storage: S,
    packets: core::marker::PhantomData<P>,
}

/// What [`Mode::Auto`] has seen since the last flush.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    packets: u32,
    evictions: u32,
    /// Groups that sorting found.
    groups: u32,
    /// Windows in a row that hash mode would have had room for.
    roomy: u32,
}

/// `Auto` sorts when more than one packet in so many was held in vain.
const EVICTIONS_PER_PACKETS: u32 = 8;
/// And stops when so many windows in a row had few enough flows.
const ROOMY_WINDOWS: u32 = 16;

impl<P: Packet, S: Storage<P>> Coalescer<P, S> {
    /// A coalescer without packets.
    ///
    /// # Errors
    /// If `storage` has less than [`Config::needs`] says, or packets in it.
    pub fn new(config: Config, mut storage: S) -> Result<Self, StorageError> {
        let needs = config.needs();
        let parts = storage.parts();
        parts.check(&needs)?;
        parts.sets.fill(Set::EMPTY);
        let config = Config {
            flows: clamp(config.flows) as u32,
            max_bytes: config.max_bytes.min(IP_LENGTH_MAX as u32),
            ack_limit: config.ack_limit.max(1),
            ..config
        };
        Ok(Self {
            core: Core::new(config),
            storage,
            packets: core::marker::PhantomData,
        })
    }

    /// The configuration, with limits applied.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.core.config
    }

    /// What happened so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// Packets held, merged ones once each, and packets queued.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.core.ring.live() as usize + self.core.queued
    }

    /// Whether packets are queued and sorted at present.
    #[must_use]
    pub const fn is_sorting(&self) -> bool {
        self.core.sorting
    }

    /// Takes one packet. Whatever is to be handed on because of it goes to `sink`, in order.
    ///
    /// `now` is the caller's clock, in nanoseconds; it is only compared with that of
    /// [`flush_inactive`](Self::flush_inactive).
    pub fn push(&mut self, now: u64, packet: P, sink: &mut impl FnMut(P, &Done)) {
        self.push_burst(now, core::iter::once(packet), sink);
    }

    /// Takes packets one after the other, with the flows of the next ones already on their way into
    /// the cache.
    pub fn push_burst(
        &mut self,
        now: u64,
        packets: impl IntoIterator<Item = P>,
        sink: &mut impl FnMut(P, &Done),
    ) {
        let count = if self.core.runs {
            let table = Table::of(self.storage.parts());
            let mut work = Work {
                core: &mut self.core,
                table,
                // It is empty, and nothing is added.
                queue: &mut [],
                keys: &mut [],
                words: &mut [],
                now,
            };
            if work.looks_ahead() {
                work.take_ahead(packets.into_iter(), sink)
            } else {
                work.take_runs(packets.into_iter(), sink)
            }
        } else {
            let mut work = self.work(now);
            let mut count = 0;
            for packet in packets {
                count += 1;
                work.take_parsed(packet, sink);
            }
            count
        };
        self.core.stats.packets += count;
        self.core.window.packets += count as u32;
    }

    /// Hands on everything that is held. Nothing is left behind.
    pub fn flush(&mut self, sink: &mut impl FnMut(P, &Done)) {
        if self.core.queued > 0 {
            self.work(0).run_queue(sink);
        }
        let mut table = Table::of(self.storage.parts());
        table.flush_all(&mut self.core, FlushReason::Timeout, sink);
        self.decide();
    }

    /// Hands on what has been held for `age` nanoseconds or longer, counted from its first packet,
    /// and everything that is queued. To be called also when a poll does not end, since what is
    /// held then may be what the sender waits for.
    ///
    /// Ages above 36 minutes are not told from younger ones.
    pub fn flush_inactive(&mut self, now: u64, age: u64, sink: &mut impl FnMut(P, &Done)) {
        let mut work = self.work(now);
        work.run_queue(sink);
        let age = (age >> TICK).min(u64::from(u32::MAX / 2)) as u32;
        let now = (now >> TICK) as u32;
        while let Some(oldest) = work.table.oldest(&mut work.core.ring) {
            let born = work.table.entries[oldest as usize].state.born;
            if now.wrapping_sub(born) < age {
                break;
            }
            work.flush_one(oldest, FlushReason::Inactive, sink);
        }
        self.decide();
    }

    /// Frees what is held: the packets are dropped. Returns how many wire packets that were.
    pub fn clear(&mut self) -> u64 {
        let mut lost = 0;
        let parts = self.storage.parts();
        for entry in parts.entries.iter_mut() {
            if entry.packet.take().is_some() {
                lost += u64::from(entry.state.count);
            }
        }
        for queued in parts.queue.iter_mut() {
            lost += u64::from(queued.clear());
        }
        parts.sets.fill(Set::EMPTY);
        self.core.ring = Ring::default();
        self.core.queued = 0;
        lost
    }

    #[inline(always)]
    fn work(&mut self, now: u64) -> Work<'_, P> {
        let Parts {
            entries,
            sets,
            links,
            queue,
            keys,
            words,
        } = self.storage.parts();
        Work {
            core: &mut self.core,
            table: Table {
                entries,
                sets,
                links,
            },
            queue,
            keys,
            words,
            now,
        }
    }

    /// At the end of a window: whether to sort the next one.
    fn decide(&mut self) {
        let window = self.core.window;
        self.core.window = Window {
            roomy: window.roomy,
            ..Window::default()
        };
        if self.core.config.mode != Mode::Auto || window.packets == 0 {
            return;
        }
        if !self.core.sorting {
            self.core
                .sort(window.evictions > window.packets / EVICTIONS_PER_PACKETS);
            self.core.window.roomy = 0;
        } else if window.groups <= self.core.config.flows / 2 {
            self.core.window.roomy += 1;
            self.core.sort(self.core.window.roomy < ROOMY_WINDOWS);
        } else {
            self.core.window.roomy = 0;
        }
    }
}

#[cfg(test)]
mod tests;
