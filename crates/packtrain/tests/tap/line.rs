//! A port whose other side is the kernel, for the suite of the driver contract. A packet socket
//! sends the packets that the port receives, and reads those that it transmits.

use crate::traffic::payload;
use crate::world::{self, PacketSocket, in_namespace_as};
use packtrain::driver::{Driver, Features};
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain_offload::offload::{ChecksumState, Ecn, Gso, GsoKind, LinkType};
use packtrain_testkit::conformance::{Fills, Injects, Observes, Outside, Rig, Traits};
use std::io::ErrorKind;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The name of the interface.
pub const NAME: &str = "pt0";
/// The kernel carries nearly all packets within the call; its queueing discipline may hand a packet
/// to another CPU.
const TIMEOUT: Duration = Duration::from_millis(10);

/// Bytes of the virtio-net header of a packet socket.
const HEADER_BYTES: usize = 10;
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const ECN: u8 = 0x80;
/// `VIRTIO_NET_HDR_GSO_*`.
const GSO_TYPES: [(u8, Option<GsoKind>); 4] = [
    (0, None),
    (1, Some(GsoKind::TcpV4)),
    (4, Some(GsoKind::TcpV6)),
    // By the packet's IP version: UDP over IPv4 or IPv6.
    (5, Some(GsoKind::UdpV4)),
];

/// Switches IPv6 off for an interface: neighbour discovery and the like would be counted too. False
/// if that is not permitted.
pub fn quiet(name: &str) -> bool {
    let switch = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    match std::fs::write(switch, "1") {
        Err(error) => error.kind() == ErrorKind::NotFound,
        Ok(()) => true,
    }
}

/// A port and the kernel's side of its interface.
pub struct Line<D> {
    port: D,
    wire: PacketSocket,
    link: LinkType,
    traits: Traits,
    /// What the port needs of another process.
    _kept: Option<OwnedFd>,
}

impl<D: Driver> Line<D> {
    /// A port with an interface of its own, [`NAME`].
    pub fn new(port: D) -> Self {
        let quiet = quiet(NAME);
        world::set_up(NAME, true);
        Self::on(port, PacketSocket::open(NAME), quiet)
    }

    /// A port whose packets `wire` reads. `quiet`: nothing else sends any.
    pub fn on(port: D, wire: PacketSocket, quiet: bool) -> Self {
        let capabilities = port.capabilities();
        // The kernel accepts every offload that it knows, on any port, and finishes
        // it.
        // Lines of several threads may be in one namespace.
        let thread = format!("{:?}", std::thread::current().id());
        let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
        let probe = Tap::open(&TapConfig::new(TapKind::Tun, &format!("probe{thread}")));
        let probe = probe.expect("a second one");
        let traits = Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 32,
            fills: Fills::Never(
                "the kernel takes every packet, and drops those it has no room for",
            ),
            injects_offloads: probe.capabilities().rx,
            injects_bad: capabilities.rx.contains(Features::TSO4),
            counts_exactly: quiet,
            latency: TIMEOUT,
            ..Traits::default()
        };
        let link = capabilities.link;
        Self {
            port,
            wire,
            link,
            traits,
            _kept: None,
        }
    }

    /// Keeps a descriptor open as long as the port.
    pub fn keeping(mut self, kept: OwnedFd) -> Self {
        self._kept = Some(kept);
        self
    }

    /// Of the offloads, the outside injects packets with these only.
    pub const fn injecting(mut self, offloads: Features) -> Self {
        self.traits.injects_offloads = offloads;
        self
    }

    /// Where the IP header begins in an untagged packet.
    fn network(&self) -> usize {
        self.link.header_bytes()
    }

    fn send(&self, header: [u8; HEADER_BYTES], packet: &[u8]) -> bool {
        let ethertype = match packet[self.network()] >> 4 {
            4 => 0x0800,
            6 => 0x86DD,
            other => panic!("the suite sends IP, not version {other}"),
        };
        let sent = self.wire.send(ethertype, &[&header, packet].concat());
        match sent {
            Ok(()) => true,
            // The queue of the interface is full, or the memory of the socket is in it.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("the kernel does not send it: {error}"),
        }
    }
}

