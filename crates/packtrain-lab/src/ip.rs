//! The two versions of IP.

use std::fmt;

/// IP version of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// That of an option such as `--ipv6`.
    pub const fn of(is_ipv6: bool) -> Self {
        if is_ipv6 { Self::V6 } else { Self::V4 }
    }

    /// Bytes of a packet's header without options or extension headers.
    pub const fn header_len(self) -> usize {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        })
    }
}
