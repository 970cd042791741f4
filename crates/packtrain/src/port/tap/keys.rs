//! A TAP or TUN interface from the keys of a port.

use super::{Tap, TapConfig, TapKind};
use crate::driver::DeviceError;
use crate::driver::key::{Key, Quoted, Takes, Value, Wrong, keys, number};
use crate::driver::options::{Options, Request};
use crate::limits::QUEUES_MAX;
use crate::port::sys::tun::adopt;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Most bytes of an interface's name: `IFNAMSIZ` of Linux without the final zero.
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;

/// What a `tap:` or `tun:` port is, from its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunTapOptions {
    /// Open descriptors of the device, one for each queue (`fd=5+6`); empty to open it by name.
    pub fds: Vec<i32>,
    /// Leave the longest GSO packets of the kernel as they are, even if the other port does not
    /// take them without a copy (`gso-limit=off`).
    pub any_gso: bool,
    /// The kernel receives in threads of its own ([`TapConfig::napi_threads`], `napi=threaded`).
    pub napi_threads: bool,
    /// If the interface is deleted, wait until there is one of its name again; make it again if the
    /// port had made it (`gone=wait`).
    pub waits: bool,
}

/// Open descriptors, one for each queue, none twice.
impl Value for Vec<i32> {
    fn read(text: &str, _: Takes) -> Result<Self, Wrong> {
        let mut all = Self::new();
        for fd in text.split('+') {
            let fd = number(fd, 0, i32::MAX as u64)?;
            if all.contains(&fd) || all.len() == QUEUES_MAX {
                return Err(Wrong::Value);
            }
            all.push(fd);
        }
        Ok(all)
    }

    fn text(&self, _: Takes) -> String {
        let all: Vec<_> = self.iter().map(i32::to_string).collect();
        all.join("+")
    }
}

impl Options for TunTapOptions {
    type Driver = Tap;

    const KEYS: &'static [Key<Self>] = keys! { Self;
        "fd" (Text("N or N+N+... (open descriptors, one for each queue)")) fds:
            "use inherited descriptors instead of opening the device";
        "gso-limit" (Switch("plan", "off")) any_gso:
            "plan: an interface that it creates builds no packets that the other port has to copy";
        "napi" (Switch("off", "threaded")) napi_threads:
            "threaded: the kernel receives packets in a thread for each queue, not in packtrain's";
        "gone" (Switch("end", "wait")) waits:
            "wait: if the interface is deleted, the run continues, and the port with it once there \
             is one again";
    };

    fn check(&self, port: &Request<'_>, _: &[&str]) -> Result<(), String> {
        if !self.fds.is_empty() && self.napi_threads {
            return Err(
                "napi= does not go with fd=: the program that opened the descriptor chose it \
                 (IFF_NAPI)"
                    .to_owned(),
            );
        }
        check_waits(self.waits, &self.fds)?;
        check_name(port, &self.fds)
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn open(&self, port: &Request<'_>) -> Result<Tap, DeviceError> {
        let kind = if port.kind == "tap" {
            TapKind::Tap
        } else {
            TapKind::Tun
        };
        if self.fds.is_empty() {
            return Tap::open(&TapConfig {
                queues: port.config.queues.unwrap_or(1),
                offload: port.config.offload,
                gso_limit: !self.any_gso,
                napi_threads: self.napi_threads,
                ..TapConfig::new(kind, port.name)
            });
        }
        let tap = Tap::from_fds(open_given(&self.fds)?, port.config.offload)?;
        if tap.kind() != kind {
            let (is, say) = match tap.kind() {
                TapKind::Tap => ("TAP", "tap"),
                TapKind::Tun => ("TUN", "tun"),
            };
            return Err(DeviceError::Unsupported(format!(
                "the given descriptor is of a {is} interface: write {say}: in front instead"
            )));
        }
        let is = &tap.opened.name;
        if !port.name.is_empty() && port.name != is {
            return Err(DeviceError::Unsupported(format!(
                "the given descriptor is of {is}: give that name, or none"
            )));
        }
        Ok(tap)
    }

    fn queues(&self) -> Option<usize> {
        (!self.fds.is_empty()).then_some(self.fds.len())
    }
}

/// Descriptors of our own for the files of given ones.
///
/// # Errors
///
/// [`DeviceError::Unsupported`] if one is not open.
pub(in crate::port) fn open_given(fds: &[i32]) -> Result<Vec<OwnedFd>, DeviceError> {
    fds.iter().map(|&fd| open_one(fd)).collect()
}

/// As [`open_given`], of one.
pub(in crate::port) fn open_one(fd: i32) -> Result<OwnedFd, DeviceError> {
    adopt(fd).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BADF) => DeviceError::Unsupported(format!(
            "descriptor {fd} is not open: the program that starts packtrain has to open it and \
             pass it on"
        )),
        _ => DeviceError::Failed {
            action: "use the given descriptor",
            source: error,
        },
    })
}

/// Checks that a port which waits for its interface can open it again.
///
/// # Errors
///
/// One line with what, why and what to do.
pub(in crate::port) fn check_waits(waits: bool, fds: &[i32]) -> Result<(), String> {
    match waits && !fds.is_empty() {
        false => Ok(()),
        true => Err(
            "gone=wait does not go with fd=: the program that opened the descriptors has to open \
             them again; leave gone= out"
                .to_owned(),
        ),
    }
}

/// Checks the name of an interface, which may be left out beside `fds`, and that the number of
/// queues is theirs.
///
/// # Errors
///
/// One line with what, why and what to do.
pub(in crate::port) fn check_name(port: &Request<'_>, fds: &[i32]) -> Result<(), String> {
    let given = fds.len();
    if given == 0 || !port.name.is_empty() {
        check_interface(port.name, port.kind)?;
    }
    if given > 0 && port.config.queues.is_some_and(|queues| queues != given) {
        return Err(format!(
            "queues= and fd= differ: fd= has {given} of them, one for each queue; leave \
             queues= out"
        ));
    }
    Ok(())
}

/// The names that `dev_valid_name()` of Linux accepts.
fn check_interface(name: &str, kind: &str) -> Result<(), String> {
    let example = match kind {
        "packet" | "xdp" => "eth0".to_owned(),
        kind => format!("{kind}0"),
    };
    let why = if name.is_empty() {
        format!("{kind}: needs an interface name, as in {kind}:{example}")
    } else if name.len() > INTERFACE_NAME_BYTES_MAX {
        format!(
            "interface name {} is too long: it has {} bytes, and Linux accepts at most \
             {INTERFACE_NAME_BYTES_MAX}",
            Quoted(name),
            name.len()
        )
    } else if name == "." || name == ".." {
        format!("interface name '{name}' is reserved; choose another, as {example}")
    } else if name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control()) {
        format!(
            "interface name {} has a slash, colon, space or control character, which Linux does \
             not accept; leave it out",
            Quoted(name)
        )
    } else {
        return Ok(());
    };
    Err(why)
}
