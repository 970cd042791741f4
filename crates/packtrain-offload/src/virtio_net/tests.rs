//! Tests of the virtio-net header: one test per rule, the matrix measured on a Linux kernel, and a
//! model of the kernel's own check for what we write.

use std::collections::BTreeSet;
use std::format;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use proptest::collection::vec as any_vec;
use proptest::prelude::*;

mod describe;
mod features;
mod matrix;
mod mend;

use super::*;
use crate::test_packets::{ACK, CWR, Ext, Field, RST, SYN, Spec};

/// The arguments of one call of [`validate`].
struct Case {
    header: VnetHeader,
    link: LinkType,
    accept: Accept,
    packet: Vec<u8>,
    /// Unless it is that of `packet`.
    packet_bytes: Option<u32>,
}

impl Case {
    /// An ordinary packet whose checksum is finished.
    fn plain(spec: &Spec) -> Self {
        Self {
            header: VnetHeader::default(),
            link: spec.link,
            accept: Accept::ALL,
            packet: spec.build(Field::Final),
            packet_bytes: None,
        }
    }

    /// An ordinary packet with an unfinished checksum.
    fn partial(spec: &Spec) -> Self {
        let header = VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            csum_start: spec.transport() as u16,
            csum_offset: spec.checksum_offset(),
            ..VnetHeader::default()
        };
        Self {
            header,
            packet: spec.build(Field::Preload),
            ..Self::plain(spec)
        }
    }

    /// A legal GSO packet.
    fn gso(spec: &Spec, size: u16) -> Self {
        let mut case = Self::partial(spec);
        case.header.gso_type = match (spec.tcp, spec.ipv6) {
            (true, false) => GSO_TCPV4,
            (true, true) => GSO_TCPV6,
            (false, _) => GSO_UDP_L4,
        };
        case.header.hdr_len = spec.header_bytes() as u16;
        case.header.gso_size = size;
        case
    }

    fn validate(&self) -> Result<Received, VnetError> {
        let bytes = self.packet_bytes.unwrap_or(self.packet.len() as u32);
        validate(&self.header, self.link, self.accept, &self.packet, bytes)
    }

    /// The check of current Linux kernels for a header written to TUN or TAP
    /// (`tun_get_user()`, `virtio_net_hdr_to_skb()`), with 64 datagrams at most as before 6.10.
    fn kernel_accepts(&self) -> bool {
        let h = &self.header;
        let needs_csum = h.flags & FLAG_NEEDS_CSUM != 0;
        let (start, offset) = (u32::from(h.csum_start), u32::from(h.csum_offset));
        let bytes = self.packet.len() as u32;
        let (mac, shortest) = match self.link {
            LinkType::Ethernet => (14, 14),
            LinkType::RawIp => (0, 1),
            // No TUN or TAP has it.
            LinkType::Ipoib => return false,
        };
        let mut hdr_len = u32::from(h.hdr_len);
        if needs_csum {
            hdr_len = hdr_len.max(start + offset + 2);
        }
        let short_mac = hdr_len != 0 && hdr_len < mac;
        if hdr_len > bytes || bytes < shortest || short_mac {
            return false;
        }
        if self.link == LinkType::RawIp && !matches!(self.packet[0] >> 4, 4 | 6) {
            return false;
        }
        let l4 = match h.gso_type & !GSO_ECN {
            GSO_NONE if h.gso_type == GSO_NONE => 0,
            GSO_TCPV4 | GSO_TCPV6 => 20,
            GSO_UDP | GSO_UDP_L4 => 8,
            _ => return false,
        };
        let first = mac
            + if h.gso_type & !GSO_ECN == GSO_TCPV6 {
                40
            } else {
                20
            };
        if needs_csum && (start + l4.max(offset + 2) > bytes || start < first) {
            return false;
        }
        if h.gso_type != GSO_NONE && matches!(h.gso_size, 0 | u16::MAX) {
            return false;
        }
        match h.gso_type & !GSO_ECN {
            GSO_TCPV4 | GSO_TCPV6 => !needs_csum || offset == 16,
            GSO_UDP_L4 => {
                let payload = bytes.saturating_sub(start + 8);
                needs_csum
                    && offset == 6
                    && h.gso_type == GSO_UDP_L4
                    && payload <= u32::from(h.gso_size) * 64
            }
            _ => true,
        }
    }
}

