//! AF_XDP sockets that another program has opened, and the map of its XDP program.

use super::open::{Granted, Opened, Place, XdpConfig, XdpMode};
use super::program::{Hook, Program};
use super::socket::Socket;
use crate::driver::DeviceError;
use crate::port::sys::device::{Device, failed, unsupported};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Takes over sockets, one for each of the first queues, and a map with entries for them. Packets
/// go where the program sends those of a queue without a socket until [`Opened::attach`].
pub(in crate::port) fn adopt(
    fds: Vec<OwnedFd>,
    map: OwnedFd,
    config: &XdpConfig,
) -> Result<Opened, DeviceError> {
    let device = Device::without_privilege(&config.name)?;
    let mut sockets = Vec::with_capacity(fds.len());
    for fd in fds {
        let adopted = Socket::from_fd(fd).map_err(failed(USE))?;
        let Some(socket) = adopted else {
            return unsupported(
                "the descriptor is no AF_XDP socket: open it with socket(AF_XDP, SOCK_RAW, 0)"
                    .to_owned(),
            );
        };
        if !device.is_beside(socket.as_fd()).map_err(failed(USE))? {
            return unsupported(
                "the given socket is of another network namespace than this thread: open both in \
                 that of the interface"
                    .to_owned(),
            );
        }
        sockets.push(socket);
    }
    let place = Place::new(device, config, Some(sockets.len()))?;
    let Place {
        name, line, queues, ..
    } = &place;
    // `Auto` says nothing of the program.
    let hook = match config.mode {
        XdpMode::Auto | XdpMode::Generic => Hook::Generic,
        XdpMode::Copy | XdpMode::ZeroCopy => Hook::Native,
    };
    let program = Program::given(map, *queues as u32, hook);
    let Some(program) = program.map_err(failed("use the given map"))? else {
        return unsupported(format!(
            "the given map is no XSKMAP with {queues} entries: make it with \
             BPF_MAP_TYPE_XSKMAP and an entry for each queue of {name}"
        ));
    };
    let known = sockets[0].known().map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => DeviceError::Unsupported(
            "the given socket has memory or is bound already: the port does both".to_owned(),
        ),
        _ => failed(USE)(error),
    })?;
    let zero_copy = config.mode == XdpMode::ZeroCopy;
    // Not every device with zero copy takes packets in several frames, and which it is shows only
    // when the socket is bound: they are asked for where the MTU needs them.
    let fits = line.fits_a_frame().map_err(failed("read the MTU"))?;
    let granted = Granted {
        zero_copy,
        several: known.several && !(zero_copy && fits),
        metadata: known.metadata && !zero_copy,
    };
    let mut notes = Vec::new();
    if config.promiscuous {
        notes.push(format!(
            "{name} is promiscuous only if the program that opened the sockets has made it so (`ip \
             link set dev {name} promisc on`)"
        ));
    }
    Opened::new(place, config, sockets, program, granted, notes)
}

const USE: &str = "use the given descriptor";
