//! TAP interfaces of the laboratory, and their descriptors.
//!
//! packtrain has its own driver for TAP. With this one a test creates an interface
//! inside a namespace, and passes the descriptors to the code that it tests.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use crate::error::{Feature, LabError, Missing};
use crate::netns::{self, Netns};
use crate::sys;
use packtrain_offload::virtio_net::Accept;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Bytes of the virtio-net header of a TAP made here: `struct virtio_net_hdr_mrg_rxbuf`.
pub const VNET_HDR_LEN: usize = 12;

/// `TUNSETOFFLOAD`: checksums, and TCP segmentation for IPv4 and IPv6, with ECN.
pub const OFFLOAD_TSO: u32 = Accept::TUN_ATTEMPTS[1].tun_flags();
/// `TUNSETOFFLOAD`: all of TSO and UDP segmentation for IPv4 and IPv6 (Linux 6.2 or later).
pub const OFFLOAD_ALL: u32 = Accept::TUN_ATTEMPTS[0].tun_flags();

const DEVICE: &str = "/dev/net/tun";

/// How to create a TAP (or TUN) interface. It has no packet information header, and exists until
/// the last of its descriptors is closed.
#[derive(Clone, Debug)]
pub struct Tap {
    name: String,
    kind: i32,
    queues: usize,
    multi_queue: bool,
    vnet_hdr: bool,
    offload: u32,
}

impl Tap {
    /// A TAP called `name` (1 to 15 bytes) with one queue, `IFF_MULTI_QUEUE`, no virtio-net
    /// header and no offloads.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            kind: libc::IFF_TAP,
            queues: 1,
            multi_queue: true,
            vnet_hdr: false,
            offload: 0,
        }
    }

    /// A TUN, which carries IP packets without a link header; otherwise as [`new`](Self::new).
    pub fn tun(name: &str) -> Self {
        Self {
            kind: libc::IFF_TUN,
            ..Self::new(name)
        }
    }

    /// The requested name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of queues (descriptors), 1 to 256 (`MAX_TAP_QUEUES`).
    pub fn queues(mut self, queues: usize) -> Self {
        self.queues = queues;
        self
    }

    /// Whether to create the device with `IFF_MULTI_QUEUE`. Must be on for more than one queue.
    pub fn multi_queue(mut self, on: bool) -> Self {
        self.multi_queue = on;
        self
    }

    /// Whether every frame is preceded by a [`VNET_HDR_LEN`] byte virtio-net header.
    pub fn vnet_hdr(mut self, on: bool) -> Self {
        self.vnet_hdr = on;
        self
    }

    /// The offloads that the reader of the descriptors accepts: a combination of `TUN_F_*`, such as
    /// [`OFFLOAD_TSO`] and [`OFFLOAD_ALL`]. They need a virtio-net header.
    pub fn offload(mut self, mask: u32) -> Self {
        self.offload = mask;
        self
    }

    /// Creates the interface in the namespace of the calling thread and returns one non-blocking
    /// descriptor per queue, queue 0 first.
    ///
    /// # Errors
    /// [`LabError::Missing`] when `/dev/net/tun` cannot be opened; [`LabError::Os`] if the kernel
    /// refuses the name (`EBUSY`: in use), the queues or the offloads (`EINVAL`: too old for USO).
    pub fn open(&self) -> Result<Vec<OwnedFd>, LabError> {
        if !(1..=256).contains(&self.queues) || (self.queues > 1 && !self.multi_queue) {
            return Err(LabError::Setting(
                "a TAP has 1 queue, or up to 256 with multi_queue",
            ));
        }
        let mut flags = self.kind | libc::IFF_NO_PI;
        if self.multi_queue {
            flags |= libc::IFF_MULTI_QUEUE;
        }
        if self.vnet_hdr {
            flags |= libc::IFF_VNET_HDR;
        }
        let mut descriptors = Vec::with_capacity(self.queues);
        for _ in 0..self.queues {
            let file = open_device()?;
            sys::tun_set_iff(file.as_fd(), &self.name, flags).map_err(|error| {
                match error.raw_os_error() {
                    // The path is not the TUN driver.
                    Some(libc::ENOTTY) => missing(&error).into(),
                    _ => LabError::from_io("TUNSETIFF")(error),
                }
            })?;
            descriptors.push(OwnedFd::from(file));
        }
        // Both are properties of the device, not of a queue.
        let first = descriptors[0].as_fd();
        if self.vnet_hdr {
            sys::tun_set_vnet_hdr_len(first, VNET_HDR_LEN as libc::c_int)
                .map_err(LabError::from_io("TUNSETVNETHDRSZ"))?;
        }
        set_offload(first, self.offload)?;
        Ok(descriptors)
    }
}

/// Sets the offloads that the reader of an interface's descriptors accepts, as
/// [`offload`](Tap::offload) does before it exists: for all of its queues, by any of them.
///
/// # Errors
/// [`LabError::Os`] if the kernel refuses them (`EINVAL`: too old for USO).
pub fn set_offload(queue: BorrowedFd<'_>, mask: u32) -> Result<(), LabError> {
    sys::tun_set_offload(queue, mask).map_err(LabError::from_io("TUNSETOFFLOAD"))
}

/// Lets an interface stay when its last descriptor is closed, until its namespace ends.
pub(crate) fn set_persistent(queue: BorrowedFd<'_>) -> Result<(), LabError> {
    sys::tun_set_persistent(queue).map_err(LabError::from_io("TUNSETPERSIST"))
}

/// Waits until a descriptor can be read or has an error; false after `timeout` or a signal.
///
/// # Errors
/// [`LabError::Os`] from `poll(2)`.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LabError> {
    let mut list: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let timeout = timeout.try_into().ok();
    match poll(&mut list, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(LabError::from_io("poll")(error.into())),
    }
}

/// Checks that the laboratory works: network namespaces can be made, and a TAP in one.
///
/// # Errors
/// [`Missing`], with the first feature that is not available (namespaces, then `/dev/net/tun`), the
/// reason, and what to do.
pub fn available() -> Result<(), Missing> {
    let netns = Netns::new().map_err(netns::as_missing)?;
    let tap = netns
        .run(|| Tap::new("probe%d").open())
        .map_err(netns::as_missing)?;
    match tap {
        Ok(_) => Ok(()),
        Err(LabError::Missing(missing)) => Err(missing),
        Err(LabError::Os { errno, .. }) => Err(Missing {
            feature: Feature::Tun,
            errno,
            hint: "creating a TAP needs CAP_NET_ADMIN in the network namespace",
        }),
        Err(other) => Err(netns::as_missing(other)),
    }
}

/// Opens the device, not attached to an interface.
pub(crate) fn open_device() -> Result<File, LabError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
        .map_err(|error| missing(&error).into())
}

/// The reason why the device cannot be used.
pub(crate) fn missing(error: &io::Error) -> Missing {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let hint = match errno {
        libc::ENOENT => "create it (mknod /dev/net/tun c 10 200), or pass it into the container",
        libc::ENODEV | libc::ENXIO | libc::ENOTTY => "load the tun module (modprobe tun)",
        libc::EACCES | libc::EPERM => {
            "allow read and write (chmod 666 /dev/net/tun) or run as root"
        }
        _ => "open(2) failed",
    };
    Missing {
        feature: Feature::Tun,
        errno,
        hint,
    }
}
