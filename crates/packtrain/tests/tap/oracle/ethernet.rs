//! The kernel's segmentation with Ethernet headers in front, tags among them.
//!
//! GSO packets leave by a veth without offloads, so that the kernel cuts them in software
//! (`validate_xmit_skb()`). A packet socket on its other end, which merges nothing, receives the
//! frames. Packets reach the veth by one of two paths, neither of which changes a byte. Either the
//! test writes them into a TAP that is in a bridge with the veth, or it sends them from a packet
//! socket on the veth itself. On the first path the kernel takes the outermost tag off
//! (`skb_vlan_untag()`), and puts it back before it cuts; on the second all tags stay in the frame.
//! Neither needs a VLAN device.
//!
//! A virtio-net header cannot ask for segments that share one identification, nor for CWR on all of
//! them; those are compared with independent builders only (`packtrain-offload/src/segment/tests`).

use super::*;
use crate::test_packets::{self, Ext, Spec};
use crate::world::{
    PacketSocket, create_veth, set_feature, set_up, wait_until, wait_until_connected,
};

const TAP: &str = "oracle-tap";
const NEAR: &str = "oracle-near";
const FAR: &str = "oracle-far";
/// The offloads that a veth could leave to its peer.
const OFF: [&str; 9] = [
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "tx-checksum-ip-generic",
    "tx-vlan-hw-insert",
    "tx-vlan-stag-hw-insert",
];

/// The path of packets to the veth.
enum Way {
    Tap(File),
    Socket(PacketSocket),
}

struct Cable {
    way: Way,
    far: PacketSocket,
}

impl Cable {
    fn from_socket() -> Self {
        create_veth(NEAR, FAR);
        for feature in OFF {
            assert!(set_feature(NEAR, feature, false), "{feature}");
        }
        assert!(set_feature(FAR, "rx-gro", false), "rx-gro");
        for name in [NEAR, FAR] {
            set_up(name, true);
        }
        let (near, far) = (PacketSocket::open(NEAR), PacketSocket::open(FAR));
        wait_until_connected(&near, &far);
        Self {
            way: Way::Socket(near),
            far,
        }
    }

    /// `None` where the kernel has no bridge.
    fn from_tap() -> Option<Self> {
        if !bridge::create() {
            return None;
        }
        let mut cable = Self::from_socket();
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        cable.way = Way::Tap(File::from(raw_tun(TAP, flags).expect(TAP)));
        set_up(TAP, true);
        bridge::join([TAP, NEAR]);
        let probe = bridge::probe();
        wait_until("the bridge to forward", || {
            cable.send(&VnetHeader::default(), &probe);
            std::iter::from_fn(|| cable.far.receive()).any(|(bytes, _)| bytes[VNET..] == probe)
        });
        Some(cable)
    }

    fn send(&mut self, header: &VnetHeader, frame: &[u8]) {
        let mut bytes = vec![0; VNET];
        header.encode(&mut bytes, HeaderLen::Legacy).expect("room");
        bytes.extend(frame);
        match &mut self.way {
            Way::Tap(tap) => {
                let written = tap.write(&bytes).expect("the kernel takes it");
                assert_eq!(written, bytes.len());
            }
            Way::Socket(near) => {
                let ethertype = u16::from_be_bytes([frame[12], frame[13]]);
                near.send(ethertype, &bytes).expect("room in a queue");
            }
        }
    }

    /// The next `count` frames with these addresses, as they were on the cable.
    fn receive(&self, macs: &[u8], count: usize, name: &str) -> Vec<Vec<u8>> {
        let mut got = vec![];
        wait_until(&format!("{count} segments of {name}"), || {
            got.extend(
                std::iter::from_fn(|| self.far.receive()).filter_map(|(mut bytes, tag)| {
                    let mut frame = bytes.split_off(VNET);
                    let header = VnetHeader::decode(&bytes, HeaderLen::Legacy).expect("a header");
                    if let Some([tpid, control]) = tag {
                        // The receiving end took the tag off, into the packet's metadata.
                        let tag = [tpid.to_be_bytes(), control.to_be_bytes()].concat();
                        frame.splice(12..12, tag);
                    }
                    if !frame.starts_with(macs) {
                        return None;
                    }
                    let left = header.flags & FLAG_NEEDS_CSUM;
                    assert_eq!(
                        (header.gso_type, left),
                        (0, 0),
                        "no offload is left to be done"
                    );
                    Some(frame)
                }),
            );
            got.len() >= count
        });
        got
    }
}

