//! A switch for Ethernet frames: a handler that learns which address is behind which port.
//!
//! It is written with what the crate offers to every handler:
//! [`Packet::set_egress`](crate::packet::Packet::set_egress), and a table that the handlers of all
//! RX queues share.
//!
//! ```
//! use packtrain::bridge::{Addresses, Bridge};
//! use packtrain::engine::Session;
//! use packtrain::port;
//! use std::time::Duration;
//!
//! let ports = ["null:source,count=10", "null:", "null:"].map(port::open);
//! let ports = ports.into_iter().collect::<Result<Vec<_>, _>>()?;
//! let addresses = Addresses::new(8192, Duration::from_secs(300));
//! let bridge = Bridge::new(addresses);
//! let session = Session::among(ports).handler(move |_| bridge.clone());
//! # session.start()?.finish();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It detects no loop: two paths between two ports multiply broadcasts without end, so the ports
//! must be joined nowhere else. It does not read VLAN tags: an address is behind one port in all
//! VLANs. It believes every source address: as with any bridge that learns, a host can take the
//! address of another one. A port that sends from very many addresses has its own ones forgotten.

pub use crate::driver::ADDRESSES_MAX;
use crate::engine::{Handler, RxId};
use crate::limits::PORTS_MAX;
use crate::packet::{Burst, Packet, PortSet};
use crate::time::Instant;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How long an address is remembered after its last frame, by default: as in IEEE 802.1Q (8.8.3)
/// and Linux.
pub const AGING: Duration = Duration::from_secs(300);
/// The most addresses that are remembered, by default: as many as a small switch has.
pub const ADDRESSES: usize = 8192;
/// The shortest time that addresses are remembered: hosts may send as seldom.
pub const AGING_MIN: Duration = Duration::from_secs(1);

/// Entries that an address may be in. Twice as many entries as addresses make a full set rare.
const WAYS: usize = 8;
/// The times of frames are kept to this fraction of the aging time, so that an entry in use is
/// seldom written.
const TOUCH_FRACTION: u64 = 16;
/// Entries of a full table that one frame searches for an old one, or for one of a port: 16 KiB.
const SWEEP_ENTRIES: usize = 1024;

/// An Ethernet address as a number, first byte highest.
type Mac = u64;

/// The addresses behind the ports of a bridge, with a bound on their number. All its handlers, on
/// any threads, share one table.
///
/// An entry is two words, each valid on its own: the address with its port, and when its last
/// frame was seen. The worst that a race of two threads does is to keep an old entry for longer, to
/// have an address twice, of which one grows old, or to learn one at its next frame. A counter is
/// incremented before the entry has the address, and decremented after it has lost it, so a bound
/// is never exceeded.
pub struct Addresses {
    entries: Box<[Entry]>,
    /// The factor of the hash: random, or a host could choose addresses that fill one set, and keep
    /// another one out of it.
    factor: u64,
    /// Entries that may be in use.
    most: usize,
    used: AtomicUsize,
    aging: u64,
    /// When a search of the full table for old entries may begin.
    sweep_at: AtomicU64,
    /// The next entry of a search; past the last one if there is none.
    sweep_from: AtomicUsize,
    /// By index. Ports from `port_count` on never had an address.
    ports: Box<[PortAddresses]>,
    port_count: AtomicUsize,
    /// The next entry of a search for one of a port.
    evict_from: AtomicUsize,
}

/// The addresses of a port.
#[derive(Debug)]
struct PortAddresses {
    used: AtomicUsize,
    most: AtomicUsize,
}

#[derive(Debug, Default)]
struct Entry {
    /// 0 for a free entry; else the address, and the port in the lower 16 bits.
    word: AtomicU64,
    /// When the last frame was seen, as nanoseconds of the session's clock.
    seen: AtomicU64,
}

impl Entry {
    fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Addresses")
            .field("most", &self.most)
            .field("used", &self.len())
            .finish_non_exhaustive()
    }
}

