//! A vhost-user port from the keys of a port.

use super::{Vhost, VhostConfig};
use crate::driver::DeviceError;
use crate::driver::key::{Key, keys};
use crate::driver::options::{Options, Request};
use crate::port::sys::vhost::setup::listener;
use crate::port::tap::open_one;
use std::path::PathBuf;

/// What a `vhost-user:` port is, from its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostOptions {
    /// The front end connects to packtrain; else packtrain connects to it.
    pub server: bool,
    /// An open socket that listens, to which the front end connects (`fd=5`).
    pub fd: Option<u32>,
}

impl Options for VhostOptions {
    type Driver = Vhost;

    const KEYS: &'static [Key<Self>] = keys! { Self;
        "server" (Flag) server:
            "make the socket, and wait for the front end; else the front end makes it";
        "fd" (Range(0, 2_147_483_647)) fd:
            "use an inherited socket that listens instead of making it; the name is any";
    };

    fn check(&self, port: &Request<'_>, _: &[&str]) -> Result<(), String> {
        if port.name.is_empty() {
            return Err(
                "vhost-user: needs the path of its socket, as in vhost-user:/run/vm0.sock,server"
                    .to_owned(),
            );
        }
        match self.fd {
            Some(_) if self.server => Err(
                "server does not go with fd=: the program that opened the socket has made it; \
                 leave server out"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    fn open(&self, port: &Request<'_>) -> Result<Vhost, DeviceError> {
        if let Some(fd) = self.fd {
            let socket = listener(open_one(fd.cast_signed())?)?;
            let queues = port.config.queues.unwrap_or(1);
            return Vhost::from_listener(port.name, socket, queues, port.config.offload);
        }
        Vhost::open(&VhostConfig {
            path: PathBuf::from(port.name),
            server: self.server,
            queues: port.config.queues.unwrap_or(1),
            offload: port.config.offload,
        })
    }
}
