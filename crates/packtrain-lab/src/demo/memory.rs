//! The demonstration where no namespace can be had: two simulated NICs in memory, and generated
//! TCP and UDP trains between them. The forwarder, the checks and the table are the same.

use super::{DemoError, Moved, Options, Row, Setting, SettingReport, forward, settle};
use crate::sys;
use crate::traffic::payload::{Pattern, StreamHash};
use packtrain::driver::{Armed, Attach, DeviceError, Driver, Features};
use packtrain::engine::Session;
use packtrain::packet::{Arena, ArenaConfig, Burst, FrameClass, Ingress, Packet, PacketError};
use packtrain::plan::FitLimits;
use packtrain::port::sim::{self, Sim, SimConfig, SimRx, SimTx};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, TxCounters};
use packtrain::time::{Clock, MonotonicClock};
use packtrain_offload::checksum::{Sum, ipv4_header, pseudo_header_v4, pseudo_header_v6};
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Payload bytes of every wire packet but the last of a train: those of TCP on Ethernet.
const SEGMENT_BYTES: usize = 1448;
/// Wire packets of one train.
const TRAIN_SEGMENTS: usize = 44;
const TRAIN_BYTES: usize = SEGMENT_BYTES * TRAIN_SEGMENTS;
/// Different payloads of trains.
const PAYLOADS: u64 = 16;
const MAC_HOST_A: [u8; 6] = [2, 0, 0, 0x18, 0, 1];
const MAC_HOST_B: [u8; 6] = [2, 0, 0, 0x18, 0, 2];
const PORT: u16 = 7001;
/// Trains that are sent before the arrivals are looked at: at most what the way holds anyway.
const TRAINS_A_TURN: usize = 16;
/// How long a host sleeps at most, since it also has to see the end of the transfer.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// How long packets that were sent may take to arrive.
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(30);

/// Runs all transfers of one setting.
pub(super) fn run(
    setting: Setting,
    options: &Options,
    on_row: &mut impl FnMut(Row),
) -> Result<SettingReport, DemoError> {
    let (host_a, port_a) = sim::pair(config("host-a"), config("sim0"), options.seed);
    let (host_b, port_b) = sim::pair(config("host-b"), config("sim1"), options.seed + 1);
    let pattern = Pattern::new(options.seed);
    let mut host_a = Host::new(host_a, setting, &pattern)?;
    let mut host_b = Host::new(host_b, setting, &pattern)?;
    let session = forward(port_a, port_b, setting)?;
    for stream in STREAMS {
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
            };
            on_row(transfer.run(setting, direction, from, to, options)?);
        }
    }
    settle(setting, session.finish())
}

