//! The TUN/TAP character device: its ioctls, and one packet for each read and write.

#![allow(
    unsafe_code,
    reason = "ioctl(2), fcntl(2) and setns(2) have no safe wrapper"
)]

use crate::driver::DeviceCounters;
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

/// What became of a read that returned no packet.
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
    /// No memory or no room in the socket's buffer.
    Busy,
    /// The interface is not up.
    Down,
    /// The interface was deleted.
    Removed,
    /// The kernel does not believe the virtio-net header, or the packet is no packet.
    Invalid,
    /// More segments than the kernel maps.
    Segments,
    /// More bytes than the kernel takes.
    Bytes,
    /// Anything else, a partial write among it.
    Other,
}

/// A descriptor of our own for what the process's descriptor `number` refers to: the one that a
/// parent process has passed on stays as it is.
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
#[derive(Clone, Copy, Debug)]
pub(in crate::port) struct Observed {
    /// Administratively up, with a carrier.
    pub(in crate::port) running: bool,
    /// From /proc/net/dev, where that is mounted.
    pub(in crate::port) counters: Option<DeviceCounters>,
}

impl Queue {
    /// Opens the device, not attached to an interface yet. Which network namespace its interface
    /// will be in is decided here: the calling thread's.
    pub(in crate::port) fn open() -> io::Result<Self> {
        // The standard library adds O_CLOEXEC.
        File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map(Self)
    }

    /// Takes over a descriptor of unknown origin, and makes it non-blocking and close-on-exec.
    pub(in crate::port) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let raw = fd.as_raw_fd();
        // SAFETY: flag operations on a descriptor that we own; they touch no memory.
        unsafe {
            let flags = check(libc::fcntl(raw, libc::F_GETFL))?;
            check(libc::fcntl(raw, libc::F_SETFL, flags | libc::O_NONBLOCK))?;
            check(libc::fcntl(raw, libc::F_SETFD, libc::FD_CLOEXEC))?;
        }
        Ok(Self(File::from(fd)))
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

    /// Says which offloads packets may be read with, for all queues of the interface.
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
            let error = match (&self.0).read_vectored(buffers) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            return Err(match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                // An interface that is down has nothing to read; EIO is macvtap's word for it.
                Some(libc::EAGAIN | libc::EIO | libc::ENETDOWN) => ReadError::Empty,
                Some(libc::EINVAL) => ReadError::Lost,
                Some(libc::EBADFD) => ReadError::Removed,
                _ => ReadError::Failed(error),
            });
        }
    }

    /// Writes one packet that is in one piece, header and all.
    pub(in crate::port) fn write(&self, packet: &[u8]) -> Result<(), WriteError> {
        self.write_with(packet.len(), |mut file| file.write(packet))
    }

    /// Writes one packet of `bytes` bytes in pieces, header and all.
    pub(in crate::port) fn write_pieces(
        &self,
        pieces: &[IoSlice<'_>],
        bytes: usize,
    ) -> Result<(), WriteError> {
        self.write_with(bytes, |mut file| file.write_vectored(pieces))
    }

    fn write_with(
        &self,
        bytes: usize,
        mut write: impl FnMut(&File) -> io::Result<usize>,
    ) -> Result<(), WriteError> {
        loop {
            let error = match write(&self.0) {
                Ok(written) if written == bytes => return Ok(()),
                Ok(_partly) => return Err(WriteError::Other),
                Err(error) => error,
            };
            return Err(match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => WriteError::Busy,
                Some(libc::EIO | libc::ENETDOWN) => WriteError::Down,
                Some(libc::EBADFD) => WriteError::Removed,
                Some(libc::EINVAL) => WriteError::Invalid,
                Some(libc::EMSGSIZE) => WriteError::Segments,
                Some(libc::E2BIG) => WriteError::Bytes,
                _ => WriteError::Other,
            });
        }
    }

    /// Looks at the interface in whatever network namespace it is now.
    ///
    /// The namespace may be one that this thread is not in; then a thread of its own goes there.
    /// Where the kernel does not tell the namespace (it wants `CAP_NET_ADMIN` for that), the
    /// interface is looked for by its name in this thread's.
    pub(in crate::port) fn observe(&self) -> io::Result<Observed> {
        let (name, _flags) = self.interface()?;
        match self.namespace() {
            Ok(namespace) if !is_current(&namespace)? => std::thread::Builder::new()
                .name("tap-observe".to_owned())
                .spawn(move || {
                    // SAFETY: takes no memory, and changes this thread alone, which then ends.
                    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
                    look_up(&name)
                })?
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the observing thread panicked"))),
            _ => look_up(&name),
        }
    }

    /// The network namespace that the interface is in (`TUNGETDEVNETNS`, Linux 5.4).
    fn namespace(&self) -> io::Result<File> {
        // SAFETY: no memory is passed; the result is checked before use.
        let fd = check(unsafe { libc::ioctl(self.raw(), libc::TUNGETDEVNETNS) })?;
        // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
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

/// True when the interface behind a queue is gone for good.
pub(in crate::port) fn is_removed(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

/// True when the interface has as many queues as it may have.
pub(in crate::port) fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::E2BIG)
}

