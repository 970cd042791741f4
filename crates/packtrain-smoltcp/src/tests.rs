//! A device in memory: what smoltcp gets of a read, and what the device gets of smoltcp. Packets
//! are built by smoltcp, and every write has to pass `virtio_net::validate`.

use super::*;
use packtrain_offload::checksum::pseudo_header_v4;
use packtrain_offload::layout::{Layout, Transport};
use packtrain_offload::offload::{Gso, GsoKind, LinkType};
use packtrain_offload::segment::Segmenter;
use packtrain_offload::tun::unread_packets;
use packtrain_offload::verify::{verify_ipv4_header, verify_transport};
use packtrain_offload::virtio_net::{
    Accept, FLAG_DATA_VALID, FLAG_NEEDS_CSUM, GSO_NONE, GSO_TCPV4, GSO_UDP_L4, Received,
    VnetHeader, validate,
};
use proptest::prelude::*;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, RxToken as _, TxToken as _};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::wire::{
    HardwareAddress, IpAddress, IpCidr, IpProtocol, IpRepr, Ipv4Address, Ipv4Packet, TcpControl,
    TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, UdpRepr,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::rc::Rc;

const EIO: i32 = 5;
const EINVAL: i32 = 22;
const NOW: Instant = Instant::ZERO;
const FROM: Ipv4Address = Ipv4Address::new(198, 18, 0, 1);
const TO: Ipv4Address = Ipv4Address::new(198, 18, 0, 9);

/// One direction between two devices.
type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;
/// What a device says to a write.
type Answer = fn(&[u8]) -> io::Result<()>;

/// Two queues, and how writes are answered.
struct Memory {
    reads: Queue,
    writes: Queue,
    answer: Answer,
}

impl Memory {
    fn new(reads: &[Vec<u8>]) -> Self {
        Self {
            reads: Rc::new(RefCell::new(reads.to_vec().into())),
            writes: Queue::default(),
            answer: |_| Ok(()),
        }
    }
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let packet = self.reads.borrow_mut().pop_front();
        let packet = packet.ok_or(ErrorKind::WouldBlock)?;
        buffer[..packet.len()].copy_from_slice(&packet);
        Ok(packet.len())
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.answer)(bytes)?;
        self.writes.borrow_mut().push_back(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn behind(header: &VnetHeader, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 10];
    header.encode(&mut bytes, HeaderLen::Legacy).expect("room");
    [&bytes, packet].concat()
}

/// `flags` and a type with a segment size, for a transport header at 20.
fn header(flags: u8, gso_type: u8, gso_size: u16, csum_offset: u16) -> VnetHeader {
    VnetHeader {
        flags,
        gso_type,
        gso_size,
        csum_start: 20,
        csum_offset,
        ..VnetHeader::default()
    }
}

fn ip(protocol: IpProtocol, bytes: usize) -> (IpRepr, Vec<u8>) {
    let repr = IpRepr::new(FROM.into(), TO.into(), protocol, bytes, 64);
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet, &ChecksumCapabilities::default());
    (repr, packet)
}

/// A TCP packet over IPv4, with a right checksum or with 0.
fn tcp(payload: &[u8], checksum: bool) -> Vec<u8> {
    let repr = TcpRepr {
        src_port: 7,
        dst_port: 4000,
        control: TcpControl::Psh,
        seq_number: TcpSeqNumber(1000),
        ack_number: Some(TcpSeqNumber(5)),
        window_len: 4096,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload,
    };
    let (ip, mut packet) = ip(IpProtocol::Tcp, repr.buffer_len());
    let capabilities = if checksum {
        ChecksumCapabilities::default()
    } else {
        ChecksumCapabilities::ignored()
    };
    let mut transport = TcpPacket::new_unchecked(&mut packet[20..]);
    repr.emit(
        &mut transport,
        &ip.src_addr(),
        &ip.dst_addr(),
        &capabilities,
    );
    packet
}

