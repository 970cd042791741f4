//! The kernel's GRO at the end of a veth pair, as a network card's driver calls it: frames with
//! Ethernet headers go in at one end, and a packet socket at the other says what they became.
//!
//! Unlike behind a TUN nothing is cut again before it is seen, and UDP is merged
//! (`rx-udp-gro-forwarding`). Tags are not tried: the kernel merges tagged frames only with 802.1Q
//! built in.

use super::*;
use crate::world::{
    PacketSocket, create_veth, hardware_address, set_feature, set_up, wait_until_running,
};

const NEAR: &str = "veth-near";
const FAR: &str = "veth-far";
/// Bytes of an Ethernet header.
const ETHERNET: u16 = 14;
/// Bytes of the virtio-net header of a packet socket.
const PACKET_VNET: usize = 10;

/// Both ends.
struct Wire {
    near: PacketSocket,
    far: PacketSocket,
    macs: Vec<u8>,
}

impl Wire {
    /// `None` where the kernel has no such thing.
    fn new() -> Option<Self> {
        create_veth(NEAR, FAR);
        // A veth goes through GRO only if what it is given is not as good as merged already.
        let off = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];
        let off = off
            .into_iter()
            .chain(["tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation"]);
        for feature in off {
            assert!(set_feature(NEAR, feature, false), "{feature}");
        }
        for feature in ["rx-gro", "rx-udp-gro-forwarding"] {
            if !set_feature(FAR, feature, true) {
                println!("SKIP: the kernel has no {feature} for veth");
                return None;
            }
        }
        for name in [NEAR, FAR] {
            set_up(name, true);
        }
        for name in [NEAR, FAR] {
            wait_until_running(name);
        }
        if !hold_across_writes(FAR) {
            return None;
        }
        let macs = [hardware_address(FAR), hardware_address(NEAR)].concat();
        Some(Self {
            near: PacketSocket::open(NEAR),
            far: PacketSocket::open(FAR),
            macs,
        })
    }

    /// What becomes of IP packets, virtio-net headers as if there were no Ethernet header.
    fn pass(&mut self, packets: &[Vec<u8>]) -> Vec<(VnetHeader, Vec<u8>)> {
        for packet in packets {
            let ethertype = if packet[0] >> 4 == 6 {
                0x86dd
            } else {
                0x0800_u16
            };
            let frame = [
                &[0; PACKET_VNET],
                &self.macs[..],
                &ethertype.to_be_bytes(),
                packet,
            ]
            .concat();
            self.near.send(ethertype, &frame).expect("room in a queue");
        }
        let (mut got, mut count) = (vec![], 0);
        let since = Instant::now();
        while count < packets.len() {
            assert!(
                since.elapsed() < PATIENCE,
                "{count} of {} came",
                packets.len()
            );
            let Some((mut bytes, _)) = self.far.receive() else {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            let packet = bytes.split_off(PACKET_VNET + usize::from(ETHERNET));
            let mut header = VnetHeader::decode(&bytes, HeaderLen::Legacy).expect("a header");
            if !is_ours(&packet) {
                continue;
            }
            header.csum_start = header.csum_start.saturating_sub(ETHERNET);
            count += stands_for(&header, &packet);
            got.push((header, packet));
        }
        got
    }
}

struct Datagrams {
    case: Case,
    /// Number of one that has no checksum: its field is 0.
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
    // These two overtake what is held in the kernel. Here they push it out.
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
fn random_datagrams(numbers: &mut Numbers) -> Vec<Frame> {
    let ipv6 = numbers.below(2) == 1;
    let mut flows = [frame(ipv6, false), frame(ipv6, false)];
    flows[1].ports.0 += 1;
    let mut frames = vec![];
    for number in 0..20 {
        let next = &mut flows[numbers.below(4) / 3];
        match numbers.below(40) {
            0 => next.ttl -= 1,
            1 => next.tos ^= 2,
            2 => next.id = next.id.wrapping_add(7),
            3 => next.fragment ^= 0x4000,
            _ => {}
        }
        let mut this = next.clone();
        let bytes = [100, 100, 100, 100, 100, 100, 100, 99, 8, 101][numbers.below(10)];
        this.payload = (0..bytes).map(|i| (i * 7 + number * 13) as u8).collect();
        next.id = next.id.wrapping_add(1);
        frames.push(this);
    }
    frames
}

/// Compares what becomes of `packets`, flow by flow; or, where the kernel does otherwise by our
/// choice, what it makes of them with `known`.
fn compare(wire: &mut Wire, packets: &[Vec<u8>], known: Option<&[u32]>, what: &str) {
    const PORTS: [u16; 2] = [4000, 4001];
    let ours = merged(packets.iter().cloned());
    if let Some(known) = known {
        let theirs = kernels(|| wire.pass(packets), |theirs| payloads(theirs) == known);
        assert_eq!(
            payloads(&theirs),
            known,
            "{what}: not what the kernel was known to do"
        );
        assert_ne!(
            shapes(&theirs),
            shapes(&ours),
            "{what}: no difference any more"
        );
        return;
    }
    let theirs = kernels(
        || wire.pass(packets),
        |theirs| {
            let alike = |port| shapes(&of_flow(theirs, port)) == shapes(&of_flow(&ours, port));
            PORTS.into_iter().all(alike)
        },
    );
    for port in PORTS {
        let (theirs, ours) = (of_flow(&theirs, port), of_flow(&ours, port));
        assert_eq!(shapes(&theirs), shapes(&ours), "{what}: the kernel, and we");
        assert!(theirs == ours, "{what}: the kernel's bytes, and ours");
    }
}

#[test]
fn datagrams_are_merged_as_by_the_kernel() {
    in_namespace(
        "oracle::veth::datagrams_are_merged_as_by_the_kernel",
        || {
            let Some(mut wire) = Wire::new() else {
                return;
            };
            for Datagrams { case, without } in udp_cases(false).into_iter().chain(udp_cases(true)) {
                let mut packets: Vec<_> = case.frames.iter().map(Frame::bytes).collect();
                if let Some(packet) = without.and_then(|number| packets.get_mut(number)) {
                    let at = usize::from(layout(packet).transport) + 6;
                    packet[at..at + 2].fill(0);
                }
                compare(&mut wire, &packets, case.kernel, case.name);
            }
            let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
            for _ in 0..100 {
                let frames = random_datagrams(&mut numbers);
                let packets: Vec<_> = frames.iter().map(Frame::bytes).collect();
                let briefs: String = frames.iter().map(brief).collect();
                compare(&mut wire, &packets, None, &briefs);
            }
        },
    );
}

/// Also where a TUN would not say so: identifications that stay the same.
#[test]
fn segments_are_merged_as_by_the_kernel() {
    in_namespace("oracle::veth::segments_are_merged_as_by_the_kernel", || {
        let Some(mut wire) = Wire::new() else {
            return;
        };
        let lists = [cases(false), cases(true), cases_v4(), cases_v6()];
        let version = kernel_version();
        for mut case in lists.into_iter().flatten().chain(same_ids()) {
            // Without DF an identification must be unique (RFC 6864 §4): no train here.
            if case.name == SAME_WITHOUT_DF && version >= (6, 18) {
                case.kernel = Some(&[200]);
            }
            let packets: Vec<_> = case.frames.iter().map(Frame::bytes).collect();
            compare(&mut wire, &packets, case.kernel, case.name);
        }
    });
}