impl Addresses {
    /// Remembers at most `most` addresses, 1 to [`ADDRESSES_MAX`], each for `aging` after its last
    /// frame, at least [`AGING_MIN`]. The time of that frame is known to a sixteenth of `aging`, by
    /// which an address may be forgotten too early. If the table is full, or all entries that a new
    /// address may have are in use, one of the port that has most is forgotten: a port loses
    /// addresses only to itself and to ports that have fewer.
    #[must_use]
    pub fn new(most: usize, aging: Duration) -> Arc<Self> {
        let most = most.clamp(1, ADDRESSES_MAX);
        let count = (2 * most).next_power_of_two().max(WAYS);
        Arc::new(Self {
            entries: (0..count).map(|_| Entry::default()).collect(),
            factor: RandomState::new().build_hasher().finish() | 1,
            most,
            used: AtomicUsize::new(0),
            aging: u64::try_from(aging.max(AGING_MIN).as_nanos()).unwrap_or(u64::MAX),
            sweep_at: AtomicU64::new(0),
            sweep_from: AtomicUsize::new(count),
            ports: (0..PORTS_MAX)
                .map(|_| PortAddresses {
                    used: AtomicUsize::new(0),
                    most: AtomicUsize::new(most),
                })
                .collect(),
            port_count: AtomicUsize::new(0),
            evict_from: AtomicUsize::new(0),
        })
    }

    /// Remembers at most `most` addresses behind `port` from now on. Further ones are not learned
    /// until old ones are forgotten: frames for them go to all ports.
    ///
    /// # Panics
    ///
    /// If `port` is not less than [`PORTS_MAX`].
    pub fn bound(&self, port: usize, most: usize) {
        self.ports[port].most.store(most, Ordering::Relaxed);
    }

    /// The number of entries in use, of which some may be older than the aging time.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether no address is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The port behind which an address was seen last, if it is known.
    #[must_use]
    pub fn port_of(&self, address: [u8; 6], now: Instant) -> Option<usize> {
        self.find(number(address), now.as_nanos())
    }

    fn set(&self, mac: Mac) -> &[Entry] {
        // Two multiplications: after one, addresses in sequence, as virtual machines have them,
        // fall into few of the sets with some factors.
        let hash = mac.wrapping_mul(self.factor);
        let hash = (hash ^ hash >> 32).wrapping_mul(self.factor) >> 32;
        let at = (hash as usize * WAYS) & (self.entries.len() - 1);
        &self.entries[at..at + WAYS]
    }

    fn is_old(&self, entry: &Entry, now: u64) -> bool {
        now.saturating_sub(entry.seen.load(Ordering::Relaxed)) > self.aging
    }

    fn find(&self, mac: Mac, now: u64) -> Option<usize> {
        self.set(mac).iter().find_map(|entry| {
            // Acquires the time of its frame, which `insert` has stored before.
            let word = entry.word.load(Ordering::Acquire);
            (word >> 16 == mac && word != 0 && !self.is_old(entry, now)).then_some(port(word))
        })
    }

    /// A frame from `mac` was received by `port`.
    fn learn(&self, mac: Mac, port: usize, now: u64) {
        let (set, wanted) = (self.set(mac), mac << 16 | port as u64);
        let known = |entry: &&Entry| entry.word() >> 16 == mac;
        if let Some(entry) = set.iter().find(known) {
            let seen = entry.seen.load(Ordering::Relaxed);
            if now.saturating_sub(seen) > self.aging / TOUCH_FRACTION {
                entry.seen.store(now, Ordering::Relaxed);
            }
            let word = entry.word();
            if word == wanted || word >> 16 != mac {
                return;
            }
            // The host has moved. If its new port has as many as it may have, or if another thread
            // has just changed the entry, the next frame learns it again.
            self.free(entry, word);
        }
        self.insert(set, wanted, now);
    }

