//! Why a packet cannot be segmented.

use core::fmt;

/// Why a packet cannot be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SegmentError {
    /// It is an IP fragment.
    Fragment,
    /// Its headers are not of the protocols that [`Gso::kind`](crate::offload::Gso::kind) names, or
    /// those of a tunnel not of the one that its layout names.
    Kind,
    /// The header bytes end early, or contradict the layout.
    Headers,
    /// It has a source route that is not used up, and whose final destination is not known: other
    /// than IPv4 LSRR and SSRR and IPv6 routing types 0, 2 and 4, or malformed.
    SourceRoute,
    /// The IP packet is longer than the packet, a segment would be longer than 65 535 bytes, or the
    /// two packets of a tunnel do not end together.
    Length,
    /// The UDP length differs from that of the IP payload: no datagram, or one with a surplus area
    /// (RFC 9868), which has no meaning on segments.
    UdpLength,
    /// More segments than [`TCP_SEGMENTS_MAX`](super::TCP_SEGMENTS_MAX) or
    /// [`UDP_SEGMENTS_MAX`](super::UDP_SEGMENTS_MAX).
    TooManySegments,
    /// SYN or RST on more than one segment.
    TcpFlags,
    /// A fixed IPv4 identification without DF (RFC 6864 §4: it must be unique), or over IPv6.
    FixedId,
    /// GRE with sequence numbers: every packet of the tunnel would need a new one. Linux does not
    /// segment these either.
    TunnelSequence,
    /// There is no segment of this number.
    Index,
    /// A buffer is shorter than the headers.
    Buffer,
}

impl SegmentError {
    /// Every variant.
    pub const ALL: &[Self] = &[
        Self::Fragment,
        Self::Kind,
        Self::Headers,
        Self::SourceRoute,
        Self::Length,
        Self::UdpLength,
        Self::TooManySegments,
        Self::TcpFlags,
        Self::FixedId,
        Self::TunnelSequence,
        Self::Index,
        Self::Buffer,
    ];

    /// The name under which a drop for this reason is counted.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Fragment => "segment_fragment",
            Self::Kind => "segment_kind",
            Self::Headers => "segment_headers",
            Self::SourceRoute => "segment_source_route",
            Self::Length => "segment_length",
            Self::UdpLength => "segment_udp_length",
            Self::TooManySegments => "segment_too_many",
            Self::TcpFlags => "segment_tcp_flags",
            Self::FixedId => "segment_fixed_id",
            Self::TunnelSequence => "segment_tunnel_sequence",
            Self::Index => "segment_index",
            Self::Buffer => "segment_buffer",
        }
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packet cannot be segmented: ")?;
        f.write_str(self.reason())
    }
}

crate::error::error!(SegmentError, InvalidData);
