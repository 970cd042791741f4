//! Checks for the fuzz targets, independent of the code under test.

use std::env;
use std::sync::OnceLock;

use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::offload::LinkType;

/// Takes settings from the front of a fuzz input; zeros at its end.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// The next two bytes.
    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A link type, from two bits.
    pub fn link(&mut self) -> LinkType {
        match self.byte() & 3 {
            0 | 2 => LinkType::Ethernet,
            1 => LinkType::RawIp,
            _ => LinkType::Ipoib,
        }
    }

    /// The rest of the input.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// The one's complement sum of RFC 1071, not complemented, a word at a time. Every piece but the
/// last has an even length.
pub fn plain_sum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for piece in pieces {
        let (words, odd) = piece.as_chunks::<2>();
        sum += words
            .iter()
            .map(|word| u64::from(u16::from_be_bytes(*word)))
            .sum::<u64>();
        sum += odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Stores correct checksums of IPv4, TCP and UDP, if `bytes` is such a packet.
pub fn write_checksums(bytes: &mut [u8], link: LinkType) {
    let Ok(layout) = Layout::parse(link, bytes, bytes.len() as u32) else {
        return;
    };
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    if layout.kind == Network::Ipv4 {
        bytes[network + 10..network + 12].fill(0);
        let sum = !plain_sum(&[&bytes[network..transport]]);
        bytes[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let Some(offset) = checksum_offset(&layout).filter(|_| !layout.source_routed) else {
        return;
    };
    let at = transport + usize::from(offset);
    let pseudo = pseudo_header(bytes, &layout);
    bytes[at..at + 2].fill(0);
    let sum = plain_sum(&[&pseudo, &bytes[transport..layout.ip_end as usize]]);
    bytes[at..at + 2].copy_from_slice(&checksum_field(sum, offset).to_be_bytes());
}

/// Offset of the checksum in the transport header.
pub fn checksum_offset(layout: &Layout) -> Option<u16> {
    match layout.transport_kind {
        Transport::Tcp => Some(16),
        Transport::Udp => Some(6),
        _ => None,
    }
}

/// The value of the field at `offset` for a sum.
pub fn checksum_field(sum: u16, offset: u16) -> u16 {
    if sum == 0xffff && offset == 6 {
        0xffff
    } else {
        !sum
    }
}

/// The pseudo-header, which is summed together with the datagram.
pub fn pseudo_header(bytes: &[u8], layout: &Layout) -> Vec<u8> {
    let network = usize::from(layout.network);
    let addresses = match layout.kind {
        Network::Ipv4 => network + 12..network + 20,
        _ => network + 8..network + 40,
    };
    let mut pseudo = bytes[addresses].to_vec();
    pseudo.extend(layout.l4_len().to_be_bytes());
    pseudo.extend([0, 0, 0, layout.protocol.0]);
    pseudo
}

/// Notes that an input reached `what`. `cargo xtask fuzz` makes the seeds report it, and fails if
/// those of a target do not reach what the target is for.
pub fn reached(what: &str) {
    static ASKED: OnceLock<bool> = OnceLock::new();
    if *ASKED.get_or_init(|| env::var_os("PACKTRAIN_FUZZ_REACHED").is_some()) {
        eprintln!("reached: {what}");
    }
}

/// Two bytes in network order.
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes in network order.
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