/// One test per rule: a legal packet with one thing changed.
macro_rules! rejected {
    ($($name:ident: $variant:ident, $case:expr, |$changed:ident| $change:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let mut $changed: Case = $case;
                assert!($changed.validate().is_ok(), "legal before the change");
                $change;
                assert_eq!($changed.validate(), Err(VnetError::$variant));
            }
        )+

        const TESTED: &[VnetError] = &[$(VnetError::$variant,)+];
    };
}

fn tcp4() -> Case {
    Case::gso(&Spec::tcp4(3000), 1000)
}

fn tcp6() -> Case {
    Case::gso(&Spec::tcp6(3000), 1000)
}

fn udp4() -> Case {
    Case::gso(&Spec::udp4(3000), 1000)
}

/// Adds to a big-endian field.
fn bump(packet: &mut [u8], at: usize, by: i32) {
    let field = i32::from(u16::from_be_bytes([packet[at], packet[at + 1]])) + by;
    packet[at..at + 2].copy_from_slice(&(field as u16).to_be_bytes());
}

rejected! {
    ethernet_packet_of_13_bytes: PacketTooShort, Case::plain(&Spec::tcp4(0).ethernet()),
        |c| c.packet.truncate(13);
    raw_packet_of_19_bytes: PacketTooShort, Case::plain(&Spec::tcp4(0)),
        |c| c.packet.truncate(19);
    empty_packet: PacketTooShort, Case::plain(&Spec::tcp4(0)), |c| c.packet.clear();
    ethernet_packet_too_long: PacketTooLong, Case::plain(&Spec::tcp4(0).ethernet()),
        |c| c.packet_bytes = Some(PACKET_BYTES_MAX as u32 + 1);
    raw_packet_too_long: PacketTooLong, Case::plain(&Spec::tcp4(0)),
        |c| c.packet_bytes = Some((PACKET_BYTES_MAX - L2_HEADER_BYTES_MAX) as u32 + 1);
    raw_packet_of_version_0: RawIpVersion, Case::plain(&Spec::tcp4(0)), |c| c.packet[0] = 0x05;
    hdr_len_beyond_the_packet: HdrLen, tcp4(), |c| c.header.hdr_len = 3041;
    hdr_len_beyond_an_ordinary_packet: HdrLen, Case::plain(&Spec::tcp4(0)),
        |c| c.header.hdr_len = u16::MAX;
    rsc_info_flag: RscInfo, tcp4(), |c| c.header.flags |= FLAG_RSC_INFO;
    tunnel_checksum_flag: TunnelCsum, tcp4(), |c| c.header.flags |= FLAG_UDP_TUNNEL_CSUM;
    checksum_not_negotiated: CsumNotNegotiated, Case::partial(&Spec::tcp4(9)),
        |c| c.accept = Accept::ALL.without(Accept::CSUM);
    ufo: GsoUfo, udp4(), |c| c.header.gso_type = GSO_UDP;
    tunnel_type_over_ipv4: GsoTunnel, tcp4(), |c| c.header.gso_type |= GSO_UDP_TUNNEL_IPV4;
    tunnel_type_over_ipv6: GsoTunnel, tcp6(), |c| c.header.gso_type |= GSO_UDP_TUNNEL_IPV6;
    type_2: GsoTypeUnknown, tcp4(), |c| c.header.gso_type = 2;
    type_6: GsoTypeUnknown, tcp4(), |c| c.header.gso_type = 6;
    ecn_without_a_type: GsoTypeUnknown, tcp4(), |c| c.header.gso_type = GSO_ECN;
    ecn_on_udp: EcnOnUdp, udp4(), |c| c.header.gso_type |= GSO_ECN;
    tso4_not_negotiated: GsoNotNegotiated, tcp4(),
        |c| c.accept = Accept::ALL.without(Accept::TSO4);
    tso6_not_negotiated: GsoNotNegotiated, tcp6(),
        |c| c.accept = Accept::ALL.without(Accept::TSO6);
    uso4_not_negotiated: GsoNotNegotiated, udp4(),
        |c| c.accept = Accept::ALL.without(Accept::USO4);
    uso6_not_negotiated: GsoNotNegotiated, Case::gso(&Spec::udp6(3000), 1000),
        |c| c.accept = Accept::ALL.without(Accept::USO6);
    uso_not_negotiated: GsoNotNegotiated, udp4(),
        |c| c.accept = Accept::ALL.without(Accept::USO4 | Accept::USO6);
    ecn_not_negotiated: EcnNotNegotiated, tcp4(), |c| {
        c.header.gso_type |= GSO_ECN;
        c.accept = Accept::ALL.without(Accept::TSO_ECN);
    };
    tso_without_checksum: GsoWithoutCsum, tcp4(), |c| c.header.flags = 0;
    uso_without_checksum: GsoWithoutCsum, udp4(), |c| c.header.flags = FLAG_DATA_VALID;
    gso_size_0: GsoSizeZero, tcp4(), |c| c.header.gso_size = 0;
    gso_size_65535: GsoSizeReserved, tcp4(), |c| c.header.gso_size = u16::MAX;
    tcp_gso_size_7: GsoSizeTooSmall, Case::gso(&Spec::tcp4(100), 8), |c| c.header.gso_size = 7;
    gso_headers_cut_off: GsoHeaders, tcp4(), |c| {
        c.header.hdr_len = 0;
        c.packet.truncate(39);
    };
    gso_total_length_beyond: GsoHeaders, tcp4(), |c| bump(&mut c.packet, 2, 1);
    gso_payload_length_beyond: GsoHeaders, tcp6(), |c| bump(&mut c.packet, 4, 1);
    gso_total_length_0: GsoHeaders, tcp4(), |c| c.packet[2..4].fill(0);
    gso_data_offset_4: GsoHeaders, tcp4(), |c| c.packet[32] = 0x40;
    gso_data_offset_beyond: GsoHeaders, Case::gso(&Spec::tcp4(10), 8), |c| c.packet[32] = 0xf0;
    gso_ihl_4: GsoHeaders, tcp4(), |c| c.packet[0] = 0x44;
    gso_udp_length_beyond: GsoHeaders, udp4(), |c| bump(&mut c.packet, 24, 1);
    gso_first_fragment: GsoFragment, tcp4(), |c| c.packet[6] = 0x20;
    gso_later_fragment: GsoFragment, udp4(), |c| c.packet[7] = 1;
    gso_ipv6_fragment: GsoFragment,
        Case::gso(&Spec { exts: vec![Ext::Destination(1)], ..Spec::tcp6(3000) }, 1000), |c| {
            c.packet[6] = 44;
            c.packet[41..48].fill(0);
        };
    tcpv6_type_on_ipv4: GsoNetwork, tcp4(), |c| c.header.gso_type = GSO_TCPV6;
    tcpv6_type_on_ipv4_at_40: GsoNetwork, tcp4(), |c| {
        c.header.gso_type = GSO_TCPV6;
        c.header.csum_start = 40;
    };
    tcpv4_type_on_ipv6: GsoNetwork, tcp6(), |c| c.header.gso_type = GSO_TCPV4;
    gso_on_arp: GsoNetwork, Case::gso(&Spec::tcp4(3000).ethernet(), 1000), |c| {
        c.packet[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    };
    gso_on_an_unknown_ethertype: GsoNetwork, Case::gso(&Spec::tcp4(3000).ethernet(), 1000),
        |c| c.packet[13] = 0x99;
    tcp_type_on_udp: GsoTransport, udp4(), |c| c.header.gso_type = GSO_TCPV4;
    udp_type_on_tcp: GsoTransport, tcp4(), |c| c.header.gso_type = GSO_UDP_L4;
    gso_on_another_protocol: GsoTransport, tcp4(), |c| c.packet[9] = 50;
    unknown_source_route: GsoSourceRoute,
        Case::gso(&Spec { exts: vec![Ext::Routing2], ..Spec::tcp6(3000) }, 1000),
        |c| c.packet[42] = 3;
    gso_udp_length_short: GsoUdpLength, udp4(), |c| bump(&mut c.packet, 24, -1);
    raw_total_length_beyond: IpLength, Case::plain(&Spec::udp4(9)), |c| bump(&mut c.packet, 2, 1);
    raw_total_length_short: IpLength, Case::plain(&Spec::udp4(9)), |c| c.packet[2..4].fill(0);
    raw_header_length_0: IpLength, Case::plain(&Spec::tcp4(9)), |c| c.packet[0] = 0x40;
    raw_options_beyond: IpLength, Case::plain(&Spec::udp4(9)), |c| c.packet[0] = 0x4f;
    raw_payload_length_beyond: IpLength, Case::plain(&Spec::tcp6(9)),
        |c| bump(&mut c.packet, 4, 1);
    raw_ipv6_of_39_bytes: IpLength, Case::plain(&Spec::tcp6(9)), |c| c.packet.truncate(39);
    raw_packet_cut_off: IpLength, Case::partial(&Spec::tcp4(900)), |c| c.packet.truncate(500);
    checksum_field_beyond: CsumBounds, Case::partial(&Spec::tcp4(9)),
        |c| c.header.csum_offset = 48;
    checksum_start_beyond: CsumBounds, Case::partial(&Spec::tcp4(9)),
        |c| c.header.csum_start = 60_000;
    checksum_fields_wrap: CsumBounds, tcp4(), |c| {
        c.header.csum_start = u16::MAX;
        c.header.csum_offset = u16::MAX;
    };
    checksum_field_in_padding: CsumBounds, Case::partial(&Spec::udp4(0).ethernet()), |c| {
        c.packet.extend([0; 18]);
        c.header.csum_offset = 12;
    };
    checksum_beyond_an_unknown_packet: CsumBounds, unknown(), |c| c.header.csum_offset = 100;
    checksum_start_0: CsumInNetwork, tcp4(), |c| c.header.csum_start = 0;
    checksum_start_19: CsumInNetwork, tcp4(), |c| c.header.csum_start = 19;
    checksum_start_in_ipv4_options: CsumInNetwork,
        Case::partial(&Spec { ip_options: vec![1; 8], ..Spec::tcp4(9) }),
        |c| c.header.csum_start = 20;
    checksum_start_in_extension_header: CsumInNetwork,
        Case::partial(&Spec { exts: vec![Ext::HopByHop], ..Spec::tcp6(9) }),
        |c| c.header.csum_start = 40;
    checksum_start_early_in_an_unknown_packet: CsumInNetwork, unknown(),
        |c| c.header.csum_start = 33;
    checksum_of_a_fragment: CsumFragment, Case::partial(&Spec::udp4(2000)),
        |c| c.packet[6] = 0x20;
    checksum_of_sctp: CsumSctp, Case::partial(&Spec::udp4(2000)), |c| c.packet[9] = 132;
    checksum_start_24: CsumStart, tcp4(), |c| c.header.csum_start = 24;
    checksum_start_24_without_gso: CsumStart, Case::partial(&Spec::tcp4(100)),
        |c| c.header.csum_start = 24;
    checksum_start_in_the_udp_header: CsumStart, Case::partial(&Spec::udp4(100)),
        |c| c.header.csum_start = 24;
    checksum_start_behind_the_udp_header_of_uso: CsumStart, udp4(),
        |c| c.header.csum_start = 28;
    tcp_checksum_at_6: CsumOffset, tcp4(), |c| c.header.csum_offset = 6;
    udp_checksum_at_16: CsumOffset, udp4(), |c| c.header.csum_offset = 16;
    tcp_checksum_at_6_without_gso: CsumOffset, Case::partial(&Spec::tcp4(100)),
        |c| c.header.csum_offset = 6;
    gso_without_payload: GsoNoPayload, Case::gso(&Spec::tcp4(8), 8), |c| {
        c.packet.truncate(40);
        bump(&mut c.packet, 2, -8);
    };
    gso_with_padding_for_payload: GsoNoPayload, tcp4(), |c| bump(&mut c.packet, 2, -3000);
    syn_on_two_segments: GsoTcpFlags, tcp4(), |c| c.packet[33] = SYN;
    rst_on_two_segments: GsoTcpFlags, tcp6(), |c| c.packet[53] = RST | ACK;
    udp_of_129_segments: GsoTooManySegments, Case::gso(&Spec::udp4(64_000), 500),
        |c| c.header.gso_size = 499;
    udp_gso_size_1: GsoTooManySegments, Case::gso(&Spec::udp4(65_000), 1016),
        |c| c.header.gso_size = 1;
}

/// 100 bytes of an ethertype that is not known, with a checksum somewhere inside.
fn unknown() -> Case {
    let mut case = Case::partial(&Spec::udp4(58).ethernet());
    case.packet[12..14].copy_from_slice(&[0x88, 0xb5]);
    case
}

#[test]
fn every_error_but_that_of_decode_has_a_test() {
    let tested: BTreeSet<_> = TESTED.iter().map(|error| error.reason()).collect();
    let all: BTreeSet<_> = VnetError::ALL.iter().map(|error| error.reason()).collect();
    assert_eq!(all.len(), VnetError::ALL.len(), "reasons are distinct");
    let untested: Vec<_> = all.difference(&tested).copied().collect();
    assert_eq!(untested, [VnetError::HeaderTruncated.reason()]);
    for error in VnetError::ALL {
        let reason = error.reason();
        assert!(
            reason.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
            "{reason}"
        );
    }
}

#[test]
fn a_short_buffer_is_an_error_and_is_left_alone() {
    for (len, bytes) in [(HeaderLen::Legacy, 10), (HeaderLen::V1, 12)] {
        assert_eq!(len.bytes(), bytes);
        assert_eq!(HeaderLen::from_bytes(bytes), Some(len));
        let mut buffer = vec![0xa5; bytes - 1];
        let header = VnetHeader::default();
        assert_eq!(
            header.encode(&mut buffer, len),
            Err(VnetError::HeaderTruncated)
        );
        assert!(buffer.iter().all(|&byte| byte == 0xa5));
        assert_eq!(
            VnetHeader::decode(&buffer, len),
            Err(VnetError::HeaderTruncated)
        );
    }
    assert!(
        [0, 9, 11, 20, 24]
            .iter()
            .all(|&n| HeaderLen::from_bytes(n).is_none())
    );
}

#[test]
fn fields_are_little_endian_at_their_places() {
    let bytes = [1, 0x81, 0x36, 0, 0xb4, 5, 0x22, 1, 0x10, 0, 7, 0];
    let header = VnetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV4 | GSO_ECN,
        hdr_len: 54,
        gso_size: 1460,
        csum_start: 290,
        csum_offset: 16,
        num_buffers: 7,
    };
    assert_eq!(VnetHeader::decode(&bytes, HeaderLen::V1), Ok(header));
    let legacy = VnetHeader {
        num_buffers: 0,
        ..header
    };
    assert_eq!(VnetHeader::decode(&bytes, HeaderLen::Legacy), Ok(legacy));
    let mut out = [0xa5; 14];
    header.encode(&mut out, HeaderLen::Legacy).unwrap();
    assert_eq!(out[..10], bytes[..10]);
    assert_eq!(out[10..], [0xa5; 4]);
    header.encode(&mut out, HeaderLen::V1).unwrap();
    assert_eq!(out[..12], bytes);
    assert_eq!(out[12..], [0xa5; 2]);
}

