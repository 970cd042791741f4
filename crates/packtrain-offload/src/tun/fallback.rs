//! Writes that are refused because they are large: written again as segments, and turned off.

use super::offload::TunOffload;
use super::packets::PacketRun;
use crate::virtio_net::{GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4};
use core::fmt;
#[cfg(feature = "std")]
use std::io;

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const EAGAIN: i32 = if cfg!(any(target_os = "linux", target_os = "android")) {
    11
} else {
    35
};
const ENOBUFS: i32 = if cfg!(any(target_os = "linux", target_os = "android")) {
    105
} else {
    55
};

/// How many writes in a row `EIO` has to refuse: it is also the error of a device that is down, and
/// the device may come up between a large write and its segments.
const EIO_IN_A_ROW: u8 = 2;

/// A protocol and a direction in which a kernel may refuse several packets in one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LargeWrite {
    /// TCP segments that were merged into one write of the device.
    TcpToDevice,
    /// UDP datagrams that were merged into one write of the device.
    UdpToDevice,
    /// Datagrams of one `sendmsg` with `UDP_SEGMENT` to the network.
    UdpToNetwork,
}

impl LargeWrite {
    const TO_DEVICE: &[Self] = &[Self::TcpToDevice, Self::UdpToDevice];
    const TO_NETWORK: &[Self] = &[Self::UdpToNetwork];
}

/// A kind of large writes that a [`Fallback`] turned off, and the reason. Its text is one line for
/// a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The kind that is turned off.
    pub what: LargeWrite,
    /// The error of the system call: `EINVAL` (22) or `EIO` (5).
    pub error: i32,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.error == EIO { "EIO" } else { "EINVAL" };
        let (off, one_call, remedy) = match self.what {
            LargeWrite::TcpToDevice => (
                "merging of TCP for the device",
                "a merged write",
                "update the kernel (6.10.3 has this defect)",
            ),
            LargeWrite::UdpToDevice => (
                "merging of UDP for the device",
                "a merged write",
                "Linux 6.2 and later accept merged UDP",
            ),
            LargeWrite::UdpToNetwork => (
                "UDP_SEGMENT for the network",
                "a send of several datagrams",
                "turn on TX checksums of the network interface (ethtool -K DEV tx on)",
            ),
        };
        write!(
            f,
            "turned off {off}: the kernel refused {one_call} with {name} and accepted its packets \
             one by one, which is slower; {remedy}"
        )
    }
}

/// The result of a write, as [`Fallback`] judges it.
#[must_use = "`Again` means that the data is not written yet"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The kernel accepted it.
    Written,
    /// The kernel refused it, and may accept its packets one by one: write each of them
    /// ([`Packets::next_write`](super::Packets::next_write)), and report the result of each.
    Again,
    /// The kernel refused it. It is lost, and counted ([`Fallback::dropped`]). Later writes may be
    /// accepted.
    Dropped,
}

/// State of one [`LargeWrite`].
#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    off: Option<i32>,
    /// [`Fallback::notice`] returned it.
    noticed: bool,
    /// The error of a large write whose packets are being written one by one.
    pending: Option<i32>,
    /// Large writes in a row that were refused with `EIO`, and whose packets were accepted.
    in_a_row: u8,
    again: u64,
}

impl Gate {
    /// A small write was accepted: if a large one was refused before it, its length is the cause.
    fn confirm(&mut self, most: u8) {
        match self.pending.take() {
            Some(EIO) if self.in_a_row + 1 < most => self.in_a_row += 1,
            Some(error) => self.off = self.off.or(Some(error)),
            None => {}
        }
    }
}