/// A NIC that hands over whole trains with partial checksums, as a virtio device does, and that
/// stops the other end instead of losing packets.
fn config(name: &str) -> SimConfig {
    SimConfig {
        name: name.to_owned(),
        rx: Features::CSUM | Features::TSO | Features::USO,
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

/// The far end of a port: a NIC of its own, driven by the calling thread.
struct Host {
    arena: Arena,
    rx: RxQueue<SimRx>,
    tx: TxQueue<SimTx>,
    burst: Burst,
    /// What trains carry, in turn. Sent again and again without copying, so that the figures are
    /// those of the way and not of the load.
    payloads: Vec<Packet>,
    // Keeps the device attached.
    _nic: Sim,
}

impl Host {
    fn new(mut nic: Sim, setting: Setting, pattern: &Pattern) -> Result<Self, DemoError> {
        let failed = |source| DeviceError::Failed {
            action: "map memory for packets",
            source,
        };
        let arena = Arena::new(ArenaConfig::default()).map_err(failed)?;
        let capabilities = nic.capabilities();
        let attach = Attach {
            rx: capabilities.rx,
            ..Attach::default()
        };
        let (rx, tx) = nic.attach(&attach, &arena)?.remove(0);
        let drops = Arc::new(DropCounters::default());
        let rx = RxQueue::new(
            rx,
            arena.clone(),
            LinkType::Ethernet,
            Ingress::default(),
            Arc::default(),
            Arc::clone(&drops),
        );
        let tx = TxQueue::new(
            tx,
            arena.clone(),
            setting.features().intersection(capabilities.tx),
            FitLimits::new(&capabilities, None),
            capabilities.tx_ring,
            Arc::<TxCounters>::default(),
            drops,
        );
        let payloads: Result<_, PacketError> = (0..PAYLOADS)
            .map(|index| payload(&arena, pattern, index))
            .collect();
        let full = |error| DeviceError::Unsupported(format!("no payload: {error}"));
        Ok(Self {
            payloads: payloads.map_err(full)?,
            arena,
            rx,
            tx,
            burst: Burst::new(),
            _nic: nic,
        })
    }

    /// Sends `packet`, or as much as fits now of what is waiting.
    fn send(&mut self, packet: Option<Packet>) -> Result<(), DeviceError> {
        let mut burst = Burst::new();
        if let Some(packet) = packet
            && burst.push(packet).is_err()
        {
            return Ok(());
        }
        self.tx.reclaim();
        self.tx.transmit(&mut burst).map(|_sent| ())
    }
}

/// The payload of every train whose number is `index` modulo [`PAYLOADS`]. No two are alike, so a
/// loss, a swap or damage changes the hash of the stream.
fn payload(arena: &Arena, pattern: &Pattern, index: u64) -> Result<Packet, PacketError> {
    let mut packet = arena.packet(FrameClass::Large)?;
    let start = index * TRAIN_BYTES as u64;
    while packet.bytes() < TRAIN_BYTES {
        let piece = pattern.stream(0, start + packet.bytes() as u64);
        let n = piece.len().min(TRAIN_BYTES - packet.bytes());
        packet.append_copy(FrameClass::Large, &piece[..n])?;
    }
    Ok(packet)
}

struct Transfer<'a> {
    stream: Stream,
    session: &'a Session<Sim, Sim>,
}

impl Transfer<'_> {
    fn run(
        &self,
        setting: Setting,
        direction: &'static str,
        from: &mut Host,
        to: &mut Host,
        options: &Options,
    ) -> Result<Row, DemoError> {
        let clock = MonotonicClock::new();
        let (mut sent, mut received) = (StreamHash::new(), Receiver::new(self.stream.kind));
        let before = self.session.snapshot();
        let start = Instant::now();
        let mut last_arrival = start;
        while received.hash.bytes() < sent.bytes() || start.elapsed() < options.transfer_time {
            let sending =
                start.elapsed() < options.transfer_time && !options.stop.load(Ordering::Relaxed);
            self.send(from, &mut sent, sending)?;
            to.rx.poll(
                clock.now(),
                &mut to.burst,
                packtrain::limits::BURST_PACKETS_MAX,
            )?;
            if !to.burst.is_empty() {
                last_arrival = Instant::now();
            } else if !(sending && from.tx.is_ready()) {
                wait(from, to)?;
            }
            while let Some(packet) = to.burst.pop() {
                received.take(&packet);
            }
            if last_arrival.elapsed() > ARRIVAL_TIME_MAX || (!sending && sent.bytes() == 0) {
                break;
            }
        }
        let elapsed = start.elapsed();
        let moved = Moved::between(&before, &self.session.snapshot());
        let bytes = received.hash.bytes();
        Ok(Row {
            setting,
            protocol: self.stream.protocol,
            ip: self.stream.ip,
            direction,
            gbps: bytes as f64 * 8e-9 / elapsed.as_secs_f64(),
            wire_packets: moved.wire_packets,
            frames: moved.frames,
            syscalls_per_mb: moved.syscalls as f64 * 1e6 / bytes.max(1) as f64,
            cpu_percent: moved.cpu.as_secs_f64() * 100.0 / elapsed.as_secs_f64(),
            hash_ok: received.bad == 0 && received.hash.finish() == sent.finish(),
        })
    }
}

impl Transfer<'_> {
    /// Sends what waits and then, if there is more to send, trains until the NIC takes no more.
    /// Not one at a time: on a busy machine each turn between this thread and the forwarder's may
    /// cost a time slice.
    fn send(
        &self,
        from: &mut Host,
        sent: &mut StreamHash,
        sending: bool,
    ) -> Result<(), DeviceError> {
        from.send(None)?;
        for _ in 0..TRAINS_A_TURN {
            if !sending || !from.tx.is_ready() {
                break;
            }
            let number = (sent.bytes() / TRAIN_BYTES as u64) as usize;
            let payload = &from.payloads[number % from.payloads.len()];
            // Without memory the train is made again once packets have been freed.
            let Ok(packet) = self.stream.train(&from.arena, payload, sent.bytes()) else {
                break;
            };
            payload.segments().for_each(|piece| sent.add(piece));
            from.send(Some(packet))?;
        }
        Ok(())
    }
}

