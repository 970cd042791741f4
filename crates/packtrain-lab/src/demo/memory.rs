//! The demo without namespaces: generated GSO packets of TCP and UDP between two simulated NICs in
//! memory, each behind a session of its own. The forwarder, the checks and the table are the same.

use super::error::DemoError;
use super::report::{Options, Row, Setting, SettingReport};
use super::session::{Moved, forward, settle};
use crate::headers::ethernet_ip;
use crate::ip::IpVersion;
use crate::traffic::payload::Pattern;
use packtrain::driver::{DeviceError, Features, Port, PortConfig};
use packtrain::engine::{RxId, SendError, Session, TxHandle};
use packtrain::packet::{Arena, Burst, FrameClass, Packet, PacketError};
use packtrain::port::sim::{self, Sim, SimConfig};
use packtrain::time;
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use packtrain_offload::verify::verify_transport_pieces;
use std::num::NonZeroU16;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Payload bytes of every wire packet but the last of a train: those of TCP on Ethernet.
const SEGMENT_BYTES: usize = 1448;
/// Wire packets of one train.
const TRAIN_SEGMENTS: usize = 44;
const TRAIN_BYTES: usize = SEGMENT_BYTES * TRAIN_SEGMENTS;
const PORT: u16 = 7001;
/// Trains of one send.
const TRAINS: usize = 16;
/// How long a host waits at most for space or memory, since it has to notice the end of the
/// transfer.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// How often the arrivals are checked when all was sent.
const POLL: Duration = Duration::from_millis(1);
/// How long packets that were sent may take to arrive,
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(30);
/// and how long after a stop: the rest is in the ledger.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);
const STREAMS: [GsoKind; 4] = [
    GsoKind::TcpV4,
    GsoKind::TcpV6,
    GsoKind::UdpV4,
    GsoKind::UdpV6,
];

/// Runs all transfers of one setting.
pub(super) fn run(
    setting: Setting,
    options: &Options,
    on_row: &mut impl FnMut(Row),
) -> Result<SettingReport, DemoError> {
    let pair = |host, port, seed| sim::pair(config(host), config(port), seed);
    let (host_a, port_a) = pair("host-a", "sim0", options.seed);
    let (host_b, port_b) = pair("host-b", "sim1", options.seed.wrapping_add(1));
    let pattern = Arc::new(Pattern::new(options.seed));
    let session = forward(port_a, port_b, setting)?;
    let host = |nic| Host::new(nic, setting, &pattern, session.arena());
    let (mut host_a, mut host_b) = (host(host_a)?, host(host_b)?);
    for (kind, number) in STREAMS.into_iter().zip(0..) {
        for direction in ["a_to_b", "b_to_a"] {
            let (from, to) = match direction {
                "a_to_b" => (&mut host_a, &host_b),
                _ => (&mut host_b, &host_a),
            };
            // Late packets of the last transfer are no part of this one.
            let number = 2 * number + u32::from(direction == "b_to_a");
            let transfer = Transfer {
                setting,
                kind,
                direction,
                session: &session,
                number,
            };
            match transfer.run(from, to, options)? {
                Some(row) => on_row(row),
                None => return settle(setting, session.finish()),
            }
        }
    }
    settle(setting, session.finish())
}

/// A NIC that delivers GSO packets with partial checksums, as a virtio device does. It copies only
/// packets that fit one buffer, and pauses the other end instead of losing packets.
fn config(name: &str) -> SimConfig {
    SimConfig {
        name: name.to_owned(),
        rx: Features::CSUM | Features::TSO | Features::USO,
        rx_shares: true,
        flow_control: true,
        ..SimConfig::default()
    }
}

/// The far end of a port: a NIC and a session of its own.
struct Host {
    /// The pattern's block. Trains share pieces of it without copying, so that the figures are
    /// those of the forwarder and not of the load.
    block: Packet,
    handle: TxHandle,
    /// The transfer that arrives.
    receiver: Arc<Mutex<Receiver>>,
    /// Ends with the host.
    _session: Session,
}

