//! IPv4 fragmentation: one datagram in, fragments that fit an MTU out (RFC 791 §3.2).
//!
//! For packets that cannot be cut into datagrams of their own: one UDP datagram, or any other IPv4
//! payload, that is longer than the egress MTU and may be fragmented. As with
//! [`segment`](crate::segment), the payload is not moved: a [`Fragmenter`] returns the range of the
//! packet that is the payload of each fragment, and writes the headers.
//!
//! | field | rule |
//! |---|---|
//! | link header, VLAN tags, TOS and ECN, TTL, protocol, addresses | copied |
//! | payload | as much as fits in multiples of 8 bytes; the last has the rest |
//! | total length, header checksum | recomputed |
//! | identification | copied: the same on all fragments, which is what it is for |
//! | fragment offset | where the payload belongs, in units of 8 bytes ¹ |
//! | MF | set on all but the last, which keeps it as it was ¹ |
//! | DF | a packet that does not fit is refused: its sender must learn the MTU (RFC 1191) |
//! | options | all on the first; on the others those with the copied flag ² |
//! | transport checksum | not touched: it covers the whole datagram, and must be finished before |
//!
//! 1. A fragment may be fragmented further: its own offset is added, its own MF kept.
//! 2. RFC 791 §3.1; zeros behind them fill the last word. Linux keeps the length of the header and
//!    puts no-operations in the place of the others.
//!
//! A router never fragments IPv6 (RFC 8200 §5): the sender has to be notified ("packet too big"). A
//! GSO packet is cut by the [`Segmenter`](crate::segment::Segmenter) first; a segment that is still
//! too long may be fragmented.
//!
//! The rules are those of `ip_do_fragment()` in Linux and `ip_fragment()` in FreeBSD.

use core::fmt;
use core::ops::Range;

use crate::checksum;
use crate::layout::{Layout, Network};
use crate::limits::{IP_LENGTH_MAX, IPV4_HEADER_BYTES_MIN, IPV4_MTU_MIN};
use crate::offload::ChecksumState;
use crate::wire::ipv4::{
    FRAGMENT_OFFSET_MASK, Header, Ipv4Option, MORE_FRAGMENTS, OPTION_END, field,
};

mod ident;

pub use self::ident::IdSource;

/// Why a packet cannot be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FragmentError {
    /// It is IPv6, which only its sender may fragment.
    Ipv6,
    /// It is not IP.
    NotIp,
    /// The header bytes end early, or contradict the layout.
    Headers,
    /// The MTU is below 68 bytes, the minimum of every link (RFC 791 §3.2).
    Mtu,
    /// It is longer than the MTU, and DF is set.
    DontFragment,
    /// Its transport checksum is not finished; that of a GSO packet never is.
    Checksum,
    /// The IP packet is longer than the packet. Or it is a fragment whose payload would exceed 65
    /// 535 bytes, or a fragment other than the last whose payload is not a multiple of 8 bytes.
    Length,
    /// An IPv4 option is malformed, so the options to copy are not known.
    Options,
    /// There is no fragment of this number.
    Index,
    /// A buffer is too short.
    Buffer,
}

impl FragmentError {
    /// Every variant.
    pub const ALL: &[Self] = &[
        Self::Ipv6,
        Self::NotIp,
        Self::Headers,
        Self::Mtu,
        Self::DontFragment,
        Self::Checksum,
        Self::Length,
        Self::Options,
        Self::Index,
        Self::Buffer,
    ];

    /// The name under which a drop for this reason is counted.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ipv6 => "fragment_ipv6",
            Self::NotIp => "fragment_not_ip",
            Self::Headers => "fragment_headers",
            Self::Mtu => "fragment_mtu",
            Self::DontFragment => "fragment_df",
            Self::Checksum => "fragment_checksum",
            Self::Length => "fragment_length",
            Self::Options => "fragment_options",
            Self::Index => "fragment_index",
            Self::Buffer => "fragment_buffer",
        }
    }
}

impl fmt::Display for FragmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packet cannot be fragmented: ")?;
        f.write_str(self.reason())
    }
}

crate::error::error!(FragmentError, InvalidInput);