/// A UDP packet over IPv4, with the sum of the pseudo-header as its checksum.
fn udp(payload: &[u8]) -> Vec<u8> {
    let repr = UdpRepr {
        src_port: 7,
        dst_port: 4000,
    };
    let (ip, mut packet) = ip(IpProtocol::Udp, 8 + payload.len());
    let mut datagram = UdpPacket::new_unchecked(&mut packet[20..]);
    repr.emit(
        &mut datagram,
        &ip.src_addr(),
        &ip.dst_addr(),
        payload.len(),
        |to| to.copy_from_slice(payload),
        &ChecksumCapabilities::ignored(),
    );
    let bytes = 8 + payload.len() as u32;
    let sum = pseudo_header_v4(FROM.octets(), TO.octets(), 17, bytes);
    packet[26..28].copy_from_slice(&sum.fold().to_be_bytes());
    packet
}

fn received(device: &mut TunDevice<Memory>) -> Option<Vec<u8>> {
    let (packet, _) = device.receive(NOW)?;
    Some(packet.consume(<[u8]>::to_vec))
}

fn send(device: &mut TunDevice<Memory>, packet: &[u8], segment: Option<u16>) {
    let mut token = device.transmit(NOW).expect("always room");
    let mut meta = PacketMeta::default();
    meta.segmentation_offload_size = segment.and_then(NonZeroU16::new);
    token.set_meta(meta);
    token.consume(packet.len(), |to| to.copy_from_slice(packet));
}

/// A write as the kernel takes it: everything in the header has to be right.
fn accepted(write: &[u8], form: HeaderLen, link: LinkType) -> (VnetHeader, Received) {
    let header = VnetHeader::decode(write, form).expect("a header");
    let packet = &write[form.bytes()..];
    let received = validate(&header, link, Accept::ALL, packet, packet.len() as u32);
    (header, received.expect("an accepted packet"))
}

/// The wire packets of a write, each verified.
fn wire(write: &[u8], form: HeaderLen, link: LinkType) -> Vec<Vec<u8>> {
    let offload = TunOffload {
        header: Some(form),
        link,
        ..TunOffload::tun()
    };
    let mut write = write.to_vec();
    let mut packets = offload.packets(&mut write).expect("an accepted packet");
    let mut wire = Vec::new();
    while let Some(packet) = packets.next_packet() {
        let layout = Layout::parse(link, packet, packet.len() as u32).expect("headers");
        if layout.transport_kind == Transport::Tcp {
            assert!(verify_transport(packet, &layout).is_valid());
        }
        wire.push(packet.to_vec());
    }
    wire
}

#[test]
fn a_large_packet_of_the_kernel_reaches_smoltcp_whole() {
    let large = tcp(&[7; 30_000], false);
    let small = tcp(b"end", false);
    let reads = [
        behind(&header(FLAG_NEEDS_CSUM, GSO_TCPV4, 1460, 16), &large),
        behind(&header(FLAG_NEEDS_CSUM, GSO_NONE, 0, 16), &small),
    ];
    let mut device = TunDevice::tun(Memory::new(&reads), 1500);
    assert_eq!(received(&mut device), Some(large));
    assert_eq!(received(&mut device), Some(small));
    assert_eq!(received(&mut device), None);
    let expected = Counts {
        reads: 2,
        received: 2,
        received_large: 1,
        received_wire: 22,
        ..Counts::default()
    };
    assert_eq!(device.counts(), expected);
    assert!(device.take_error().is_none());
}

