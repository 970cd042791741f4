//! Frame sizes as RFC 2544 counts them.

use crate::error::ToolError;
use crate::headers::udp_frame;
use crate::ip::IpVersion;

/// Bytes of a frame around its IP packet: the Ethernet header (14) and the FCS (4), which is
/// counted though no TAP or veth carries it. RFC 2544, section 9.
const ETHERNET: usize = 18;

/// The discard service (RFC 863), for a port without a host.
pub(crate) const DISCARD: u16 = 9;

/// Bytes of a time in a packet.
const TIME: usize = 8;

/// UDP's header, and that of an ICMP echo.
const TRANSPORT: usize = 8;

/// The bytes of a datagram in a frame of `frame` bytes, the value of `option`, if it holds `least`
/// and fits the MTU.
///
/// # Errors
/// [`ToolError::Usage`] with the bounds.
pub(crate) fn payload(
    option: &str,
    frame: usize,
    ip: IpVersion,
    least: usize,
    mtu: u32,
) -> Result<usize, ToolError> {
    let around = ETHERNET + ip.header_len() + TRANSPORT;
    let most = mtu as usize + ETHERNET;
    if !(around + least..=most).contains(&frame) {
        return Err(ToolError::Usage(format!(
            "{option} cannot be '{frame}': a frame of {ip} has {} to {most} bytes here, with \
             Ethernet header and FCS; for larger ones raise the MTU",
            around + least
        )));
    }
    Ok(frame - around)
}

/// A UDP packet in a frame of `size` bytes, of a host that is not there.
///
/// # Errors
/// As [`payload`].
pub(crate) fn udp(option: &str, size: usize, mtu: u32) -> Result<Vec<u8>, ToolError> {
    let payload = payload(option, size, IpVersion::V4, TIME, mtu)?;
    Ok(udp_frame(1024, DISCARD, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_of_rfc_2544_fit() {
        let payload = |frame, ip| payload("--size", frame, ip, 16, 1500);
        assert_eq!(payload(64, IpVersion::V4), Ok(18));
        assert_eq!(payload(1518, IpVersion::V4), Ok(1472));
        assert_eq!(payload(1518, IpVersion::V6), Ok(1452));
        for (frame, ip) in [
            (61, IpVersion::V4),
            (64, IpVersion::V6),
            (1519, IpVersion::V4),
        ] {
            let error = payload(frame, ip).unwrap_err().to_string();
            assert!(error.starts_with("--size cannot"), "{error}");
        }
    }
}