    #[cold]
    fn insert(&self, set: &[Entry], wanted: u64, now: u64) {
        let port = port(wanted);
        self.port_count.fetch_max(port + 1, Ordering::Relaxed);
        for entry in set {
            self.free_old(entry, now);
        }
        // A full set has no use for another entry.
        let full = set.iter().all(|entry| entry.word() != 0);
        if full && !self.evict_of(set, port)
            || !(self.claim(port, now) || self.evict(set, port) && self.claim_one(port))
        {
            return;
        }
        for entry in set {
            if entry.word() != 0 {
                continue;
            }
            // The time first, so that the new address does not appear to be old.
            entry.seen.store(now, Ordering::Relaxed);
            let (order, failed) = (Ordering::Release, Ordering::Relaxed);
            let learned = entry.word.compare_exchange(0, wanted, order, failed);
            if learned.is_ok() {
                return;
            }
        }
        self.release(port);
    }

    /// Forgets the address of an entry, unless another thread has just changed it.
    fn free(&self, entry: &Entry, word: u64) -> bool {
        let order = Ordering::Relaxed;
        let freed = word != 0 && entry.word.compare_exchange(word, 0, order, order).is_ok();
        if freed {
            self.release(port(word));
        }
        freed
    }

    fn free_old(&self, entry: &Entry, now: u64) {
        let word = entry.word();
        if self.is_old(entry, now) {
            self.free(entry, word);
        }
    }

    fn release(&self, port: usize) {
        self.ports[port].used.fetch_sub(1, Ordering::Relaxed);
        self.used.fetch_sub(1, Ordering::Relaxed);
    }

    fn used_by(&self, port: usize) -> usize {
        self.ports[port].used.load(Ordering::Relaxed)
    }

    /// Whether `port` may have an entry of `other`: within its bound, and if `other` still has as
    /// many as `port` then.
    fn may_take(&self, port: usize, other: usize) -> bool {
        let used = self.used_by(port);
        let has_room = used < self.ports[port].most.load(Ordering::Relaxed);
        has_room && (other == port || self.used_by(other) > used + 1)
    }

    /// Frees an entry of a set, of the port that has most of those in it.
    fn evict_of(&self, set: &[Entry], to: usize) -> bool {
        let words = set.iter().map(|entry| (entry, entry.word()));
        let most = words.max_by_key(|(_, word)| self.used_by(port(*word)));
        most.is_some_and(|(entry, word)| self.may_take(to, port(word)) && self.free(entry, word))
    }

    /// Frees an entry of the port that has most: one of `set`, else the first one that a bounded
    /// search finds. The next call continues the search.
    fn evict(&self, set: &[Entry], to: usize) -> bool {
        let order = Ordering::Relaxed;
        let ports = 0..self.port_count.load(order);
        let Some(most) = ports.max_by_key(|&one| (self.used_by(one), one == to)) else {
            return false;
        };
        if !self.may_take(to, most) {
            return false;
        }
        let frees = |entry: &Entry| {
            let word = entry.word();
            port(word) == most && self.free(entry, word)
        };
        let from = self.evict_from.load(order) % self.entries.len();
        let (before, after) = self.entries.split_at(from);
        let mut around = after.iter().chain(before).take(SWEEP_ENTRIES);
        set.iter().any(frees) || {
            let found = around.position(frees);
            let searched = found.map_or(SWEEP_ENTRIES, |at| at + 1);
            self.evict_from.store(from + searched, order);
            found.is_some()
        }
    }

    /// Counts one entry more of a port, if the bounds allow it.
    fn claim_one(&self, port: usize) -> bool {
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let claim = |used: &AtomicUsize, most: usize| {
            let one_more = |used: usize| (used < most).then_some(used + 1);
            used.try_update(order, failed, one_more).is_ok()
        };
        let of_port = &self.ports[port];
        if !claim(&of_port.used, of_port.most.load(order)) {
            return false;
        }
        let claimed = claim(&self.used, self.most);
        if !claimed {
            of_port.used.fetch_sub(1, order);
        }
        claimed
    }