#[test]
fn datagrams_of_a_large_packet_come_one_by_one_with_checksums() {
    let payload: Vec<u8> = (0..2500).map(|at| at as u8).collect();
    let gso = behind(
        &header(FLAG_NEEDS_CSUM, GSO_UDP_L4, 1000, 6),
        &udp(&payload),
    );
    let alone = behind(&header(FLAG_NEEDS_CSUM, GSO_NONE, 0, 6), &udp(b"alone"));
    let mut device = TunDevice::tun(Memory::new(&[gso.clone(), alone, gso]), 1500);
    let mut sizes = Vec::new();
    let mut whole = Vec::new();
    while let Some(packet) = received(&mut device) {
        let layout = Layout::parse(LinkType::RawIp, &packet, packet.len() as u32).expect("UDP");
        assert!(verify_ipv4_header(&packet, &layout).is_valid());
        assert!(verify_transport(&packet, &layout).is_valid());
        sizes.push(packet.len() - 28);
        whole.extend_from_slice(&packet[28..]);
    }
    assert_eq!(sizes, [1000, 1000, 500, 5, 1000, 1000, 500]);
    assert_eq!(whole, [&payload[..], b"alone", &payload].concat());
    let counts = device.counts();
    assert_eq!((counts.reads, counts.received), (3, 7));
    assert_eq!((counts.received_large, counts.received_wire), (0, 7));
}

#[test]
fn tcp_that_the_kernel_has_not_verified_is_verified() {
    let right = tcp(b"right", true);
    let mut wrong = right.clone();
    wrong[44] ^= 1;
    // With "more fragments", and a new checksum of the IP header.
    let mut fragment = right.clone();
    Ipv4Packet::new_unchecked(&mut fragment).set_more_frags(true);
    Ipv4Packet::new_unchecked(&mut fragment).fill_checksum();
    let none = VnetHeader::default();
    let verified = header(FLAG_DATA_VALID, GSO_NONE, 0, 0);
    let reads = [
        behind(&none, &wrong),
        behind(&none, &fragment),
        behind(&none, &right),
        behind(&verified, &wrong),
    ];
    let mut device = TunDevice::tun(Memory::new(&reads), 1500);
    assert_eq!(received(&mut device), Some(right));
    assert_eq!(received(&mut device), Some(wrong), "the kernel vouches");
    assert_eq!(received(&mut device), None);
    let counts = device.counts();
    assert_eq!((counts.reads, counts.received), (4, 2));
    assert_eq!((counts.bad_checksums, counts.received_wire), (2, 2));
    assert_eq!(unread_packets(), 0, "what is dropped is counted by reason");
}

#[test]
fn a_read_with_a_bad_header_is_counted_and_the_next_one_is_read() {
    let good = tcp(b"good", true);
    let reads = [
        vec![0; 9],
        behind(&header(FLAG_NEEDS_CSUM, 3, 100, 16), &good),
        behind(&VnetHeader::default(), &good),
    ];
    let mut device = TunDevice::tun(Memory::new(&reads), 1500);
    assert_eq!(received(&mut device), Some(good));
    let counts = device.counts();
    assert_eq!((counts.reads, counts.bad_headers), (3, 2));
}

