//! A vhost-user port whose front end is the caller.

pub use super::sys::vhost::by_hand::FrontEnd;

use super::sys::vhost::serve::Endpoint;
use super::vhost::Vhost;
use crate::driver::{DeviceError, Features};

/// The port, with every offload, and its front end.
///
/// # Errors
///
/// As [`Vhost::from_listener`].
pub fn vhost(queues: usize) -> Result<(Vhost, FrontEnd), DeviceError> {
    let front = FrontEnd::default();
    let endpoint = Endpoint::Hand(front.clone());
    let port = Vhost::new("by-hand".to_owned(), endpoint, queues, Features::ALL)?;
    Ok((port, front))
}
