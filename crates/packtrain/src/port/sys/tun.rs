//! The TUN/TAP character device: its ioctls, and one packet for each read and write.

#![allow(unsafe_code, reason = "ioctl(2) and fcntl(2) have no safe wrapper")]

use super::link::{self, Observed, check, is_current, set_link};
use crate::port::vnet::{ReadError, WriteError};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, openat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::{c_int, c_short, c_uint};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
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

    /// Reads the state of the interface in its present network namespace. If the kernel does not
    /// report the namespace (which requires `CAP_NET_ADMIN`), the interface is looked up by its
    /// name in this thread's namespace.
    pub(in crate::port) fn observe(&self) -> io::Result<Observed> {
        let (name, _flags) = self.interface()?;
        link::observe(&name, self.namespace())
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

/// A request about the interface `name`, zero in all else.
pub(super) fn request(name: &str) -> io::Result<libc::ifreq> {
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

const _: () = assert!(size_of::<c_uint>() == size_of::<u32>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_fit_is_an_error() {
        assert!(request("abcdefghijklmno").is_ok());
        assert!(request("abcdefghijklmnop").is_err());
    }
}