#[test]
fn a_large_segment_is_one_write_that_a_kernel_takes() {
    let payload: Vec<u8> = (0..20_000).map(|at| (at * 7) as u8).collect();
    for form in [HeaderLen::Legacy, HeaderLen::V1] {
        let memory = Memory::new(&[]);
        let writes = Rc::clone(&memory.writes);
        let mut device = TunDevice::tun(memory, 1500).with_header(form);
        send(&mut device, &tcp(&payload, false), Some(1460));
        send(&mut device, &tcp(b"", false), None);
        let writes: Vec<_> = writes.take().into();
        let (header, packet) = accepted(&writes[0], form, LinkType::RawIp);
        let expected = VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            gso_type: GSO_TCPV4,
            hdr_len: 40,
            gso_size: 1460,
            csum_start: 20,
            csum_offset: 16,
            num_buffers: u16::from(form == HeaderLen::V1),
        };
        assert_eq!(header, expected);
        assert_eq!(packet.wire_packets, 14);
        // The field holds what the checksum of a packet without bytes would be, complemented.
        let of_pseudo_header = [
            &FROM.octets()[..],
            &TO.octets(),
            &[0, 6],
            &20_020_u16.to_be_bytes(),
        ];
        let sum: u32 = of_pseudo_header
            .concat()
            .chunks(2)
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let at = form.bytes() + 36;
        assert_eq!(writes[0][at..at + 2], (folded as u16).to_be_bytes());
        let wire: Vec<u8> = wire(&writes[0], form, LinkType::RawIp)
            .iter()
            .flat_map(|packet| packet[40..].to_vec())
            .collect();
        assert_eq!(wire, payload);
        let (header, packet) = accepted(&writes[1], form, LinkType::RawIp);
        assert_eq!((header.gso_type, packet.wire_packets), (GSO_NONE, 1));
        assert_eq!(header.flags, FLAG_NEEDS_CSUM);
        let expected = Counts {
            sent: 2,
            sent_large: 1,
            sent_wire: 15,
            writes: 2,
            ..Counts::default()
        };
        assert_eq!(device.counts(), expected);
    }
}

/// Of a raw socket: its sender has made the checksum, right or wrong.
#[test]
fn a_packet_that_has_a_checksum_stays_as_it_is() {
    let memory = Memory::new(&[]);
    let writes = Rc::clone(&memory.writes);
    let mut device = TunDevice::tun(memory, 1500);
    let mut wrong = tcp(b"wrong", true);
    wrong[44] ^= 1;
    for packet in [&wrong, &udp(b"no checksum"), &vec![9; 5]] {
        send(&mut device, packet, None);
        let write = writes.borrow_mut().pop_front().expect("a write");
        assert_eq!((&write[..10], &write[10..]), (&[0; 10][..], &packet[..]));
    }
}

#[test]
fn a_kernel_that_refuses_large_writes_gets_wire_packets() {
    let payload: Vec<u8> = (0..5000).map(|at| (at * 7) as u8).collect();
    let mut memory = Memory::new(&[]);
    memory.answer = |write| {
        let is_large = write[1] != GSO_NONE;
        let refused = Err(io::Error::from_raw_os_error(EINVAL));
        if is_large { refused } else { Ok(()) }
    };
    let writes = Rc::clone(&memory.writes);
    let mut device = TunDevice::tun(memory, 1500);
    for _ in 0..2 {
        send(&mut device, &tcp(&payload, false), Some(1460));
        let wire: Vec<Vec<u8>> = writes
            .take()
            .iter()
            .flat_map(|write| wire(write, HeaderLen::Legacy, LinkType::RawIp))
            .collect();
        let sizes: Vec<usize> = wire.iter().map(Vec::len).collect();
        assert_eq!(sizes, [1500, 1500, 1500, 660]);
        let bytes: Vec<u8> = wire
            .iter()
            .flat_map(|packet| packet[40..].to_vec())
            .collect();
        assert_eq!(bytes, payload);
    }
    let counts = device.counts();
    assert_eq!((counts.refused, counts.writes), (1, 8), "tried once");
    assert_eq!((counts.sent_large, counts.sent_wire), (2, 8));
    assert!(device.take_error().is_none(), "nothing was lost");
}

/// `EIO` is the error of each write, large or not: a device that comes up gets large packets again.
#[test]
fn a_device_that_is_down_is_no_reason_to_send_wire_packets() {
    let mut memory = Memory::new(&[]);
    memory.answer = |_| Err(io::Error::from_raw_os_error(EIO));
    let mut device = TunDevice::tun(memory, 1500);
    for round in 1..=3 {
        send(&mut device, &tcp(&[7; 5000], false), Some(1460));
        let error = device.take_error().and_then(|error| error.raw_os_error());
        assert_eq!(error, Some(EIO));
        // The large write and four packets.
        let counts = device.counts();
        assert_eq!((counts.refused, counts.writes), (5 * round, 0));
    }
    device.output.device.answer = |_| Ok(());
    send(&mut device, &tcp(&[7; 5000], false), Some(1460));
    assert!(device.take_error().is_none());
    assert_eq!((device.counts().refused, device.counts().writes), (15, 1));
}

