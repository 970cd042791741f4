//! Every key of a port spec in one table, and the suggestion for an unknown word.

use super::error::SpecError;
use super::options::PortKind;
use super::value::{Quoted, SETTINGS};
use crate::limits::{BURST_PACKETS_MAX, QUEUES_MAX, SEGMENT_HEADROOM_MAX, SEGMENTS_MAX};
use crate::port::{null, sim};
use std::ops::RangeInclusive;

/// Kinds that this version has.
pub(super) const KINDS: &[&str] = &["tap", "tun", "pcap", "null", "sim"];
/// Kinds that are designed but not implemented.
pub(super) const NOT_BUILT: &[&str] = &["packet", "xdp", "vhost-user"];

pub(super) const QUEUES: RangeInclusive<usize> = 1..=QUEUES_MAX;
pub(super) const SEGMENTS: RangeInclusive<usize> = 1..=SEGMENTS_MAX;
pub(super) const HEADROOM: RangeInclusive<usize> = 0..=SEGMENT_HEADROOM_MAX;
pub(super) const BYTES: RangeInclusive<usize> = null::FRAME_BYTES_MIN..=null::FRAME_BYTES_MAX;
pub(super) const FLOWS: RangeInclusive<usize> = 1..=null::FLOWS_MAX;
pub(super) const TRAIN: RangeInclusive<usize> = 1..=null::TRAIN_MAX;
pub(super) const OUT_OF_ORDER: RangeInclusive<u8> = 1..=null::OUT_OF_ORDER_MAX;
/// Packets of one poll.
pub(super) const BURST: RangeInclusive<usize> = 1..=BURST_PACKETS_MAX;
pub(super) const RINGS: RangeInclusive<usize> = sim::RING_MIN..=sim::RING_MAX;
pub(super) const RATES: RangeInclusive<u64> = 1..=sim::RATE_MAX;
/// Faults that one device is configured to have.
pub(super) const FAULTS: RangeInclusive<u64> = 1..=4096;
/// Packets of which one has a bad descriptor.
pub(super) const BAD_DESCRIPTORS: RangeInclusive<u64> = 1..=1_000_000;
/// Without 0, which means "no VLAN", and 4095, which is reserved (IEEE 802.1Q table 9-2).
pub(super) const VLANS: RangeInclusive<u16> = 1..=4094;

/// One key of a port spec, for parsing and for help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key.
    pub name: &'static str,
    /// The values it takes; empty for a key that stands alone.
    pub takes: &'static str,
    /// The kinds of port that have it; empty for all.
    pub kinds: &'static [&'static str],
    /// Its effect.
    pub about: &'static str,
}

impl Key {
    /// Whether it stands alone, without a value.
    #[must_use]
    pub const fn is_flag(&self) -> bool {
        self.takes.is_empty()
    }

    /// Whether its value is a setting of a policy, which may have arguments in parentheses.
    pub(super) fn is_setting(&self) -> bool {
        SETTINGS.contains(&self.name)
    }

    fn is_for(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }
}

const fn common(name: &'static str, takes: &'static str, about: &'static str) -> Key {
    Key {
        name,
        takes,
        kinds: &[],
        about,
    }
}

const fn only(
    kinds: &'static [&'static str],
    name: &'static str,
    takes: &'static str,
    about: &'static str,
) -> Key {
    Key {
        name,
        takes,
        kinds,
        about,
    }
}

const TUN_TAP: &[&str] = &["tap", "tun"];
const PCAP: &[&str] = &["pcap"];
const NULL: &[&str] = &["null"];
const SIM: &[&str] = &["sim"];

