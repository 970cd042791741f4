//! Notifications about links of the kernel, for a program that reads them only after a change.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The multicast group `RTNLGRP_LINK`, as a bit of the groups of a socket (rtnetlink(7)).
const LINK_GROUP: u32 = 1 << 0;

/// Notifies of network interfaces of one network namespace that were made, changed, moved or
/// deleted.
///
/// It reports neither the interface nor the change: read [`Driver::link`] again. It does not watch
/// interfaces in another namespace, nor devices that are no network interfaces: read those links
/// from time to time as well. A socket in the namespace that an interface has moved to would keep
/// that namespace alive, and with it the interfaces of a container that has ended.
///
/// [`Driver::link`]: crate::driver::Driver::link
#[derive(Debug)]
pub struct LinkWatch(OwnedFd);

impl LinkWatch {
    /// Watches the links of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The system's, if it has no netlink or the process has no free descriptor.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol: `NETLINK_ROUTE`, which is 0.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        // The kernel chooses the port number.
        bind(&socket, &SocketAddrNetlink::new(0, LINK_GROUP))?;
        Ok(Self(socket))
    }

    /// Readable once a link has changed, until [`changed`](Self::changed) is called.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Whether a link may have changed since the last call. One system call if none has.
    #[must_use = "a change is reported once"]
    pub fn changed(&self) -> bool {
        let mut changed = false;
        loop {
            // The rest of each message is discarded: its content may be out of date already.
            match recv(&self.0, &mut [0_u8; 1], RecvFlags::empty()) {
                Err(Errno::AGAIN) => return changed,
                Err(Errno::INTR) => {}
                // ENOBUFS: the socket's buffer was full, and messages were lost.
                Ok(_) | Err(Errno::NOBUFS) => changed = true,
                Err(_) => return true,
            }
        }
    }
}