/// Fragments one IPv4 packet. Small and `Copy`: it holds offsets, no bytes.
///
/// Each call takes the header bytes, which must be the ones the fragmenter was made from. Other
/// bytes give wrong fragments, and have no other effect.
///
/// ```
/// use packtrain_offload::fragment::{FragmentError, Fragmenter};
/// use packtrain_offload::layout::Layout;
/// use packtrain_offload::offload::{ChecksumState, LinkType};
///
/// fn fit(packet: &[u8], mtu: u32) -> Result<Vec<Vec<u8>>, FragmentError> {
///     let bytes = packet.len() as u32;
///     let layout = Layout::parse(LinkType::RawIp, packet, bytes).expect("a good packet");
///     let fragmenter = Fragmenter::new(packet, &layout, mtu, ChecksumState::None, bytes)?;
///     let mut wire = Vec::new();
///     for index in 0..fragmenter.fragments() {
///         let mut fragment = vec![0; fragmenter.wire_bytes(index)];
///         fragmenter.write_fragment(index, packet, &mut fragment)?;
///         wire.push(fragment);
///     }
///     Ok(wire)
/// }
///
/// let mut packet = vec![0; 20 + 3000];
/// packet[0] = 0x45;
/// packet[2..4].copy_from_slice(&3020_u16.to_be_bytes());
/// packet[9] = 17;
/// packet[24..26].copy_from_slice(&3000_u16.to_be_bytes());
/// let wire = fit(&packet, 1500).unwrap();
/// assert_eq!(wire.iter().map(Vec::len).collect::<Vec<_>>(), [1500, 1500, 60]);
/// packet[6] = 0x40;
/// assert_eq!(fit(&packet, 1500), Err(FragmentError::DontFragment));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragmenter {
    network: u16,
    /// Link and IP header of the first fragment, and of the others.
    header_bytes: [u16; 2],
    /// Payload of the first fragment, and of the others but the last.
    step: [u32; 2],
    payload_bytes: u32,
    fragments: u32,
    /// Flags and fragment offset of the packet.
    word: u16,
}

impl Fragmenter {
    /// Prepares to fragment a packet of `packet_bytes` bytes, link header included.
    ///
    /// `headers` is the start of the packet as one piece, at least `layout.transport` bytes. `mtu`
    /// counts from the IP header. Link padding belongs to no fragment. A packet that fits is one
    /// fragment, with its header unchanged.
    ///
    /// There are at most 8 185 fragments, for the smallest MTU and the longest options; with an
    /// MTU of 1500 at most 46.
    ///
    /// # Errors
    /// Every [`FragmentError`] but `Index` and `Buffer`.
    pub fn new(
        headers: &[u8],
        layout: &Layout,
        mtu: u32,
        checksum: ChecksumState,
        packet_bytes: u32,
    ) -> Result<Self, FragmentError> {
        match layout.kind {
            Network::Ipv4 => {}
            Network::Ipv6 => return Err(FragmentError::Ipv6),
            Network::Arp | Network::Other => return Err(FragmentError::NotIp),
        }
        if mtu < IPV4_MTU_MIN as u32 {
            return Err(FragmentError::Mtu);
        }
        let network = u32::from(layout.network);
        let header = headers
            .get(usize::from(layout.network)..usize::from(layout.transport))
            .and_then(|bytes| {
                Header::parse(bytes)
                    .ok()
                    .filter(|h| h.header_len() == bytes.len())
            })
            .ok_or(FragmentError::Headers)?;
        if layout.ip_end > packet_bytes || layout.ip_end < u32::from(layout.transport) {
            return Err(FragmentError::Length);
        }
        let payload_bytes = layout.ip_end - u32::from(layout.transport);
        let mut made = Self {
            network: layout.network,
            header_bytes: [layout.transport; 2],
            step: [payload_bytes; 2],
            payload_bytes,
            fragments: 1,
            word: header.fragment_word(),
        };
        if layout.ip_end - network <= mtu {
            return Ok(made);
        }
        if header.dont_fragment() {
            return Err(FragmentError::DontFragment);
        }
        if matches!(checksum, ChecksumState::Partial { .. }) {
            return Err(FragmentError::Checksum);
        }
        let reaches = u32::from(header.fragment_offset()) + payload_bytes;
        if reaches > (IP_LENGTH_MAX - IPV4_HEADER_BYTES_MIN) as u32
            || (header.more_fragments() && !payload_bytes.is_multiple_of(8))
        {
            return Err(FragmentError::Length);
        }
        made.header_bytes[1] =
            layout.network + (IPV4_HEADER_BYTES_MIN + copied_option_bytes(header)?) as u16;
        made.step = made
            .header_bytes
            .map(|bytes| (mtu - (u32::from(bytes) - network)) & !7);
        made.fragments += (payload_bytes - made.step[0]).div_ceil(made.step[1]);
        Ok(made)
    }

    /// Number of packets; at least 1.
    #[must_use]
    pub const fn fragments(&self) -> u32 {
        self.fragments
    }

    /// Bytes in front of the payload of fragment `index`: link and IP header. The first has all
    /// options, so it may have more than the others.
    #[must_use]
    pub const fn header_bytes(&self, index: u32) -> usize {
        self.header_bytes[(index > 0) as usize] as usize
    }

    /// The range of the packet that is the payload of fragment `index`, counted from the packet's
    /// first byte. Empty, at the end of the payload, if there is no such fragment.
    #[must_use]
    pub const fn payload(&self, index: u32) -> Range<u32> {
        let (start, step) = if index == 0 {
            (0, self.step[0])
        } else if index >= self.fragments {
            (self.payload_bytes, 0)
        } else {
            (self.step[0] + (index - 1) * self.step[1], self.step[1])
        };
        let stop = if self.payload_bytes - start > step {
            start + step
        } else {
            self.payload_bytes
        };
        let base = self.header_bytes[0] as u32;
        base + start..base + stop
    }