#[test]
fn uso_with_any_value_in_the_checksum_field() {
    for value in [0, 0xffff, 7] {
        let spec = Spec::udp4(3000);
        let case = Case {
            packet: spec.build(Field::Value(value)),
            ..Case::gso(&spec, 1000)
        };
        assert_eq!(case.validate().unwrap().wire_packets, 3);
    }
}

#[test]
fn a_gso_packet_of_one_segment_keeps_its_unfinished_checksum() {
    let case = Case::gso(&Spec::udp6(3000).ethernet(), 3000);
    let received = case.validate().unwrap();
    assert_eq!(received.gso, None);
    assert_eq!(received.wire_packets, 1);
    assert_eq!(
        received.checksum,
        ChecksumState::Partial {
            start: 54,
            offset: 6
        }
    );
}

#[test]
fn padding_of_an_unfinished_packet_is_trimmed() {
    for mut case in [
        Case::gso(&Spec::tcp4(2000).ethernet(), 1000),
        Case::partial(&Spec::udp6(2000).ethernet()),
    ] {
        let bytes = case.packet.len() as u32;
        case.packet.extend([0xee; 9]);
        let received = case.validate().unwrap();
        assert_eq!(received.packet_bytes, bytes);
        assert_eq!(
            received.wire_packets,
            if received.gso.is_some() { 2 } else { 1 }
        );
    }
    let mut case = Case::plain(&Spec::udp4(1).ethernet());
    case.packet.resize(60, 0);
    assert_eq!(case.validate().unwrap().packet_bytes, 60);
}

