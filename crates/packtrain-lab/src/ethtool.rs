//! Offloads of an interface, by `SIOCETHTOOL`: what `ethtool -K` sets.

use std::net::{Ipv4Addr, UdpSocket};

use crate::error::LabError;
use crate::netns::Netns;
use crate::sys;

/// `linux/ethtool.h`.
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_SGSO: u32 = 0x24;

/// An offload that the kernel has for a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// The interface computes checksums (`tx-checksumming`). Without them it has no TSO.
    Checksum,
    /// The interface segments TCP (`tx-tcp-segmentation`, of IPv4 and IPv6).
    Tso,
    /// The kernel segments what the interface cannot, as late as possible
    /// (`tx-generic-segmentation`).
    Gso,
}

impl Offload {
    /// Its name in messages, and the commands to read and to set it.
    fn commands(self) -> (&'static str, u32, u32) {
        match self {
            Self::Checksum => ("tx-checksumming", ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM),
            Self::Tso => ("tso", ETHTOOL_GTSO, ETHTOOL_STSO),
            Self::Gso => ("gso", ETHTOOL_GGSO, ETHTOOL_SGSO),
        }
    }

    /// Whether interface `name` of `netns` has it on.
    ///
    /// # Errors
    /// [`LabError::Os`] if the interface or its driver does not know it.
    pub fn get(self, netns: &Netns, name: &str) -> Result<bool, LabError> {
        let (_, get, _) = self.commands();
        Ok(value(netns, name, get, 0)? != 0)
    }

    /// Switches it for interface `name` of `netns`, and reads it back.
    ///
    /// # Errors
    /// [`LabError::NotTaken`] if the driver refuses it or keeps it as it was, and as
    /// [`get`](Self::get).
    pub fn set(self, netns: &Netns, name: &str, on: bool) -> Result<(), LabError> {
        let (what, _, set) = self.commands();
        match value(netns, name, set, on.into()) {
            // The driver has no such switch; perhaps it is as requested.
            Err(error) if matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {}
            result => result.map(drop)?,
        }
        let found = self.get(netns, name)?;
        if found == on {
            return Ok(());
        }
        Err(LabError::NotTaken {
            what,
            wanted: on.into(),
            found: found.into(),
            hint: "the interface does not permit it; see ethtool -k and the port's offload=",
        })
    }
}

fn value(netns: &Netns, name: &str, command: u32, value: u32) -> Result<u32, LabError> {
    netns.run(|| {
        // Any socket reaches the interfaces of its namespace.
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        let socket = socket.map_err(LabError::from_io("bind"))?;
        sys::ethtool_value(&socket, name, command, value).map_err(LabError::from_io("SIOCETHTOOL"))
    })?
}
