//! `tool = "bad-frames"`: UDP packets as `blast` sends them, and beside them frames with an error.

use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::blast::{self, Blast};
use crate::cards;
use crate::error::{LabError, ToolError};
use crate::headers::udp_frame_of;
use crate::ip::IpVersion;
use crate::sys;
use crate::testbed::Testbed;
use crate::tool::{Control, Measured, Tool};
use crate::topology::TwoHosts;
use crate::traffic::is_pause;
use crate::traffic::pace::Pacer;
use crate::traffic::udp::enlarge;
use crate::units::{Rate, Time};

/// Where frames with an error come from.
const FROM_PORT: u16 = 1024;
/// The datagram in such a frame, and in one that is too long.
const PAYLOAD: usize = 100;
const LONG_PAYLOAD: usize = 1600;
/// What is in it: a checksum notices if some of that is missing, which it does not of zeros.
const CONTENT: u8 = 7;
/// The MTU of host A that sends such a frame.
const LONG_MTU: u32 = 2000;
/// Bytes of an Ethernet header, and the shortest frame without FCS.
const ETHERNET: usize = 14;
const SHORTEST: usize = 60;

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing: there is no such frame.
    None,
    /// Its payload is not that of its UDP checksum.
    Checksum,
    /// Its IPv4 header is not that of its checksum.
    Header,
    /// It ends before its IPv4 packet does.
    Cut,
    /// It is longer than the MTU of host B permits.
    Long,
}

impl Fault {
    /// A frame from host A to a port of host B; `None` for no frame.
    fn frame(self, to_port: u16) -> Option<Vec<u8>> {
        let bytes = if self == Self::Long {
            LONG_PAYLOAD
        } else {
            PAYLOAD
        };
        let mut frame = udp_frame_of(FROM_PORT, to_port, &vec![CONTENT; bytes]);
        match self {
            Self::None => return None,
            Self::Checksum => {
                let last = frame.len() - 1;
                frame[last] ^= 0x55;
            }
            // The time to live.
            Self::Header => frame[ETHERNET + 8] ^= 0x55,
            Self::Cut => frame.truncate(SHORTEST),
            Self::Long => {}
        }
        Some(frame)
    }
}

/// UDP packets from host A to host B, and frames with an error beside them, both one by one.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct BadFrames {
    /// What is wrong with the frames.
    pub fault: Fault,
    /// Such frames a second.
    pub fault_rate: Rate,
    /// Good packets a second.
    pub rate: Rate,
    /// How long both are sent.
    pub duration: Time,
    /// How long receivers wait for late packets.
    pub settle: Time,
}

impl Default for BadFrames {
    fn default() -> Self {
        Self {
            fault: Fault::None,
            fault_rate: Rate(100.0),
            rate: Rate(1000.0),
            duration: Time(Duration::from_secs(1)),
            settle: Time(Duration::from_millis(200)),
        }
    }
}

/// The settings in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// What is wrong with the frames.
    pub fault: Fault,
    /// The rate of such frames.
    pub fault_rate_kpps: f64,
    /// Of the good packets.
    #[serde(flatten)]
    pub blast: blast::Settings,
}

/// What was measured: of the good packets as [`Blast`] has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Frames with an error that host A sent.
    pub bad_frames: u64,
    /// Those that the interface of host B counted as errors.
    pub bad_at_interface: u64,
    /// Those that the kernel of host B dropped for a wrong checksum or length.
    pub bad_at_kernel: u64,
    /// Those that a socket of host B received all the same.
    pub bad_delivered: u64,
    /// Of the good packets.
    #[serde(flatten)]
    pub blast: blast::Figures,
}

impl Tool for BadFrames {
    type Settings = Settings;
    type Figures = Figures;

    fn run(
        &self,
        testbed: &Testbed,
        control: &Control<'_>,
    ) -> Result<Measured<Settings, Figures>, ToolError> {
        let hosts = testbed.hosts();
        let blast = Blast {
            rate: Some(self.rate),
            burst: Some(1),
            duration: self.duration,
            settle: self.settle,
            ..Blast::default()
        };
        let receiver = receiver(hosts)?;
        let address = receiver.local_addr();
        let port = address.map_err(LabError::from_io("getsockname"))?.port();
        let frame = self.fault.frame(port);
        let socket = self.socket(hosts)?;
        let before = Seen::so_far(hosts)?;
        let send = || match &frame {
            Some(frame) => Ok(self.send(&socket, frame, control)?),
            None => Ok(0),
        };
        let (bad_frames, measured) = blast.beside(testbed, control, send)?;
        // The kernel verifies a datagram's checksum no sooner than it is read.
        let bad_delivered = delivered(&receiver)?;
        let seen = Seen::so_far(hosts)?;
        Ok(Measured {
            testbed: measured.testbed,
            settings: Settings {
                fault: self.fault,
                fault_rate_kpps: self.fault_rate.0 / 1e3,
                blast: measured.settings,
            },
            figures: Figures {
                bad_frames,
                bad_at_interface: seen.interface - before.interface,
                bad_at_kernel: seen.kernel - before.kernel,
                bad_delivered,
                blast: measured.figures,
            },
            flags: measured.flags,
        })
    }
}

