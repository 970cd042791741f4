//! IPv6 and its extension headers (RFC 8200).

use super::{IpProtocol, ParseError, get_u32};
use crate::limits::{
    IP_LENGTH_MAX, IPV6_EXTENSION_BYTES_MAX, IPV6_EXTENSION_HEADERS_MAX, IPV6_HEADER_BYTES,
};

/// A hop-by-hop options header that has the jumbo payload option alone.
pub(crate) const JUMBO_BYTES: usize = 8;

/// Offsets in an IPv6 header.
pub mod field {
    /// Version, traffic class and flow label, 4 bytes.
    pub const VERSION_CLASS_FLOW: usize = 0;
    /// Length of everything after this header, extension headers included, 2 bytes.
    pub const PAYLOAD_LEN: usize = 4;
    /// What follows this header, 1 byte.
    pub const NEXT_HEADER: usize = 6;
    /// Hop limit, 1 byte.
    pub const HOP_LIMIT: usize = 7;
    /// Source address, 16 bytes.
    pub const SRC: usize = 8;
    /// Destination address, 16 bytes.
    pub const DST: usize = 24;
}

/// An IPv6 header without extension headers.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; IPV6_HEADER_BYTES]);

impl<'a> Header<'a> {
    /// Checks length and version.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = Self(bytes.first_chunk().ok_or(ParseError::Ipv6Truncated)?);
        if header.0[0] >> 4 == 6 {
            Ok(header)
        } else {
            Err(ParseError::Ipv6Version)
        }
    }

    /// Differentiated services and ECN.
    #[inline]
    #[must_use]
    pub const fn traffic_class(self) -> u8 {
        (get_u32(self.0, field::VERSION_CLASS_FLOW) >> 20) as u8
    }

    /// Flow label, 20 bits.
    #[inline]
    #[must_use]
    pub const fn flow_label(self) -> u32 {
        get_u32(self.0, field::VERSION_CLASS_FLOW) & 0x000F_FFFF
    }

    getters! { 0:
        /// Length of everything after this header, extension headers included.
        payload_len: u16 at field::PAYLOAD_LEN;
        /// What follows this header: an extension header or the transport.
        next_header: IpProtocol at field::NEXT_HEADER;
        /// Hop limit.
        hop_limit: u8 at field::HOP_LIMIT;
        /// Source address.
        src: [u8; 16] at field::SRC;
        /// Destination address; not the final one while a routing header has segments left.
        dst: [u8; 16] at field::DST;
    }
}

/// The result of the walk over extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// The next header of the last walked header. After a fragment header it may be any number,
    /// that of an extension header too.
    pub protocol: IpProtocol,
    /// Length of the walked headers together, at most
    /// [`IPV6_EXTENSION_BYTES_MAX`]. The transport, or the fragment's payload, starts after them.
    pub bytes: u16,
    /// How many headers were walked, at most [`IPV6_EXTENSION_HEADERS_MAX`].
    pub count: u8,
    /// A fragment header was there, the walk ended after it. An atomic fragment (RFC 6946) counts.
    pub fragment: bool,
    /// A routing header has segments left: the final destination is not in the IPv6 header.
    pub source_routed: bool,
}

impl Extensions {
    /// Walks hop-by-hop options, routing, destination options and at most one fragment header, in
    /// any order and number up to the limits, and stops at anything else (so AH, ESP and mobility
    /// headers are opaque transports here).
    ///
    /// `first` is the IPv6 header's next header; `bytes` starts after the IPv6 header and ends at
    /// or before the datagram's end.
    #[inline]
    pub fn walk(first: IpProtocol, bytes: &[u8]) -> Result<Self, ParseError> {
        let mut found = Self {
            protocol: first,
            bytes: 0,
            count: 0,
            fragment: false,
            source_routed: false,
        };
        while found.protocol.is_ipv6_extension() && !found.fragment {
            found.step(bytes)?;
        }
        Ok(found)
    }

    fn step(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        if usize::from(self.count) == IPV6_EXTENSION_HEADERS_MAX {
            return Err(ParseError::Ipv6ExtensionsTooMany);
        }
        let rest = &bytes[usize::from(self.bytes)..];
        // Every extension header is at least 8 bytes long.
        let start: &[u8; 8] = rest
            .first_chunk()
            .ok_or(ParseError::Ipv6ExtensionTruncated)?;
        self.fragment = self.protocol == IpProtocol::FRAGMENT;
        let header_bytes = if self.fragment {
            8
        } else {
            (usize::from(start[1]) + 1) * 8
        };
        if usize::from(self.bytes) + header_bytes > IPV6_EXTENSION_BYTES_MAX {
            return Err(ParseError::Ipv6ExtensionsTooLong);
        }
        if header_bytes > rest.len() {
            return Err(ParseError::Ipv6ExtensionTruncated);
        }
        if self.protocol == IpProtocol::ROUTING && start[3] != 0 {
            self.source_routed = true;
        }
        self.bytes += header_bytes as u16;
        self.count += 1;
        self.protocol = IpProtocol(start[0]);
        Ok(())
    }
}

/// The jumbo payload option in a hop-by-hop options header (RFC 2675 section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jumbo {
    /// Bytes behind the IPv6 header, this extension header included; more than 65,535.
    pub(crate) payload_bytes: u32,
    /// Nothing else is in the extension header.
    pub(crate) is_alone: bool,
    at: usize,
}

impl Jumbo {
    /// Type and length of the option, and of padding in its place (RFC 8200 section 4.2).
    const OPTION: [u8; 2] = [0xC2, 4];
    const PADDING: [u8; 6] = [1, 4, 0, 0, 0, 0];

    /// Finds it in the header at the start of `bytes`. `None` also if its value is that of no jumbo
    /// payload.
    pub(crate) fn find(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..(usize::from(*bytes.get(1)?) + 1) * 8)?;
        let mut at = 2;
        while let Some(option) = header.get(at..at + 2) {
            if option == Self::OPTION {
                let payload_bytes = u32::from_be_bytes(*header.get(at + 2..)?.first_chunk()?);
                return (payload_bytes as usize > IP_LENGTH_MAX).then_some(Self {
                    payload_bytes,
                    is_alone: header.len() == JUMBO_BYTES,
                    at,
                });
            }
            at += if option[0] == 0 {
                1
            } else {
                2 + usize::from(option[1])
            };
        }
        None
    }

    /// Puts padding in its place in `header`.
    pub(crate) fn pad(self, header: &mut [u8]) {
        if let Some(option) = header.get_mut(self.at..self.at + Self::PADDING.len()) {
            option.copy_from_slice(&Self::PADDING);
        }
    }
}
