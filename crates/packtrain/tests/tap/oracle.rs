//! The kernel as oracle: its segmentation and merging, compared with ours byte for byte.
//!
//! Packets are written into one TUN, routed by the kernel, and read out of another. On the way it
//! cuts them, if the second takes no GSO packets (`skb_gso_segment()`), or merges them, if the
//! first has `IFF_NAPI` (`napi_gro_receive()`). With Ethernet headers: [`bridge`], [`ethernet`],
//! [`veth`].

use crate::test_packets::frame::{Field, Frame, finish, tcp4, timestamps, train};
use crate::test_packets::wire::Wire;
use crate::test_packets::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};
use crate::world::{TIMEOUT, configure, in_namespace, raw_tun, set_value, write_sysfs};
use packtrain_offload::checksum;
use packtrain_offload::coalesce::{Coalescer, Config, Done, Mode, Owned, Semantics};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Ecn, Gso, GsoKind, LinkType};
use packtrain_offload::random::Random;
use packtrain_offload::segment::{Fill, Segmenter};
use packtrain_offload::virtio_net::{Accept, FLAG_NEEDS_CSUM, HeaderLen, VnetHeader, describe};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

mod bridge;
mod ethernet;
mod veth;

const IN: &str = "oracle-in";
const OUT: &str = "oracle-out";
const RAW: i32 = libc::IFF_TUN | libc::IFF_NO_PI;
/// `IFF_NAPI` (linux/if_tun.h).
const NAPI: i32 = 0x0010;
const OFFLOADS: u32 = Accept::ALL.tun_flags();
const VNET: usize = HeaderLen::Legacy.bytes();
/// The longest time that the kernel holds packets to merge, in nanoseconds.
const HOLD_NANOS: u64 = 30_000_000;

/// From a host behind [`IN`] to one behind [`OUT`].
fn frame(ipv6: bool, tcp: bool) -> Frame {
    Frame {
        ipv6,
        tcp,
        networks: (1, 2),
        source: 9,
        destination: 9,
        ports: (4000, 443),
        ..tcp4(0)
    }
}

fn kind(frame: &Frame) -> GsoKind {
    match (frame.tcp, frame.ipv6) {
        (true, false) => GsoKind::TcpV4,
        (true, true) => GsoKind::TcpV6,
        (false, false) => GsoKind::UdpV4,
        (false, true) => GsoKind::UdpV6,
    }
}

/// The fields that may differ from the frame before, in a line.
fn brief(frame: &Frame) -> String {
    let Frame {
        tos,
        ttl,
        id,
        fragment,
        sequence,
        acknowledgement,
        flags,
        window,
        ..
    } = frame;
    let tcp = format!("{sequence} {flags:02x} ack {acknowledgement} window {window}");
    let ip = format!("id {id}/{fragment:x} tos {tos} ttl {ttl}");
    let (port, bytes) = (frame.ports.0, frame.payload.len());
    format!("{port}: {bytes} bytes at {tcp}, {ip}\n")
}

fn layout(packet: &[u8]) -> Layout {
    Layout::parse(LinkType::RawIp, packet, packet.len() as u32).expect("a packet")
}