impl Host {
    /// A host whose packets are in `arena`, the forwarder's own: they can be shared with it.
    fn new(
        nic: Sim,
        setting: Setting,
        pattern: &Arc<Pattern>,
        arena: &Arena,
    ) -> Result<Self, DemoError> {
        let config = PortConfig {
            offload: setting.features(),
            ..PortConfig::default()
        };
        let receiver = Receiver::new(GsoKind::TcpV4, pattern, u32::MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let arriving = Arc::clone(&receiver);
        let take = move |_: RxId| {
            let arriving = Arc::clone(&arriving);
            move |_: time::Instant, _: RxId, burst: &mut Burst| {
                let mut receiver = lock(&arriving);
                while let Some(packet) = burst.pop() {
                    receiver.take(&packet);
                }
            }
        };
        let port = Port {
            driver: nic,
            config,
        };
        let session = Session::on(port)
            .arena(arena.clone())
            .senders(0, 1)
            .handler(take);
        let session = session.start().map_err(DemoError::Start)?;
        let missing = |what: String| DeviceError::Unsupported(what);
        let handle = session.handle(0, 0);
        Ok(Self {
            block: block_in(arena, pattern)
                .map_err(|error| missing(format!("no payload: {error}")))?,
            handle: handle.ok_or_else(|| missing("no TX queue for a sender".to_owned()))?,
            receiver,
            _session: session,
        })
    }
}

fn lock(receiver: &Mutex<Receiver>) -> MutexGuard<'_, Receiver> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner)
}

fn block_in(arena: &Arena, pattern: &Pattern) -> Result<Packet, PacketError> {
    let mut block = arena.empty_packet()?;
    block.append_copy(FrameClass::Large, pattern.block())?;
    Ok(block)
}

struct Transfer<'a> {
    setting: Setting,
    kind: GsoKind,
    direction: &'static str,
    session: &'a Session,
    /// The stream of the pattern that it sends.
    number: u32,
}

impl Transfer<'_> {
    /// No row of a transfer that was stopped.
    fn run(&self, from: &mut Host, to: &Host, options: &Options) -> Result<Option<Row>, DemoError> {
        let stopped = || options.stop.load(Ordering::Relaxed);
        let receiver = |mut of: MutexGuard<'_, Receiver>| {
            *of = Receiver::new(self.kind, &of.pattern, self.number);
        };
        receiver(lock(&to.receiver));
        let before = self.session.snapshot();
        let start = Instant::now();
        let mut sent = 0;
        while start.elapsed() < options.transfer_time && !stopped() && !self.session.is_over() {
            self.send(from, &mut sent);
        }
        let end = Instant::now();
        // After a failure of the forwarder no packet arrives, and its report has the reason. The
        // transfer has failed, also if no packet was lost or sent until then.
        let (last, bytes) = loop {
            let (last, bytes) = lock(&to.receiver).progress();
            let limit = if stopped() {
                DRAIN_TIME_MAX
            } else {
                ARRIVAL_TIME_MAX
            };
            let idle = last.unwrap_or(end).max(end).elapsed();
            if bytes >= sent || idle > limit || self.session.is_over() {
                break (last, bytes);
            }
            thread::sleep(POLL);
        };
        if stopped() {
            return Ok(None);
        }
        let seconds = (last.unwrap_or(end) - start).as_secs_f64();
        let moved = Moved::between(&before, &self.session.snapshot());
        Ok(Some(Row {
            setting: self.setting,
            protocol: if self.kind.is_tcp() { "tcp" } else { "udp" },
            ip: if self.kind.is_ipv6() { "6" } else { "4" },
            direction: self.direction,
            gbps: bytes as f64 * 8e-9 / seconds,
            wire_packets: moved.wire_packets,
            frames: moved.frames,
            syscalls_per_mb: moved.syscalls as f64 * 1e6 / bytes.max(1) as f64,
            cpu_percent: moved.cpu.as_secs_f64() * 100.0 / seconds,
            hash_ok: !self.session.is_over() && lock(&to.receiver).has_all(sent),
        }))
    }

    /// Sends some trains, as many as there are memory and space for.
    fn send(&self, from: &mut Host, sent: &mut u64) {
        let mut burst = Burst::new();
        let mut position = *sent;
        while burst.len() < TRAINS {
            let arena = from.handle.arena();
            let Ok(train) = train(self.kind, arena, &from.block, self.number, position) else {
                break;
            };
            if burst.push(train).is_err() {
                break;
            }
            position += TRAIN_BYTES as u64;
        }
        if burst.is_empty() {
            // Packets that arrive give memory back.
            thread::sleep(POLL);
        }
        match from.handle.send_blocking(&mut burst, WAIT_MAX) {
            // What remains is made again.
            Ok(_) | Err(SendError::TimedOut { .. }) => {}
            Err(SendError::Closed) => thread::sleep(POLL),
        }
        *sent = position - (burst.len() * TRAIN_BYTES) as u64;
    }
}