    /// Bytes of fragment `index` on the wire, link header included.
    #[must_use]
    pub const fn wire_bytes(&self, index: u32) -> usize {
        let payload = self.payload(index);
        self.header_bytes(index) + (payload.end - payload.start) as usize
    }

    /// Writes the headers of fragment `index` to the start of `out`, and returns their length,
    /// [`header_bytes`](Self::header_bytes).
    ///
    /// # Errors
    /// [`FragmentError::Index`] if there is no such fragment, [`FragmentError::Buffer`] if
    /// `headers` or `out` is too short; then nothing is written. [`FragmentError::Headers`] or
    /// [`FragmentError::Options`] if `headers` are not those it was made from.
    pub fn write_header(
        &self,
        index: u32,
        headers: &[u8],
        out: &mut [u8],
    ) -> Result<usize, FragmentError> {
        if index >= self.fragments {
            return Err(FragmentError::Index);
        }
        let network = usize::from(self.network);
        let bytes = self.header_bytes(index);
        let headers = headers
            .get(..self.header_bytes(0))
            .ok_or(FragmentError::Buffer)?;
        let out = out.get_mut(..bytes).ok_or(FragmentError::Buffer)?;
        if index == 0 {
            out.copy_from_slice(headers);
            if self.fragments == 1 {
                return Ok(bytes);
            }
        } else {
            let header = Header::parse(&headers[network..]).map_err(|_| FragmentError::Headers)?;
            let fixed = network + IPV4_HEADER_BYTES_MIN;
            out[..fixed].copy_from_slice(&headers[..fixed]);
            copy_options(header, &mut out[fixed..])?;
            let words = (bytes - network) / 4;
            out[network] = 0x40 | words as u8;
        }
        let payload = self.payload(index);
        let units = (payload.start - u32::from(self.header_bytes[0])) / 8;
        // The packet's own MF is kept.
        let more = if index + 1 < self.fragments {
            MORE_FRAGMENTS
        } else {
            0
        };
        let offset = (self.word & FRAGMENT_OFFSET_MASK) + units as u16;
        let ip = &mut out[network..bytes];
        let mut put = |at: usize, word: u16| ip[at..at + 2].copy_from_slice(&word.to_be_bytes());
        put(field::TOTAL_LEN, (bytes - network + payload.len()) as u16);
        put(
            field::FRAGMENT,
            self.word & !FRAGMENT_OFFSET_MASK | more | offset,
        );
        let checksum = checksum::ipv4_header(ip);
        ip[field::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
        Ok(bytes)
    }

    /// Writes fragment `index` to the start of `out`, and returns its
    /// [`wire_bytes`](Self::wire_bytes). `packet` is the whole packet as one piece.
    ///
    /// # Errors
    /// As [`write_header`](Self::write_header).
    pub fn write_fragment(
        &self,
        index: u32,
        packet: &[u8],
        out: &mut [u8],
    ) -> Result<usize, FragmentError> {
        if index >= self.fragments {
            return Err(FragmentError::Index);
        }
        let range = self.payload(index);
        let payload = packet
            .get(range.start as usize..range.end as usize)
            .ok_or(FragmentError::Buffer)?;
        let bytes = self.wire_bytes(index);
        let out = out.get_mut(..bytes).ok_or(FragmentError::Buffer)?;
        let (header, body) = out.split_at_mut(self.header_bytes(index));
        self.write_header(index, packet, header)?;
        body.copy_from_slice(payload);
        Ok(bytes)
    }
}

/// Whether an option belongs on every fragment (RFC 791 §3.1).
const fn is_copied(option: Ipv4Option<'_>) -> bool {
    option.kind & 0x80 != 0
}

/// Bytes of the options that every fragment has, padded to whole words.
fn copied_option_bytes(header: Header<'_>) -> Result<usize, FragmentError> {
    let mut bytes = 0;
    for option in header.options() {
        let option = option.map_err(|_| FragmentError::Options)?;
        if is_copied(option) {
            bytes += 2 + option.data.len();
        }
    }
    Ok(bytes.next_multiple_of(4))
}

/// Writes the options that every fragment has; `out` has exactly their length.
fn copy_options(header: Header<'_>, out: &mut [u8]) -> Result<(), FragmentError> {
    let mut rest = &mut *out;
    for option in header.options() {
        let option = option.map_err(|_| FragmentError::Options)?;
        if !is_copied(option) {
            continue;
        }
        let (to, after) = rest
            .split_at_mut_checked(2 + option.data.len())
            .ok_or(FragmentError::Options)?;
        to[0] = option.kind;
        to[1] = to.len() as u8;
        to[2..].copy_from_slice(option.data);
        rest = after;
    }
    rest.fill(OPTION_END);
    Ok(())
}

#[cfg(test)]
mod tests;
