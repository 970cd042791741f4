//! The TUN/TAP character device: its ioctls, and one packet for each read and write.

#![allow(
    unsafe_code,
    reason = "ioctl(2), fcntl(2) and netlink have no safe wrapper"
)]

use crate::driver::DeviceCounters;
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, openat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::{c_int, c_short, c_uint};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;

/// Packets are IP packets, without a link header.
pub(in crate::port) const TUN: u32 = libc::IFF_TUN as u32;
/// Packets are Ethernet frames.
pub(in crate::port) const TAP: u32 = libc::IFF_TAP as u32;
/// No four bytes of packet information in front of everything.
pub(in crate::port) const NO_PACKET_INFO: u32 = libc::IFF_NO_PI as u32;
/// A virtio-net header in front of every packet.
pub(in crate::port) const VNET_HEADER: u32 = libc::IFF_VNET_HDR as u32;
/// The interface may have several queues.
pub(in crate::port) const MULTI_QUEUE: u32 = libc::IFF_MULTI_QUEUE as u32;
/// The kernel receives what a queue's descriptor writes in that queue's NAPI context.
pub(in crate::port) const NAPI: u32 = libc::IFF_NAPI as u32;
/// Attach only if the interface does not exist yet.
pub(in crate::port) const CREATE_ONLY: u32 = libc::IFF_TUN_EXCL as u32;

/// `TUNSETOFFLOAD`: unfinished transport checksums.
pub(in crate::port) const OFFLOAD_CSUM: u32 = libc::TUN_F_CSUM;
/// `TUNSETOFFLOAD`: TCP over IPv4 GSO packets.
pub(in crate::port) const OFFLOAD_TSO4: u32 = libc::TUN_F_TSO4;
/// `TUNSETOFFLOAD`: TCP over IPv6 GSO packets.
pub(in crate::port) const OFFLOAD_TSO6: u32 = libc::TUN_F_TSO6;
/// `TUNSETOFFLOAD`: TCP GSO packets with CWR set.
pub(in crate::port) const OFFLOAD_TSO_ECN: u32 = libc::TUN_F_TSO_ECN;
/// `TUNSETOFFLOAD`: UDP GSO packets of both IP versions, which Linux allows only together.
pub(in crate::port) const OFFLOAD_USO: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// Why a read returned no packet.
#[derive(Debug)]
pub(in crate::port) enum ReadError {
    /// No packet is there now.
    Empty,
    /// The kernel could not express the packet's offload in a virtio-net header, and dropped it.
    Lost,
    /// The interface was deleted.
    Removed,
    /// Anything else.
    Failed(io::Error),
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) enum WriteError {
    /// No room in the socket's buffer: it becomes writable when there is.
    Busy,
    /// No memory in the kernel. No event reports free memory: the descriptor stays writable.
    NoMemory,
    /// The interface is not up.
    Down,
    /// The interface was deleted.
    Removed,
    /// The kernel refused the virtio-net header, or the packet is malformed.
    Invalid,
    /// More segments than the kernel maps.
    Segments,
    /// More bytes than the kernel takes.
    Bytes,
    /// Anything else, including a partial write.
    Other,
}

/// A descriptor of our own for the file that the process's descriptor `number` refers to. The
/// descriptor that a parent process passed on stays open; the open file description is the same.
pub(in crate::port) fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed, and a number that is no descriptor is an error.
    let fd = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One descriptor: a queue of the interface, once attached.
#[derive(Debug)]
pub(in crate::port) struct Queue(File);

/// The interface as its own network namespace sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) struct Observed {
    /// Administratively up, with a carrier.
    pub(in crate::port) running: bool,
    /// Its counters.
    pub(in crate::port) counters: DeviceCounters,
    /// Whether packet information precedes every packet; `None` if the interface does not report
    /// it. `TUNGETIFF` does not: in its answer, the bit of `IFF_NO_PI` means `IFF_NOFILTER`.
    pub(in crate::port) packet_info: Option<bool>,
}

impl Queue {
    /// Opens the device, not attached to an interface yet. Its interface will be in the calling
    /// thread's network namespace: the kernel decides that here.
    pub(in crate::port) fn open() -> io::Result<Self> {
        // The standard library adds O_CLOEXEC.
        File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map(Self)
    }