/// A GSO packet whose payload starts `position` bytes into stream `number` of the pattern whose
/// block is `block`.
fn train(
    kind: GsoKind,
    arena: &Arena,
    block: &Packet,
    number: u32,
    position: u64,
) -> Result<Packet, PacketError> {
    let mut packet = head(kind, arena, position)?;
    let mut left = TRAIN_BYTES;
    while left > 0 {
        let mut place = Pattern::place(number, position + (TRAIN_BYTES - left) as u64);
        place.end = place.end.min(place.start + left);
        left -= place.len();
        packet.append_shared(block, place)?;
    }
    Ok(packet)
}

/// The headers of a GSO packet whose payload starts `position` bytes into the stream, the checksum
/// field preloaded with the sum of the pseudo-header.
fn head(kind: GsoKind, arena: &Arena, position: u64) -> Result<Packet, PacketError> {
    let (protocol, bytes, field) = if kind.is_tcp() {
        (6, 20, 16)
    } else {
        (17, 8, 6)
    };
    let l4_bytes = bytes + TRAIN_BYTES;
    let (mut headers, pseudo) = ethernet_ip(IpVersion::of(kind.is_ipv6()), protocol, l4_bytes);
    let start = headers.len();
    headers.resize(start + bytes, 0);
    let mut put = |at: usize, value: &[u8]| {
        headers[start + at..start + at + value.len()].copy_from_slice(value);
    };
    put(0, &PORT.to_be_bytes());
    put(2, &PORT.to_be_bytes());
    if kind.is_tcp() {
        put(4, &(position as u32).to_be_bytes());
        // Five words; ACK; the largest window.
        put(12, &[5 << 4, 0x10, 0xff, 0xff]);
    } else {
        put(4, &(l4_bytes as u16).to_be_bytes());
    }
    put(field, &pseudo.fold().to_be_bytes());
    let mut packet = arena.packet_from(&headers)?;
    let bytes = (headers.len() + TRAIN_BYTES) as u32;
    let meta = packet.meta_mut();
    meta.layout = Layout::parse(LinkType::Ethernet, &headers, bytes).ok();
    meta.checksum = ChecksumState::Partial {
        start: start as u16,
        offset: field as u16,
    };
    let size = NonZeroU16::new(SEGMENT_BYTES as u16);
    meta.gso = size.map(|size| Gso::new(kind, size));
    meta.wire_packets = TRAIN_SEGMENTS as u16;
    Ok(packet)
}

/// Checks arriving packets: headers, checksums, order, and every byte of the payload. Comparing
/// with the known payload costs less than hashing, and proves the same.
struct Receiver {
    kind: GsoKind,
    pattern: Arc<Pattern>,
    /// The expected stream of the pattern.
    number: u32,
    /// Bytes of it that have arrived.
    position: u64,
    /// When the last of them arrived.
    last: Option<Instant>,
    /// Packets that are not the next of the stream, or damaged.
    bad: u64,
}

impl Receiver {
    fn new(kind: GsoKind, pattern: &Arc<Pattern>, number: u32) -> Self {
        Self {
            kind,
            pattern: Arc::clone(pattern),
            number,
            position: 0,
            last: None,
            bad: 0,
        }
    }

    /// Whether exactly the first `sent` bytes of the stream arrived, in order.
    fn has_all(&self, sent: u64) -> bool {
        self.bad == 0 && self.position == sent
    }

    /// When the last bytes arrived, and how many did so far.
    const fn progress(&self) -> (Option<Instant>, u64) {
        (self.last, self.position)
    }

    fn take(&mut self, packet: &Packet) {
        self.last = Some(Instant::now());
        if self.accept(packet).is_none() {
            self.bad += 1;
        }
    }