/// Sleeps until a packet arrives or the sender's NIC can go on, as an event loop would: a thread
/// that spins takes the processor from the forwarder that it waits for.
fn wait(from: &mut Host, to: &mut Host) -> Result<(), DeviceError> {
    // Both are armed, also after one has said that it has work.
    let armed = [to.rx.arm(), from.tx.arm()];
    if armed.contains(&Armed::WorkPending) {
        return Ok(());
    }
    let wakes = [to.rx.wake(), from.tx.wake()];
    // A simulated NIC wakes by becoming readable, in both directions.
    let fds: Vec<_> = wakes.into_iter().flatten().map(|(fd, _)| fd).collect();
    sys::poll_readable(&fds, WAIT_MAX)
        .map(|_ready| ())
        .map_err(|source| DeviceError::Failed {
            action: "wait for packets",
            source,
        })
}

impl Stream {
    /// A GSO packet with `payload`, `position` bytes into the stream.
    fn train(self, arena: &Arena, payload: &Packet, position: u64) -> Result<Packet, PacketError> {
        let headers = self.headers(payload.bytes(), position);
        let mut packet = arena.packet_from(&headers)?;
        packet.append_shared(payload, 0..payload.bytes())?;
        let bytes = packet.bytes() as u32;
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
        let l4_bytes = (transport.len() + payload_bytes) as u32;
        let (network, pseudo) = if self.kind.is_ipv6() {
            ipv6(protocol, l4_bytes)
        } else {
            ipv4(protocol, l4_bytes)
        };
        let field = if self.kind.is_tcp() { 16 } else { 6 };
        transport[field..field + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
        let ethertype: [u8; 2] = if self.kind.is_ipv6() {
            [0x86, 0xdd]
        } else {
            [8, 0]
        };
        [
            &MAC_HOST_B[..],
            &MAC_HOST_A,
            &ethertype,
            &network,
            &transport,
        ]
        .concat()
    }
}

fn ipv4(protocol: u8, l4_bytes: u32) -> (Vec<u8>, Sum) {
    let (source, destination) = ([198, 18, 0, 1], [198, 18, 0, 2]);
    let mut header = vec![0x45, 0];
    header.extend_from_slice(&((20 + l4_bytes) as u16).to_be_bytes());
    // DF; identification 0 (RFC 6864 §4: it has no meaning on an atomic datagram).
    header.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
    header.extend_from_slice(&source);
    header.extend_from_slice(&destination);
    let check = ipv4_header(&header);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    (
        header,
        pseudo_header_v4(source, destination, protocol, l4_bytes),
    )
}

fn ipv6(protocol: u8, l4_bytes: u32) -> (Vec<u8>, Sum) {
    let address = |last: u8| {
        let mut bytes = [0; 16];
        bytes[0] = 0xfd;
        bytes[3] = 0x18;
        bytes[15] = last;
        bytes
    };
    let (source, destination) = (address(1), address(2));
    let mut header = vec![0x60, 0, 0, 0];
    header.extend_from_slice(&(l4_bytes as u16).to_be_bytes());
    header.extend_from_slice(&[protocol, 64]);
    header.extend_from_slice(&source);
    header.extend_from_slice(&destination);
    (
        header,
        pseudo_header_v6(source, destination, protocol, l4_bytes),
    )
}

/// Checks what arrives: headers, checksums, order, bytes.
struct Receiver {
    kind: GsoKind,
    hash: StreamHash,
    /// Packets that are not the next of the stream, or damaged.
    bad: u64,
}

impl Receiver {
    fn new(kind: GsoKind) -> Self {
        Self {
            kind,
            hash: StreamHash::new(),
            bad: 0,
        }
    }

    fn take(&mut self, packet: &Packet) {
        if self.accept(packet).is_none() {
            self.bad += 1;
        }
    }

    /// `None` for a packet that is not the next one, whole and right.
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
            if sequence != self.hash.bytes() as u32 {
                return None;
            }
        }
        for piece in packet
            .pieces(usize::from(layout.payload)..packet.bytes())
            .ok()?
        {
            self.hash.add(piece);
        }
        Some(())
    }

    fn sum_is_valid(&self, packet: &Packet, layout: &Layout) -> bool {
        let protocol = if self.kind.is_tcp() { 6 } else { 17 };
        let l4_bytes = layout.l4_len();
        let mut sum = match layout.kind {
            Network::Ipv6 => ipv6(protocol, l4_bytes).1,
            _ => ipv4(protocol, l4_bytes).1,
        };
        let Ok(pieces) = packet.pieces(usize::from(layout.transport)..packet.bytes()) else {
            return false;
        };
        let mut bytes = Sum::new();
        pieces.for_each(|piece| bytes.add(piece));
        sum.add_sum(bytes);
        sum.is_valid()
    }
}
