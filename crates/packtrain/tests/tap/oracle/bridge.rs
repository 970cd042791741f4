//! The kernel's GRO between two TAPs in one bridge. Frames are written into the first, which has
//! `IFF_NAPI`, and read out of the second with virtio-net headers that describe the merged packets.
//!
//! As behind a TUN, the kernel cuts a packet again if such a header cannot express it: one whose
//! identifications stay the same. Unlike there, the Ethernet header is compared as well, and UDP is
//! merged (`rx-udp-gro-forwarding`). Tags are not tested, for the reason in [`veth`].

use super::*;
use crate::world::{add_to_bridge, create_bridge, set_feature, set_up, wait_until};

const BRIDGE: &str = "oracle-bridge";
const TAP: i32 = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// The source and destination of frames: no such station exists, so the bridge floods them.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 8]];

/// Makes a bridge whose packets no packet filter sees. `false` if the kernel has no bridge.
pub(super) fn create() -> bool {
    if let Err(error) = create_bridge(BRIDGE) {
        println!("SKIP: the kernel makes no bridge: {error}");
        return false;
    }
    for family in ["iptables", "ip6tables", "arptables"] {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{family}");
        // Without the file there is no filter.
        std::fs::write(path, "0").unwrap_or(());
    }
    true
}

/// Makes the interfaces ports of the bridge.
pub(super) fn join(names: [&str; 2]) {
    for name in names {
        add_to_bridge(BRIDGE, name);
    }
    set_up(BRIDGE, true);
}

/// A frame to send until it arrives: a bridge begins to forward to a port a little after the port's
/// link runs.
pub(super) fn probe() -> Vec<u8> {
    [&[2; 6][..], &[6; 6], &[0x88, 0xb5], &[0; 46]].concat()
}

/// Two TAPs in a bridge.
struct Taps {
    input: File,
    output: File,
}

impl Taps {
    /// `None` if the kernel lacks a feature that the tests need.
    fn new() -> Option<Self> {
        if !create() {
            return None;
        }
        let input = raw_tun(IN, TAP | NAPI).expect(IN);
        let output = raw_tun(OUT, TAP).expect(OUT);
        set_value(&output, libc::TUNSETOFFLOAD, OFFLOADS);
        rustix::io::ioctl_fionbio(output.as_fd(), true).expect("FIONBIO");
        if !set_feature(IN, "rx-udp-gro-forwarding", true) {
            println!("SKIP: the kernel does not merge UDP that it forwards");
            return None;
        }
        for name in [IN, OUT] {
            set_up(name, true);
        }
        join([IN, OUT]);
        if !hold_across_writes(IN) {
            return None;
        }
        let (input, output) = (File::from(input), File::from(output));
        let mut taps = Self { input, output };
        let probe = probe();
        wait_until("the bridge to forward", || {
            taps.write(&probe);
            std::iter::from_fn(|| taps.read()).any(|(_, frame)| frame == probe)
        });
        Some(taps)
    }

    fn write(&mut self, frame: &[u8]) {
        let bytes = [&[0; VNET], frame].concat();
        let written = self.input.write(&bytes).expect("the kernel takes it");
        assert_eq!(written, bytes.len());
    }