    /// `None` for a packet that is not the next one, complete and correct.
    fn accept(&mut self, packet: &Packet) -> Option<()> {
        let layout = packet.meta().layout?;
        let is_ipv6 = layout.kind == Network::Ipv6;
        let is_tcp = layout.transport_kind == Transport::Tcp;
        if (is_ipv6, is_tcp) != (self.kind.is_ipv6(), self.kind.is_tcp()) {
            return None;
        }
        let start = usize::from(layout.transport);
        if packet.meta().checksum == ChecksumState::None && !Self::sum_is_valid(packet, &layout) {
            return None;
        }
        let header = packet.first().get(start..)?;
        if is_tcp {
            let sequence = u32::from_be_bytes(header.get(4..8)?.try_into().ok()?);
            if sequence != self.position as u32 {
                return None;
            }
        }
        let payload = usize::from(layout.payload)..packet.bytes();
        let mut as_sent = true;
        for piece in packet.pieces(payload).ok()? {
            as_sent &= self.compare(piece);
        }
        as_sent.then_some(())
    }

    /// Whether `piece` is the next piece of the stream.
    fn compare(&mut self, mut piece: &[u8]) -> bool {
        let mut as_sent = true;
        while !piece.is_empty() {
            let expected = self.pattern.stream(self.number, self.position);
            let n = piece.len().min(expected.len());
            let (now, later) = piece.split_at(n);
            as_sent &= now == &expected[..n];
            self.position += n as u64;
            piece = later;
        }
        as_sent
    }