#[test]
fn a_large_write_without_memory_is_one_lost_packet() {
    const ENOMEM: i32 = 12;
    let mut memory = Memory::new(&[]);
    memory.answer = |_| Err(io::Error::from_raw_os_error(ENOMEM));
    let mut device = TunDevice::tun(memory, 1500);
    send(&mut device, &tcp(&[7; 5000], false), Some(1460));
    let error = device.take_error().and_then(|error| error.raw_os_error());
    assert_eq!(error, Some(ENOMEM));
    assert_eq!((device.counts().refused, device.counts().writes), (1, 0));
}

#[test]
fn errors_are_kept_once_and_a_full_device_is_none() {
    let mut memory = Memory::new(&[]);
    memory.answer = |_| Err(ErrorKind::WouldBlock.into());
    let mut device = TunDevice::tun(memory, 1500);
    send(&mut device, &tcp(b"1", false), None);
    assert!(device.take_error().is_none());
    assert_eq!(device.counts().refused, 1);
    let mut memory = device.into_inner();
    memory.answer = |write| {
        let what = if write.len() > 60 { "first" } else { "second" };
        Err(io::Error::other(what))
    };
    let mut device = TunDevice::tun(memory, 1500);
    send(&mut device, &tcp(&[0; 100], false), None);
    send(&mut device, &tcp(b"2", false), None);
    let error = device.take_error().expect("an error");
    assert_eq!(error.to_string(), "first");
    assert!(device.take_error().is_none());
    assert_eq!((device.counts().refused, device.counts().writes), (2, 0));

    struct Removed;
    impl Read for Removed {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("removed"))
        }
    }
    impl Write for Removed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len() - 1)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut device = TunDevice::tun(Removed, 1500);
    for _ in 0..2 {
        assert!(device.receive(NOW).is_none());
        let error = device.take_error().expect("an error");
        assert_eq!(error.to_string(), "removed");
    }
    let token = device.transmit(NOW).expect("always room");
    token.consume(40, |to| to.copy_from_slice(&tcp(b"", false)));
    let error = device.take_error().expect("an error");
    assert_eq!(error.kind(), ErrorKind::WriteZero, "cut off");
}

#[test]
fn capabilities_are_those_of_the_link() {
    let tun = TunDevice::tun(Memory::new(&[]), 1400).capabilities();
    assert_eq!(tun.medium, Medium::Ip);
    assert_eq!(tun.max_transmission_unit, 1400);
    assert_eq!(tun.segmentation.tcpv4, NonZeroUsize::new(65_535));
    assert_eq!(tun.segmentation.tcpv6, None);
    assert!(!tun.checksum.tcp.tx() && !tun.checksum.tcp.rx());
    assert!(tun.checksum.udp.tx() && tun.checksum.udp.rx());
    let least = TunDevice::tun(Memory::new(&[]), 100).capabilities();
    assert_eq!(least.max_transmission_unit, 576);
    #[cfg(feature = "tap")]
    {
        let tap = TunDevice::tap(Memory::new(&[]), 1400).capabilities();
        assert_eq!(tap.medium, Medium::Ethernet);
        assert_eq!(tap.max_transmission_unit, 1414);
        assert_eq!(tap.segmentation.tcpv4, NonZeroUsize::new(65_549));
    }
}

#[test]
fn what_is_printed_for_debugging_has_no_packet_bytes() {
    let device = TunDevice::tun(io::empty(), 1500);
    let printed = format!("{device:?}");
    assert!(
        printed.starts_with("TunDevice { device: Empty"),
        "{printed}"
    );
    assert!(
        printed.contains("mtu: 1500, counts: Counts { reads: 0"),
        "{printed}"
    );
    assert!(printed.len() < 500, "{printed}");
}

