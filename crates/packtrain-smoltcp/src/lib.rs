//! smoltcp behind a TUN or TAP of Linux, at the speed of large packets.
//!
//! [`TunDevice`] is a [`phy::Device`] for smoltcp 0.14 over a TUN or TAP that was opened with a
//! virtio-net header. A TCP packet of the kernel, up to 64 KiB, goes to smoltcp in one piece, and a
//! large segment of smoltcp (its feature `segmentation-offload`) goes to the kernel in one write.
//! Neither side cuts or merges packets, and neither sums TCP payload.
//!
//! ```no_run
//! use packtrain_smoltcp::{TunDevice, smoltcp};
//! use smoltcp::iface::{Config, Interface, SocketSet};
//! use smoltcp::time::Instant;
//! use smoltcp::wire::HardwareAddress;
//! use std::fs::File;
//!
//! # fn open() -> std::io::Result<File> { unimplemented!() }
//! // A TUN as below, non-blocking, with an MTU of 1500.
//! let file: File = open()?;
//! let mut device = TunDevice::tun(file, 1500);
//! let config = Config::new(HardwareAddress::Ip);
//! let mut interface = Interface::new(config, &mut device, Instant::now());
//! let mut sockets = SocketSet::new(vec![]);
//! loop {
//!     interface.poll(Instant::now(), &mut device, &mut sockets);
//!     if let Some(error) = device.take_error() {
//!         return Err(error.into()); // The device was removed, for example.
//!     }
//!     // Use the sockets, then wait for the device or for `interface.poll_delay`.
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/echo.rs` is a complete server.
//!
//! # The device
//!
//! Open `/dev/net/tun` with `O_NONBLOCK`, and give `TUNSETIFF` the flags `IFF_TUN | IFF_NO_PI |
//! IFF_VNET_HDR` (or `IFF_TAP`), `TUNSETVNETHDRSZ` the size of the header, and `TUNSETOFFLOAD` the
//! bits `TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6`. `offload(true)` of `tun-rs` does this and also sets
//! the bits for UDP, which is fine. Without `TUNSETOFFLOAD` each read is one wire packet. The page
//! of [`packtrain_offload::tun`] has the details.
//!
//! [`TunDevice::tun`] and [`TunDevice::tap`] are for a header of 10 bytes, the kernel's default;
//! [`TunDevice::with_header`] is for a device on which another size was set.
//!
//! # What passes whole
//!
//! | | to smoltcp | to the kernel |
//! |---|---|---|
//! | TCP over IPv4 | whole | whole |
//! | TCP over IPv6 | whole | wire packets ¹ |
//! | UDP | wire packets ² | wire packets |
//!
//! 1. smoltcp 0.14 drops every IPv6 packet that is longer than the MTU (`dispatch_ip` in
//!    `iface/interface/mod.rs`), so [`TunDevice`] does not offer segmentation offload for it.
//! 2. smoltcp takes one datagram at a time, so the datagrams of a GSO packet are given one by one.
//!
//! # Checksums
//!
//! - **TCP**: smoltcp neither makes nor verifies checksums. The kernel's TCP leaves them
//!   unfinished, and so does the device for the kernel (`NEEDS_CSUM`). If the kernel has forwarded
//!   a packet from another host and has not verified its checksum, the device verifies it. It drops
//!   and counts the packet if the checksum is wrong or if the packet is an IP fragment. A TCP
//!   packet of a raw socket keeps its checksum unless the field is 0.
//! - **UDP, ICMP and the IPv4 header**: smoltcp makes and verifies checksums. An unfinished
//!   UDP checksum of the kernel is finished first.
//!
//! # Memory
//!
//! Two buffers of 64 KiB, one for reads and one for writes. Packets are used where they were read,
//! and built where they are written. One more is allocated when the first UDP GSO packet is read,
//! for its datagrams.
//!
//! # A kernel that refuses large writes
//!
//! [Some kernels do](packtrain_offload::tun#a-kernel-that-refuses-large-writes). The device writes
//! the wire packets of a refused large packet in place of it, and sends wire packets only once
//! the cause is known to be the size: [`Fallback`](packtrain_offload::tun::Fallback) has the rules.

mod counts;
mod input;
mod output;

pub use counts::Counts;
pub use packtrain_offload::virtio_net::HeaderLen;
/// The version of smoltcp that [`TunDevice`] is a device of.
pub use smoltcp;

use input::Input;
use output::Output;
use packtrain_offload::limits::IP_LENGTH_MAX;
use packtrain_offload::tun::TunOffload;
use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium, PacketMeta};
use smoltcp::time::Instant;
use std::fmt;
use std::io::{self, Read, Write};
use std::num::{NonZeroU16, NonZeroUsize};

