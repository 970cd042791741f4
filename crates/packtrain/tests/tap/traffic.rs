//! A port that the test drives, and packets to write to it.

use crate::world::TIMEOUT;
use packtrain::driver::{Attach, DeviceCounters, Driver, Features, RxBuffers};
use packtrain::packet::{Arena, ArenaConfig, Burst, FrameClass, Ingress, Packet};
use packtrain::plan::FitLimits;
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::stats::{DropCounters, DropReason, RxCounters, TxCounters};
use packtrain::time::Instant;
use packtrain_offload::checksum::{pseudo_header_v4, pseudo_header_v6, sum};
use packtrain_offload::layout::{Layout, Transport};
use packtrain_offload::offload::{ChecksumState, Ecn, Gso, GsoKind, LinkType};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

/// A port with all its queues.
pub struct Port<D: Driver = Tap> {
    pub driver: D,
    pub rx: Vec<RxQueue<D::Rx>>,
    pub tx: Vec<TxQueue<D::Tx>>,
    pub arena: Arena,
    pub link: LinkType,
    drops: Arc<DropCounters>,
}

/// Opens `name` with every offload.
pub fn open(kind: TapKind, name: &str) -> Port {
    open_with(kind, name, Features::ALL, RxBuffers::Whole)
}

pub fn open_with(kind: TapKind, name: &str, offload: Features, buffers: RxBuffers) -> Port {
    let arena = Arena::new(ArenaConfig::small()).expect("memory");
    open_in(kind, name, offload, buffers, &arena)
}

pub fn open_in(
    kind: TapKind,
    name: &str,
    offload: Features,
    buffers: RxBuffers,
    arena: &Arena,
) -> Port {
    let config = TapConfig {
        offload,
        ..TapConfig::new(kind, name)
    };
    let tap = Tap::open(&config).expect("the interface opens");
    let how = Attach {
        rx_buffers: buffers,
        ..Attach::default()
    };
    Port::attach_in(tap, &how, arena)
}

impl<D: Driver> Port<D> {
    pub fn attach(driver: D, how: &Attach) -> Self {
        Self::attach_in(
            driver,
            how,
            &Arena::new(ArenaConfig::small()).expect("memory"),
        )
    }

    /// With an arena that other ports share: packets can move between them.
    pub fn attach_in(mut driver: D, how: &Attach, arena: &Arena) -> Self {
        let capabilities = driver.capabilities();
        let limits = FitLimits::new(&capabilities, None);
        let drops = Arc::new(DropCounters::default());
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        for (index, (receiver, sender)) in driver
            .attach(how, arena)
            .expect("queues")
            .into_iter()
            .enumerate()
        {
            let ingress = Ingress {
                port: 0,
                queue: index as u16,
            };
            rx.push(RxQueue::new(
                receiver,
                arena.clone(),
                capabilities.link,
                ingress,
                Arc::new(RxCounters::default()),
                Arc::clone(&drops),
            ));
            tx.push(TxQueue::new(
                sender,
                arena.clone(),
                capabilities.tx,
                limits,
                None,
                Arc::new(TxCounters::default()),
                Arc::clone(&drops),
            ));
        }
        Self {
            driver,
            rx,
            tx,
            arena: arena.clone(),
            link: capabilities.link,
            drops,
        }
    }

    /// All packets that have arrived.
    pub fn poll(&mut self) -> Vec<Packet> {
        let (mut burst, mut packets) = (Burst::new(), Vec::new());
        for queue in &mut self.rx {
            loop {
                let before = queue.counters().snapshot().packets;
                queue
                    .poll(Instant::default(), &mut burst, 64)
                    .expect("the device is there");
                while let Some(packet) = burst.pop() {
                    packets.push(packet);
                }
                if queue.counters().snapshot().packets == before {
                    break;
                }
            }
        }
        packets
    }