    /// As `claim_one`. A full table is searched for old entries: each call searches a piece of it,
    /// and one search begins in a sixteenth of the aging time.
    fn claim(&self, port: usize, now: u64) -> bool {
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.claim_one(port) {
            return true;
        }
        if self.sweep_from.load(order) >= self.entries.len() {
            let due = self.sweep_at.load(order);
            let next = now.saturating_add(self.aging / TOUCH_FRACTION);
            let sweep_at = &self.sweep_at;
            if now < due || sweep_at.compare_exchange(due, next, order, failed).is_err() {
                return false;
            }
            self.sweep_from.store(0, order);
        }
        let from = self.sweep_from.fetch_add(SWEEP_ENTRIES, order);
        for entry in self.entries.iter().skip(from).take(SWEEP_ENTRIES) {
            self.free_old(entry, now);
        }
        self.claim_one(port)
    }
}

/// The port of an entry's word.
const fn port(word: u64) -> usize {
    (word & 0xffff) as usize
}

const fn number(address: [u8; 6]) -> Mac {
    let [a, b, c, d, e, f] = address;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The handler of a MAC-learning bridge, for [`Session::among`](crate::engine::Session::among).
///
/// It learns the source of each frame. A frame for a known address goes to its port, and nowhere if
/// that is the port that it came from; a frame for an unknown address, for several hosts or for all
/// goes to all other ports. Frames for 01:80:c2:00:00:01 to 0f end at each bridge (IEEE 802.1Q,
/// 8.6.3), so they go nowhere; those for 00, of the spanning tree protocol, pass as through a
/// bridge without it. Nothing is learned from a frame without a whole source address. What goes
/// nowhere is counted as `drop.no_egress`.
#[derive(Clone, Debug)]
pub struct Bridge {
    addresses: Arc<Addresses>,
}

/// Groups whose frames are not forwarded: the last of these, and the 15 in front of it but the
/// first.
const RESERVED: Mac = 0x0180_c200_000f;
/// In the first byte of an address: of several hosts.
const GROUP: Mac = 1 << 40;

impl Bridge {
    /// A handler that learns into `addresses`, which those of all RX queues share.
    #[must_use]
    pub const fn new(addresses: Arc<Addresses>) -> Self {
        Self { addresses }
    }

    /// Where a frame from `port` to `to` goes; its source is learned.
    fn egress(&self, port: usize, [to, from]: [Mac; 2], now: u64) -> PortSet {
        if from & GROUP == 0 && from != 0 {
            self.addresses.learn(from, port, now);
        }
        let others = PortSet::all_but(port);
        if to & GROUP != 0 {
            let reserved = to & !0xf == RESERVED & !0xf && to & 0xf != 0;
            return if reserved { PortSet::NONE } else { others };
        }
        match self.addresses.find(to, now) {
            Some(known) if known == port => PortSet::NONE,
            Some(known) => PortSet::one(known),
            None => others,
        }
    }
}

impl Handler for Bridge {
    fn handle(&mut self, now: Instant, from: RxId, burst: &mut Burst) {
        for packet in burst.iter_mut() {
            let ports = self.egress(from.port, addresses(packet), now.as_nanos());
            packet.set_egress(ports);
        }
    }

    const COUNTED: bool = false;
    const PARSED: bool = false;
}

/// The destination and the source of a frame; zeros, which no host has, if it is too short.
fn addresses(packet: &Packet) -> [Mac; 2] {
    let mut bytes = [0; 12];
    match packet.first().first_chunk() {
        Some(first) => bytes = *first,
        None if packet.copy_to(&mut bytes) < bytes.len() => return [0; 2],
        None => {}
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
    [number([a, b, c, d, e, f]), number([g, h, i, j, k, l])]
}

#[cfg(test)]
mod tests;