fn header(checksum: ChecksumState, gso: Option<Gso>, header_bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let mut word = |at: usize, value: u16| {
        header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    };
    if let Some(gso) = gso {
        word(2, header_bytes as u16);
        word(4, gso.size.get());
    }
    if let ChecksumState::Partial { start, offset } = checksum {
        word(6, start);
        word(8, offset);
        header[0] = NEEDS_CSUM;
    }
    header[1] = match gso.map(|gso| gso.kind) {
        None => 0,
        Some(GsoKind::TcpV4) => 1,
        Some(GsoKind::TcpV6) => 4,
        Some(GsoKind::UdpV4 | GsoKind::UdpV6) => 5,
    };
    if gso.is_some_and(|gso| gso.ecn() == Ecn::Cwr) {
        header[1] |= ECN;
    }
    header
}

impl<D: Driver> Rig for Line<D> {
    type Driver = D;

    fn traits(&self) -> Traits {
        self.traits
    }

    fn driver(&mut self) -> &mut D {
        &mut self.port
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        let transport = match packet.gso.map(|gso| gso.kind.is_tcp()) {
            Some(true) => 20,
            _ => 8,
        };
        let headers = match packet.checksum {
            ChecksumState::Partial { start, .. } => usize::from(start) + transport,
            _ => 0,
        };
        let header = header(packet.checksum, packet.gso, headers);
        self.send(header, &packet.bytes)
    }

    fn inject_bad(&mut self) -> bool {
        // The kernel accepts a TCP packet that is in wire packets of one byte each; packtrain must
        // not.
        let mut ip = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0];
        ip.extend([198, 18, 3, 1, 198, 18, 3, 2]);
        let mut tcp = [9, 1, 9, 2].to_vec();
        tcp.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
        tcp.extend(payload(500));
        let length = (ip.len() + tcp.len()) as u16;
        ip[2..4].copy_from_slice(&length.to_be_bytes());
        let mut packet = match self.link {
            LinkType::Ethernet => [[2, 0, 0, 0, 3, 2], [2, 0, 0, 0, 3, 1]].concat(),
            LinkType::RawIp => Vec::new(),
            LinkType::Ipoib => panic!("no TAP or TUN has this link"),
        };
        if self.link == LinkType::Ethernet {
            packet.extend([8, 0]);
        }
        packet.extend(ip);
        packet.extend(tcp);
        let start = self.network() as u16 + 20;
        let gso = Gso::new(GsoKind::TcpV4, NonZeroU16::MIN);
        let checksum = ChecksumState::Partial { start, offset: 16 };
        self.send(
            header(checksum, Some(gso), usize::from(start) + 20),
            &packet,
        )
    }

    fn observe(&mut self) -> Option<Outside> {
        let (all, tag) = self.wire.receive()?;
        let (header, packet) = all.split_at(HEADER_BYTES);
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let (start, offset) = (word(6), word(8));
        let checksum = match header[0] {
            flags if flags & NEEDS_CSUM != 0 => ChecksumState::Partial { start, offset },
            flags if flags & DATA_VALID != 0 => ChecksumState::Unnecessary,
            _ => ChecksumState::None,
        };
        let found = GSO_TYPES.iter().find(|(code, _)| *code == header[1] & !ECN);
        let (_, kind) = found.expect("a type that the port may send");
        let ipv6 = packet
            .get(self.network())
            .is_some_and(|byte| byte >> 4 == 6);
        let gso = kind.map(|kind| {
            Gso::new(
                match kind {
                    GsoKind::UdpV4 if ipv6 => GsoKind::UdpV6,
                    kind => kind,
                },
                NonZeroU16::new(word(4)).expect("a size"),
            )
            .with_ecn(if header[1] & ECN != 0 {
                Ecn::Cwr
            } else {
                Ecn::None
            })
        });
        let mut packet = Outside {
            bytes: packet.to_vec(),
            checksum,
            gso,
        };
        if let Some(tag) = tag {
            let tag = tag.map(u16::to_be_bytes).concat();
            packet.bytes.splice(12..12, tag);
            if let ChecksumState::Partial { start, .. } = &mut packet.checksum {
                *start += 4;
            }
        }
        Some(packet)
    }
}

/// Runs a case in a namespace of its own.
pub fn within(name: &'static str, case: fn()) {
    let (_crate, name) = name.split_once("::").expect("a path");
    in_namespace_as(name, case);
}