/// Every key there is, those of all kinds first.
pub const KEYS: &[Key] = &[
    common("queues", "1..256", "queues to open"),
    common(
        "offload",
        "auto|off or some of csum, tso, uso, ipv4-checksum, ipv6-checksum, tso4, tso6, tso-ecn, \
         uso4, uso6, vlan, large-receive joined by +",
        "offloads that may be used; checksums that they need are added",
    ),
    common(
        "segs",
        "1..288",
        "segments of a packet at most (scatter-gather limit)",
    ),
    common(
        "gso-segs",
        "1..288",
        "as segs, for GSO packets; without it as many as segs",
    ),
    common(
        "headroom",
        "0..16",
        "segments that packets for this port are built below its limit, for headers added later",
    ),
    common(
        "fit",
        "defrag|collapse",
        "a packet of too many segments has neighbours merged, then is copied whole, or dropped",
    ),
    common(
        "rx",
        "auto|whole|pieces|pieces(256..1792)",
        "receive large packets whole, or in pieces of as many bytes",
    ),
    common(
        "coalesce",
        "auto|off|on|hash|sorted|stream",
        "merging of received packets in software",
    ),
    common(
        "gro-flows",
        "1..65536",
        "flows held at once by merging; as many as packets by default",
    ),
    common(
        "gro-bytes",
        "1..65535",
        "bytes of a merged IP packet at most",
    ),
    common(
        "gro-packets",
        "1..65536",
        "packets held at once by merging; with more, all are passed on; 1024 by default",
    ),
    common(
        "gro-inactive",
        "on|off",
        "while packets arrive, pass on packets that were held for 200 us; on by default",
    ),
    common(
        "gro-flush",
        "off|usecs(n)|packets(n)",
        "while packets arrive, pass on everything held this often (for experiments)",
    ),
    common(
        "ack-limit",
        "1..65535",
        "with coalesce=stream: the pure ACK that is this packet of a merged one passes it on; with \
         1 no pure ACK is held",
    ),
    common(
        "rx-pause",
        "1..65536",
        "packets after which receiving stops, as if the queue were empty (for experiments)",
    ),
    common(
        "dispatch",
        "direct|deferred|abdicate|threshold(n)|adaptive",
        "which thread drains the rings of its TX queues; takes precedence over --dispatch",
    ),
    common(
        "moderation",
        "off|fixed(usecs,frames)|adaptive",
        "how long its RX queues delay wake-ups; takes precedence over --moderation",
    ),
    common(
        "tx",
        "auto|shared",
        "shared: always put a ring and a TX worker in front of its TX queues",
    ),
    common(
        "capture",
        "FILE",
        "write every packet of the port to a pcapng file",
    ),
    common("trace", "", "print every packet"),
    common("drop", "0..1", "probability that a received packet is lost"),
    common(
        "duplicate",
        "0..1",
        "probability that a received packet is duplicated",
    ),
    common(
        "corrupt",
        "0..1",
        "probability that a received packet is corrupted",
    ),
    common(
        "reorder",
        "0..1",
        "probability that a received packet is overtaken by the next three",
    ),
    common(
        "delay",
        "TIME (200us, 5ms, at most 60s)",
        "delay of each received packet; packets in the delay at the end do not arrive",
    ),
    common(
        "seed",
        "0..18446744073709551615",
        "seed of all random choices",
    ),
    common(
        "vlan",
        "1..4094",
        "tag received packets, and untag sent ones (for tests)",
    ),
    only(
        TUN_TAP,
        "fd",
        "N or N+N+... (open descriptors, one for each queue)",
        "use inherited descriptors instead of opening the device",
    ),
    only(
        PCAP,
        "write",
        "",
        "write the file instead of reading it; an existing file is emptied",
    ),
    only(PCAP, "loop", "", "read the file again and again"),
    only(
        PCAP,
        "pace",
        "fast|original",
        "read at once, or at the recorded times",
    ),
    only(
        PCAP,
        "format",
        "pcapng|pcap|pcap-us",
        "format of the written file",
    ),
    only(
        &["null", "pcap", "sim"],
        "link",
        "ethernet|ip|ipoib",
        "link type of its packets",
    ),
    only(NULL, "source", "", "also generate packets"),
    only(
        NULL,
        "proto",
        "udp|tcp|ack",
        "what the packets are: datagrams, TCP with data, or pure ACKs",
    ),
    only(
        NULL,
        "bytes",
        "36..65549",
        "bytes of each packet; by default the shortest, and an MTU of 1500 for proto=tcp",
    ),
    only(
        NULL,
        "count",
        "1..18446744073709551615",
        "packets to generate; without it the source never ends",
    ),
    only(
        NULL,
        "burst",
        "1..64",
        "packets that one poll receives at most; 1 is a system without batches",
    ),
    only(
        NULL,
        "flows",
        "1..100000",
        "flows that the packets belong to",
    ),
    only(
        NULL,
        "active",
        "1..100000",
        "flows of a queue that alternate at a time; all by default",
    ),
    only(
        NULL,
        "train",
        "1..4096",
        "with active=: packets of each of these flows before the next ones; 1 by default",
    ),
    only(
        NULL,
        "timestamps",
        "",
        "give TCP packets timestamps, which go up every 64 packets of a flow",
    ),
    only(
        NULL,
        "out-of-order",
        "1..50",
        "percent of each flow's packets that are swapped with the next one of the flow",
    ),
    only(SIM, "rings", "8..4096", "descriptors of each ring"),
    only(
        SIM,
        "far",
        "discard|echo",
        "what the other end does with packets",
    ),
    only(
        SIM,
        "completion-delay",
        "Nflushes|Nreclaims|Npackets (N from 1 to 4096)",
        "how much later sent packets are completed",
    ),
    only(
        SIM,
        "rate",
        "1..100000000",
        "packets that each TX queue sends in a second; a GSO packet counts once",
    ),
    only(
        SIM,
        "interrupts",
        "counted|each",
        "with rate=: one interrupt for many sent packets, or one for each",
    ),
    only(
        SIM,
        "bad-descriptors",
        "1..1000000",
        "one of this many received packets has a bad descriptor, and is dropped",
    ),
    only(
        SIM,
        "flap",
        "TIME (1ms to 60s)",
        "the link goes down and up again, a change each time",
    ),
    only(
        SIM,
        "flow-control",
        "off|on",
        "with far=echo: a full RX ring pauses the sender instead of dropping packets",
    ),
    only(SIM, "shuffled", "", "complete sent packets in random order"),
    only(SIM, "hang", "", "each TX queue hangs until it is reset"),
    only(
        SIM,
        "lose-completions",
        "1..4096",
        "the first sent packets whose completion is lost",
    ),
    only(
        SIM,
        "lose-wakeups",
        "1..4096",
        "the first completion interrupts that are lost",
    ),
];

