//! Interfaces by rtnetlink(7): their state and counters, and settings of theirs.

#![allow(unsafe_code, reason = "netlink has no safe wrapper")]

use crate::driver::DeviceCounters;
use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::fs::MetadataExt;

/// The interface as its own network namespace sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) struct Observed {
    /// Its number in its network namespace.
    pub(in crate::port) index: u32,
    /// Administratively up, with a carrier.
    pub(in crate::port) running: bool,
    /// Its counters.
    pub(in crate::port) counters: DeviceCounters,
    /// Whether packet information precedes every packet; `None` if the interface does not report
    /// it. `TUNGETIFF` does not: in its answer, the bit of `IFF_NO_PI` means `IFF_NOFILTER`.
    pub(in crate::port) packet_info: Option<bool>,
}

/// Reads the state of the interface `name` in `namespace`, which need not be this thread's:
/// `CAP_NET_ADMIN` suffices to query it from here. If the namespace is not known, the interface is
/// looked up in this thread's.
pub(super) fn observe(name: &str, namespace: io::Result<File>) -> io::Result<Observed> {
    match namespace {
        Ok(namespace) if !is_current(&namespace)? => {
            let id = namespace_id(&namespace)?.to_ne_bytes();
            look_up(name, &[(libc::IFLA_TARGET_NETNSID, &id)])
        }
        _ => look_up(name, &[]),
    }
}

/// Sets how many packets may wait in the kernel for each queue of an interface of this thread's
/// network namespace.
pub(in crate::port) fn set_queue_length(name: &str, packets: u16) -> io::Result<()> {
    let value = u32::from(packets).to_ne_bytes();
    set_link(name, &[(libc::IFLA_TXQLEN, &value)])
}

/// Sets attributes of an interface of this thread's network namespace. Unlike an ioctl, the
/// administrator of a user namespace may use it.
pub(super) fn set_link(name: &str, attributes: &[(u16, &[u8])]) -> io::Result<()> {
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    about_link(libc::RTM_SETLINK, flags, name, attributes)?;
    Ok(())
}

/// Whether this thread's network namespace has an interface of this name. Unlike an ioctl, the
/// request starts no modprobe for a name that is not there.
pub(in crate::port) fn exists(name: &str) -> io::Result<bool> {
    match look_up(name, &[]) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(error) => Err(error),
    }
}

fn look_up(name: &str, attributes: &[(u16, &[u8])]) -> io::Result<Observed> {
    let answer = about_link(libc::RTM_GETLINK, libc::NLM_F_REQUEST, name, attributes)?;
    parse_link(&answer).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// The number of another network namespace within this thread's, assigned if it has none
/// (ip-netns(8), `list-id`). It lasts as long as that namespace.
fn namespace_id(namespace: &File) -> io::Result<i32> {
    /// `NETNSA_NSID` and `NETNSA_FD` of linux/net_namespace.h.
    const ID: u16 = 1;
    const FD: u16 = 3;
    /// `NETNSA_NSID_NOT_ASSIGNED`; in a request, any free number.
    const NONE: i32 = -1;
    /// `rtgenmsg`, padded.
    const HEADER: [u8; 4] = [0; 4];
    let fd = namespace.as_raw_fd().to_ne_bytes();
    let known = || {
        let get = [(FD, &fd[..])];
        let answer = rtnetlink(libc::RTM_GETNSID, libc::NLM_F_REQUEST, &HEADER, &get)?;
        let attributes = answer.get(MESSAGE_HEADER_BYTES + HEADER.len()..);
        let id = attributes.and_then(|attributes| u32_at(attribute(attributes, ID)?, 0));
        let id = id.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok::<_, io::Error>(id.cast_signed())
    };
    let id = known()?;
    if id != NONE {
        return Ok(id);
    }
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    let any = NONE.to_ne_bytes();
    match rtnetlink(libc::RTM_NEWNSID, flags, &HEADER, &[(FD, &fd), (ID, &any)]) {
        Ok(_acknowledged) => known(),
        // Another thread assigned one first.
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => known(),
        Err(error) => Err(error),
    }
}

/// Bytes of `nlmsghdr`: length, type, flags, sequence, port.
const MESSAGE_HEADER_BYTES: usize = 16;
/// Bytes of `ifinfomsg`: family, padding, type, index, flags, change.
const LINK_HEADER_BYTES: usize = 16;

/// Makes a request about the interface `name`.
fn about_link(
    kind: u16,
    flags: c_int,
    name: &str,
    attributes: &[(u16, &[u8])],
) -> io::Result<Vec<u8>> {
    let name = [name.as_bytes(), &[0]].concat();
    let name: [(u16, &[u8]); 1] = [(libc::IFLA_IFNAME, &name)];
    rtnetlink(
        kind,
        flags,
        &[0; LINK_HEADER_BYTES],
        &[&name, attributes].concat(),
    )
}

/// Makes a request of this thread's network namespace, and returns the message that answers it
/// (rtnetlink(7)).
fn rtnetlink(
    kind: u16,
    flags: c_int,
    header: &[u8],
    attributes: &[(u16, &[u8])],
) -> io::Result<Vec<u8>> {
    let mut request = [&[0; MESSAGE_HEADER_BYTES], header].concat();
    for (kind, value) in attributes {
        push_attribute(&mut request, *kind, value);
    }
    let bytes = request.len() as u32;
    request[..4].copy_from_slice(&bytes.to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
    // SAFETY: no memory is passed; the result is checked before use.
    let raw = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)
    };
    // SAFETY: the descriptor was just made for us, and no other code has it.
    let mut socket = File::from(unsafe { OwnedFd::from_raw_fd(check(raw)?) });
    socket.write_all(&request)?;
    let mut answer = vec![0; 32 * 1024];
    let bytes = socket.read(&mut answer)?;
    answer.truncate(bytes);
    match (u16_at(&answer, 4), u32_at(&answer, MESSAGE_HEADER_BYTES)) {
        (Some(kind), Some(error)) if kind == libc::NLMSG_ERROR as u16 && error != 0 => {
            Err(io::Error::from_raw_os_error((error as i32).wrapping_neg()))
        }
        _ => Ok(answer),
    }
}

