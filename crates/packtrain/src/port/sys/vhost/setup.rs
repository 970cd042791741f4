//! What a vhost-user port is opened with, and what is seen of it from outside.

use super::device::{Shared, VhostStatus};
pub use super::serve::SocketFile;
use super::serve::{Endpoint, Listener};
use crate::driver::{DeviceError, Features, PortChanges};
use crate::limits::QUEUES_MAX;
use crate::name::Name;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostConfig {
    /// The path of the socket.
    pub path: PathBuf,
    /// The port makes the socket, and the front end connects; else the other way round.
    pub server: bool,
    /// Pairs of queues: 1 to [`QUEUES_MAX_VHOST`].
    pub queues: usize,
    /// Offloads to offer at most, in both directions.
    pub offload: Features,
}

/// The most pairs of queues: a message numbers rings in one byte.
pub const QUEUES_MAX_VHOST: usize = 127;
const _: () = assert!(QUEUES_MAX_VHOST <= QUEUES_MAX);

impl VhostConfig {
    /// A port that makes the socket at `path`, of one pair of queues and with every offload.
    pub fn server(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            server: true,
            queues: 1,
            offload: Features::ALL,
        }
    }

    /// Makes the socket, or connects to it if it is there. Also returns the name of the port.
    pub(in crate::port) fn open(&self) -> Result<(String, Endpoint), DeviceError> {
        let endpoint = if self.server {
            let listener = Listener::bind(&self.path);
            Endpoint::Listen(listener.map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => DeviceError::Unsupported(error.to_string()),
                _ => failed("make the socket")(error),
            })?)
        } else {
            Endpoint::connect(&self.path).map_err(DeviceError::Unsupported)?
        };
        let file = self.path.file_name().unwrap_or(self.path.as_os_str());
        Ok((Name::from(file).exact().to_owned(), endpoint))
    }
}

/// Refuses more queues than a front end can name.
pub(in crate::port) fn check_queues(queues: usize) -> Result<(), DeviceError> {
    if (1..=QUEUES_MAX_VHOST).contains(&queues) {
        return Ok(());
    }
    Err(DeviceError::Unsupported(format!(
        "{queues} queues: use 1 to {QUEUES_MAX_VHOST}"
    )))
}

/// The socket of a descriptor of unknown origin.
pub(in crate::port) fn listener(fd: OwnedFd) -> Result<UnixListener, DeviceError> {
    let is_stream = sockopt::socket_type(&fd) == Ok(SocketType::STREAM);
    let is_unix = is_stream && sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX);
    if is_unix && sockopt::socket_acceptconn(&fd) == Ok(true) {
        return Ok(fd.into());
    }
    Err(DeviceError::Unsupported(
        "the descriptor is no Unix socket that listens: make it with socket(AF_UNIX, SOCK_STREAM, \
         0), bind() and listen()"
            .to_owned(),
    ))
}

/// The error of an attempt to attach `asked` queues.
pub(in crate::port) fn too_many_queues(name: &str, asked: usize, free: usize) -> DeviceError {
    let why = format!("{asked} queues for {name}, of which {free} are free");
    DeviceError::Unsupported(why)
}

/// What a program sees of the other side of a port, also while a session has the port.
#[derive(Clone, Debug, Default)]
pub struct VhostWatch {
    shared: Arc<OnceLock<Arc<Shared>>>,
    changes: Option<PortChanges>,
    file: Option<SocketFile>,
}

impl VhostWatch {
    /// The other side of a port that is not attached yet.
    pub(in crate::port) fn of(endpoint: &Endpoint) -> Self {
        Self {
            file: endpoint.file().cloned(),
            ..Self::default()
        }
    }

    /// The port is attached: this is its other side.
    pub(in crate::port) fn set(&self, shared: Shared) -> &Arc<Shared> {
        self.shared.get_or_init(|| Arc::new(shared))
    }

    /// Where the port records that a front end has left or come back.
    pub(in crate::port) fn record_changes(&mut self, changes: PortChanges) {
        self.changes = Some(changes);
    }

    pub(in crate::port) fn changes(&self) -> Option<PortChanges> {
        self.changes.clone()
    }

    /// The other side of a port that is attached.
    pub(in crate::port) fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.get()
    }

    /// The state of the other side.
    #[must_use]
    pub fn status(&self) -> VhostStatus {
        let shared = self.shared.get();
        shared.map_or_else(VhostStatus::default, |shared| shared.status())
    }

    /// The file of the socket that the port has made, for a program that wants it to be removed
    /// also after it was killed. It stays the same, as a port makes its socket once. `None` if the
    /// port made none.
    #[must_use]
    pub fn socket_file(&self) -> Option<&SocketFile> {
        self.file.as_ref()
    }
}

/// An error of the system: `action` failed.
pub(in crate::port) fn failed(action: &'static str) -> impl FnOnce(io::Error) -> DeviceError {
    move |source| DeviceError::Failed { action, source }
}