    fn read(&mut self) -> Option<(VnetHeader, Vec<u8>)> {
        let mut bytes = vec![0; VNET + 65_600];
        match self.output.read(&mut bytes) {
            Ok(read) => {
                bytes.truncate(read);
                let frame = bytes.split_off(VNET);
                let header = VnetHeader::decode(&bytes, HeaderLen::Legacy).expect("a header");
                Some((header, frame))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{OUT}: {error}"),
        }
    }

    /// The kernel's result for frames, with headers as if there were no Ethernet header.
    fn pass(&mut self, frames: &[Vec<u8>]) -> Vec<(VnetHeader, Vec<u8>)> {
        for frame in frames {
            self.write(frame);
        }
        let (mut got, mut count) = (vec![], 0);
        wait_until("all frames to come out", || {
            while let Some((mut header, frame)) = self.read() {
                let packet = ip(&frame);
                if matches!(frame[12..14], [8, 0] | [0x86, 0xdd]) && is_ours(packet) {
                    header.csum_start = header.csum_start.saturating_sub(ETHERNET as u16);
                    count += stands_for(&header, packet);
                    assert!(
                        frames
                            .iter()
                            .any(|sent| sent[..ETHERNET] == frame[..ETHERNET])
                    );
                    got.push((header, packet.to_vec()));
                }
            }
            count >= frames.len()
        });
        got
    }
}

fn ip(frame: &[u8]) -> &[u8] {
    &frame[ETHERNET..]
}

/// The packet behind an Ethernet header.
fn framed([to, from]: [[u8; 6]; 2], packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 6 {
        [0x86, 0xdd]
    } else {
        [8, 0]
    };
    [&to[..], &from, &ethertype, packet].concat()
}

/// Our result for frames, without their Ethernet headers.
fn ours(frames: &[Vec<u8>]) -> Vec<Piece> {
    let merged = merged_behind(LinkType::Ethernet, frames.iter().cloned()).into_iter();
    merged
        .map(|(size, frame)| {
            assert!(
                frames
                    .iter()
                    .any(|sent| sent[..ETHERNET] == frame[..ETHERNET])
            );
            (size, ip(&frame).to_vec())
        })
        .collect()
}

fn compare_packets(taps: &mut Taps, packets: &[Vec<u8>], known: Option<&[u32]>, what: &str) {
    let frames: Vec<_> = packets.iter().map(|packet| framed(MACS, packet)).collect();
    compare(|| taps.pass(&frames), &ours(&frames), known, what);
}

fn compare_frames(taps: &mut Taps, frames: &[Frame]) {
    let packets: Vec<_> = frames.iter().map(Frame::bytes).collect();
    let briefs: String = frames.iter().map(brief).collect();
    compare_packets(taps, &packets, None, &briefs);
}

#[test]
fn frames_are_merged_as_by_the_kernel() {
    in_namespace(|| {
        let Some(mut taps) = Taps::new() else {
            return;
        };
        let lists = [cases(false), cases(true), cases_v4(), cases_v6()];
        let documented = documented(kernel_version());
        for case in lists.into_iter().flatten().chain(documented) {
            let packets: Vec<_> = case.frames.iter().map(Frame::bytes).collect();
            compare_packets(&mut taps, &packets, case.kernel, case.name);
        }
        for Datagrams { case, without } in udp_cases(false).into_iter().chain(udp_cases(true)) {
            let mut packets: Vec<_> = case.frames.iter().map(Frame::bytes).collect();
            if let Some(number) = without {
                without_checksum(&mut packets[number]);
            }
            compare_packets(&mut taps, &packets, case.kernel, case.name);
        }
        let mut numbers = Random::new(1);
        for _ in 0..100 {
            compare_frames(&mut taps, &random_train(&mut numbers));
            compare_frames(&mut taps, &random_datagrams(&mut numbers));
        }
    });
}

/// Packets that would continue their flow, but come from another station or go to another.
#[test]
fn frames_of_other_stations_are_not_merged_as_by_the_kernel() {
    in_namespace(|| {
        let Some(mut taps) = Taps::new() else {
            return;
        };
        for (ipv6, tcp, end) in [
            (false, true, 0),
            (false, true, 1),
            (true, true, 0),
            (true, true, 1),
            (false, false, 0),
            (true, false, 1),
        ] {
            let mut other = MACS;
            other[end][5] ^= 0x40;
            let packets: Vec<_> = train(&frame(ipv6, tcp), &[100; 4])
                .iter()
                .map(Frame::bytes)
                .collect();
            let macs = [MACS, MACS, other, other];
            let frames: Vec<_> = macs
                .into_iter()
                .zip(&packets)
                .map(|(macs, packet)| framed(macs, packet))
                .collect();
            let ours = ours(&frames);
            assert_eq!(payloads(&ours), [200, 200]);
            let what = format!("IPv6 {ipv6}, TCP {tcp}, the other {end}");
            compare(|| taps.pass(&frames), &ours, None, &what);
        }
    });
}
