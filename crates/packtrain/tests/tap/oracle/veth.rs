//! The kernel's GRO at the end of a veth pair, as a network card's driver calls it. Frames with
//! Ethernet headers go in at one end, and a packet socket at the other reports the merged packets.
//!
//! Unlike behind a TUN the kernel does not cut packets again before they are seen, and UDP is
//! merged (`rx-udp-gro-forwarding`). Tags are not tested: the kernel merges tagged frames only with
//! 802.1Q built in.

use super::*;
use crate::world::{
    PacketSocket, create_veth, hardware_address, set_feature, set_up, wait_until_connected,
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
    /// `None` if the kernel lacks a feature that the tests need.
    fn new() -> Option<Self> {
        create_veth(NEAR, FAR);
        // A veth goes through GRO only if its packets are not as good as merged already.
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
        if !hold_across_writes(FAR) {
            return None;
        }
        let macs = [hardware_address(FAR), hardware_address(NEAR)].concat();
        let (near, far) = (PacketSocket::open(NEAR), PacketSocket::open(FAR));
        wait_until_connected(&near, &far);
        Some(Self { near, far, macs })
    }

    /// The kernel's result for IP packets, with virtio-net headers as if there were no Ethernet
    /// header.
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
                since.elapsed() < TIMEOUT,
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

#[test]
fn datagrams_are_merged_as_by_the_kernel() {
    in_namespace(|| {
        let Some(mut wire) = Wire::new() else {
            return;
        };
        for Datagrams { case, without } in udp_cases(false).into_iter().chain(udp_cases(true)) {
            let mut packets: Vec<_> = case.frames.iter().map(Frame::bytes).collect();
            if let Some(number) = without {
                without_checksum(&mut packets[number]);
            }
            compare(
                || wire.pass(&packets),
                &merged(packets.iter().cloned()),
                case.kernel,
                case.name,
            );
        }
        let mut numbers = Random::new(1);
        for _ in 0..100 {
            let frames = random_datagrams(&mut numbers);
            let packets: Vec<_> = frames.iter().map(Frame::bytes).collect();
            let briefs: String = frames.iter().map(brief).collect();
            compare(
                || wire.pass(&packets),
                &merged(packets.iter().cloned()),
                None,
                &briefs,
            );
        }
    });
}

/// Includes merges that a TUN could not express: identifications that stay the same.
#[test]
fn segments_are_merged_as_by_the_kernel() {
    in_namespace(|| {
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
            compare(
                || wire.pass(&packets),
                &merged(packets.iter().cloned()),
                case.kernel,
                case.name,
            );
        }
    });
}
