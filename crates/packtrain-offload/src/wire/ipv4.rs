//! IPv4 (RFC 791).

use super::{IpProtocol, ParseError};
use crate::checksum::{self, Sum};
use crate::limits::IPV4_HEADER_BYTES_MIN;

/// Offsets in an IPv4 header.
pub mod field {
    /// Version in the high, IHL in the low four bits, 1 byte.
    pub const VERSION_IHL: usize = 0;
    /// Differentiated services and ECN (RFC 2474, RFC 3168), 1 byte.
    pub const TOS: usize = 1;
    /// Length of the datagram, header included, 2 bytes.
    pub const TOTAL_LEN: usize = 2;
    /// Identification, 2 bytes.
    pub const ID: usize = 4;
    /// Flags in the high three bits, fragment offset in units of 8 bytes below, 2 bytes.
    pub const FRAGMENT: usize = 6;
    /// Time to live, 1 byte.
    pub const TTL: usize = 8;
    /// Protocol, 1 byte.
    pub const PROTOCOL: usize = 9;
    /// Header checksum, 2 bytes.
    pub const CHECKSUM: usize = 10;
    /// Source address, 4 bytes.
    pub const SRC: usize = 12;
    /// Destination address, 4 bytes.
    pub const DST: usize = 16;
}

/// Reserved flag, in the 16 bits at [`field::FRAGMENT`]; must be zero.
pub const RESERVED_FLAG: u16 = 0x8000;
/// Do not fragment.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// More fragments follow.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// Fragment offset, in units of 8 bytes.
pub const FRAGMENT_OFFSET_MASK: u16 = 0x1FFF;

/// End of the options.
pub const OPTION_END: u8 = 0;
/// No operation.
pub const OPTION_NOP: u8 = 1;
/// Loose source and record route.
pub const OPTION_LSRR: u8 = 131;
/// Strict source and record route.
pub const OPTION_SSRR: u8 = 137;

/// An IPv4 header with its options.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    fixed: &'a [u8; IPV4_HEADER_BYTES_MIN],
    options: &'a [u8],
}

/// Checks version and IHL; gives the header length in bytes.
#[inline]
fn header_len(bytes: &[u8]) -> Result<usize, ParseError> {
    let fixed: &[u8; IPV4_HEADER_BYTES_MIN] =
        bytes.first_chunk().ok_or(ParseError::Ipv4Truncated)?;
    let version_ihl = fixed[field::VERSION_IHL];
    if version_ihl >> 4 != 4 {
        return Err(ParseError::Ipv4Version);
    }
    let header_bytes = usize::from(version_ihl & 0x0F) * 4;
    if header_bytes < IPV4_HEADER_BYTES_MIN {
        return Err(ParseError::Ipv4HeaderLength);
    }
    if header_bytes > bytes.len() {
        return Err(ParseError::Ipv4OptionsTruncated);
    }
    Ok(header_bytes)
}

impl<'a> Header<'a> {
    /// Checks version, IHL, and that the options are there.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = &bytes[..header_len(bytes)?];
        let (fixed, options) = header
            .split_first_chunk()
            .ok_or(ParseError::Ipv4Truncated)?;
        Ok(Self { fixed, options })
    }

    /// Header length with options: 20 to 60 bytes.
    #[inline]
    #[must_use]
    pub const fn header_len(self) -> usize {
        IPV4_HEADER_BYTES_MIN + self.options.len()
    }

    getters! { fixed:
        /// Differentiated services and ECN.
        tos: u8 at field::TOS;
        /// Length of the datagram by its own field, header included.
        total_len: u16 at field::TOTAL_LEN;
        /// Identification.
        id: u16 at field::ID;
        /// Flags and fragment offset as one word.
        fragment_word: u16 at field::FRAGMENT;
    }

    /// The do-not-fragment flag.
    #[inline]
    #[must_use]
    pub const fn dont_fragment(self) -> bool {
        self.fragment_word() & DONT_FRAGMENT != 0
    }

    /// The more-fragments flag.
    #[inline]
    #[must_use]
    pub const fn more_fragments(self) -> bool {
        self.fragment_word() & MORE_FRAGMENTS != 0
    }

    /// Offset of the fragment's payload in the datagram, in bytes: 0 to 65528.
    #[inline]
    #[must_use]
    pub const fn fragment_offset(self) -> u16 {
        (self.fragment_word() & FRAGMENT_OFFSET_MASK) << 3
    }

    /// True for every fragment, the first one too.
    #[inline]
    #[must_use]
    pub const fn is_fragment(self) -> bool {
        self.fragment_word() & (MORE_FRAGMENTS | FRAGMENT_OFFSET_MASK) != 0
    }

    getters! { fixed:
        /// Time to live.
        ttl: u8 at field::TTL;
        /// Protocol of the payload.
        protocol: IpProtocol at field::PROTOCOL;
        /// Header checksum as stored.
        checksum: u16 at field::CHECKSUM;
    }

    /// True if the stored header checksum is right.
    #[inline]
    #[must_use]
    pub fn checksum_is_valid(self) -> bool {
        self.sum().is_valid()
    }

    getters! { fixed:
        /// Source address.
        src: [u8; 4] at field::SRC;
        /// Destination address; not the final one while
        /// [`is_source_routed`](Self::is_source_routed).
        dst: [u8; 4] at field::DST;
    }

    /// The option bytes, padding included: 0 to 40, a multiple of 4.
    #[inline]
    #[must_use]
    pub const fn option_bytes(self) -> &'a [u8] {
        self.options
    }

    /// The options one by one.
    #[inline]
    #[must_use]
    pub const fn options(self) -> Options<'a> {
        Options { rest: self.options }
    }

    /// True if a source route still has addresses to visit. The pseudo-header then holds the last
    /// of them, not the destination field (RFC 1122 §3.2.1.8, §4.1.3.5). Malformed options count as
    /// no route.
    #[must_use]
    pub fn is_source_routed(self) -> bool {
        self.options().map_while(Result::ok).any(|option| {
            // The pointer counts from 1 at the option's kind; beyond the option it is used up.
            matches!(option.kind, OPTION_LSRR | OPTION_SSRR)
                && option
                    .data
                    .first()
                    .is_some_and(|p| usize::from(*p) <= option.data.len() + 2)
        })
    }

    /// Sum over the whole header as stored.
    #[inline]
    #[must_use]
    pub fn sum(self) -> Sum {
        let mut sum = checksum::sum(self.fixed);
        sum.add(self.options);
        sum
    }
}

/// One IPv4 option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Copied flag, class and number in one byte.
    pub kind: u8,
    /// What follows kind and length; empty for [`OPTION_NOP`].
    pub data: &'a [u8],
}

/// Iterates over IPv4 options up to the end-of-list option. After an error it ends.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<Ipv4Option<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, after) = self.rest.split_first()?;
        if kind == OPTION_END {
            self.rest = &[];
            return None;
        }
        if kind == OPTION_NOP {
            self.rest = after;
            return Some(Ok(Ipv4Option { kind, data: &[] }));
        }
        let option_bytes = after.first().map_or(0, |len| usize::from(*len));
        let Some((option, rest)) = self.rest.split_at_checked(option_bytes) else {
            self.rest = &[];
            return Some(Err(ParseError::Ipv4OptionLength));
        };
        let Some(data) = option.get(2..) else {
            self.rest = &[];
            return Some(Err(ParseError::Ipv4OptionLength));
        };
        self.rest = rest;
        Some(Ok(Ipv4Option { kind, data }))
    }
}