#[test]
fn what_is_not_understood_passes_as_it_is() {
    let mut case = Case::plain(&Spec::tcp4(50).ethernet());
    case.packet[14] = 0x4f;
    case.packet[46] = 0;
    let received = case.validate().unwrap();
    assert_eq!((received.layout, received.wire_packets), (None, 1));
    assert_eq!(received.packet_bytes as usize, case.packet.len());
    let case = unknown();
    assert_eq!(
        case.validate().unwrap().checksum,
        ChecksumState::Partial {
            start: 34,
            offset: 6
        }
    );
}

#[test]
fn data_valid_counts_only_from_a_peer_that_is_believed() {
    let mut case = Case::plain(&Spec::tcp4(50));
    case.header.flags = FLAG_DATA_VALID;
    assert_eq!(
        case.validate().unwrap().checksum,
        ChecksumState::Unnecessary
    );
    case.accept = Accept::ALL.without(Accept::DATA_VALID);
    assert_eq!(case.validate().unwrap().checksum, ChecksumState::None);
    let mut case = Case::partial(&Spec::tcp4(50));
    case.header.flags |= FLAG_DATA_VALID;
    let partial = ChecksumState::Partial {
        start: 20,
        offset: 16,
    };
    assert_eq!(
        case.validate().unwrap().checksum,
        partial,
        "NEEDS_CSUM wins"
    );
}

