//! The demo without namespaces: two simulated NICs in memory, and generated
//! GSO packets of TCP and UDP between them. The forwarder, the checks and the table are the same.

use super::error::DemoError;
use super::report::{Options, Row, Setting, SettingReport};
use super::session::{Moved, forward, settle};
use crate::headers::ethernet_ip;
use crate::ip::IpVersion;
use crate::traffic::payload::Pattern;
use packtrain::driver::{Armed, Attach, DeviceError, Driver, Features};
use packtrain::engine::Session;
use packtrain::packet::{Arena, Burst, FrameClass, Ingress, Packet, PacketError};
use packtrain::plan::FitLimits;
use packtrain::port::sim::{self, Sim, SimConfig, SimRx, SimTx};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, TxCounters};
use packtrain::time::{self, Clock, MonotonicClock};
use packtrain_offload::checksum::Sum;
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Payload bytes of every wire packet but the last of a train: those of TCP on Ethernet.
const SEGMENT_BYTES: usize = 1448;
/// Wire packets of one train.
const TRAIN_SEGMENTS: usize = 44;
const TRAIN_BYTES: usize = SEGMENT_BYTES * TRAIN_SEGMENTS;
const PORT: u16 = 7001;
/// Trains that are sent before the host polls its arrivals. The rings bound them, too.
const TRAINS_A_TURN: usize = 16;
/// How long a host sleeps at most, since it has to notice the end of the transfer.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// How long packets that were sent may take to arrive,
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(30);
/// and how long after a stop: the rest is in the ledger.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// Runs all transfers of one setting.
pub(super) fn run(
    setting: Setting,
    options: &Options,
    on_row: &mut impl FnMut(Row),
) -> Result<SettingReport, DemoError> {
    let (host_a, port_a) = sim::pair(config("host-a"), config("sim0"), options.seed);
    let (host_b, port_b) = sim::pair(
        config("host-b"),
        config("sim1"),
        options.seed.wrapping_add(1),
    );
    let pattern = Pattern::new(options.seed);
    let session = forward(port_a, port_b, setting)?;
    let mut host_a = Host::new(host_a, setting, &pattern, session.arena())?;
    let mut host_b = Host::new(host_b, setting, &pattern, session.arena())?;
    for (stream, number) in STREAMS.into_iter().zip(0..) {
        for direction in ["a_to_b", "b_to_a"] {
            if options.stop.load(Ordering::Relaxed) {
                return settle(setting, session.finish());
            }
            let (from, to) = match direction {
                "a_to_b" => (&mut host_a, &mut host_b),
                _ => (&mut host_b, &mut host_a),
            };
            let transfer = Transfer {
                stream,
                session: &session,
                pattern: &pattern,
                // Late packets of the last transfer are no part of this one.
                number: 2 * number + u32::from(direction == "b_to_a"),
            };
            match transfer.run(setting, direction, from, to, options)? {
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

/// A protocol over an IP version.
#[derive(Clone, Copy)]
struct Stream {
    protocol: &'static str,
    ip: &'static str,
    kind: GsoKind,
}

const STREAMS: [Stream; 4] = [
    Stream {
        protocol: "tcp",
        ip: "4",
        kind: GsoKind::TcpV4,
    },
    Stream {
        protocol: "tcp",
        ip: "6",
        kind: GsoKind::TcpV6,
    },
    Stream {
        protocol: "udp",
        ip: "4",
        kind: GsoKind::UdpV4,
    },
    Stream {
        protocol: "udp",
        ip: "6",
        kind: GsoKind::UdpV6,
    },
];

/// The far end of a port: a NIC of its own, driven by the thread that created it.
struct Host {
    rx: RxQueue<SimRx>,
    tx: TxQueue<SimTx>,
    burst: Burst,
    /// The pattern's block. Trains share pieces of it without copying, so that the figures are
    /// those of the forwarder and not of the load.
    block: Packet,
    // Keeps the device attached.
    _nic: Sim,
    // Last, so that no packet is left when it is dropped, and its memory is freed at once.
    arena: Arena,
}

impl Host {
    /// A host whose packets are in `arena`, the forwarder's own: they can be shared with it.
    fn new(
        mut nic: Sim,
        setting: Setting,
        pattern: &Pattern,
        arena: &Arena,
    ) -> Result<Self, DemoError> {
        let arena = arena.clone();
        let capabilities = nic.capabilities();
        let attach = Attach {
            rx: capabilities.rx,
            ..Attach::default()
        };
        let (rx, tx) = nic.attach(&attach, &arena)?.remove(0);
        let drops = Arc::new(DropCounters::default());
        let mut rx = RxQueue::new(
            rx,
            arena.clone(),
            LinkType::Ethernet,
            Ingress::default(),
            Arc::default(),
            Arc::clone(&drops),
        );
        let mut tx = TxQueue::new(
            tx,
            arena.clone(),
            setting.features().intersection(capabilities.tx),
            FitLimits::new(&capabilities, None),
            capabilities.tx_ring,
            Arc::<TxCounters>::default(),
            drops,
        );
        let interrupt = Waker::from(Arc::new(Unpark(thread::current())));
        rx.set_interrupt(interrupt.clone());
        tx.set_interrupt(interrupt);
        let full = |error| DeviceError::Unsupported(format!("no payload: {error}"));
        let block = block_in(&arena, pattern).map_err(full)?;
        Ok(Self {
            block,
            arena,
            rx,
            tx,
            burst: Burst::new(),
            _nic: nic,
        })
    }

    /// Sends `packet`, or the waiting packets that fit.
    fn send(&mut self, packet: Option<Packet>) -> Result<(), DeviceError> {
        let mut burst = Burst::new();
        if let Some(packet) = packet
            && burst.push(packet).is_err()
        {
            return Ok(());
        }
        self.tx.reclaim(time::Instant::default());
        self.tx.transmit(&mut burst).map(|_sent| ())
    }
}

fn block_in(arena: &Arena, pattern: &Pattern) -> Result<Packet, PacketError> {
    let mut block = arena.empty_packet()?;
    block.append_copy(FrameClass::Large, pattern.block())?;
    Ok(block)
}

struct Transfer<'a> {
    stream: Stream,
    session: &'a Session,
    pattern: &'a Pattern,
    /// The stream of the pattern that it sends.
    number: u32,
}

impl Transfer<'_> {
    /// No row of a transfer that is cut short.
    fn run(
        &self,
        setting: Setting,
        direction: &'static str,
        from: &mut Host,
        to: &mut Host,
        options: &Options,
    ) -> Result<Option<Row>, DemoError> {
        let clock = MonotonicClock::new();
        let mut sent = 0;
        let mut received = Receiver::new(self.stream.kind, self.pattern, self.number);
        let before = self.session.snapshot();
        let start = Instant::now();
        let mut last_arrival = start;
        let mut cut_short = false;
        loop {
            let stopped = options.stop.load(Ordering::Relaxed);
            let sending = start.elapsed() < options.transfer_time && !stopped;
            let arrived = received.position >= sent;
            if stopped && (arrived || last_arrival.elapsed() > DRAIN_TIME_MAX) {
                return Ok(None);
            }
            if arrived && !sending {
                break;
            }
            // After a failure of the forwarder no packet arrives, and its report has the reason.
            // The transfer has failed, also if no packet was lost or sent until then.
            if last_arrival.elapsed() > ARRIVAL_TIME_MAX || self.session.is_over() {
                cut_short = true;
                break;
            }
            self.send(from, &mut sent, sending)?;
            to.rx.poll(
                clock.now(),
                &mut to.burst,
                packtrain::limits::BURST_PACKETS_MAX,
            )?;
            if !to.burst.is_empty() {
                last_arrival = Instant::now();
            } else if !(sending && from.tx.is_ready()) {
                wait(from, to);
            }
            while let Some(packet) = to.burst.pop() {
                received.take(&packet);
            }
        }
        let elapsed = start.elapsed();
        let moved = Moved::between(&before, &self.session.snapshot());
        let bytes = received.position;
        Ok(Some(Row {
            setting,
            protocol: self.stream.protocol,
            ip: self.stream.ip,
            direction,
            gbps: bytes as f64 * 8e-9 / elapsed.as_secs_f64(),
            wire_packets: moved.wire_packets,
            frames: moved.frames,
            syscalls_per_mb: moved.syscalls as f64 * 1e6 / bytes.max(1) as f64,
            cpu_percent: moved.cpu.as_secs_f64() * 100.0 / elapsed.as_secs_f64(),
            hash_ok: !cut_short && received.has_all(sent),
        }))
    }
}

impl Transfer<'_> {
    /// Sends the waiting packets and then, if the transfer is not complete, trains until the NIC is
    /// full. On a busy machine each switch between this thread and the forwarder's may
    /// cost a time slice, so it does not send one at a time.
    fn send(&self, from: &mut Host, sent: &mut u64, sending: bool) -> Result<(), DeviceError> {
        from.send(None)?;
        for _ in 0..TRAINS_A_TURN {
            if !sending || !from.tx.is_ready() {
                break;
            }
            // Without memory the train is made again after packets were freed.
            let made = self
                .stream
                .train(&from.arena, &from.block, self.number, *sent);
            let Ok(packet) = made else {
                break;
            };
            *sent += TRAIN_BYTES as u64;
            from.send(Some(packet))?;
        }
        Ok(())
    }
}

/// Wakes the thread that drives the hosts: the interrupt of their simulated NICs.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Sleeps until a packet arrives or the sender's NIC has room, as an event loop would. A thread
/// that spins takes the CPU from the forwarder that it waits for.
fn wait(from: &mut Host, to: &mut Host) {
    // Both are armed, also if the first has work.
    let armed = [to.rx.arm(), from.tx.arm()];
    if !armed.contains(&Armed::WorkPending) {
        thread::park_timeout(WAIT_MAX);
    }
}

impl Stream {
    /// A GSO packet whose payload starts `position` bytes into stream `number` of the pattern whose
    /// block is `block`.
    fn train(
        self,
        arena: &Arena,
        block: &Packet,
        number: u32,
        position: u64,
    ) -> Result<Packet, PacketError> {
        let mut packet = self.head(arena, position)?;
        let mut left = TRAIN_BYTES;
        while left > 0 {
            let mut place = Pattern::place(number, position + (TRAIN_BYTES - left) as u64);
            place.end = place.end.min(place.start + left);
            left -= place.len();
            packet.append_shared(block, place)?;
        }
        Ok(packet)
    }

    /// The headers of a GSO packet whose payload starts `position` bytes into the stream.
    fn head(self, arena: &Arena, position: u64) -> Result<Packet, PacketError> {
        let headers = self.headers(TRAIN_BYTES, position);
        let mut packet = arena.packet_from(&headers)?;
        let bytes = (headers.len() + TRAIN_BYTES) as u32;
        let layout = Layout::parse(LinkType::Ethernet, &headers, bytes).ok();
        let offset = if self.kind.is_tcp() { 16 } else { 6 };
        let meta = packet.meta_mut();
        meta.layout = layout;
        if let Some(layout) = layout {
            meta.checksum = ChecksumState::Partial {
                start: layout.transport,
                offset,
            };
        }
        let size = NonZeroU16::new(SEGMENT_BYTES as u16);
        meta.gso = size.map(|size| Gso::new(self.kind, size));
        meta.wire_packets = TRAIN_SEGMENTS as u16;
        Ok(packet)
    }

    /// Ethernet, IP and transport header of a train, its checksum field preloaded.
    fn headers(self, payload_bytes: usize, position: u64) -> Vec<u8> {
        let mut transport = if self.kind.is_tcp() {
            let mut tcp = vec![0; 20];
            tcp[4..8].copy_from_slice(&(position as u32).to_be_bytes());
            tcp[12] = 5 << 4;
            tcp[13] = 0x10; // ACK
            tcp[14..16].copy_from_slice(&0xffff_u16.to_be_bytes());
            tcp
        } else {
            let mut udp = vec![0; 8];
            udp[4..6].copy_from_slice(&((8 + payload_bytes) as u16).to_be_bytes());
            udp
        };
        transport[..2].copy_from_slice(&PORT.to_be_bytes());
        transport[2..4].copy_from_slice(&PORT.to_be_bytes());
        let protocol = if self.kind.is_tcp() { 6 } else { 17 };
        let l4_bytes = transport.len() + payload_bytes;
        let ip = IpVersion::of(self.kind.is_ipv6());
        let (mut headers, pseudo) = ethernet_ip(ip, protocol, l4_bytes);
        let field = if self.kind.is_tcp() { 16 } else { 6 };
        transport[field..field + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
        headers.append(&mut transport);
        headers
    }
}

/// Checks arriving packets: headers, checksums, order, and every byte of the payload. Comparing
/// with the known payload costs less than hashing, and proves the same.
struct Receiver<'a> {
    kind: GsoKind,
    pattern: &'a Pattern,
    /// The expected stream of the pattern.
    number: u32,
    /// Bytes of it that have arrived.
    position: u64,
    /// Packets that are not the next of the stream, or damaged.
    bad: u64,
}

impl<'a> Receiver<'a> {
    fn new(kind: GsoKind, pattern: &'a Pattern, number: u32) -> Self {
        Self {
            kind,
            pattern,
            number,
            position: 0,
            bad: 0,
        }
    }

    /// Whether exactly the first `sent` bytes of the stream arrived, in order.
    fn has_all(&self, sent: u64) -> bool {
        self.bad == 0 && self.position == sent
    }

    fn take(&mut self, packet: &Packet) {
        if self.accept(packet).is_none() {
            self.bad += 1;
        }
    }

    /// `None` for a packet that is not the next one, complete and correct.
    fn accept(&mut self, packet: &Packet) -> Option<()> {
        let layout = packet.meta().layout?;
        let (network, transport) = match self.kind {
            GsoKind::TcpV4 => (Network::Ipv4, Transport::Tcp),
            GsoKind::TcpV6 => (Network::Ipv6, Transport::Tcp),
            GsoKind::UdpV4 => (Network::Ipv4, Transport::Udp),
            GsoKind::UdpV6 => (Network::Ipv6, Transport::Udp),
        };
        if (layout.kind, layout.transport_kind) != (network, transport) {
            return None;
        }
        let start = usize::from(layout.transport);
        if packet.meta().checksum == ChecksumState::None && !self.sum_is_valid(packet, &layout) {
            return None;
        }
        let header = packet.first().get(start..)?;
        if transport == Transport::Tcp {
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

    fn sum_is_valid(&self, packet: &Packet, layout: &Layout) -> bool {
        let protocol = if self.kind.is_tcp() { 6 } else { 17 };
        let l4_bytes = layout.l4_len();
        let ip = IpVersion::of(layout.kind == Network::Ipv6);
        let (_, mut sum) = ethernet_ip(ip, protocol, l4_bytes as usize);
        let Ok(pieces) = packet.pieces(usize::from(layout.transport)..packet.bytes()) else {
            return false;
        };
        let mut bytes = Sum::new();
        pieces.for_each(|piece| bytes.add(piece));
        sum.add_sum(bytes);
        sum.is_valid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain::packet::ArenaConfig;

    const NUMBER: u32 = 3;
    const TRAINS: usize = 40;

    /// Faults that a test injects in front of a receiver.
    struct Load {
        stream: Stream,
        pattern: Pattern,
        arena: Arena,
        block: Packet,
    }

    impl Load {
        fn new(stream: Stream) -> Self {
            let arena = Arena::new(ArenaConfig::default()).expect("memory");
            let pattern = Pattern::new(5);
            Self {
                stream,
                block: block_in(&arena, &pattern).expect("frames"),
                pattern,
                arena,
            }
        }

        fn train(&self, number: u32, position: u64) -> Packet {
            let train = self
                .stream
                .train(&self.arena, &self.block, number, position);
            train.expect("frames")
        }

        fn trains(&self) -> Vec<Packet> {
            let number = |index| self.train(NUMBER, (index * TRAIN_BYTES) as u64);
            (0..TRAINS).map(number).collect()
        }

        /// Whether the receiver accepts `trains` as the whole transfer.
        fn accepts(&self, trains: &[Packet]) -> bool {
            let mut receiver = Receiver::new(self.stream.kind, &self.pattern, NUMBER);
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
        let pattern = Pattern::new(1);
        let control = port_b.control();
        let session = forward(port_a, port_b, Setting::Full).expect("it starts");
        let mut hosts = [host_a, host_b]
            .map(|host| Host::new(host, Setting::Full, &pattern, session.arena()).expect("a host"));
        let [from, to] = &mut hosts;
        let transfer = Transfer {
            stream: STREAMS[0],
            session: &session,
            pattern: &pattern,
            number: 0,
        };
        control.remove();
        while is_over_before && !session.is_over() {
            thread::yield_now();
        }
        let begin = Instant::now();
        let row = transfer.run(Setting::Full, "a_to_b", from, to, &options);
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
        for stream in STREAMS {
            let load = Load::new(stream);
            let trains = load.trains();
            assert!(load.accepts(&trains), "{:?}", stream.kind);
            let copies: Vec<_> = trains.iter().map(|t| load.changed(t, |_| {})).collect();
            assert!(load.accepts(&copies), "{:?}", stream.kind);
        }
    }

    #[test]
    fn changed_lost_repeated_and_swapped_trains_are_seen() {
        for stream in STREAMS {
            let load = Load::new(stream);
            let planted = |fault: &dyn Fn(&mut Vec<Packet>)| {
                let mut trains = load.trains();
                fault(&mut trains);
                load.accepts(&trains)
            };
            for index in [0, 1, TRAINS - 1] {
                let lost = planted(&|trains| drop(trains.remove(index)));
                assert!(!lost, "{:?}: loss of {index}", stream.kind);
                let repeated = planted(&|trains| {
                    let copy = trains[index].try_clone().expect("a line");
                    trains.insert(index + 1, copy);
                });
                assert!(!repeated, "{:?}: repeat of {index}", stream.kind);
            }
            for (a, b) in [(0, 1), (3, 4), (0, 16), (7, TRAINS - 1)] {
                let swapped = planted(&|trains| trains.swap(a, b));
                assert!(!swapped, "{:?}: swap of {a} and {b}", stream.kind);
                let replaced = planted(&|trains| {
                    trains[a] = trains[b].try_clone().expect("a line");
                });
                assert!(!replaced, "{:?}: {b} in place of {a}", stream.kind);
            }
            let of_another = planted(&|trains| trains[2] = load.train(9, 2 * TRAIN_BYTES as u64));
            assert!(!of_another, "{:?}: another transfer's train", stream.kind);
        }
    }

    #[test]
    fn changed_lost_and_swapped_bytes_within_a_train_are_seen() {
        for stream in STREAMS {
            let load = Load::new(stream);
            let headers = load.train(NUMBER, 0).bytes() - TRAIN_BYTES;
            let planted = |what: &str, fault: &dyn Fn(&mut Vec<u8>)| {
                let mut trains = load.trains();
                trains[5] = load.changed(&trains[5], |bytes| fault(bytes));
                assert!(!load.accepts(&trains), "{:?}: {what}", stream.kind);
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