/// One end of a connection.
struct End {
    device: TunDevice<Memory>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: smoltcp::iface::SocketHandle,
    sent: usize,
    received: Vec<u8>,
}

const BUFFER_BYTES: usize = 1 << 17;

impl End {
    fn new(memory: Memory, link: LinkType, number: u8) -> Self {
        let (mut device, address) = match link {
            #[cfg(feature = "tap")]
            LinkType::Ethernet => {
                let address = smoltcp::wire::EthernetAddress([2, 0, 0, 0, 0, number]);
                (TunDevice::tap(memory, 1500), address.into())
            }
            _ => (TunDevice::tun(memory, 1500), HardwareAddress::Ip),
        };
        let mut interface = Interface::new(Config::new(address), &mut device, NOW);
        interface.update_ip_addrs(|addresses| {
            for (address, prefix) in [address_of(false, number), address_of(true, number)] {
                addresses.push(IpCidr::new(address, prefix)).expect("room");
            }
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER_BYTES]);
        let mut sockets = SocketSet::new(vec![]);
        let socket = sockets.add(Socket::new(buffer(), buffer()));
        Self {
            device,
            interface,
            sockets,
            socket,
            sent: 0,
            received: Vec::new(),
        }
    }

    fn step(&mut self, now: Instant, data: &[u8]) {
        self.interface
            .poll(now, &mut self.device, &mut self.sockets);
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        if socket.can_send() {
            self.sent += socket.send_slice(&data[self.sent..]).expect("open");
        }
        let mut chunk = vec![0; BUFFER_BYTES];
        if socket.can_recv() {
            let bytes = socket.recv_slice(&mut chunk).expect("open");
            self.received.extend_from_slice(&chunk[..bytes]);
        }
    }
}

fn address_of(ipv6: bool, number: u8) -> (IpAddress, u8) {
    if ipv6 {
        let last = u16::from(number);
        (IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, last), 64)
    } else {
        (IpAddress::v4(198, 18, 0, number), 24)
    }
}

/// Two stacks, joined by their devices, send to each other at once.
fn transfer(link: LinkType, ipv6: bool) {
    let memory = Memory::new(&[]);
    let back = Memory {
        reads: Rc::clone(&memory.writes),
        writes: Rc::clone(&memory.reads),
        ..Memory::new(&[])
    };
    let mut ends = [End::new(memory, link, 1), End::new(back, link, 9)];
    let [client, server] = &mut ends;
    let listens = server.sockets.get_mut::<Socket<'_>>(server.socket);
    listens.listen(7).expect("a closed socket");
    let connects = client.sockets.get_mut::<Socket<'_>>(client.socket);
    let context = client.interface.context();
    let to = (address_of(ipv6, 9).0, 7);
    connects.connect(context, to, 4000).expect("a connection");
    let data: Vec<u8> = (0..1_000_000_u32)
        .map(|at| (at * 31 + (at >> 9)) as u8)
        .collect();
    let mut now = NOW;
    while ends.iter().any(|end| end.received.len() < data.len()) {
        for end in &mut ends {
            end.step(now, &data);
            for write in &*end.device.get_ref().writes.borrow() {
                wire(write, HeaderLen::Legacy, link);
            }
        }
        now += smoltcp::time::Duration::from_millis(1);
        assert!(now < Instant::from_secs(60), "it stalls");
    }
    for end in &ends {
        assert!(end.received == data, "other bytes arrived");
        let counts = end.device.counts();
        assert_eq!(
            counts.refused + counts.bad_headers + counts.bad_checksums,
            0
        );
        assert_eq!(counts.writes, counts.sent);
        if ipv6 {
            // smoltcp drops large packets of IPv6, so it must not make any.
            assert_eq!((counts.sent_large, counts.received_large), (0, 0));
        } else {
            assert!(
                counts.sent_large > 5 && counts.received_large > 5,
                "{counts:?}"
            );
            assert!(
                counts.sent_wire > 600 && counts.received_wire > 600,
                "{counts:?}"
            );
        }
    }
}