#[test]
fn reserved_flags_and_unused_fields_are_ignored() {
    let mut case = Case::plain(&Spec::tcp4(50));
    case.header = VnetHeader {
        flags: 0xf0,
        gso_size: 1,
        csum_start: 0xffff,
        csum_offset: 0xffff,
        num_buffers: 0xffff,
        ..case.header
    };
    let received = case.validate().unwrap();
    assert_eq!(received.checksum, ChecksumState::None);
    assert_eq!(received.gso, None);
}

#[test]
fn no_length_does_more_than_fail() {
    let specs = [
        Spec::tcp4(65_400),
        Spec::tcp6(65_400),
        Spec::udp4(65_400),
        Spec::udp6(65_400),
    ];
    let mut passed = 0;
    for spec in specs
        .iter()
        .flat_map(|spec| [spec.clone(), spec.clone().ethernet()])
    {
        let mut case = Case::gso(&spec, 1448);
        case.header.hdr_len = 0;
        let whole = case.packet.clone();
        for bytes in (0..=128).chain(65_500..=70_000) {
            case.packet.clone_from(&whole);
            case.packet.resize(bytes as usize, 0xee);
            case.packet_bytes = Some(bytes);
            let received = case.validate();
            if bytes <= 128 || bytes > PACKET_BYTES_MAX as u32 {
                assert!(received.is_err(), "{bytes}");
            }
            if let Ok(received) = received {
                assert_eq!(received.packet_bytes as usize, whole.len());
                passed += 1;
            }
            // The same length with length fields of 0.
            let at = spec.network() + if spec.ipv6 { 4 } else { 2 };
            if let Some(field) = case.packet.get_mut(at..at + 2) {
                field.fill(0);
                assert!(case.validate().is_err());
            }
        }
    }
    assert!(passed > 100);
}

