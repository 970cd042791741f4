//! An interface behind AF_XDP sockets, from the keys of a port.

use super::{XdpConfig, XdpMode, XdpSocket};
use crate::driver::DeviceError;
use crate::driver::key::{Key, Words, keys};
use crate::driver::options::{Options, Request};
use crate::port::AnyPort;
use crate::port::packet::{PacketConfig, PacketSocket};
use crate::port::tap::{check_name, check_waits, open_given, open_one};

/// What an `xdp:` port is, from its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpOptions {
    /// Open AF_XDP sockets, one for each queue (`fd=5+6`); empty to open them.
    pub fds: Vec<i32>,
    /// The map of another process's program, for these sockets (`map=7`).
    pub map: Option<u32>,
    /// How packets come from the driver (`mode=`).
    pub mode: XdpMode,
    /// Receive only packets for the interface's own addresses (`promiscuous=off`).
    pub own_only: bool,
    /// Descriptors of each ring (`rings=`).
    pub rings: Option<usize>,
    /// Packets that the device hands over within a system call (`busy-poll=`).
    pub busy_poll: Option<u16>,
    /// If the interface is deleted, wait until there is one of its name again (`gone=wait`).
    pub waits: bool,
}

impl Words for XdpMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("zerocopy", Self::ZeroCopy),
        ("copy", Self::Copy),
        ("generic", Self::Generic),
    ];
}

impl Options for XdpOptions {
    /// With `mode=auto` it may be packet sockets.
    type Driver = AnyPort;

    const KEYS: &'static [Key<Self>] = keys! { Self;
        "fd" (Text("N or N+N+... (open descriptors, one for each queue)")) fds:
            "use inherited AF_XDP sockets instead of opening them";
        "map" (Range(0, 2_147_483_647)) map:
            "with fd=: the inherited XSKMAP of the XDP program that is attached";
        "mode" (Words) mode:
            "how packets come from the driver; auto: the first that works of zerocopy, copy, \
             generic, and packet sockets";
        "promiscuous" (Switch("on", "off")) own_only:
            "off: receive only packets for the interface's own addresses";
        "rings" (Range(256, 4096)) rings:
            "descriptors of each ring, a power of two; 1024 by default";
        "busy-poll" (Range(1, 64)) busy_poll:
            "packets that the device hands over within each system call of the worker, where \
             interrupts are put off; without it they come by interrupts";
        "gone" (Switch("end", "wait")) waits:
            "wait: if the interface is deleted, the run continues, and the port with it once there \
             is one again";
    };

    fn check(&self, port: &Request<'_>, _: &[&str]) -> Result<(), String> {
        if let Some(rings) = self.rings.filter(|rings| !rings.is_power_of_two()) {
            return Err(format!(
                "rings={rings} is no power of two, as the kernel needs; use 256, 512, 1024, 2048 \
                 or 4096"
            ));
        }
        if self.fds.is_empty() != self.map.is_none() {
            return Err(
                "fd= and map= go together: give the sockets, and the map of the XDP program that \
                 gives them packets"
                    .to_owned(),
            );
        }
        check_waits(self.waits, &self.fds)?;
        // The sockets do not tell which interface they are for.
        check_name(port, &[])?;
        check_name(port, &self.fds)
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn pins_memory(&self) -> bool {
        true
    }

    fn open(&self, port: &Request<'_>) -> Result<AnyPort, DeviceError> {
        let config = XdpConfig {
            queues: port.config.queues,
            mode: self.mode,
            offload: port.config.offload,
            promiscuous: !self.own_only,
            rings: self.rings,
            busy_poll: self.busy_poll,
            ..XdpConfig::new(port.name)
        };
        if let Some(map) = self.map {
            let (sockets, map) = (open_given(&self.fds)?, open_one(map.cast_signed())?);
            return XdpSocket::from_fds(sockets, map, &config).map(AnyPort::Xdp);
        }
        match XdpSocket::open(&config) {
            Err(error @ DeviceError::Failed { .. }) if self.mode == XdpMode::Auto => {
                let socket = PacketSocket::open(&PacketConfig {
                    queues: port.config.queues.unwrap_or(1),
                    offload: port.config.offload,
                    promiscuous: !self.own_only,
                    ..PacketConfig::new(port.name)
                });
                // That there are no packet sockets either is no news.
                let Ok(mut socket) = socket else {
                    return Err(error);
                };
                let note = format!("packets come by packet sockets, not AF_XDP: {error}");
                socket.0.notes.insert(0, note);
                Ok(AnyPort::Packet(socket))
            }
            opened => opened.map(AnyPort::Xdp),
        }
    }

    fn queues(&self) -> Option<usize> {
        (!self.fds.is_empty()).then_some(self.fds.len())
    }
}
