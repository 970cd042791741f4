//! Link headers that a capturing program makes where there is no Ethernet: Linux "cooked" captures
//! (`tcpdump -i any`) and the loopback of BSD and macOS.

use super::LinkCode;

/// The longest such header, in bytes: [`LinkCode::LINUX_SLL2`].
pub const COOKED_HEADER_BYTES_MAX: usize = 20;

/// Values of `AF_INET6` where captures are made: Linux, NetBSD and OpenBSD, FreeBSD, macOS.
const ADDRESS_FAMILIES_IPV6: [u32; 4] = [10, 24, 28, 30];
/// The value of `AF_INET`, the same everywhere.
const ADDRESS_FAMILY_IPV4: u32 = 2;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// The link header of a packet of a type for which [`LinkCode::is_cooked`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooked {
    /// Its length in bytes. The rest of the packet is what follows an Ethernet header.
    pub bytes: usize,
    /// The Ethernet type of the rest: a VLAN tag may follow. 0 if the header states none, as for
    /// another address family than IP.
    pub ethertype: u16,
    /// The address of the sender, if the header has one of 6 bytes.
    pub sender: Option<[u8; 6]>,
}

impl LinkCode {
    /// Whether packets have a header that [`Cooked::parse`] reads.
    #[must_use]
    pub const fn is_cooked(self) -> bool {
        matches!(
            self,
            Self::NULL | Self::LOOP | Self::LINUX_SLL | Self::LINUX_SLL2
        )
    }
}

impl Cooked {
    /// The header that `packet` begins with. `None` if the packet is shorter, or for a type for
    /// which [`LinkCode::is_cooked`] does not hold.
    #[must_use]
    pub fn parse(link: LinkCode, packet: &[u8]) -> Option<Self> {
        match link {
            LinkCode::NULL | LinkCode::LOOP => packet.first_chunk().copied().map(Self::loopback),
            LinkCode::LINUX_SLL => packet.first_chunk().copied().map(Self::sll),
            LinkCode::LINUX_SLL2 => packet.first_chunk().copied().map(Self::sll2),
            _ => None,
        }
    }

    /// An address family: in network byte order (`LOOP`), or in that of the capturing host, which
    /// the file does not state (`NULL`). Each is below 256, so only one order makes sense. Some
    /// programs write an Ethernet type instead, in either order of its own two bytes.
    fn loopback(family: [u8; 4]) -> Self {
        let family = u32::from_le_bytes(family).min(u32::from_be_bytes(family));
        let ethertype = match family {
            ADDRESS_FAMILY_IPV4 => ETHERTYPE_IPV4,
            family if ADDRESS_FAMILIES_IPV6.contains(&family) => ETHERTYPE_IPV6,
            _ => [ETHERTYPE_IPV4, ETHERTYPE_IPV6]
                .into_iter()
                .find(|known| {
                    [*known, known.swap_bytes()]
                        .map(u32::from)
                        .contains(&family)
                })
                .unwrap_or(0),
        };
        Self {
            bytes: 4,
            ethertype,
            sender: None,
        }
    }

    /// Linux: packet type, type of the device, length and bytes of the address, Ethernet type.
    fn sll(header: [u8; 16]) -> Self {
        let [.., l0, l1, a, b, c, d, e, f, _, _, t0, t1] = header;
        Self {
            bytes: 16,
            ethertype: u16::from_be_bytes([t0, t1]),
            sender: ([l0, l1] == [0, 6]).then_some([a, b, c, d, e, f]),
        }
    }

    /// Linux, with the interface: Ethernet type, two reserved bytes, interface, type of the device,
    /// packet type, length and bytes of the address.
    fn sll2(header: [u8; 20]) -> Self {
        let [t0, t1, .., length, a, b, c, d, e, f, _, _] = header;
        Self {
            bytes: 20,
            ethertype: u16::from_be_bytes([t0, t1]),
            sender: (length == 6).then_some([a, b, c, d, e, f]),
        }
    }
}