    fn sum_is_valid(packet: &Packet, layout: &Layout) -> bool {
        let first = packet.first();
        let rest = packet.pieces(first.len()..packet.bytes());
        rest.is_ok_and(|rest| verify_transport_pieces(first, rest, layout).is_valid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain::packet::ArenaConfig;

    const NUMBER: u32 = 3;
    const TRAINS: usize = super::TRAINS * 2 + 8;

    /// Faults that a test injects in front of a receiver.
    struct Load {
        kind: GsoKind,
        pattern: Arc<Pattern>,
        arena: Arena,
        block: Packet,
    }

    impl Load {
        fn new(kind: GsoKind) -> Self {
            let arena = Arena::new(ArenaConfig::default()).expect("memory");
            let pattern = Arc::new(Pattern::new(5));
            Self {
                kind,
                block: block_in(&arena, &pattern).expect("frames"),
                pattern,
                arena,
            }
        }

        fn train(&self, number: u32, position: u64) -> Packet {
            let train = train(self.kind, &self.arena, &self.block, number, position);
            train.expect("frames")
        }

        fn trains(&self) -> Vec<Packet> {
            let number = |index| self.train(NUMBER, (index * TRAIN_BYTES) as u64);
            (0..TRAINS).map(number).collect()
        }

        /// Whether the receiver accepts `trains` as the whole transfer.
        fn accepts(&self, trains: &[Packet]) -> bool {
            let mut receiver = Receiver::new(self.kind, &self.pattern, NUMBER);
            trains.iter().for_each(|train| receiver.take(train));
            receiver.has_all((TRAINS * TRAIN_BYTES) as u64)
        }

        /// A copy of `train` with other bytes.
        fn changed(&self, train: &Packet, change: impl FnOnce(&mut Vec<u8>)) -> Packet {
            let mut bytes = vec![0; train.bytes()];
            train.copy_to(&mut bytes);
            change(&mut bytes);
            let mut copy = self.arena.packet_from(&bytes).expect("frames");
            copy.copy_meta(train);
            copy
        }
    }

    fn options(transfer_time: Duration) -> Options {
        Options {
            transfer_time,
            // The largest value; the second wire packet has the next one.
            seed: u64::MAX,
            in_memory: true,
            ..Options::default()
        }
    }

    #[test]
    fn a_stop_ends_a_long_transfer_soon_and_gives_it_no_row() {
        let options = options(Duration::from_secs(240));
        let (mut rows, begin) = (0, Instant::now());
        let report = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(1500));
                options.stop.store(true, Ordering::Relaxed);
            });
            run(Setting::Full, &options, &mut |_| rows += 1)
        });
        let report = report.expect("it runs");
        assert!(begin.elapsed() < Duration::from_secs(120));
        assert_eq!(rows, 0);
        assert!(report.closed() && report.snapshot.ledger.received > 0);
    }

    /// The port of the forwarder was removed. If `is_over_before` is true, the forwarder has
    /// noticed that before the transfer, which then sends and loses no packet.
    fn transfer_of_a_failed_forwarder(is_over_before: bool) {
        let options = options(Duration::from_secs(240));
        let (host_a, port_a) = sim::pair(config("host-a"), config("sim0"), 1);
        let (host_b, port_b) = sim::pair(config("host-b"), config("sim1"), 2);
        let pattern = Arc::new(Pattern::new(1));
        let control = port_b.control();
        let session = forward(port_a, port_b, Setting::Full).expect("it starts");
        let mut hosts = [host_a, host_b]
            .map(|host| Host::new(host, Setting::Full, &pattern, session.arena()).expect("a host"));
        let [from, to] = &mut hosts;
        let transfer = Transfer {
            setting: Setting::Full,
            kind: STREAMS[0],
            direction: "a_to_b",
            session: &session,
            number: 0,
        };
        control.remove();
        while is_over_before && !session.is_over() {
            thread::yield_now();
        }
        let begin = Instant::now();
        let row = transfer.run(from, to, &options);
        assert!(begin.elapsed() < ARRIVAL_TIME_MAX);
        assert!(row.is_err() || row.is_ok_and(|row| row.is_some_and(|row| !row.hash_ok)));
        assert!(settle(Setting::Full, session.finish()).is_err());
    }

    #[test]
    fn a_forwarder_that_fails_is_the_error_and_ends_it_soon() {
        transfer_of_a_failed_forwarder(false);
    }

    #[test]
    fn a_forwarder_that_failed_before_is_the_error_and_ends_it_soon() {
        transfer_of_a_failed_forwarder(true);
    }

    #[test]
    fn what_was_sent_is_accepted() {
        for kind in STREAMS {
            let load = Load::new(kind);
            let trains = load.trains();
            assert!(load.accepts(&trains), "{kind:?}");
            let copies: Vec<_> = trains.iter().map(|t| load.changed(t, |_| {})).collect();
            assert!(load.accepts(&copies), "{kind:?}");
        }
    }

    #[test]
    fn changed_lost_repeated_and_swapped_trains_are_seen() {
        for kind in STREAMS {
            let load = Load::new(kind);
            let planted = |fault: &dyn Fn(&mut Vec<Packet>)| {
                let mut trains = load.trains();
                fault(&mut trains);
                load.accepts(&trains)
            };
            for index in [0, 1, TRAINS - 1] {
                let lost = planted(&|trains| drop(trains.remove(index)));
                assert!(!lost, "{kind:?}: loss of {index}");
                let repeated = planted(&|trains| {
                    let copy = trains[index].try_clone().expect("a line");
                    trains.insert(index + 1, copy);
                });
                assert!(!repeated, "{kind:?}: repeat of {index}");
            }
            for (a, b) in [(0, 1), (3, 4), (0, 16), (7, TRAINS - 1)] {
                let swapped = planted(&|trains| trains.swap(a, b));
                assert!(!swapped, "{kind:?}: swap of {a} and {b}");
                let replaced = planted(&|trains| {
                    trains[a] = trains[b].try_clone().expect("a line");
                });
                assert!(!replaced, "{kind:?}: {b} in place of {a}");
            }
            let of_another = planted(&|trains| trains[2] = load.train(9, 2 * TRAIN_BYTES as u64));
            assert!(!of_another, "{kind:?}: another transfer's train");
        }
    }

    #[test]
    fn changed_lost_and_swapped_bytes_within_a_train_are_seen() {
        for kind in STREAMS {
            let load = Load::new(kind);
            let headers = load.train(NUMBER, 0).bytes() - TRAIN_BYTES;
            let planted = |what: &str, fault: &dyn Fn(&mut Vec<u8>)| {
                let mut trains = load.trains();
                trains[5] = load.changed(&trains[5], |bytes| fault(bytes));
                assert!(!load.accepts(&trains), "{kind:?}: {what}");
            };
            for at in [0, 1, 1447, 1448, 30_000, TRAIN_BYTES - 1] {
                for bit in [1, 0x80] {
                    planted("a flipped bit", &|bytes| bytes[headers + at] ^= bit);
                }
            }
            planted("a lost byte", &|bytes| {
                bytes.copy_within(headers + 778.., headers + 777);
                bytes.truncate(bytes.len() - 1);
            });
            planted("a lost end", &|bytes| bytes.truncate(bytes.len() - 1));
            planted("a byte more", &|bytes| bytes.push(0));
            planted("swapped segments", &|bytes| {
                let (a, b) = bytes[headers..].split_at_mut(SEGMENT_BYTES);
                a.swap_with_slice(&mut b[..SEGMENT_BYTES]);
            });
            planted("a repeated segment", &|bytes| {
                bytes.copy_within(headers..headers + SEGMENT_BYTES, headers + SEGMENT_BYTES);
            });
        }
    }
}
