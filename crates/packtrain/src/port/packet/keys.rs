//! An interface behind packet sockets, from the keys of a port.

use super::{Fanout, PacketConfig, PacketSocket};
use crate::driver::DeviceError;
use crate::driver::key::{Key, Words, keys};
use crate::driver::options::{Options, Request};
use crate::port::tap::{check_name, check_waits, open_given};

/// What a `packet:` port is, from its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketOptions {
    /// Open packet sockets, one for each queue (`fd=5+6`); empty to open them.
    pub fds: Vec<i32>,
    /// How packets are distributed over several queues.
    pub fanout: Fanout,
    /// Receive only packets for the interface's own addresses (`promiscuous=off`).
    pub own_only: bool,
    /// Send without the queueing discipline (`qdisc=bypass`).
    pub bypass_qdisc: bool,
    /// Bytes of kernel memory for packets that wait in each queue, in each direction.
    pub buffer: Option<usize>,
    /// If the interface is deleted, wait until there is one of its name again (`gone=wait`).
    pub waits: bool,
}

impl Words for Fanout {
    const WORDS: &'static [(&'static str, Self)] =
        &[("hash", Self::Hash), ("defrag", Self::Defrag)];
}

impl Options for PacketOptions {
    type Driver = PacketSocket;

    const KEYS: &'static [Key<Self>] = keys! { Self;
        "fd" (Text("N or N+N+... (open descriptors, one for each queue)")) fds:
            "use inherited packet sockets instead of opening them";
        "fanout" (Words) fanout:
            "with several queues: each flow goes to one; defrag: the kernel reassembles IPv4 \
             fragments before";
        "promiscuous" (Switch("on", "off")) own_only:
            "off: receive only packets for the interface's own addresses";
        "qdisc" (Switch("use", "bypass")) bypass_qdisc:
            "bypass: send to the device without its queueing discipline";
        "buffer" (Range(65_536, 1 << 30)) buffer:
            "bytes of kernel memory for packets that wait in a queue; 16777216 by default";
        "gone" (Switch("end", "wait")) waits:
            "wait: if the interface is deleted, the run continues, and the port with it once there \
             is one again";
    };

    fn check(&self, port: &Request<'_>, _: &[&str]) -> Result<(), String> {
        check_waits(self.waits, &self.fds)?;
        check_name(port, &self.fds)
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn open(&self, port: &Request<'_>) -> Result<PacketSocket, DeviceError> {
        let config = PacketConfig {
            queues: port.config.queues.unwrap_or(1),
            offload: port.config.offload,
            fanout: self.fanout,
            promiscuous: !self.own_only,
            bypass_qdisc: self.bypass_qdisc,
            buffer: self.buffer,
            ..PacketConfig::new(port.name)
        };
        if self.fds.is_empty() {
            return PacketSocket::open(&config);
        }
        PacketSocket::from_fds(open_given(&self.fds)?, &config)
    }

    fn queues(&self) -> Option<usize> {
        (!self.fds.is_empty()).then_some(self.fds.len())
    }
}