/// The changes of a router.
fn routed(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
    } else {
        packet[8] -= 1;
        packet[10..12].fill(0);
        let transport = usize::from(packet[0] & 0x0F) * 4;
        let sum = checksum::ipv4_header(&packet[..transport]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Two TUNs, between which the kernel routes.
struct Router {
    input: File,
    output: File,
    /// Bytes in front of each packet that is read.
    header: usize,
}

impl Router {
    /// `None` where the kernel cannot forward.
    fn new(input: i32, output: i32) -> Option<Self> {
        let from = raw_tun(IN, RAW | libc::IFF_VNET_HDR | input).expect(IN);
        let to = raw_tun(OUT, RAW | output).expect(OUT);
        let header = if output & libc::IFF_VNET_HDR == 0 {
            set_value(&to, libc::TUNSETOFFLOAD, 0);
            0
        } else {
            set_value(&to, libc::TUNSETOFFLOAD, OFFLOADS);
            VNET
        };
        configure(IN, 1, 1);
        configure(OUT, 2, 1);
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            if let Err(error) = std::fs::write(format!("/proc/sys/net/{setting}"), "1") {
                println!("SKIP: the kernel does not forward here: {setting}: {error}");
                return None;
            }
        }
        rustix::io::ioctl_fionbio(to.as_fd(), true).expect("FIONBIO");
        let router = Self {
            input: File::from(from),
            output: File::from(to),
            header,
        };
        Some(router)
    }

    fn write(&mut self, header: &VnetHeader, packet: &[u8]) {
        let mut bytes = vec![0; VNET];
        header.encode(&mut bytes, HeaderLen::Legacy).expect("room");
        bytes.extend(packet);
        let written = self.input.write(&bytes).expect("the kernel takes it");
        assert_eq!(written, bytes.len());
    }

    /// The kernel's result for frames.
    fn pass(&mut self, frames: &[Frame]) -> Vec<(VnetHeader, Vec<u8>)> {
        for frame in frames {
            self.write(&VnetHeader::default(), &frame.bytes());
        }
        self.read(frames.len())
    }

    /// Our packets that come out, without their headers, until they stand for `wire_packets`.
    fn read(&mut self, wire_packets: usize) -> Vec<(VnetHeader, Vec<u8>)> {
        let mut got = vec![];
        let mut count = 0;
        let since = Instant::now();
        while count < wire_packets {
            let late = since.elapsed() > TIMEOUT;
            assert!(!late, "{count} of {wire_packets} came");
            let mut bytes = vec![0; VNET + 65_600];
            match self.output.read(&mut bytes) {
                Ok(read) => {
                    bytes.truncate(read);
                    let packet = bytes.split_off(self.header);
                    let header = if self.header == 0 {
                        VnetHeader::default()
                    } else {
                        VnetHeader::decode(&bytes, HeaderLen::Legacy).expect("a header")
                    };
                    if !is_ours(&packet) {
                        continue;
                    }
                    count += stands_for(&header, &packet);
                    got.push((header, packet));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(error) => panic!("{OUT}: {error}"),
            }
        }
        got
    }
}

/// The number of wire packets that a received packet stands for.
fn stands_for(header: &VnetHeader, packet: &[u8]) -> usize {
    let payload = layout(packet).payload_len();
    match header.gso_size {
        0 => 1,
        size => payload.div_ceil(u32::from(size)) as usize,
    }
}

/// Excludes packets that the kernel sends on its own.
fn is_ours(packet: &[u8]) -> bool {
    match packet[0] >> 4 {
        4 => packet[16..20] == [198, 18, 2, 9],
        _ => packet.len() > 40 && packet[24..28] == [0xfd, 0, 0, 2] && packet[39] == 9,
    }
}

/// A packet to be cut: partial checksum, and its metadata.
fn large(frame: &Frame, size: u16) -> (VnetHeader, Vec<u8>, Gso) {
    let wire = frame.partial();
    let size = NonZeroU16::new(size).expect("a size");
    let mut gso = Gso::new(kind(frame), size);
    if frame.tcp && frame.flags & CWR != 0 {
        gso = gso.with_ecn(Ecn::Cwr);
    }
    let header = describe(wire.checksum, Some(gso), Some(&layout(&wire.bytes)));
    (header, wire.bytes, gso)
}

fn cut(packet: &[u8], gso: Gso) -> Vec<Vec<u8>> {
    let segmenter =
        Segmenter::new(packet, &layout(packet), gso, packet.len() as u32).expect("it can be cut");
    let segment = |index| {
        let range = segmenter.payload(index);
        let payload = &packet[range.start as usize..range.end as usize];
        let mut out = vec![0; segmenter.header_bytes()];
        let fill = Fill::Complete {
            payload: checksum::sum(payload),
        };
        segmenter
            .write_header(index, packet, &mut out, fill)
            .expect("room");
        out.extend_from_slice(payload);
        out
    };
    (0..segmenter.segments()).map(segment).collect()
}

/// Every segment that the kernel makes of a GSO packet is the one that we make.
#[test]
fn the_kernel_cuts_as_we_do() {
    in_namespace(|| {
        let Some(mut router) = Router::new(0, 0) else {
            return;
        };
        let mut count = 0;
        for frame in to_be_cut() {
            for (bytes, size) in [
                (3000, 1000),
                (2501, 1000),
                (65_000, 1400),
                (1001, 500),
                (90, 17),
            ] {
                if !frame.tcp && bytes / size > 60 {
                    continue;
                }
                let mut frame = frame.clone();
                frame.payload = (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect();
                let (header, packet, gso) = large(&frame, size as u16);
                let expected = cut(&routed(packet.clone()), gso);
                router.write(&header, &packet);
                let got = router.read(expected.len());
                let got: Vec<Vec<u8>> = got.into_iter().map(|(_, packet)| packet).collect();
                assert_eq!(
                    got.len(),
                    expected.len(),
                    "{bytes} by {size}: {:?}",
                    kind(&frame)
                );
                for (index, (got, expected)) in got.iter().zip(&expected).enumerate() {
                    assert_eq!(got, expected, "segment {index}, {bytes} by {size}");
                }
                count += 1;
            }
        }
        println!("{count} packets were cut alike");
    });
}

fn to_be_cut() -> Vec<Frame> {
    let mut all = vec![];
    for ipv6 in [false, true] {
        for flags in [
            ACK,
            ACK | FIN | PSH,
            ACK | CWR,
            ACK | CWR | ECE | PSH,
            ACK | URG,
        ] {
            let mut tcp = frame(ipv6, true);
            tcp.flags = flags;
            tcp.sequence = 0xFFFF_F000;
            tcp.id = 0xFFFE;
            all.push(tcp.clone());
            tcp.options = timestamps(5, 6);
            tcp.fragment = 0;
            tcp.tos = 2;
            all.push(tcp);
        }
        let mut udp = frame(ipv6, false);
        udp.id = 0xFFFE;
        all.push(udp.clone());
        udp.fragment = 0;
        all.push(udp);
    }
    let mut with_options = frame(false, true);
    with_options.ip_options = vec![1, 1, 1, 0];
    all.push(with_options);
    let mut with_extension = frame(true, true);
    with_extension.extensions = vec![(60, vec![0, 1, 4, 0, 0, 0, 0])];
    all.push(with_extension);
    all
}

/// Makes the kernel keep the packets that it merges for an interface across writes, each of which
/// is a poll to it. `false` if that is not possible.
fn hold_across_writes(name: &str) -> bool {
    let file = format!("class/net/{name}/gro_flush_timeout");
    match write_sysfs(&file, &HOLD_NANOS.to_string()) {
        Ok(()) => true,
        Err(error) => {
            println!("SKIP: gro_flush_timeout cannot be set: {error}");
            false
        }
    }
}

/// A packet that came out: its segment size if it is to be cut, and its bytes.
type Piece = (u16, Vec<u8>);

/// Our result, and that of a router after us.
fn ours(frames: &[Frame]) -> Vec<Piece> {
    let pieces = merged(frames.iter().map(Frame::bytes)).into_iter();
    pieces.map(|(size, bytes)| (size, routed(bytes))).collect()
}

/// Our result.
fn merged(packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<Piece> {
    merged_behind(LinkType::RawIp, packets)
}

/// The same, behind a header of this kind.
fn merged_behind(link: LinkType, packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<Piece> {
    let mut config = Config::new(Semantics::Reversible, link, 64);
    config.mode = Mode::Hash;
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).expect("its storage");
    let mut out = vec![];
    let mut sink = |wire: Wire, done: &Done| {
        let size = match done {
            Done::Merged(merged) => merged.gso.map_or(0, |gso| gso.size.get()),
            Done::Alone(_) | Done::Passed(_) => 0,
        };
        out.push((size, wire.bytes));
    };
    let packets = packets
        .into_iter()
        .map(|bytes| Wire::new(bytes, ChecksumState::None));
    coalescer.push_burst(0, packets, &mut sink);
    coalescer.flush(&mut sink);
    out
}

/// The kernel's result, with no packet flushed for its age: the kernel flushes at the end of a
/// clock tick, at any point of the train. So the train is sent until the result is `expected`. If
/// it never is, the result with the fewest packets counts.
fn kernels(
    mut pass: impl FnMut() -> Vec<(VnetHeader, Vec<u8>)>,
    expected: impl Fn(&[Piece]) -> bool,
) -> Vec<Piece> {
    let mut best: Option<Vec<Piece>> = None;
    for _ in 0..200 {
        let got: Vec<Piece> = pass().into_iter().map(finished).collect();
        if expected(&got) {
            return got;
        }
        if best.as_ref().is_none_or(|best| got.len() < best.len()) {
            best = Some(got);
        }
    }
    best.unwrap_or_default()
}

/// The packet with a complete checksum: the kernel may cut it again and leave the checksum partial.
fn finished((header, mut packet): (VnetHeader, Vec<u8>)) -> Piece {
    if header.gso_size == 0 && header.flags & FLAG_NEEDS_CSUM != 0 {
        packet = finish(&packet, header.csum_start, header.csum_offset);
    }
    (header.gso_size, packet)
}

fn shapes(pieces: &[Piece]) -> Vec<(u16, u32)> {
    let shape = |(size, bytes): &Piece| (*size, layout(bytes).payload_len());
    pieces.iter().map(shape).collect()
}

fn payloads(pieces: &[Piece]) -> Vec<u32> {
    let shapes = shapes(pieces);
    shapes.into_iter().map(|(_, payload)| payload).collect()
}

/// A case: frames and, if we chose to differ from the kernel, the payload lengths of its result.
struct Case {
    name: &'static str,
    frames: Vec<Frame>,
    kernel: Option<&'static [u32]>,
}

fn changed(name: &'static str, ipv6: bool, sizes: &[usize], change: impl Fn(&mut [Frame])) -> Case {
    let mut frames = train(&frame(ipv6, true), sizes);
    change(&mut frames);
    Case {
        name,
        frames,
        kernel: None,
    }
}

/// Cases for either IP version.
fn cases(ipv6: bool) -> Vec<Case> {
    let case =
        |name, sizes: &[usize], change: &dyn Fn(&mut [Frame])| changed(name, ipv6, sizes, change);
    vec![
        case("t1 same size", &[100, 100], &|_| ()),
        case("t2 shorter", &[100, 50], &|_| ()),
        case("t3 longer", &[50, 100], &|_| ()),
        case("t4 after a shorter", &[100, 100, 50, 100], &|_| ()),
        case("t5 PSH", &[100; 5], &|f| f[2].flags |= PSH),
        case("t6 pure ACKs", &[0; 3], &|f| f[2].acknowledgement += 1),
        case("t6 a pure ACK between", &[100, 0, 100], &|_| ()),
        case("t7 SYN", &[100, 100, 0, 100, 100], &|f| f[2].flags |= SYN),
        case("t7 RST", &[100, 100, 0, 100, 100], &|f| f[2].flags |= RST),
        case("t7 URG", &[100, 100, 0, 100, 100], &|f| f[2].flags |= URG),
        case("t7 SYN with data", &[100; 4], &|f| f[1].flags |= SYN),
        case("t10 gap", &[100, 100], &|f| f[1].sequence += 1),
        case("t10 repeated", &[100, 100, 100], &|f| f[2] = f[1].clone()),
        case("t11 timestamps", &[100; 3], &|f| {
            for (f, value) in f.iter_mut().zip([0, 0, 100]) {
                f.options = timestamps(value, 1);
            }
        }),
        case("t12 TTL", &[100, 100], &|f| f[1].ttl -= 1),
        case("t13 ECN of IP", &[100; 3], &|f| f[1].tos = 2),
        case("t21 up to the limit", &[1400; 50], &|_| ()),
        case("t22 window", &[100, 100], &|f| f[1].window += 1),
        case("t25 acknowledgement", &[100; 3], &|f| {
            f[1].acknowledgement += 1;
            f[2].acknowledgement += 1;
        }),
        case("t26 FIN", &[100; 4], &|f| f[3].flags |= FIN),
        case("t27 sequence numbers wrap", &[100; 3], &|f| {
            for (n, f) in (0..).zip(f) {
                f.sequence = 0xFFFF_FF9C_u32.wrapping_add(n * 100);
            }
        }),
        case("ECE", &[100; 4], &|f| {
            f[2..].iter_mut().for_each(|f| f.flags |= ECE);
        }),
        case("AE", &[100; 4], &|f| {
            f[2..].iter_mut().for_each(|f| f.reserved = 1);
        }),
        case("other flags", &[100; 3], &|f| f[1].flags = 0),
        case("two flows", &[100; 4], &|f| {
            for (n, f) in f.iter_mut().enumerate() {
                f.ports.0 += n as u16 % 2;
                f.sequence = 1000 + n as u32 / 2 * 100;
                f.id = 8 + n as u16 / 2;
            }
        }),
    ]
}

const SAME_WITHOUT_DF: &str = "t18 the same without DF";

/// Cases for IPv4 alone.
fn cases_v4() -> Vec<Case> {
    const DF: u16 = 0x4000;
    let ids = |name, fragment, ids: &'static [u16]| {
        changed(name, false, &vec![100; ids.len()], move |frames| {
            for (frame, id) in frames.iter_mut().zip(ids) {
                (frame.id, frame.fragment) = (*id, fragment);
            }
        })
    };
    vec![
        ids("t17 counting", DF, &[8, 9]),
        ids("t17 counting without DF", 0, &[8, 9]),
        ids("t19 counting, then the same", DF, &[8, 9, 9]),
        // The kernel merges these since 6.18, and cuts them again in front of a TUN: the result
        // looks like ours.
        ids(SAME_WITHOUT_DF, 0, &[8, 8]),
        ids("wrapping", DF, &[0xFFFF, 0, 1]),
        ids("backwards", DF, &[9, 8]),
        changed("DF", false, &[100; 3], |f| f[2].fragment = 0),
    ]
}

fn cases_v6() -> Vec<Case> {
    let extensions = |mark| vec![(60, vec![0, 0x1e, 4, 0, 0, 0, mark])];
    vec![
        changed("t15 the same extension header", true, &[100, 100], |f| {
            f.iter_mut().for_each(|f| f.extensions = extensions(0));
        }),
        changed("t15 another extension header", true, &[100, 100], |f| {
            f[0].extensions = extensions(0);
            f[1].extensions = extensions(1);
        }),
        changed("flow label", true, &[100, 100], |f| f[1].flow_label += 1),
    ]
}

/// The differences from the kernel, and their reasons. The kernel's result is checked too, so that
/// the list stays true.
fn documented(version: (u32, u32)) -> Vec<Case> {
    let mut all = vec![];
    for ipv6 in [false, true] {
        // Classic ECN: CWR is on the first of a train alone. Since it supports Accurate ECN (6.15),
        // the kernel compares it like any other flag and merges the two. It cuts them again in
        // front of a TUN, which cannot express that.
        let mut cwr = changed("t8 CWR", ipv6, &[100; 5], |f| {
            f[1].flags |= CWR;
            f[2].flags |= CWR;
        });
        cwr.kernel = Some(if version >= (6, 15) {
            &[100, 100, 100, 200]
        } else {
            &[100, 100, 300]
        });
        all.push(cwr);
        // Here the packets held of its flow go first; in the kernel the wrong packet overtakes
        // them. The packets behind it do not continue those held: there is a gap.
        let mut wrong = changed("t9 wrong checksum", ipv6, &[100, 140, 100], |f| {
            f[1].checksum = Field::Wrong;
        });
        wrong.kernel = Some(&[140, 100, 100]);
        all.push(wrong);
        // Fewer bytes than a GSO packet may have (8): the coalescer does not hold them.
        let mut tiny = changed("tiny payloads", ipv6, &[4, 4], |_| ());
        tiny.kernel = Some(&[8]);
        all.push(tiny);
    }
    // The kernel merges these, too, but cuts them again in front of a TUN: a virtio-net header
    // cannot express that the identification stays. Ours is marked (`Gso::fixed_id`) for the
    // sender.
    for (mut same, kernel) in same_ids().into_iter().zip([&[100; 2][..], &[100; 3]]) {
        same.kernel = Some(kernel);
        all.push(same);
    }
    // As for wrong checksums.
    let mut options = changed("t14 IP options", false, &[100, 140, 100], |f| {
        f[1].ip_options = vec![1, 1, 1, 0];
    });
    options.kernel = Some(&[140, 100, 100]);
    all.push(options);
    all
}

/// Identifications that stay the same, with DF.
fn same_ids() -> [Case; 2] {
    [&[8, 8][..], &[8, 8, 9]].map(|ids| {
        changed("t17 the same", false, &vec![100; ids.len()], |frames| {
            for (frame, id) in frames.iter_mut().zip(ids) {
                frame.id = *id;
            }
        })
    })
}

/// A train of two flows with events that both treat alike. Another flow label is excluded: to Linux
/// it is another flow, and may be overtaken; here a flow is addresses and ports.
fn random_train(numbers: &mut Random) -> Vec<Frame> {
    let ipv6 = numbers.index(2) == 1;
    let mut flows = [frame(ipv6, true), frame(ipv6, true)];
    flows[1].ports.0 += 1;
    flows[1].options = timestamps(1, 1);
    let mut frames = vec![];
    for number in 0..12 {
        let next = &mut flows[numbers.index(4) / 3];
        match numbers.index(40) {
            0 => next.acknowledgement += 1,
            1 => next.window += 1,
            2 => next.ttl -= 1,
            3 => next.tos ^= 2,
            4 => next.sequence += 5,
            5 => next.id = next.id.wrapping_add(7),
            6 => next.fragment ^= 0x4000,
            _ => {}
        }
        let mut this = next.clone();
        let bytes = [100, 100, 100, 100, 100, 100, 99, 8, 101, 0][numbers.index(10)];
        this.payload = (0..bytes).map(|i| (i * 7 + number * 13) as u8).collect();
        this.flags |= [0, 0, 0, 0, 0, 0, 0, PSH, FIN, ECE, SYN, RST, URG][numbers.index(13)];
        next.sequence = next.sequence.wrapping_add(bytes as u32);
        next.id = next.id.wrapping_add(1);
        frames.push(this);
    }
    frames
}

/// The packets of one flow: those of different flows may be reordered.
fn of_flow(pieces: &[Piece], port: u16) -> Vec<Piece> {
    let is = |(_, bytes): &&Piece| {
        let at = usize::from(layout(bytes).transport);
        bytes[at..at + 2] == port.to_be_bytes()
    };
    pieces.iter().filter(is).cloned().collect()
}

/// Compares the kernel's result with ours, flow by flow; where we chose to differ, with `known`.
fn compare(
    mut pass: impl FnMut() -> Vec<(VnetHeader, Vec<u8>)>,
    ours: &[Piece],
    known: Option<&[u32]>,
    what: &str,
) {
    const PORTS: [u16; 2] = [4000, 4001];
    if let Some(known) = known {
        let theirs = kernels(&mut pass, |theirs| payloads(theirs) == known);
        assert_eq!(
            payloads(&theirs),
            known,
            "{what}: not what the kernel was known to do"
        );
        assert_ne!(
            shapes(&theirs),
            shapes(ours),
            "{what}: no difference any more"
        );
        return;
    }
    let theirs = kernels(&mut pass, |theirs| {
        let alike = |port| shapes(&of_flow(theirs, port)) == shapes(&of_flow(ours, port));
        PORTS.into_iter().all(alike)
    });
    for port in PORTS {
        let (theirs, ours) = (of_flow(&theirs, port), of_flow(ours, port));
        assert_eq!(shapes(&theirs), shapes(&ours), "{what}: the kernel, and we");
        assert!(theirs == ours, "{what}: the kernel's bytes, and ours");
    }
}

/// A case of UDP.
struct Datagrams {
    case: Case,
    /// The index of a datagram that has no checksum: its field is 0.
    without: Option<usize>,
}

fn datagrams(
    name: &'static str,
    ipv6: bool,
    sizes: &[usize],
    change: impl Fn(&mut [Frame]),
) -> Datagrams {
    let mut frames = train(&frame(ipv6, false), sizes);
    change(&mut frames);
    let case = Case {
        name,
        frames,
        kernel: None,
    };
    Datagrams {
        case,
        without: None,
    }
}

fn udp_cases(ipv6: bool) -> Vec<Datagrams> {
    let case =
        |name, sizes: &[usize], change: &dyn Fn(&mut [Frame])| datagrams(name, ipv6, sizes, change);
    let mut all = vec![
        case("u1 same size", &[100; 4], &|_| ()),
        case("u2 shorter", &[100, 100, 50], &|_| ()),
        case("u2 after a shorter", &[100, 50, 100, 100], &|_| ()),
        case("u3 longer", &[50, 100, 100], &|_| ()),
        case("u4 64 at most", &[20; 70], &|_| ()),
        case("up to the limit", &[1400; 50], &|_| ()),
        case("one byte", &[1; 3], &|_| ()),
        case("TTL", &[100; 3], &|f| f[1].ttl -= 1),
        case("ECN", &[100; 3], &|f| f[1].tos = 2),
        case("two flows", &[100; 6], &|f| {
            for (n, f) in f.iter_mut().enumerate() {
                f.ports.0 += n as u16 % 2;
                f.id = 8 + n as u16 / 2;
            }
        }),
    ];
    // These two kinds overtake the packets held in the kernel. Here they flush them.
    let same_id = |f: &mut [Frame]| f.iter_mut().for_each(|f| f.id = 8);
    let mut empty = case("empty", &[100, 0, 100], &same_id);
    empty.case.kernel = Some(&[0, 200]);
    let mut without = case("no checksum", &[100, 140, 100], &same_id);
    without.without = Some(1);
    without.case.kernel = Some(&[140, 200]);
    all.extend([empty, without]);
    if !ipv6 {
        let ids = |name, fragment, ids: &'static [u16]| {
            case(
                name,
                &vec![100; ids.len()],
                &move |frames: &mut [Frame]| {
                    for (frame, id) in frames.iter_mut().zip(ids) {
                        (frame.id, frame.fragment) = (*id, fragment);
                    }
                },
            )
        };
        all.extend([
            ids("counting without DF", 0, &[8, 9, 10]),
            ids("wrapping", 0x4000, &[0xFFFF, 0, 1]),
            ids("backwards", 0x4000, &[9, 8]),
            ids("a gap", 0, &[8, 10, 11]),
        ]);
    }
    all
}

/// A train of two flows of datagrams.
fn random_datagrams(numbers: &mut Random) -> Vec<Frame> {
    let ipv6 = numbers.index(2) == 1;
    let mut flows = [frame(ipv6, false), frame(ipv6, false)];
    flows[1].ports.0 += 1;
    let mut frames = vec![];
    for number in 0..20 {
        let next = &mut flows[numbers.index(4) / 3];
        match numbers.index(40) {
            0 => next.ttl -= 1,
            1 => next.tos ^= 2,
            2 => next.id = next.id.wrapping_add(7),
            3 => next.fragment ^= 0x4000,
            _ => {}
        }
        let mut this = next.clone();
        let bytes = [100, 100, 100, 100, 100, 100, 100, 99, 8, 101][numbers.index(10)];
        this.payload = (0..bytes).map(|i| (i * 7 + number * 13) as u8).collect();
        next.id = next.id.wrapping_add(1);
        frames.push(this);
    }
    frames
}

/// Removes the checksum of a datagram.
fn without_checksum(packet: &mut [u8]) {
    let at = usize::from(layout(packet).transport) + 6;
    packet[at..at + 2].fill(0);
}

#[test]
fn the_kernel_merges_random_trains_as_we_do() {
    in_namespace(|| {
        let Some(mut router) = Router::new(NAPI, libc::IFF_VNET_HDR) else {
            return;
        };
        if !hold_across_writes(IN) {
            return;
        }
        let mut numbers = Random::new(1);
        for _ in 0..100 {
            let frames = random_train(&mut numbers);
            let briefs: String = frames.iter().map(brief).collect();
            compare(|| router.pass(&frames), &ours(&frames), None, &briefs);
        }
    });
}

fn kernel_version() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc");
    let mut numbers = text
        .split(['.', '-'])
        .map(|n| n.trim().parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Where the kernel's GRO ends a packet, `Reversible` does, and the packet is the same.
#[test]
fn the_kernel_merges_as_we_do() {
    in_namespace(|| {
        let Some(mut router) = Router::new(NAPI, libc::IFF_VNET_HDR) else {
            return;
        };
        if !hold_across_writes(IN) {
            return;
        }
        let lists = [cases(false), cases(true), cases_v4(), cases_v6()];
        let documented = documented(kernel_version());
        let all = lists.into_iter().flatten().chain(documented);
        for Case {
            name,
            frames,
            kernel,
        } in all
        {
            compare(|| router.pass(&frames), &ours(&frames), kernel, name);
        }
    });
}
