//! Header bytes: flags, how many bytes are compared, and loads in network byte order.

/// A packet of a common shape has at least this many bytes. The entry of a held packet copies as
/// many.
pub(super) const WIDE: usize = 88;

pub(super) const TCP_FIN: u8 = 0x01;
pub(super) const TCP_SYN: u8 = 0x02;
pub(super) const TCP_RST: u8 = 0x04;
pub(super) const TCP_PSH: u8 = 0x08;
pub(super) const TCP_ACK: u8 = 0x10;
pub(super) const TCP_URG: u8 = 0x20;
pub(super) const TCP_CWR: u8 = 0x80;

/// `!MF && offset == 0 && !reserved`: all but DF.
pub(super) const IPV4_NOT_DF: u16 = 0xBFFF;

#[inline]
pub(super) fn load16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

#[inline]
pub(super) fn load32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

#[inline]
pub(super) fn store16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[inline(always)]
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}