/// Keeps a program working on a kernel that refuses large writes, and turns those off. Each thread
/// that writes has its own. It has no descriptor and does no I/O.
///
/// A large write that is refused with `EINVAL` or `EIO` is written again as packets. If the kernel
/// accepts a packet, the length was the cause, and merging of that protocol is turned off: at once
/// after `EINVAL`, and after two such writes in a row for `EIO` from the device, since that is also
/// the error of a device that is down. If the kernel refuses the packets too, nothing is turned
/// off. TCP and UDP to the device, and `UDP_SEGMENT` to the network, are turned off one by one.
/// They stay off: only a new `Fallback` tries again.
///
/// With [`write_batch`](TunOffload::write_batch), the closure is [`write`](Self::write):
///
/// ```
/// use packtrain_offload::tun::{Fallback, TunOffload};
/// use std::io::{Result, Write};
///
/// /// The kernel's errors about a write are counted. Another error is one of the device.
/// fn network_to_device(
///     mut device: impl Write,
///     fallback: &mut Fallback,
///     packets: &[Vec<u8>],
///     buffers: &mut [Vec<u8>],
/// ) -> Result<()> {
///     let written = fallback.offload().write_batch(buffers, packets, |write| {
///         fallback.write(write, |bytes| device.write(bytes))
///     })?;
///     assert_eq!(written.buffer_too_short, 0, "buffers of WRITE_BYTES_MAX bytes");
///     if let Some(refused) = fallback.notice() {
///         eprintln!("{refused}"); // Once for each that is turned off.
///     }
///     Ok(())
/// }
/// ```
///
/// With [`gather_batch`](TunOffload::gather_batch), each result goes through
/// [`check`](Self::check): see [the example for tokio](super#with-tokio).
///
/// Packets *from* the kernel are another matter: `TUNSETOFFLOAD` negotiates them once
/// ([`Accept::TUN_ATTEMPTS`](crate::virtio_net::Accept::TUN_ATTEMPTS)). A device without a
/// virtio-net header ([`headerless`](TunOffload::headerless)) has no large writes in this sense.
#[derive(Clone, Debug)]
pub struct Fallback {
    offload: TunOffload,
    gates: [Gate; 3],
    dropped: u64,
}

impl Fallback {
    /// With nothing turned off yet. `offload` says how the device was opened, and what to merge.
    #[must_use]
    pub const fn new(offload: TunOffload) -> Self {
        let gate = Gate {
            off: None,
            noticed: false,
            pending: None,
            in_a_row: 0,
            again: 0,
        };
        Self {
            offload,
            gates: [gate; 3],
            dropped: 0,
        }
    }

    /// The configuration for the next batch: that of [`new`](Self::new), without the protocols that
    /// are turned off.
    #[must_use]
    pub const fn offload(&self) -> TunOffload {
        TunOffload {
            merge_tcp: self.offload.merge_tcp && self.refused(LargeWrite::TcpToDevice).is_none(),
            merge_udp: self.offload.merge_udp && self.refused(LargeWrite::UdpToDevice).is_none(),
            ..self.offload
        }
    }

    /// How many datagrams to give [`fill_run`](super::Packets::fill_run): `most`, or 1 if
    /// `UDP_SEGMENT` is turned off.
    #[must_use]
    pub const fn segments_max(&self, most: usize) -> usize {
        match self.refused(LargeWrite::UdpToNetwork) {
            Some(_) if most > 1 => 1,
            _ => most,
        }
    }

    /// Why `what` is turned off; `None` if it is not.
    #[must_use]
    pub const fn refused(&self, what: LargeWrite) -> Option<Refused> {
        match self.gates[what as usize].off {
            Some(error) => Some(Refused { what, error }),
            None => None,
        }
    }

    /// A kind that was turned off and not returned before; `None` if there is none. To be logged.
    pub fn notice(&mut self) -> Option<Refused> {
        let all = LargeWrite::TO_DEVICE.iter().chain(LargeWrite::TO_NETWORK);
        let new = all.copied().find(|&what| {
            let gate = &self.gates[what as usize];
            gate.off.is_some() && !gate.noticed
        })?;
        self.gates[new as usize].noticed = true;
        self.refused(new)
    }

    /// Large writes of this kind that were refused, or not tried because the kind is turned off,
    /// and were written again as packets.
    #[must_use]
    pub const fn again(&self, what: LargeWrite) -> u64 {
        self.gates[what as usize].again
    }

    /// Writes and sends that the kernel refused and that are lost. One is a packet, unless the
    /// error is `EAGAIN`, `ENOBUFS` or `ENOMEM` on a large one.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Writes `write`, which a closure of [`write_batch`](TunOffload::write_batch) got, by `send`.
    /// Calls `send` once more for each packet if the large write is refused, and only for each
    /// packet if its protocol is turned off. The packets are made in place.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    #[cfg(feature = "std")]
    pub fn write<T>(
        &mut self,
        write: &mut [u8],
        mut send: impl FnMut(&[u8]) -> io::Result<T>,
    ) -> io::Result<()> {
        match self.large(write) {
            Some(what) if self.refused(what).is_some() => self.gates[what as usize].again += 1,
            _ => {
                let result = send(write);
                if self.check(write, result)? != Outcome::Again {
                    return Ok(());
                }
            }
        }
        // What was merged can be segmented: this is no error of a device.
        let mut packets = self.offload.packets(write)?;
        while let Some(packet) = packets.next_write() {
            let result = send(packet);
            let _counted = self.check(packet, result)?;
        }
        Ok(())
    }