impl BadFrames {
    /// A socket for whole frames of host A, whose interface takes the frames.
    fn socket(&self, hosts: &TwoHosts) -> Result<OwnedFd, ToolError> {
        let (netns, index) = (&hosts.left.netns, hosts.left.link.index);
        if self.fault == Fault::Long {
            netns.rtnl()?.set_mtu(index, LONG_MTU)?;
            // A card negotiates again.
            cards::wait_for_link(netns, index)?;
        }
        let socket = netns.run(|| sys::frame_socket(index))?;
        Ok(socket.map_err(LabError::from_io("a packet socket"))?)
    }

    /// Sends frames while the packets are sent. Returns how many the kernel accepted.
    fn send(&self, socket: &OwnedFd, frame: &[u8], control: &Control<'_>) -> Result<u64, LabError> {
        let start = Instant::now();
        let end = start + self.duration.0;
        let mut pacer = Pacer::new(start, 1.0 / self.fault_rate.0);
        let mut sent = 0;
        while pacer.due() < end && !control.stopped() {
            pacer.wait(|| control.stopped());
            match rustix::io::write(socket, frame) {
                Ok(_) => sent += 1,
                // A full queue: the frame was not accepted.
                Err(rustix::io::Errno::NOBUFS) => {}
                Err(error) => return Err(LabError::os("write", &io::Error::from(error))),
            }
        }
        Ok(sent)
    }
}

/// The socket of host B to which the frames would go.
fn receiver(hosts: &TwoHosts) -> Result<UdpSocket, LabError> {
    let address = (hosts.right.ip(IpVersion::V4), 0);
    let open = || {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let socket = hosts.right.netns.run(open)?;
    let socket = socket.map_err(LabError::from_io("a UDP socket"))?;
    // Nothing is read until all is sent.
    enlarge(&socket)?;
    Ok(socket)
}

/// How many datagrams a socket has received.
fn delivered(socket: &UdpSocket) -> Result<u64, LabError> {
    let mut count = 0;
    loop {
        match socket.recv(&mut [0]) {
            Ok(_) => count += 1,
            Err(error) if is_pause(&error) => return Ok(count),
            Err(error) => return Err(LabError::os("recv", &error)),
        }
    }
}

/// Where host B has noticed errors.
#[derive(Clone, Copy, Debug)]
struct Seen {
    interface: u64,
    kernel: u64,
}

impl Seen {
    fn so_far(hosts: &TwoHosts) -> Result<Self, LabError> {
        let counters = hosts.right.counters()?;
        Ok(Self {
            interface: hosts.right.stats()?.rx_errors,
            kernel: counters.udp_in_csum_errors
                + counters.ip_in_hdr_errors
                + counters.ip_in_truncated_pkts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::SlicedPacket;

    #[test]
    fn a_frame_has_the_fault_that_it_is_named_after() {
        assert_eq!(Fault::None.frame(9), None);
        let good = udp_frame_of(FROM_PORT, 9, &[CONTENT; PAYLOAD]);
        let frame = |fault: Fault| fault.frame(9).expect("a frame");
        for fault in [Fault::Checksum, Fault::Header] {
            let frame = frame(fault);
            assert!(SlicedPacket::from_ethernet(&frame).is_ok(), "{fault:?}");
            let differ: Vec<usize> = (0..good.len())
                .filter(|at| frame[*at] != good[*at])
                .collect();
            let expected = match fault {
                Fault::Header => ETHERNET + 8,
                _ => good.len() - 1,
            };
            assert_eq!(differ, [expected], "{fault:?}");
        }
        assert_eq!(frame(Fault::Cut), good[..SHORTEST]);
        assert!(SlicedPacket::from_ethernet(&frame(Fault::Cut)).is_err());
        let long = frame(Fault::Long).len() - ETHERNET;
        assert!((1501..=LONG_MTU as usize).contains(&long));
    }
}