    /// Waits for `count` packets of `transport`; others are ignored.
    pub fn wait_for(&mut self, transport: Transport, count: usize) -> Vec<Packet> {
        let mut found = Vec::new();
        let start = std::time::Instant::now();
        while start.elapsed() < TIMEOUT {
            found.extend(self.poll().into_iter().filter(|packet| {
                let layout = packet.meta().layout;
                layout.is_some_and(|layout| layout.transport_kind == transport)
            }));
            if found.len() >= count {
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!(
            "{} of {count} {transport:?} packets in {TIMEOUT:?}",
            found.len()
        );
    }

    /// Sends one packet through queue 0. The device must accept or drop it, or be removed.
    pub fn send(&mut self, packet: Packet) {
        let mut burst = Burst::new();
        burst.push(packet).expect("an empty burst");
        self.tx[0]
            .transmit(&mut burst)
            .expect("the device is there");
        assert!(burst.is_empty() && self.tx[0].is_ready());
    }

    /// As [`send`](Self::send), also while the device has no room: the packet is offered again.
    pub fn send_all(&mut self, packet: Packet) {
        let mut burst = Burst::new();
        burst.push(packet).expect("an empty burst");
        crate::world::wait_until("the device accepts or drops it", || {
            self.tx[0]
                .transmit(&mut burst)
                .expect("the device is there");
            burst.is_empty() && self.tx[0].is_ready()
        });
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.snapshot().get(reason)
    }

    /// Checks that no packet was dropped, and no feature refused.
    pub fn assert_clean(&self, context: &str) {
        let drops: Vec<_> = self.drops.snapshot().nonzero().collect();
        assert!(drops.is_empty(), "{context}: {drops:?}");
        for queue in &self.tx {
            assert_eq!(queue.counters().snapshot().refused_features, 0, "{context}");
        }
    }

    pub fn device_counters(&mut self) -> DeviceCounters {
        self.driver.device_counters().expect("counters")
    }
}

/// A packet to write to a port.
#[derive(Clone, Debug)]
pub struct Train {
    pub ipv6: bool,
    pub tcp: bool,
    pub payload: usize,
    /// Payload bytes of each wire packet; 0 for an ordinary packet.
    pub size: u16,
    pub ecn: bool,
    /// Whether the checksum is partial, for the device to complete.
    pub partial: bool,
}

impl Train {
    pub fn tcp(payload: usize, size: u16) -> Self {
        Self {
            ipv6: false,
            tcp: true,
            payload,
            size,
            ecn: false,
            partial: true,
        }
    }

    pub fn udp(payload: usize, size: u16) -> Self {
        Self {
            tcp: false,
            ..Self::tcp(payload, size)
        }
    }

    pub fn ipv6(self) -> Self {
        Self { ipv6: true, ..self }
    }

    pub fn ecn(self) -> Self {
        Self { ecn: true, ..self }
    }

    pub fn finished(self) -> Self {
        Self {
            partial: false,
            ..self
        }
    }

    /// From host 2 to host 1 of net 1, port 5000 to port 9; on Ethernet to `mac`.
    pub fn bytes(&self, mac: Option<[u8; 6]>) -> Vec<u8> {
        let mut transport = [5000_u16.to_be_bytes(), 9_u16.to_be_bytes()].concat();
        if self.tcp {
            let flags = if self.ecn { 0x90 } else { 0x10 };
            transport.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
        } else {
            transport.extend((8 + self.payload as u16).to_be_bytes());
            transport.extend([0, 0]);
        }
        transport.extend(payload(self.payload));
        let (protocol, bytes) = (if self.tcp { 6 } else { 17 }, transport.len() as u32);
        let mut packet = Vec::new();
        if let Some(mac) = mac {
            packet.extend(mac);
            packet.extend([2, 0, 0, 0, 0, 2]);
            packet.extend(if self.ipv6 { [0x86, 0xdd] } else { [8, 0] });
        }
        let pseudo = if self.ipv6 {
            let (mut from, mut to) = ([0_u8; 16], [0_u8; 16]);
            (from[0], from[3], from[15]) = (0xfd, 1, 2);
            (to[0], to[3], to[15]) = (0xfd, 1, 1);
            packet.extend([0x60, 0, 0, 0]);
            packet.extend((bytes as u16).to_be_bytes());
            packet.extend([protocol, 64]);
            packet.extend([from, to].concat());
            pseudo_header_v6(from, to, protocol, bytes)
        } else {
            let (from, to) = ([198, 18, 1, 2], [198, 18, 1, 1]);
            let mut ip = vec![0x45, 0];
            ip.extend((20 + bytes as u16).to_be_bytes());
            ip.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
            ip.extend([from, to].concat());
            let header_sum = sum(&ip).finish().to_be_bytes();
            ip[10..12].copy_from_slice(&header_sum);
            packet.extend(ip);
            pseudo_header_v4(from, to, protocol, bytes)
        };
        let at = usize::from(self.checksum_offset());
        let field = if self.partial {
            pseudo.fold()
        } else {
            let mut all = pseudo;
            all.add(&transport);
            all.finish()
        };
        transport[at..at + 2].copy_from_slice(&field.to_be_bytes());
        packet.extend(transport);
        packet
    }

    pub const fn checksum_offset(&self) -> u16 {
        if self.tcp { 16 } else { 6 }
    }

    pub fn kind(&self) -> GsoKind {
        match (self.tcp, self.ipv6) {
            (true, false) => GsoKind::TcpV4,
            (true, true) => GsoKind::TcpV6,
            (false, false) => GsoKind::UdpV4,
            (false, true) => GsoKind::UdpV6,
        }
    }

    pub fn wire_packets(&self) -> usize {
        match self.size {
            0 => 1,
            size => self.payload.div_ceil(usize::from(size)),
        }
    }

    /// The packet in segments of at most `segment` bytes, with its metadata.
    pub fn packet<D: Driver>(
        &self,
        port: &Port<D>,
        mac: Option<[u8; 6]>,
        segment: usize,
    ) -> Packet {
        let bytes = self.bytes(mac);
        let mut packet = port.arena.empty_packet().expect("a line");
        for chunk in bytes.chunks(segment) {
            let small = chunk.len() <= FrameClass::Small.data_bytes();
            let class = if small {
                FrameClass::Small
            } else {
                FrameClass::Large
            };
            packet.add_frame(class).expect("a frame");
            packet.tailroom_mut()[..chunk.len()].copy_from_slice(chunk);
            packet.grow(chunk.len()).expect("room");
        }
        let layout = Layout::parse(port.link, &bytes, bytes.len() as u32).expect("it parses");
        let meta = packet.meta_mut();
        meta.layout = Some(layout);
        meta.link = port.link;
        meta.wire_packets = self.wire_packets() as u16;
        if self.partial {
            meta.checksum = ChecksumState::Partial {
                start: layout.transport,
                offset: self.checksum_offset(),
            };
        }
        meta.gso = NonZeroU16::new(self.size).map(|size| {
            Gso::new(self.kind(), size).with_ecn(if self.ecn { Ecn::Cwr } else { Ecn::None })
        });
        packet
    }
}

/// `n` bytes that differ from their neighbours.
pub fn payload(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// All bytes of a packet in one piece.
pub fn contents(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// Whether the transport checksum of an IPv4 packet is final and right.
pub fn has_final_checksum(packet: &Packet) -> bool {
    let bytes = contents(packet);
    let layout = packet.meta().layout.expect("it parses");
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    let address = |at: usize| {
        bytes[network + at..network + at + 4]
            .try_into()
            .expect("four")
    };
    let rest = &bytes[transport..layout.ip_end as usize];
    let protocol = bytes[network + 9];
    let mut total = pseudo_header_v4(address(12), address(16), protocol, rest.len() as u32);
    total.add(rest);
    total.is_valid()
}