    /// What to do after a write to the device. `write` begins with its virtio-net header: it is the
    /// whole write, or the first of its slices.
    ///
    /// # Errors
    /// Those that are no statement about this write, such as `EBADFD` (the device was removed): all
    /// but `EINVAL`, `EIO`, `EAGAIN`, `ENOBUFS` and `ENOMEM`.
    #[cfg(feature = "std")]
    pub fn check<T>(&mut self, write: &[u8], result: io::Result<T>) -> io::Result<Outcome> {
        let Err(error) = result else {
            let large = self.large(write);
            return Ok(self.judge(large, LargeWrite::TO_DEVICE, None));
        };
        let known = number(&error).and_then(|number| self.check_errno(write, Err(number)).ok());
        known.ok_or(error)
    }

    /// [`check`](Self::check) for error numbers of Unix: without the standard library, or with
    /// another one.
    ///
    /// # Errors
    /// The number, if it is no statement about this write.
    pub fn check_errno(&mut self, write: &[u8], result: Result<(), i32>) -> Result<Outcome, i32> {
        match result {
            Err(error) if !matches!(error, EIO | ENOMEM | EINVAL | EAGAIN | ENOBUFS) => Err(error),
            result => {
                let large = self.large(write);
                Ok(self.judge(large, LargeWrite::TO_DEVICE, result.err()))
            }
        }
    }

    /// What to do after a send of `run` to the network. After [`Outcome::Again`], send each of its
    /// pieces, and report each result as a run of one piece. Any other error of a send is
    /// [`Outcome::Dropped`]: a network that is down comes up again.
    #[cfg(feature = "std")]
    pub fn check_run<T>(&mut self, run: PacketRun, result: &io::Result<T>) -> Outcome {
        // An error without a number is none that turns anything off.
        let error = |error| number(error).unwrap_or(EAGAIN);
        self.check_run_errno(run, result.as_ref().map(drop).map_err(error))
    }

    /// [`check_run`](Self::check_run) for error numbers of Unix.
    pub fn check_run_errno(&mut self, run: PacketRun, result: Result<(), i32>) -> Outcome {
        let large = (run.bytes > run.stride).then_some(LargeWrite::UdpToNetwork);
        self.judge(large, LargeWrite::TO_NETWORK, result.err())
    }

    /// What a write is, by its virtio-net header; `None` if it is one packet.
    fn large(&self, write: &[u8]) -> Option<LargeWrite> {
        self.offload.header?;
        match write.get(1)? & !GSO_ECN {
            GSO_TCPV4 | GSO_TCPV6 => Some(LargeWrite::TcpToDevice),
            GSO_UDP_L4 => Some(LargeWrite::UdpToDevice),
            _ => None,
        }
    }

    /// After a write in this direction.
    fn judge(
        &mut self,
        large: Option<LargeWrite>,
        direction: &[LargeWrite],
        error: Option<i32>,
    ) -> Outcome {
        match (large, error) {
            (Some(what), None) => {
                let gate = &mut self.gates[what as usize];
                (gate.pending, gate.in_a_row) = (None, 0);
                Outcome::Written
            }
            (None, None) => {
                for &what in direction {
                    // A socket's EIO is no device that is down.
                    let most = match what {
                        LargeWrite::UdpToNetwork => 1,
                        LargeWrite::TcpToDevice | LargeWrite::UdpToDevice => EIO_IN_A_ROW,
                    };
                    self.gates[what as usize].confirm(most);
                }
                Outcome::Written
            }
            (Some(what), Some(error @ (EINVAL | EIO))) => {
                let gate = &mut self.gates[what as usize];
                gate.pending = Some(error);
                gate.again += 1;
                Outcome::Again
            }
            (_, Some(_)) => {
                for &what in direction {
                    let gate = &mut self.gates[what as usize];
                    (gate.pending, gate.in_a_row) = (None, 0);
                }
                self.dropped += 1;
                Outcome::Dropped
            }
        }
    }
}

/// The error number of Unix; `None` if there is none.
#[cfg(feature = "std")]
fn number(error: &io::Error) -> Option<i32> {
    let would_block = error.kind() == io::ErrorKind::WouldBlock;
    error.raw_os_error().or(would_block.then_some(EAGAIN))
}