fn push_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend((4 + value.len() as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Reads an `RTM_NEWLINK` message. `None` if it lacks an attribute that every interface has.
fn parse_link(message: &[u8]) -> Option<Observed> {
    /// `IFLA_TUN_PI` in linux/if_link.h.
    const TUN_PI: u16 = 4;
    if u16_at(message, 4)? != libc::RTM_NEWLINK {
        return None;
    }
    let index = u32_at(message, MESSAGE_HEADER_BYTES + 4)?;
    let flags = u32_at(message, MESSAGE_HEADER_BYTES + 8)?;
    let wanted = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    let attributes = message.get(MESSAGE_HEADER_BYTES + LINK_HEADER_BYTES..)?;
    let statistics = attribute(attributes, libc::IFLA_STATS64)?;
    // `rtnl_link_stats64`: 64-bit fields in this order.
    let field = |index: usize| {
        let bytes = statistics.get(8 * index..8 * index + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let counters = DeviceCounters {
        rx_packets: field(0)?,
        tx_packets: field(1)?,
        rx_bytes: field(2)?,
        tx_bytes: field(3)?,
        // TUN counts refused packets as frame errors only.
        rx_errors: field(4)?.wrapping_add(field(13)?),
        tx_errors: field(5)?,
        rx_dropped: field(6)?,
        tx_dropped: field(7)?,
    };
    let packet_info = attribute(attributes, libc::IFLA_LINKINFO)
        .filter(|info| {
            attribute(info, libc::IFLA_INFO_KIND).is_some_and(|kind| kind.starts_with(b"tun"))
        })
        .and_then(|info| attribute(info, libc::IFLA_INFO_DATA))
        .and_then(|data| attribute(data, TUN_PI)?.first().map(|&pi| pi != 0));
    Some(Observed {
        index,
        running: flags & wanted == wanted,
        counters,
        packet_info,
    })
}

/// The value of the first netlink attribute of this kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    /// `NLA_TYPE_MASK`: without the bits for nested values and byte order.
    const KIND_MASK: u16 = 0x3fff;
    loop {
        let bytes = usize::from(u16_at(attributes, 0)?);
        let kind = u16_at(attributes, 2)? & KIND_MASK;
        let value = attributes.get(4..bytes)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(bytes.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Whether this thread is in `namespace`.
pub(super) fn is_current(namespace: &File) -> io::Result<bool> {
    let ours = std::fs::metadata("/proc/thread-self/ns/net")?;
    let theirs = namespace.metadata()?;
    Ok((ours.st_dev(), ours.st_ino()) == (theirs.st_dev(), theirs.st_ino()))
}

/// The result of a system call: its error if it is negative.
pub(super) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link_message(kind: &[u8], flags: c_int) -> Vec<u8> {
        let mut message = vec![0; 32];
        message[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        message[20] = 7;
        message[24..28].copy_from_slice(&flags.to_ne_bytes());
        push_attribute(&mut message, libc::IFLA_IFNAME, b"pt0\0");
        let statistics: Vec<u8> = (100..125_u64).flat_map(u64::to_ne_bytes).collect();
        push_attribute(&mut message, libc::IFLA_STATS64, &statistics);
        let (mut info, mut data) = (Vec::new(), Vec::new());
        push_attribute(&mut data, 3, &[1]);
        push_attribute(&mut data, 4, &[1]);
        push_attribute(&mut info, libc::IFLA_INFO_KIND, kind);
        push_attribute(&mut info, libc::IFLA_INFO_DATA | 0x8000, &data);
        push_attribute(&mut message, libc::IFLA_LINKINFO, &info);
        message
    }

    #[test]
    fn a_link_message_is_read() {
        let up = libc::IFF_UP | libc::IFF_RUNNING;
        let found = parse_link(&link_message(b"tun\0", up | libc::IFF_NOARP)).expect("it is whole");
        let counters = DeviceCounters {
            rx_packets: 100,
            tx_packets: 101,
            rx_bytes: 102,
            tx_bytes: 103,
            rx_errors: 104 + 113,
            tx_errors: 105,
            rx_dropped: 106,
            tx_dropped: 107,
        };
        let expected = Observed {
            index: u32::from_ne_bytes([7, 0, 0, 0]),
            running: true,
            counters,
            packet_info: Some(true),
        };
        assert_eq!(found, expected);
        let other = parse_link(&link_message(b"macvtap\0", libc::IFF_UP)).expect("it is whole");
        assert_eq!((other.running, other.packet_info), (false, None));
    }

    #[test]
    fn a_broken_link_message_is_no_panic() {
        let whole = link_message(b"tun\0", 0);
        for bytes in 0..whole.len() {
            let found = parse_link(&whole[..bytes]);
            assert!(
                found.is_none_or(|found| found.packet_info.is_none()),
                "{bytes} bytes"
            );
        }
        for at in 0..whole.len() {
            for value in [0, 1, 3, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                // Only that the read ends matters, not its data.
                std::hint::black_box(parse_link(&damaged));
            }
        }
    }
}