#[test]
fn an_inner_checksum_behind_udp_is_allowed() {
    // As Linux sends VXLAN whose inner TCP checksum is unfinished.
    let mut case = Case::partial(&Spec::udp4(100));
    (case.header.csum_start, case.header.csum_offset) = (20 + 8 + 8 + 14 + 20, 16);
    let partial = ChecksumState::Partial {
        start: 70,
        offset: 16,
    };
    assert_eq!(case.validate().unwrap().checksum, partial);
}

#[test]
fn headers_as_the_kernel_writes_them_pass() {
    // Read from a TUN and a TAP device of Linux 6.18.
    let mut tcp = Case::gso(&Spec::tcp4(7300), 1460);
    assert_eq!(tcp.header.hdr_len, 40);
    assert_eq!(tcp.validate().unwrap().wire_packets, 5);
    tcp.header.hdr_len = 1500;
    assert_eq!(tcp.validate().unwrap().wire_packets, 5, "hdr_len is a hint");
    let udp = Case::gso(&Spec::udp4(3500).ethernet(), 1000);
    assert_eq!((udp.header.hdr_len, udp.header.csum_start), (42, 34));
    assert_eq!(udp.validate().unwrap().wire_packets, 4);
    // With an out-of-band tag put in: csum_start is shifted, hdr_len is not.
    let mut tagged = Case::gso(
        &Spec {
            vlans: vec![0x8100],
            ..Spec::tcp4(3000).ethernet()
        },
        1448,
    );
    tagged.header.hdr_len = 54;
    assert_eq!(tagged.validate().unwrap().wire_packets, 3);
}

