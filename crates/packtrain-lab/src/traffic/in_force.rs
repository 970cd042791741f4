//! Settings of sockets that the kernel may change: set, and read back.

use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};

use crate::error::LabError;

/// Settings of the sockets, read back from the kernel. They are those of the first stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InForce {
    /// The sender's send buffer in bytes: the double of what was requested.
    pub send_buffer: u32,
    /// The receiver's receive buffer in bytes: the double of what was requested.
    pub receive_buffer: u32,
    /// TCP: the payload bytes of a full segment.
    pub mss: Option<u32>,
    /// UDP: datagrams of one send, fewer than requested if they would not fit a packet.
    pub train: Option<u32>,
    /// TCP: the congestion control.
    pub congestion_control: Option<String>,
}

impl InForce {
    pub(super) fn of_buffers(sender: &impl AsFd, receiver: &impl AsFd) -> Result<Self, LabError> {
        Ok(Self {
            send_buffer: granted(getsockopt(sender, sockopt::SndBuf))?,
            receive_buffer: granted(getsockopt(receiver, sockopt::RcvBuf))?,
            ..Self::default()
        })
    }
}

const BUFFERS: &str = "SO_SNDBUF or SO_RCVBUF";

fn granted(bytes: nix::Result<usize>) -> Result<u32, LabError> {
    let bytes = bytes.map_err(LabError::from_errno(BUFFERS))?;
    u32::try_from(bytes).map_err(|_| LabError::Answer(BUFFERS))
}

/// Sets both buffers of a socket, beyond the system's limit if the process may.
pub(super) fn set_buffers(socket: &impl AsFd, bytes: u32) -> Result<(), LabError> {
    // Checked before: at most 1 GiB.
    let value = bytes as usize;
    let failed = LabError::from_errno(BUFFERS);
    if setsockopt(socket, sockopt::SndBufForce, &value).is_err() {
        setsockopt(socket, sockopt::SndBuf, &value).map_err(&failed)?;
    }
    if setsockopt(socket, sockopt::RcvBufForce, &value).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &value).map_err(&failed)?;
    }
    let InForce {
        send_buffer,
        receive_buffer,
        ..
    } = InForce::of_buffers(socket, socket)?;
    let found = send_buffer.min(receive_buffer) / 2;
    // The kernel makes 1 GiB one byte less than the double.
    if found >= bytes - 1 {
        return Ok(());
    }
    Err(LabError::NotTaken {
        what: "a socket buffer of",
        wanted: bytes.into(),
        found: found.into(),
        hint: "raise the sysctls net.core.wmem_max and net.core.rmem_max, or run as root",
    })
}