/// A packet to be cut.
struct Whole {
    name: String,
    bytes: Vec<u8>,
    gso: Gso,
}

fn ethernet_layout(frame: &[u8]) -> Layout {
    Layout::parse(LinkType::Ethernet, frame, frame.len() as u32).expect("a packet")
}

impl Whole {
    fn new(name: String, kind: GsoKind, bytes: Vec<u8>, size: u16) -> Self {
        let gso = Gso::new(kind, NonZeroU16::new(size).expect("a size"));
        Self { name, bytes, gso }
    }

    fn of_frame(frame: &Frame, size: u16) -> Self {
        let Frame {
            vlans,
            flags,
            options,
            ip_options,
            payload,
            fragment,
            ..
        } = frame;
        let (kind, bytes) = (kind(frame), payload.len());
        let options = (ip_options.len(), options.len());
        let name = format!(
            "{kind:?}, tags {vlans:x?}, flags {flags:02x}, options {options:?}, DF {fragment:x}, \
             {bytes} bytes by {size}"
        );
        let mut whole = Self::new(name, kind, frame.partial().bytes, size);
        if frame.tcp && flags & CWR != 0 {
            whole.gso = whole.gso.with_ecn(Ecn::Cwr);
        }
        whole
    }

    fn of_spec(spec: &Spec, size: u16) -> Self {
        let kind = match (spec.tcp, spec.ipv6) {
            (true, false) => GsoKind::TcpV4,
            (true, true) => GsoKind::TcpV6,
            (false, false) => GsoKind::UdpV4,
            (false, true) => GsoKind::UdpV6,
        };
        let (tags, exts, bytes) = (&spec.vlans, &spec.exts, spec.payload.len());
        let name = format!("{kind:?}, tags {tags:x?}, {exts:?}, {bytes} bytes by {size}");
        let bytes = spec.build(test_packets::Field::Preload);
        Self::new(name, kind, bytes, size)
    }

    fn header(&self) -> VnetHeader {
        let layout = ethernet_layout(&self.bytes);
        let checksum = ChecksumState::Partial {
            start: layout.transport,
            offset: if self.gso.kind.is_tcp() { 16 } else { 6 },
        };
        describe(checksum, Some(self.gso), Some(&layout))
    }

    /// Our result.
    fn segments(&self) -> Vec<Vec<u8>> {
        let (packet, layout) = (&self.bytes[..], ethernet_layout(&self.bytes));
        let segmenter = Segmenter::new(packet, &layout, self.gso, packet.len() as u32);
        let segmenter = segmenter.expect("it can be cut");
        let segment = |index| {
            let mut out = vec![0; segmenter.wire_bytes(index)];
            let written = segmenter.write_segment(index, packet, &mut out);
            assert_eq!(written, Ok(out.len()));
            out
        };
        (0..segmenter.segments()).map(segment).collect()
    }
}

/// Types and controls: none, 802.1Q, a priority alone, QinQ (802.1ad), and two of 802.1Q.
const TAGS: [&[(u16, u16)]; 5] = [
    &[],
    &[(0x8100, 0x6007)],
    &[(0x8100, 0xA000)],
    &[(0x88a8, 0x2005), (0x8100, 0x6007)],
    &[(0x8100, 0x0005), (0x8100, 0x0006)],
];

/// Bytes of payload, and of a segment's.
const SIZES: [(usize, u16); 8] = [
    (3000, 1000),
    (2501, 1000),
    (65_000, 1400),
    (1001, 500),
    (90, 17),
    (60, 1),
    (1429, 1428),
    // One segment, which needs only its checksum.
    (999, 1400),
];