/// True when the interface exists and may not, or its only queue is taken.
pub(in crate::port) fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

/// True when the flags do not match those of the interface.
pub(in crate::port) fn is_mismatch(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// Sets how many packets may wait in the kernel for each queue of an interface of this thread's
/// network namespace.
pub(in crate::port) fn set_queue_length(name: &str, packets: u16) -> io::Result<()> {
    let mut request = request(name)?;
    // The kernel keeps the queue length in the union's first int.
    request.ifr_ifru.ifru_metric = c_int::from(packets);
    interface_ioctl(libc::SIOCSIFTXQLEN as libc::Ioctl, &mut request)
}

fn look_up(name: &str) -> io::Result<Observed> {
    let mut request = request(name)?;
    interface_ioctl(libc::SIOCGIFFLAGS as libc::Ioctl, &mut request)?;
    // SAFETY: every bit pattern is a valid flag field, and the kernel wrote this one.
    let flags = c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    let wanted = libc::IFF_UP | libc::IFF_RUNNING;
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").ok();
    Ok(Observed {
        running: flags & wanted == wanted,
        counters: table.and_then(|table| parse_counters(&table, name)),
    })
}

/// Finds an interface's line in the text of /proc/net/dev: sixteen numbers after its name.
fn parse_counters(table: &str, name: &str) -> Option<DeviceCounters> {
    let numbers = table.lines().find_map(|line| {
        let (interface, numbers) = line.trim_start().split_once(':')?;
        (interface == name).then_some(numbers)
    })?;
    let mut fields = [0_u64; 16];
    let mut words = numbers.split_ascii_whitespace();
    for field in &mut fields {
        *field = words.next()?.parse().ok()?;
    }
    Some(DeviceCounters {
        rx_bytes: fields[0],
        rx_packets: fields[1],
        // TUN counts what it refuses as frame errors only.
        rx_errors: fields[2] + fields[5],
        rx_dropped: fields[3],
        tx_bytes: fields[8],
        tx_packets: fields[9],
        tx_errors: fields[10],
        tx_dropped: fields[11],
    })
}

/// Whether this thread is in `namespace`.
fn is_current(namespace: &File) -> io::Result<bool> {
    let ours = std::fs::metadata("/proc/thread-self/ns/net")?;
    let theirs = namespace.metadata()?;
    Ok((ours.st_dev(), ours.st_ino()) == (theirs.st_dev(), theirs.st_ino()))
}

fn interface_ioctl(call: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: no memory is passed; the result is checked before use.
    let raw = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: the descriptor was just made for us, and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(check(raw)?) };
    // SAFETY: the kernel reads and writes one `ifreq`, which lives until the call returns.
    unsafe { check(libc::ioctl(socket.as_raw_fd(), call, &raw mut *request)) }?;
    Ok(())
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

    const TABLE: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo \
colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0 \
    0       0          0
  tap0:   12345      10    1    2    0     3          0         0    67890      20    4    5    0 \
    0       0          0
 tap01:       1       1    1    1    1     1          1         1        1       1    1    1    1 \
    1       1          1
 short:       1       1
";

    #[test]
    fn counters_are_those_of_the_very_interface() {
        let found = parse_counters(TABLE, "tap0").expect("is in the table");
        assert_eq!(
            found,
            DeviceCounters {
                rx_packets: 10,
                rx_bytes: 12345,
                rx_dropped: 2,
                rx_errors: 4,
                tx_packets: 20,
                tx_bytes: 67890,
                tx_dropped: 5,
                tx_errors: 4,
            }
        );
        assert_eq!(parse_counters(TABLE, "tap"), None);
        assert_eq!(parse_counters(TABLE, "short"), None);
        assert_eq!(parse_counters("", "lo"), None);
    }

    #[test]
    fn a_name_that_does_not_fit_is_an_error() {
        assert!(request("abcdefghijklmno").is_ok());
        assert!(request("abcdefghijklmnop").is_err());
    }
}
