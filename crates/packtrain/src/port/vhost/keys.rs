//! A vhost-user port from the keys of a port.

use super::{Vhost, VhostConfig};
use crate::driver::DeviceError;
use crate::driver::key::{Key, keys};
use crate::driver::options::{Options, Request};
use std::path::PathBuf;

/// What a `vhost-user:` port is, from its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostOptions {
    /// The front end connects to packtrain; else packtrain connects to it.
    pub server: bool,
}

impl Options for VhostOptions {
    type Driver = Vhost;

    const KEYS: &'static [Key<Self>] = keys! { Self;
        "server" (Flag) server:
            "make the socket, and wait for the front end; else the front end makes it";
    };

    fn check(&self, port: &Request<'_>, _: &[&str]) -> Result<(), String> {
        if port.name.is_empty() {
            return Err(
                "vhost-user: needs the path of its socket, as in vhost-user:/run/vm0.sock,server"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn open(&self, port: &Request<'_>) -> Result<Vhost, DeviceError> {
        Vhost::open(&VhostConfig {
            path: PathBuf::from(port.name),
            server: self.server,
            queues: port.config.queues.unwrap_or(1),
            offload: port.config.offload,
        })
    }
}