fn wholes() -> Vec<Whole> {
    let mut all = vec![];
    for (tags, first) in TAGS.into_iter().zip([true, false, false, false, false]) {
        let mut frames: Vec<Frame> = to_be_cut().into_iter().map(Frame::ethernet).collect();
        for frame in &mut frames {
            frame.vlans = tags.to_vec();
        }
        for frame in &frames {
            // Tags change nothing about sizes.
            for &(bytes, size) in &SIZES[..if first { SIZES.len() } else { 3 }] {
                if !frame.tcp && bytes / usize::from(size) > 60 {
                    continue;
                }
                let mut frame = frame.clone();
                frame.payload = test_packets::bytes(bytes);
                let whole = Whole::of_frame(&frame, size);
                // The bit is for devices without this offload. Linux segments with and without it.
                if whole.gso.ecn() != Ecn::None {
                    let Whole { name, bytes, gso } = &whole;
                    let name = format!("{name}, without the ECN bit");
                    all.push(Whole::new(name, gso.kind, bytes.clone(), size));
                }
                all.push(whole);
            }
        }
        all.extend(
            frames
                .iter()
                .filter(|frame| frame.options.is_empty())
                .flat_map(with_zero),
        );
        let tags: Vec<u16> = tags.iter().map(|&(tpid, _)| tpid).collect();
        all.extend(with_extensions(&tags));
    }
    all
}

/// Extension headers, source routes among them: then the checksum has an address that is not in the
/// IPv6 header.
fn with_extensions(tags: &[u16]) -> Vec<Whole> {
    let chains: [&[Ext]; 7] = [
        &[Ext::HopByHop],
        &[Ext::Destination(1)],
        &[Ext::Destination(9)],
        &[Ext::Routing2],
        &[Ext::SegmentRouting],
        &[Ext::SegmentRoutingDone],
        &[
            Ext::HopByHop,
            Ext::Destination(2),
            Ext::SegmentRouting,
            Ext::Destination(1),
        ],
    ];
    let mut all = vec![];
    for exts in chains {
        for spec in [Spec::tcp6(2501), Spec::udp6(2501)] {
            let mut spec = spec.ethernet();
            (spec.exts, spec.vlans) = (exts.to_vec(), tags.to_vec());
            all.push(Whole::of_spec(&spec, 1000));
        }
    }
    all
}

/// The frame with a payload that makes the checksum of the first segment, or of the last, come out
/// as zero: TCP stores it, UDP does not.
fn with_zero(frame: &Frame) -> [Whole; 2] {
    const SIZE: u16 = 1000;
    [0, 2].map(|index| {
        let mut frame = frame.clone();
        frame.payload = test_packets::bytes(2501);
        let offset = if frame.tcp { 16 } else { 6 };
        let field = |frame: &Frame| {
            let segment = &Whole::of_frame(frame, SIZE).segments()[index];
            let at = usize::from(ethernet_layout(segment).transport + offset);
            [segment[at], segment[at + 1]]
        };
        // The word has to be the complement of the sum without it.
        let at = index * usize::from(SIZE);
        frame.payload[at..at + 2].fill(0);
        let missing = field(&frame);
        frame.payload[at..at + 2].copy_from_slice(&missing);
        // The kernel decides which of the two zeros is right.
        assert!(matches!(field(&frame), [0, 0] | [0xFF, 0xFF]));
        let mut whole = Whole::of_frame(&frame, SIZE);
        whole.name += ", a checksum of zero";
        whole
    })
}

fn compare(cable: &mut Cable) {
    let wholes = wholes();
    for whole in &wholes {
        let expected = whole.segments();
        cable.send(&whole.header(), &whole.bytes);
        let got = cable.receive(&whole.bytes[..12], expected.len(), &whole.name);
        assert_eq!(got.len(), expected.len(), "{}", whole.name);
        for (index, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert_eq!(got, expected, "segment {index} of {}", whole.name);
        }
    }
    println!("{} packets were cut alike", wholes.len());
}

#[test]
fn frames_from_a_tap_are_cut_as_by_the_kernel() {
    in_namespace(|| {
        if let Some(mut cable) = Cable::from_tap() {
            compare(&mut cable);
        }
    });
}

#[test]
fn frames_of_a_packet_socket_are_cut_as_by_the_kernel() {
    in_namespace(|| compare(&mut Cable::from_socket()));
}