/// The least MTU of smoltcp, in bytes.
const MTU_MIN: u16 = 576;

/// A TUN or TAP with a virtio-net header, as a device of smoltcp. See the [crate] for how to
/// open the device and for what passes whole.
///
/// `D` is the open device: a [`File`](std::fs::File), or any type that reads and writes one packet
/// for each call. It must not block: without a packet, a read returns
/// [`WouldBlock`](io::ErrorKind::WouldBlock).
pub struct TunDevice<D> {
    input: Input,
    output: Output<D>,
    mtu: u16,
}

impl<D: Read + Write> TunDevice<D> {
    /// A TUN with a header of 10 bytes. `mtu` is that of the interface, in bytes of an IP packet;
    /// one below 576 counts as 576, which is smoltcp's least.
    #[must_use]
    pub fn tun(device: D, mtu: u16) -> Self {
        Self::new(device, TunOffload::tun(), mtu)
    }

    /// A TAP with a header of 10 bytes; otherwise as [`tun`](Self::tun). `mtu` does not include the
    /// Ethernet header.
    #[cfg(feature = "tap")]
    #[must_use]
    pub fn tap(device: D, mtu: u16) -> Self {
        Self::new(device, TunOffload::tap(), mtu)
    }

    fn new(device: D, offload: TunOffload, mtu: u16) -> Self {
        Self {
            input: Input::new(),
            output: Output::new(device, offload),
            mtu: mtu.max(MTU_MIN),
        }
    }

    /// The same device with a virtio-net header of another size, as `TUNSETVNETHDRSZ` has set it.
    #[must_use]
    pub fn with_header(mut self, header: HeaderLen) -> Self {
        self.output.set_header(header);
        self
    }
}

impl<D> TunDevice<D> {
    /// What the device has done since it was made.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.output.counts
    }

    /// The first error of a read or a write since the last call, since smoltcp's trait has no place
    /// for it. [`WouldBlock`](io::ErrorKind::WouldBlock) is no error, and packets that are dropped
    /// for what is in them are in [`counts`](Self::counts) only.
    ///
    /// An error of a read (`EBADFD`: the device was removed) comes again with each poll. An error
    /// of a write (`EIO`: the device is down) has cost one packet, which TCP sends again.
    pub const fn take_error(&mut self) -> Option<io::Error> {
        self.output.error.take()
    }

    /// The open device, to wait until it can be read.
    #[must_use]
    pub const fn get_ref(&self) -> &D {
        &self.output.device
    }

    /// The open device.
    #[must_use]
    pub fn into_inner(self) -> D {
        self.output.device
    }
}

// Counts: the buffers would be 128 KiB in hex.
impl<D: fmt::Debug> fmt::Debug for TunDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunDevice")
            .field("device", &self.output.device)
            .field("mtu", &self.mtu)
            .field("counts", &self.output.counts)
            .finish_non_exhaustive()
    }
}

impl<D: Read + Write> phy::Device for TunDevice<D> {
    type RxToken<'a>
        = RxToken<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = TxToken<'a, D>
    where
        Self: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(RxToken<'_>, TxToken<'_, D>)> {
        let packet = self.input.receive(&mut self.output)?;
        Some((RxToken { packet }, self.output.token()))
    }

    fn transmit(&mut self, _now: Instant) -> Option<TxToken<'_, D>> {
        Some(self.output.token())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let link = self.output.offload().link;
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        #[cfg(feature = "tap")]
        if link == packtrain_offload::offload::LinkType::Ethernet {
            capabilities.medium = Medium::Ethernet;
        }
        capabilities.max_transmission_unit = usize::from(self.mtu) + link.header_bytes();
        capabilities.checksum.tcp = Checksum::None;
        capabilities.segmentation.tcpv4 = NonZeroUsize::new(IP_LENGTH_MAX + link.header_bytes());
        capabilities
    }
}

/// A received packet for smoltcp: TCP of up to 64 KiB, or one wire packet.
pub struct RxToken<'a> {
    packet: &'a [u8],
}

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.packet)
    }
}

/// Room for a packet of smoltcp, which is written to the device when the token is consumed.
pub struct TxToken<'a, D> {
    output: &'a mut Output<D>,
    /// Payload bytes of each segment, if the packet is to be cut.
    segment: Option<NonZeroU16>,
}

impl<D> Output<D> {
    fn token(&mut self) -> TxToken<'_, D> {
        TxToken {
            output: self,
            segment: None,
        }
    }
}

impl<D: Read + Write> phy::TxToken for TxToken<'_, D> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, write: F) -> R {
        let result = write(self.output.room(bytes));
        self.output.send(bytes, self.segment);
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size;
    }
}

#[cfg(test)]
mod tests;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
