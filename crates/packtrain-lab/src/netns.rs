//! Network namespaces without names: each exists while a descriptor to it, a socket in it or a
//! thread in it does. They are not mounted, so they do not outlive the process.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;

use crate::counters::Counters;
use crate::error::{Feature, LabError, Missing};
use crate::ip::IpVersion;
use crate::link::Rtnl;
use crate::threads::{join, spawn};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

/// The namespace of the calling thread, as a file.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// A network namespace, kept alive by this value.
#[derive(Debug)]
pub struct Netns {
    file: File,
}

impl Netns {
    /// Makes a new namespace. Its loopback is up, and IPv6 sends no packets by itself (see
    /// [`quiet_ipv6`](crate::link::quiet_ipv6)) on interfaces that are created there.
    ///
    /// Needs `CAP_SYS_ADMIN` in the user namespace of the process: root, or
    /// [`rootless::enter`](crate::rootless::enter) before.
    ///
    /// # Errors
    /// [`LabError::Missing`] if the kernel or its policy permits no network namespace;
    /// [`LabError::Os`] if the loopback cannot be set up.
    pub fn new() -> Result<Self, LabError> {
        let file = in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(missing)?;
            let file = File::open(CURRENT).map_err(LabError::from_io("open ns/net"))?;
            crate::link::quiet_ipv6("default")?;
            crate::link::quiet_ipv6("all")?;
            let mut rtnl = Rtnl::open()?;
            let loopback = rtnl.link("lo")?.index;
            rtnl.set_up(loopback)?;
            Ok::<_, LabError>(file)
        })??;
        Ok(Self { file })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// [`LabError::Os`] if `/proc` is not mounted or the kernel has no network namespaces.
    pub fn current() -> Result<Self, LabError> {
        let file = File::open(CURRENT).map_err(LabError::from_io("open ns/net"))?;
        Ok(Self { file })
    }

    /// Runs `f` on a new thread inside the namespace and waits for it. What `f` creates there
    /// (sockets, TAP descriptors, [`Rtnl`]) stays in the namespace and may be used from anywhere.
    /// A panic in `f` is passed on to the caller.
    ///
    /// # Errors
    /// [`LabError::Os`] if the thread cannot be started or may not enter.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        in_thread(|| {
            self.enter()?;
            Ok(f())
        })?
    }

    /// Moves the calling thread into the namespace, until the thread ends. It is only for threads
    /// of the caller. For a short task use [`run`](Self::run).
    ///
    /// # Errors
    /// [`LabError::Os`] if the process lacks `CAP_SYS_ADMIN` over the namespace.
    pub fn enter(&self) -> Result<(), LabError> {
        let network = CloneFlags::CLONE_NEWNET;
        setns(&self.file, network).map_err(LabError::from_errno("setns(CLONE_NEWNET)"))
    }

    /// A netlink handle for the namespace.
    ///
    /// # Errors
    /// As [`run`](Self::run) and [`Rtnl::open`].
    pub fn rtnl(&self) -> Result<Rtnl, LabError> {
        self.run(Rtnl::open)?
    }

    /// The protocol counters of the namespace, now.
    ///
    /// # Errors
    /// As [`run`](Self::run) and [`Counters::read`].
    pub fn counters(&self) -> Result<Counters, LabError> {
        self.run(Counters::read)?
    }

    /// The inode number of the namespace in `/proc/*/ns/net`: unique while it exists.
    ///
    /// # Errors
    /// [`LabError::Os`] from `fstat(2)`.
    pub fn inode(&self) -> Result<u64, LabError> {
        Ok(self
            .file
            .metadata()
            .map_err(LabError::from_io("fstat ns/net"))?
            .ino())
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Checks that network namespaces can be made. They are enough for hosts joined by veth.
///
/// # Errors
/// [`Missing`], with the reason and what to do.
pub fn namespaces_available() -> Result<(), Missing> {
    Netns::new().map(drop).map_err(as_missing)
}

/// The feature behind a failure to set up a namespace.
pub(crate) fn as_missing(error: LabError) -> Missing {
    let (errno, hint) = match error {
        LabError::Missing(missing) => return missing,
        // Namespaces exist but cannot be set up: a sandbox filters netlink or hides /proc.
        LabError::Os { errno, .. } => (
            errno,
            "a sandbox seems to restrict netlink or /proc; run outside of it",
        ),
        _ => (libc::EIO, "the kernel's netlink answers are not understood"),
    };
    Missing {
        feature: Feature::NetworkNamespaces,
        errno,
        hint,
    }
}

/// Whether this kernel has IPv6 (it may be built without, or started with `ipv6.disable=1`).
pub fn has_ipv6() -> bool {
    fs::exists("/proc/thread-self/net/if_inet6").unwrap_or(false)
}

/// The versions of IP that this kernel has.
pub fn ip_versions() -> &'static [IpVersion] {
    if has_ipv6() {
        &[IpVersion::V4, IpVersion::V6]
    } else {
        &[IpVersion::V4]
    }
}

fn missing(errno: Errno) -> LabError {
    let errno = errno as i32;
    let hint = match errno {
        libc::EPERM => "run as root, or as a user with permission to create user namespaces",
        libc::EINVAL | libc::ENOSYS => "the kernel is built without CONFIG_NET_NS",
        libc::ENOSPC | libc::EUSERS => "raise the sysctl user.max_net_namespaces",
        _ => "unshare(CLONE_NEWNET) failed",
    };
    Missing {
        feature: Feature::NetworkNamespaces,
        errno,
        hint,
    }
    .into()
}

/// Runs `f` on a thread of its own, so that a change of namespace ends with the thread.
fn in_thread<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    thread::scope(|scope| Ok(join(spawn(scope, f)?)))
}
