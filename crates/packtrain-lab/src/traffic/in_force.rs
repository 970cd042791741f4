//! Settings of sockets that the kernel may change: set, and read back.

use std::os::fd::AsFd;

use crate::error::LabError;
use crate::sys;

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
            send_buffer: buffer(sender, libc::SO_SNDBUF)?,
            receive_buffer: buffer(receiver, libc::SO_RCVBUF)?,
            ..Self::default()
        })
    }
}

fn buffer(socket: &impl AsFd, option: i32) -> Result<u32, LabError> {
    let bytes = sys::get_int(socket, libc::SOL_SOCKET, option)
        .map_err(LabError::from_io("SO_SNDBUF or SO_RCVBUF"))?;
    u32::try_from(bytes).map_err(|_| LabError::Answer("SO_SNDBUF or SO_RCVBUF"))
}

/// Sets both buffers of a socket, beyond the system's limit if the process may.
pub(super) fn set_buffers(socket: &impl AsFd, bytes: u32) -> Result<(), LabError> {
    // Checked before: at most 1 GiB.
    let value = bytes as i32;
    let options = [
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
    ];
    for (force, option) in options {
        if sys::set_int(socket, libc::SOL_SOCKET, force, value).is_err() {
            sys::set_int(socket, libc::SOL_SOCKET, option, value)
                .map_err(LabError::from_io("SO_SNDBUF or SO_RCVBUF"))?;
        }
        let found = buffer(socket, option)? / 2;
        // The kernel makes 1 GiB one byte less than the double.
        if found < bytes - 1 {
            return Err(LabError::NotTaken {
                what: "a socket buffer of",
                wanted: bytes.into(),
                found: found.into(),
                hint: "raise the sysctls net.core.wmem_max and net.core.rmem_max, or run as root",
            });
        }
    }
    Ok(())
}
