//! Packets that are made in this process, from the left host of a topology to the right one.

use packtrain_offload::checksum::{Sum, ipv4_header, pseudo_header_v4, pseudo_header_v6};

use crate::ip::IpVersion;
use crate::topology::Side;

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;

/// The Ethernet and IP headers in front of `l4_bytes` of transport header and payload, and the sum
/// of the pseudo-header.
pub(crate) fn ethernet_ip(ip: IpVersion, protocol: u8, l4_bytes: usize) -> (Vec<u8>, Sum) {
    let (from, to) = (Side::Left, Side::Right);
    let (ethertype, (header, pseudo)) = match ip {
        IpVersion::V4 => ([8, 0], ipv4(from, to, protocol, l4_bytes as u32)),
        IpVersion::V6 => ([0x86, 0xdd], ipv6(from, to, protocol, l4_bytes as u32)),
    };
    let headers = [&to.mac()[..], &from.mac(), &ethertype, &header].concat();
    (headers, pseudo)
}

/// A UDP datagram over IPv4 with a payload of zeros, as an Ethernet frame without its FCS.
pub(crate) fn udp_frame(from_port: u16, to_port: u16, payload_bytes: usize) -> Vec<u8> {
    udp_frame_of(from_port, to_port, &vec![0; payload_bytes])
}

/// A UDP datagram over IPv4, as an Ethernet frame without its FCS.
pub(crate) fn udp_frame_of(from_port: u16, to_port: u16, payload: &[u8]) -> Vec<u8> {
    let bytes = UDP_HEADER + payload.len();
    let (mut frame, pseudo) = ethernet_ip(IpVersion::V4, UDP, bytes);
    let start = frame.len();
    for word in [from_port, to_port, bytes as u16, 0] {
        frame.extend_from_slice(&word.to_be_bytes());
    }
    frame.extend_from_slice(payload);
    let mut sum = pseudo;
    sum.add(&frame[start..]);
    // RFC 768: a sum of 0 is sent as all ones.
    let check = match sum.finish() {
        0 => 0xffff,
        check => check,
    };
    frame[start + 6..start + UDP_HEADER].copy_from_slice(&check.to_be_bytes());
    frame
}

fn ipv4(from: Side, to: Side, protocol: u8, l4_bytes: u32) -> (Vec<u8>, Sum) {
    let (source, destination) = (from.ipv4().octets(), to.ipv4().octets());
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

fn ipv6(from: Side, to: Side, protocol: u8, l4_bytes: u32) -> (Vec<u8>, Sum) {
    let (source, destination) = (from.ipv6().octets(), to.ipv6().octets());
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

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    #[test]
    fn a_datagram_is_that_of_an_independent_builder() {
        let (from, to) = (Side::Left, Side::Right);
        for (payload, fill) in [(0, 0), (18, 0), (1471, 0), (18, 7)] {
            let builder = PacketBuilder::ethernet2(from.mac(), to.mac())
                .ipv4(from.ipv4().octets(), to.ipv4().octets(), 64)
                .udp(1024, 9);
            let (mut expected, payload) = (Vec::new(), vec![fill; payload]);
            builder.write(&mut expected, &payload).unwrap();
            assert_eq!(udp_frame_of(1024, 9, &payload), expected);
        }
    }
}
