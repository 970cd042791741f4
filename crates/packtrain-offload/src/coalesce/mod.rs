//! Coalescing (GRO, LRO): consecutive packets of a flow become one.
//!
//! One engine with two semantics:
//!
//! - [`Semantics::Reversible`] merges only packets that [`segment`](crate::segment) restores byte
//!   for byte, for traffic that may be forwarded to another port. The rules are those of GRO in
//!   Linux (`dev_gro_receive()`, `inet_gro_receive()`, `tcp_gro_receive()`,
//!   `udp_gro_receive_segment()`).
//! - [`Semantics::Stream`] preserves the byte stream, its acknowledgements and its windows, for
//!   traffic that ends at this host. The rules are those of `tcp_lro` in FreeBSD. It also merges
//!   pure ACKs.
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
//! merged by the rules of `Reversible` in either case, since datagrams have to be restored: equal
//! sizes, the last may be shorter, 64 at most, and a checksum is needed. Datagrams of VXLAN and
//! GENEVE are passed on, see [`Config::tunnels`].
//!
//! # Order
//!
//! Packets of a flow (addresses, ports and protocol) leave in the order of arrival: a packet that
//! does not continue the held packet of its flow flushes it first. That includes packets that Linux
//! lets overtake (IPv4 options, wrong checksums). A packet whose ports cannot be read flushes all
//! flows with its addresses: a fragment, a packet whose headers are not in one piece
//! ([`Packet::head`]), and one whose headers of IP, TCP or UDP contradict themselves, so that
//! [`Layout::parse`] returns an error. It flushes all flows if its addresses are not in the first
//! piece. Packets of different flows may be reordered.
//!
//! # Checksums
//!
//! No packet is merged with an unverified checksum: with [`ChecksumState::None`] the coalescer
//! verifies it, and reads the payload once. A packet with a wrong checksum is passed on unchanged,
//! and counted. The IPv4 header checksum is always verified.
//!
//! # Bounds
//!
//! Work per packet is bounded whatever the traffic: one set of 12 slots is searched, one entry
//! compared, at most two evicted. Work over all entries, for linking or flushing them, is at most
//! one step for each entry begun. A packet whose ports cannot be read is compared with at most 1024
//! entries. If more places of the table are in use, or more packets are queued, it flushes all
//! flows. Nothing is allocated. The packets held are bounded by [`Config::flows`], and one
//! [`Coalescer::flush`] hands all of them on. An entry is evicted only when all entries are in use,
//! or all slots of its set.
//!
//! [`Layout::parse`]: crate::layout::Layout::parse
//! [`ChecksumState::None`]: crate::offload::ChecksumState::None

mod ahead;
mod config;
mod done;
mod entry;
mod finish;
mod flush;
mod header;
mod inner;
mod mask;
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

pub use config::{Config, Finish, Mode, Semantics};
pub use done::{Done, Merged};
pub use packet::{AppendError, Packet};
pub use stats::{FlushCounts, FlushReason, NotTaken, NotTakenCounts, Stats};
#[cfg(feature = "alloc")]
pub use storage::Owned;
pub use storage::{Borrowed, Needs, Parts, Queued, Storage, StorageError};
pub use table::{Entry, Link, Set};

use crate::limits::IP_LENGTH_MAX;
use config::clamp;
use core::marker::PhantomData;
use entry::TICK;
use inner::{Core, Window};
use table::{Ring, Table};
use work::Work;

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
    packets: PhantomData<P>,
}

/// `Auto` sorts if more than one in this many packets was evicted without a merge.
const EVICTIONS_PER_PACKETS: u32 = 8;
/// `Auto` stops sorting after this many consecutive windows with few enough flows.
const ROOMY_WINDOWS: u32 = 16;

impl<P: Packet, S: Storage<P>> Coalescer<P, S> {
    /// A coalescer without packets.
    ///
    /// # Errors
    /// If `storage` has fewer elements than [`Config::needs`] returns, or contains packets.
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
            packets: PhantomData,
        })
    }

    /// The configuration, with limits applied.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.core.config
    }

    /// The counters since the coalescer was made.
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

    /// Takes one packet. The packets to hand on because of it go to `sink`, in order.
    ///
    /// `now` is the caller's clock, in nanoseconds; it is only compared with that of
    /// [`flush_inactive`](Self::flush_inactive).
    pub fn push(&mut self, now: u64, packet: P, sink: &mut impl FnMut(P, &Done)) {
        self.push_burst(now, core::iter::once(packet), sink);
    }

    /// Takes packets one after the other, and prefetches the flows of the next ones.
    pub fn push_burst(
        &mut self,
        now: u64,
        packets: impl IntoIterator<Item = P>,
        sink: &mut impl FnMut(P, &Done),
    ) {
        let count = if self.core.runs {
            let table = self.storage.parts().table();
            let mut work = Work {
                core: &mut self.core,
                table,
                // The queue is empty, and nothing is added to it.
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

    /// Hands on every packet held or queued.
    pub fn flush(&mut self, sink: &mut impl FnMut(P, &Done)) {
        if self.core.queued > 0 {
            self.work(0).run_queue(sink);
        }
        let mut table = self.storage.parts().table();
        table.flush_all(&mut self.core, FlushReason::Timeout, sink);
        self.decide();
    }

    /// Hands on packets held for `age` nanoseconds or longer, counted from the first packet of
    /// each, and every queued packet. Call it also while a poll does not end: the sender may be
    /// waiting for a reply to a packet that is held.
    ///
    /// An age above 36 minutes cannot be distinguished from a lower one.
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

    /// The nanoseconds since the first packet of those held longest, to within 1.024 µs; 0 if none
    /// is held. `now` is as of [`Coalescer::flush_inactive`]. Queued packets are not held yet.
    pub fn age(&mut self, now: u64) -> u64 {
        let work = self.work(now);
        let Some(oldest) = work.table.oldest(&mut work.core.ring) else {
            return 0;
        };
        let born = work.table.entries[oldest as usize].state.born;
        u64::from(((now >> TICK) as u32).wrapping_sub(born)) << TICK
    }

    /// Drops all held packets. Returns the number of wire packets dropped.
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