    /// Takes over a descriptor of unknown origin, and makes it close-on-exec.
    pub(in crate::port) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
        Ok(Self(File::from(fd)))
    }

    /// Makes reads and writes non-blocking: for all descriptors that share the open file
    /// description, including those of a parent process.
    pub(in crate::port) fn set_nonblocking(&self) -> io::Result<()> {
        Ok(fcntl_setfl(
            &self.0,
            fcntl_getfl(&self.0)? | OFlags::NONBLOCK,
        )?)
    }

    /// Another descriptor of the same queue.
    pub(in crate::port) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Attaches to the interface `name`, or creates it (`TUNSETIFF`).
    pub(in crate::port) fn attach(&self, name: &str, flags: u32) -> io::Result<()> {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags = flags as c_short;
        // SAFETY: the kernel reads and writes one `ifreq`, which lives until the call returns.
        unsafe { check(libc::ioctl(self.raw(), libc::TUNSETIFF, &raw mut request)) }?;
        Ok(())
    }

    /// The interface's name, as it is now, and its flags (`TUNGETIFF`).
    pub(in crate::port) fn interface(&self) -> io::Result<(String, u32)> {
        let mut request = request("")?;
        // SAFETY: the kernel writes one `ifreq`, which lives until the call returns.
        unsafe { check(libc::ioctl(self.raw(), libc::TUNGETIFF, &raw mut request)) }?;
        // SAFETY: every bit pattern is a valid flag field, and the kernel wrote this one.
        let flags = unsafe { request.ifr_ifru.ifru_flags } as u16;
        let name = request.ifr_name.iter().map(|&c| c as u8);
        let name: Vec<u8> = name.take_while(|&c| c != 0).collect();
        Ok((String::from_utf8_lossy(&name).into_owned(), flags.into()))
    }

    /// Device and inode number of the network namespace that the interface is in.
    pub(in crate::port) fn namespace_inode(&self) -> io::Result<(u64, u64)> {
        let namespace = self.namespace()?.metadata()?;
        Ok((namespace.st_dev(), namespace.st_ino()))
    }

    /// Sets the virtio-net header's size, for all queues of the interface.
    pub(in crate::port) fn set_header_bytes(&self, bytes: usize) -> io::Result<()> {
        self.set_int(libc::TUNSETVNETHDRSZ, bytes as c_int)
    }

    /// The virtio-net header's size.
    pub(in crate::port) fn header_bytes(&self) -> io::Result<usize> {
        let mut bytes: c_int = 0;
        // SAFETY: the kernel writes one int, which lives until the call returns.
        unsafe {
            check(libc::ioctl(
                self.raw(),
                libc::TUNGETVNETHDRSZ,
                &raw mut bytes,
            ))?;
        }
        usize::try_from(bytes).map_err(io::Error::other)
    }

    /// Makes the virtio-net header little endian, whatever the host is.
    pub(in crate::port) fn set_little_endian(&self) -> io::Result<()> {
        self.set_int(libc::TUNSETVNETLE, 1)
    }

    fn set_int(&self, request: libc::Ioctl, value: c_int) -> io::Result<()> {
        // SAFETY: the kernel reads one int, which lives until the call returns.
        unsafe { check(libc::ioctl(self.raw(), request, &raw const value)) }?;
        Ok(())
    }

    /// Sets the offloads that packets may be read with, for all queues of the interface.
    pub(in crate::port) fn set_offload(&self, mask: u32) -> io::Result<()> {
        // The argument is the mask itself, not a pointer to it.
        let mask = libc::c_ulong::from(mask);
        // SAFETY: no memory is passed.
        unsafe { check(libc::ioctl(self.raw(), libc::TUNSETOFFLOAD, mask)) }?;
        Ok(())
    }

    /// Reads one packet, header and all, into `buffers`; returns the bytes.
    pub(in crate::port) fn read(&self, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, ReadError> {
        loop {
            // System calls without the C library: its own are cancellation points, and record that
            // before and after each call.
            let read = match buffers {
                [buffer] => rustix::io::read(&self.0, &mut **buffer),
                _ => rustix::io::readv(&self.0, buffers),
            };
            let error = match read {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            return Err(match error {
                Errno::INTR => continue,
                // An interface that is down has nothing to read; macvtap reports EIO for it.
                Errno::AGAIN | Errno::IO | Errno::NETDOWN => ReadError::Empty,
                Errno::INVAL => ReadError::Lost,
                Errno::BADFD => ReadError::Removed,
                _ => ReadError::Failed(error.into()),
            });
        }
    }

    /// Writes one packet that is in one piece, header and all.
    pub(in crate::port) fn write(&self, packet: &[u8]) -> Result<(), WriteError> {
        self.write_with(packet.len(), |file| rustix::io::write(file, packet))
    }

    /// Writes one packet of `bytes` bytes in pieces, header and all.
    pub(in crate::port) fn write_pieces(
        &self,
        pieces: &[IoSlice<'_>],
        bytes: usize,
    ) -> Result<(), WriteError> {
        self.write_with(bytes, |file| rustix::io::writev(file, pieces))
    }

    fn write_with(
        &self,
        bytes: usize,
        write: impl Fn(&File) -> Result<usize, Errno>,
    ) -> Result<(), WriteError> {
        loop {
            let error = match write(&self.0) {
                Ok(written) if written == bytes => return Ok(()),
                Ok(_partly) => return Err(WriteError::Other),
                Err(error) => error,
            };
            return Err(match error {
                Errno::INTR => continue,
                Errno::AGAIN => WriteError::Busy,
                Errno::NOBUFS | Errno::NOMEM => WriteError::NoMemory,
                Errno::IO | Errno::NETDOWN => WriteError::Down,
                Errno::BADFD => WriteError::Removed,
                Errno::INVAL => WriteError::Invalid,
                Errno::MSGSIZE => WriteError::Segments,
                Errno::TOOBIG => WriteError::Bytes,
                _ => WriteError::Other,
            });
        }
    }

    /// Reads the state of the interface in its present network namespace.
    ///
    /// The namespace need not be this thread's; `CAP_NET_ADMIN` suffices to query it from here. If
    /// the kernel does not report the namespace (which requires `CAP_NET_ADMIN` too), the interface
    /// is looked up by its name in this thread's namespace.
    pub(in crate::port) fn observe(&self) -> io::Result<Observed> {
        let (name, _flags) = self.interface()?;
        match self.namespace() {
            Ok(namespace) if !is_current(&namespace)? => {
                let id = namespace_id(&namespace)?.to_ne_bytes();
                look_up(&name, &[(libc::IFLA_TARGET_NETNSID, &id)])
            }
            _ => look_up(&name, &[]),
        }
    }

    /// Sets the bytes that GSO packets of the interface stay below, link header included
    /// (`gso_max_size`; that of IPv4, which Linux has since 6.3, follows).
    pub(in crate::port) fn limit_gso(&self, bytes: u32) -> io::Result<()> {
        let (name, _flags) = self.interface()?;
        self.in_namespace(|| set_link(&name, &[(libc::IFLA_GSO_MAX_SIZE, &bytes.to_ne_bytes())]))
    }

    /// Gives each NAPI context of the interface a kernel thread (`threaded`, Linux 5.12), and
    /// bounds what waits for it: the bytes of a queue that the kernel has not received yet, which
    /// count with the memory that they take. A full queue is writable again once half of it is
    /// received.
    pub(in crate::port) fn thread_napi(&self, waiting_bytes_max: u32) -> io::Result<()> {
        let bytes = c_int::try_from(waiting_bytes_max).map_err(io::Error::other)?;
        self.set_int(libc::TUNSETSNDBUF, bytes)?;
        let (name, _flags) = self.interface()?;
        self.in_namespace(|| {
            // An instance of its own: what is mounted at /sys may show another namespace.
            let system = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(system.as_fd())?;
            let none = MountAttrFlags::empty();
            let mounted = fsmount(system.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, none)?;
            let path = format!("class/net/{name}/threaded");
            let threaded = openat(
                &mounted,
                path,
                OFlags::WRONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            rustix::io::write(threaded, b"1")?;
            Ok(())
        })
    }

    /// Calls `set` in the interface's network namespace, where it can be named: a request of
    /// another one would move it.
    fn in_namespace(&self, set: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
        match self.namespace() {
            // A thread of its own, since this one's namespace is its caller's.
            Ok(namespace) if !is_current(&namespace)? => std::thread::scope(|scope| {
                let there = std::thread::Builder::new().spawn_scoped(scope, || {
                    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                    set()
                })?;
                there
                    .join()
                    .map_err(|_| io::Error::other("a thread panicked"))?
            }),
            _ => set(),
        }
    }

    /// The network namespace that the interface is in (`TUNGETDEVNETNS`, Linux 5.4).
    fn namespace(&self) -> io::Result<File> {
        // SAFETY: no memory is passed; the result is checked before use.
        let fd = check(unsafe { libc::ioctl(self.raw(), libc::TUNGETDEVNETNS) })?;
        // SAFETY: the kernel just made this descriptor for us, and it has no other owner.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// True if the interface of a queue was removed for good.
pub(in crate::port) fn is_removed(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

/// True if the interface has its maximum number of queues.
pub(in crate::port) fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::E2BIG)
}

/// True if the interface exists and must not, or its only queue is in use.
pub(in crate::port) fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

/// True if the flags do not match those of the interface.
pub(in crate::port) fn is_mismatch(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// Sets how many packets may wait in the kernel for each queue of an interface of this thread's
/// network namespace.
pub(in crate::port) fn set_queue_length(name: &str, packets: u16) -> io::Result<()> {
    let value = u32::from(packets).to_ne_bytes();
    set_link(name, &[(libc::IFLA_TXQLEN, &value)])
}

/// Sets attributes of an interface of this thread's network namespace. Unlike an ioctl, the
/// administrator of a user namespace may use it.
fn set_link(name: &str, attributes: &[(u16, &[u8])]) -> io::Result<()> {
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    about_link(libc::RTM_SETLINK, flags, name, attributes)?;
    Ok(())
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
fn is_current(namespace: &File) -> io::Result<bool> {
    let ours = std::fs::metadata("/proc/thread-self/ns/net")?;
    let theirs = namespace.metadata()?;
    Ok((ours.st_dev(), ours.st_ino()) == (theirs.st_dev(), theirs.st_ino()))
}

/// A request about the interface `name`, zero in all else.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all of `ifreq` is integers, and a pointer for which null is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as std::ffi::c_char;
    }
    Ok(request)
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

const _: () = assert!(size_of::<c_uint>() == size_of::<u32>());

#[cfg(test)]
mod tests {
    use super::*;

    fn link_message(kind: &[u8], flags: c_int) -> Vec<u8> {
        let mut message = vec![0; 32];
        message[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
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

    #[test]
    fn a_name_that_does_not_fit_is_an_error() {
        assert!(request("abcdefghijklmno").is_ok());
        assert!(request("abcdefghijklmnop").is_err());
    }
}
