//! A front end that is the caller: no socket and no thread, so that one input always has the same
//! effect. For the fuzz target.

use super::device::Device;
use super::message::{HEADER_BYTES, Header, REPLY_BYTES};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The front end of a port, which is connected once the port is attached.
///
/// Its methods panic if the port is not attached.
#[derive(Clone, Debug, Default)]
pub struct FrontEnd(Arc<Mutex<Option<Device>>>);

impl FrontEnd {
    /// The port is attached.
    pub(in crate::port) fn attach(&self, mut device: Device) {
        device.connect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(device);
    }

    fn with<T>(&self, what: impl FnOnce(&mut Device) -> T) -> T {
        let mut device = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        what(device.as_mut().expect("the port is attached"))
    }

    /// Sends a message, and returns the reply, if there is one.
    ///
    /// # Errors
    ///
    /// Why the port would close the connection; see [`FrontEnd::reconnect`].
    ///
    /// # Panics
    ///
    /// If `payload` is not as long as the header says.
    pub fn send(
        &self,
        header: [u8; HEADER_BYTES],
        payload: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<Option<[u8; REPLY_BYTES]>, String> {
        let header = Header::decode(header)?;
        assert_eq!(header.bytes, payload.len());
        self.with(|device| device.answer(&header, payload, fds))
    }

    /// Leaves, with the problem if there is one, and connects again.
    pub fn reconnect(&self, problem: Option<String>) {
        self.with(|device| {
            device.disconnect();
            if let Some(problem) = problem {
                device.refuse(&problem);
            }
            device.connect();
        });
    }

    /// The index of the next chain of a ring, and how often the guest broke the ring.
    #[must_use]
    pub fn taken(&self, ring: usize) -> [u64; 2] {
        self.with(|device| device.taken(ring))
    }

    /// What the thread does after a kick of the control ring. Returns whether there may be more.
    #[must_use]
    pub fn serve_control(&self) -> bool {
        self.with(Device::serve_control)
    }
}