#[test]
fn two_stacks_talk_over_ip() {
    transfer(LinkType::RawIp, false);
    transfer(LinkType::RawIp, true);
}

#[cfg(feature = "tap")]
#[test]
fn two_stacks_talk_over_ethernet() {
    transfer(LinkType::Ethernet, false);
    transfer(LinkType::Ethernet, true);
}

proptest! {
    /// No bytes of a device make it panic, and what smoltcp gets is not longer than what was read.
    #[test]
    fn any_read_is_a_packet_or_counted(
        mut start in prop::collection::vec(any::<u8>(), 0..64),
        kind in 0_usize..3,
        bytes in 0_usize..4000,
    ) {
        let packet = match kind {
            0 => tcp(&vec![1; bytes], false),
            1 => udp(&vec![1; bytes]),
            _ => vec![0x45; bytes],
        };
        start.extend_from_slice(packet.get(start.len().saturating_sub(10)..).unwrap_or_default());
        let length = start.len();
        let mut device = TunDevice::tun(Memory::new(&[start]), 1500);
        let mut count = 0;
        while let Some(packet) = received(&mut device) {
            prop_assert!(packet.len() <= length);
            count += 1;
        }
        let counts = device.counts();
        prop_assert_eq!(counts.received, count);
        let dropped = counts.bad_headers + counts.bad_checksums;
        // A read of no bytes is none.
        prop_assert!(count > 0 || dropped == u64::from(length > 0));
    }

    /// A packet of any bytes, with any segment size, is written as it can be cut, or refused.
    #[test]
    fn any_packet_is_written_right_or_refused(
        payload in 0_usize..6000,
        segment in prop::option::of(1_u16..3000),
        damage in prop::option::of((0_usize..40, any::<u8>())),
        refuses_large in any::<bool>(),
    ) {
        let mut packet = tcp(&vec![1; payload], false);
        if let Some((at, value)) = damage {
            packet[at] = value;
        }
        let mut memory = Memory::new(&[]);
        if refuses_large {
            memory.answer = |write| match write[1] {
                GSO_NONE => Ok(()),
                _ => Err(io::Error::from_raw_os_error(EINVAL)),
            };
        }
        let writes = Rc::clone(&memory.writes);
        let mut device = TunDevice::tun(memory, 1500);
        send(&mut device, &packet, segment);
        let writes = writes.take();
        prop_assert_eq!(writes.is_empty(), device.take_error().is_some());
        let counts = device.counts();
        prop_assert_eq!(writes.len() as u64, counts.writes);
        if refuses_large && !writes.is_empty() {
            let length = |write: &Vec<u8>| write.len() - 10;
            let payload: usize = writes.iter().map(|write| length(write) - 40).sum();
            prop_assert!(damage.is_some() || payload == packet.len() - 40);
            prop_assert!(counts.refused <= 1);
            return Ok(());
        }
        prop_assert_eq!(writes.len() as u64 + device.counts().refused, 1);
        if let (Some(write), None) = (writes.front(), damage) {
            let header = VnetHeader::decode(write, HeaderLen::Legacy).expect("a header");
            let layout = Layout::parse(LinkType::RawIp, &write[10..], write.len() as u32 - 10);
            let layout = layout.expect("headers");
            let size = segment.filter(|_| header.gso_type == GSO_TCPV4).unwrap_or(u16::MAX);
            let gso = Gso::new(
                GsoKind::TcpV4,
                NonZeroU16::new(size).expect("not 0"),
            );
            let cut = Segmenter::new(&write[10..], &layout, gso, layout.ip_end);
            prop_assert!(cut.is_ok());
        }
    }
}
