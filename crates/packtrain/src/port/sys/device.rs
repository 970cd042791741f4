//! An interface that exists, for ports that attach to one.

use super::link;
use super::socket::{Socket, is_gone};
use crate::driver::{DeviceCounters, DeviceError, Interface, Link};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;

/// An interface, by a socket of its network namespace: a packet socket, or one without privileges.
#[derive(Debug)]
pub(in crate::port) struct Device {
    control: Socket,
    index: u32,
    /// The network namespace; `None` if the kernel does not report it.
    namespace: Option<File>,
}

impl Device {
    pub(super) const fn new(control: Socket, index: u32, namespace: Option<File>) -> Self {
        Self {
            control,
            index,
            namespace,
        }
    }

    /// The interface `name` of the calling thread's network namespace.
    pub(super) fn open(name: &str) -> Result<Self, DeviceError> {
        let control = Socket::open().map_err(failed("look at interfaces (by a packet socket)"))?;
        Self::by(control, name)
    }

    /// As [`open`](Self::open), by a socket that needs no privilege. It cannot make the interface
    /// promiscuous.
    pub(super) fn without_privilege(name: &str) -> Result<Self, DeviceError> {
        // A socket of any family takes the requests about interfaces.
        let control = UnixDatagram::unbound().map_err(failed("open a socket"))?;
        Self::by(Socket::of(control.into()), name)
    }

    fn by(control: Socket, name: &str) -> Result<Self, DeviceError> {
        let index = index_of(&control, name)?;
        let namespace = File::open("/proc/thread-self/ns/net").ok();
        Ok(Self::new(control, index, namespace))
    }

    /// Whether a socket is of the interface's network namespace; true where the kernel does not say
    /// (before Linux 5.14).
    pub(super) fn is_beside(&self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let other = Socket::of(socket.try_clone_to_owned()?);
        Ok(self.control.namespace_cookie() == other.namespace_cookie())
    }

    pub(in crate::port) const fn index(&self) -> u32 {
        self.index
    }

    pub(in crate::port) const fn control(&self) -> &Socket {
        &self.control
    }

    /// The name of the interface, which must be an Ethernet interface and no loopback. `kind` is
    /// the port's.
    pub(super) fn ethernet(&self, kind: &str) -> Result<String, DeviceError> {
        let name = self.control.name_of(self.index);
        let name = name.map_err(failed("read its name"))?;
        let found = self.control.type_of(self.index);
        match found.map_err(failed("read its type"))? {
            libc::ARPHRD_ETHER => Ok(name),
            libc::ARPHRD_LOOPBACK => unsupported(format!(
                "{name} is a loopback interface: what {kind}: sends by it would come back to \
                 {kind}:; use one end of a veth pair (`ip link add type veth`)"
            )),
            _ => unsupported(format!(
                "{name} is no Ethernet interface: {kind}: takes only those"
            )),
        }
    }

    /// The link; an unknown state counts as up.
    pub(in crate::port) fn link(&self) -> Link {
        self.control.link_of(self.index).unwrap_or(Link::Up)
    }

    /// The interface, by its present name.
    pub(in crate::port) fn interface(&self) -> Option<Interface> {
        let namespace = self.namespace.as_ref();
        let namespace = namespace.and_then(|file| file.metadata().ok());
        Some(Interface {
            name: self.control.name_of(self.index).ok()?.into(),
            index: Some(self.index),
            namespace: namespace.map(|of| (of.st_dev(), of.st_ino())),
        })
    }

    /// The counters of the interface, which transmits what the port sends. `None` if its namespace
    /// is not known: in this thread's, another interface may have its name.
    pub(in crate::port) fn counters(&self) -> Option<DeviceCounters> {
        let name = self.control.name_of(self.index).ok()?;
        let observed = link::observe(&name, self.namespace.as_ref()?.try_clone());
        let of = observed.ok()?.counters;
        Some(DeviceCounters {
            rx_packets: of.tx_packets,
            rx_bytes: of.tx_bytes,
            rx_dropped: of.tx_dropped,
            rx_errors: of.tx_errors,
            tx_packets: of.rx_packets,
            tx_bytes: of.rx_bytes,
            tx_dropped: of.rx_dropped,
            tx_errors: of.rx_errors,
        })
    }
}

/// The index of the interface `name` in the socket's network namespace.
pub(super) fn index_of(socket: &Socket, name: &str) -> Result<u32, DeviceError> {
    match socket.index_of(name) {
        Err(error) if is_gone(&error) => unsupported(format!(
            "there is no interface {name} in this network namespace: `ip link` lists all"
        )),
        found => found.map_err(failed("look the interface up")),
    }
}

pub(in crate::port) fn unsupported<T>(why: String) -> Result<T, DeviceError> {
    Err(DeviceError::Unsupported(why))
}

/// An error of the system: the interface was removed, or `action` failed.
pub(in crate::port) fn failed(action: &'static str) -> impl FnOnce(io::Error) -> DeviceError {
    move |source| {
        if is_gone(&source) {
            DeviceError::Removed
        } else {
            DeviceError::Failed { action, source }
        }
    }
}