/// The key `name` of ports of `kind`.
pub(super) fn find(name: &str, kind: &PortKind) -> Result<&'static Key, SpecError> {
    let kind = kind.name();
    if let Some(key) = KEYS.iter().find(|key| key.name == name) {
        if key.is_for(kind) {
            return Ok(key);
        }
        let kinds: Vec<_> = key.kinds.iter().map(|kind| format!("{kind}:")).collect();
        return Err(SpecError(format!(
            "key '{name}' is not for {kind}: ports but for {}; leave it out",
            kinds.join(", ")
        )));
    }
    let known = || KEYS.iter().filter(|key| key.is_for(kind)).map(|k| k.name);
    Err(SpecError(match nearest(name, known()) {
        Some(near) => format!(
            "unknown key {} of a {kind}: port; did you mean '{near}'?",
            Quoted(name)
        ),
        None => format!(
            "unknown key {} of a {kind}: port; its keys are {}",
            Quoted(name),
            known().collect::<Vec<_>>().join(", ")
        ),
    }))
}

/// The known word that `word` is most likely a misspelling of, if one is near enough.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Longer than any misspelled key: not worth a comparison. This also bounds the cost.
    if word.len() > 32 {
        return None;
    }
    known
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|&(slips, candidate)| slips <= (candidate.len() / 2).min(2))
        .min_by_key(|&(slips, _)| slips)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, delete or replace to get from `a` to `b` (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