#[test]
fn the_accepted_offloads_print_their_names() {
    assert_eq!(format!("{:?}", Accept::NONE), "Accept()");
    assert_eq!(
        format!("{:?}", Accept::CSUM | Accept::USO6),
        "Accept(CSUM | USO6)"
    );
    let mut all = Accept::DATA_VALID;
    for bit in [
        Accept::CSUM,
        Accept::TSO4,
        Accept::TSO6,
        Accept::TSO_ECN,
        Accept::USO4,
    ] {
        assert!(!all.contains(bit));
        all |= bit;
    }
    all |= Accept::USO6;
    assert_eq!(all, Accept::ALL);
    assert!(Accept::NONE.is_empty() && !all.is_empty());
}

#[test]
fn an_error_says_its_rule_and_the_name_it_is_counted_under() {
    for &error in VnetError::ALL {
        let text = error.to_string();
        let (name, rule) = text.split_once(": ").expect("both");
        assert!(name.ends_with(error.reason()), "{text}");
        assert!(
            rule.starts_with(|c: char| c.is_uppercase() || c == '`'),
            "{text}"
        );
        assert!(rule.ends_with('.') && !rule.contains("  "), "{text}");
    }
    // An incorrect set-up or a short buffer shows there first.
    for (error, cause) in [
        (VnetError::RawIpVersion, "`IFF_NO_PI`"),
        (VnetError::IpLength, "`IFF_NO_PI`"),
        (VnetError::IpLength, "`tun::WRITE_BYTES_MAX`"),
        (VnetError::GsoHeaders, "`tun::WRITE_BYTES_MAX`"),
    ] {
        let text = error.to_string();
        assert!(text.contains(cause), "{text}");
    }
}
