//! Opens TAP and TUN interfaces, by system calls whose order and fallbacks matter.
//!
//! Header size, byte order and offloads belong to the interface, not to the descriptor, and persist
//! with a persistent interface. So each of them is set or read back here.

use super::link;
pub(in crate::port) use super::link::exists;
use super::tun::{self, Queue};
use crate::driver::{DeviceError, Features};
use crate::limits::QUEUES_MAX;
use packtrain_offload::virtio_net::{Accept, HeaderLen};
use std::os::fd::OwnedFd;
use std::{fmt, io};

/// Packets that the kernel keeps for each queue of an interface that we create. The default of TAP
/// is 1000; that of TUN is 500, which one burst of small packets overruns.
const KERNEL_QUEUE_PACKETS: u16 = 1000;

/// What waits in a queue for its NAPI thread: 64 packets (`NAPI_POLL_WEIGHT`) of 64 KiB.
const NAPI_WAITING_BYTES_MAX: u32 = 64 * 65_536;

/// `GSO_LEGACY_MAX_SIZE`: the limit of an interface's GSO packets, unless another is set.
const GSO_BYTES_DEFAULT: u32 = 65_536;

/// Offloads that can be requested of the kernel, each with all features that it stands for. The
/// newest comes last.
const OFFLOADS: [Features; 5] = [
    Features::CSUM,
    Features::TSO4,
    Features::TSO6,
    Features::TSO_ECN,
    Features::USO,
];

/// The kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapKind {
    /// Ethernet frames.
    Tap,
    /// IP packets.
    Tun,
}

impl fmt::Display for TapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tap => "TAP",
            Self::Tun => "TUN",
        })
    }
}

/// The interface to open, and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// TAP or TUN.
    pub kind: TapKind,
    /// The interface's name: 1 to 15 bytes. An interface that does not exist is created, and is
    /// down and without addresses. `%d` stands for the first free number.
    pub name: String,
    /// Queues to open: 1 to [`QUEUES_MAX`](crate::limits::QUEUES_MAX).
    pub queues: usize,
    /// Offloads to use at most, in both directions.
    pub offload: Features,
    /// Fail if the interface exists.
    pub exclusive: bool,
    /// An interface that is created takes the limit of
    /// [`Attach::large_bytes_max`](crate::driver::Attach::large_bytes_max).
    pub gso_limit: bool,
    /// The kernel receives packets in a thread of its own for each queue (`IFF_NAPI` with
    /// `threaded`), not in the calling thread's write. Where the kernel refuses it, a note says so,
    /// and the calling thread does it.
    pub napi_threads: bool,
}

impl TapConfig {
    /// One queue of the interface `name`, with every offload.
    #[must_use]
    pub fn new(kind: TapKind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            queues: 1,
            offload: Features::ALL,
            exclusive: false,
            gso_limit: true,
            napi_threads: false,
        }
    }
}

/// The state of an interface after opening.
#[derive(Debug)]
pub(in crate::port) struct Opened {
    pub(in crate::port) name: String,
    pub(in crate::port) kind: TapKind,
    /// At least one.
    pub(in crate::port) queues: Vec<Queue>,
    pub(in crate::port) queues_max: usize,
    /// The header in front of every packet; `None` for none.
    pub(in crate::port) header: Option<HeaderLen>,
    /// Offloads that packets from the kernel may come with.
    pub(in crate::port) rx: Features,
    /// Offloads that packets to the kernel may come with.
    pub(in crate::port) tx: Features,
    /// Whether the interface is ours.
    pub(in crate::port) created: bool,
    /// Whether it is, and takes a limit on GSO packets.
    pub(in crate::port) limits_large: bool,
    /// The requested settings that were refused, in sentences.
    pub(in crate::port) notes: Vec<String>,
}

/// Opens the interface with all its queues.
pub(in crate::port) fn open(config: &TapConfig) -> Result<Opened, DeviceError> {
    let TapConfig { name, queues, .. } = config;
    if name.is_empty() || name.len() > 15 {
        return unsupported(format!("{name:?} is no interface name: use 1 to 15 bytes"));
    }
    if *queues == 0 || *queues > QUEUES_MAX {
        return unsupported(format!("{queues} queues for {name}: use 1 to {QUEUES_MAX}"));
    }
    let (first, flags, created) = open_first(config)?;
    // The requested name may be a pattern.
    let (name, _flags) = interface_of(&first)?;
    let mut opened = Vec::with_capacity(*queues);
    opened.push(first);
    for number in 1..*queues {
        let next = open_queue()?;
        match next.attach(&name, flags) {
            Ok(()) => opened.push(next),
            Err(error) if tun::is_full(&error) => {
                return unsupported(format!(
                    "{name} has only {number} queues left: use fewer, or end their other user"
                ));
            }
            Err(error) => return Err(failed("open a further queue of the interface")(error)),
        }
    }
    let mut opened = agree(opened, config.offload, true)?;
    if created && let Err(error) = link::set_queue_length(&name, KERNEL_QUEUE_PACKETS) {
        opened.notes.push(format!(
            "the kernel's queue of {name} keeps its length: {error}"
        ));
    }
    if config.napi_threads
        && let Err(error) = opened.queues[0].thread_napi(NAPI_WAITING_BYTES_MAX)
    {
        opened.notes.push(format!(
            "the kernel receives {name}'s packets in packtrain's threads (napi=threaded needs \
             CAP_SYS_ADMIN and Linux 5.12): {error}"
        ));
    }
    opened.created = created;
    // Setting the default changes nothing, and shows whether a limit can be set.
    opened.limits_large =
        created && config.gso_limit && opened.queues[0].limit_gso(GSO_BYTES_DEFAULT).is_ok();
    Ok(opened)
}

/// Takes over descriptors that are attached already.
pub(in crate::port) fn adopt(fds: Vec<OwnedFd>, offload: Features) -> Result<Opened, DeviceError> {
    if fds.is_empty() || fds.len() > QUEUES_MAX {
        let count = fds.len();
        return unsupported(format!("{count} descriptors: give 1 to {QUEUES_MAX}"));
    }
    let queues: io::Result<Vec<_>> = fds.into_iter().map(Queue::from_fd).collect();
    let queues = queues.map_err(failed("set up the given descriptor"))?;
    let opened = agree(queues, offload, false)?;
    // Only once it is known to be a queue: with a wrong number it would be the user's terminal.
    let set = opened.queues.iter().try_for_each(Queue::set_nonblocking);
    set.map_err(failed("make the given descriptor non-blocking"))?;
    Ok(opened)
}

/// Reads back the state of the queues, and negotiates the rest with the kernel. With `ours` the
/// header gets our preferred form; else it is kept if we support it.
fn agree(queues: Vec<Queue>, offload: Features, ours: bool) -> Result<Opened, DeviceError> {
    let (name, flags) = interface_of(&queues[0])?;
    for other in &queues[1..] {
        if interface_of(other)?.0 != name {
            return unsupported(format!("not all given descriptors belong to {name}"));
        }
    }
    let mut notes = Vec::new();
    match queues[0].observe() {
        Ok(link::Observed {
            packet_info: Some(true),
            ..
        }) => {
            return unsupported(format!(
                "{name} has packet information in front of every packet: open it with IFF_NO_PI"
            ));
        }
        Ok(_) => {}
        Err(error) => notes.push(format!("no link state and counters of {name}: {error}")),
    }
    let (header, offload) = if flags & tun::VNET_HEADER == 0 {
        if !offload.is_empty() {
            notes.push(format!(
                "{name} is open without a virtio-net header: no offloads"
            ));
        }
        (None, Features::NONE)
    } else {
        (Some(agree_on_header(&queues[0], &name, ours)?), offload)
    };
    // Also without a header: otherwise the kernel would keep the offloads that an earlier user set.
    let agreed = agree_on_offloads(offload, &mut notes, |mask| queues[0].set_offload(mask));
    let (rx, tx) = agreed.map_err(failed("set the interface's offloads"))?;
    let kind = if flags & tun::TUN == 0 {
        TapKind::Tap
    } else {
        TapKind::Tun
    };
    let queues_max = queues.len();
    Ok(Opened {
        name,
        kind,
        queues,
        queues_max,
        header,
        rx,
        tx,
        created: false,
        limits_large: false,
        notes,
    })
}

/// Opens the first queue. Returns the flags that further queues need, and whether the interface is
/// new.
fn open_first(config: &TapConfig) -> Result<(Queue, u32, bool), DeviceError> {
    let TapConfig {
        kind,
        name,
        offload,
        ..
    } = config;
    let kind_flag = match kind {
        TapKind::Tap => tun::TAP,
        TapKind::Tun => tun::TUN,
    };
    // The header costs the kernel a tenth of a microsecond for each packet, and carries nothing on
    // an interface without offloads.
    let header = if offload.consistent().is_empty() {
        0
    } else {
        tun::VNET_HEADER
    };
    let napi = if config.napi_threads { tun::NAPI } else { 0 };
    let single = kind_flag | tun::NO_PACKET_INFO | header | napi;
    let multi = single | tun::MULTI_QUEUE;
    let (wanted, other) = if config.queues > 1 {
        (multi, single)
    } else {
        (single, multi)
    };
    let queue = open_queue()?;
    match queue.attach(name, wanted | tun::CREATE_ONLY) {
        Ok(()) => return Ok((queue, wanted, true)),
        Err(error) if tun::is_mismatch(&error) => {
            return unsupported(format!(
                "{name:?} is no interface name that the kernel takes"
            ));
        }
        Err(error) if !tun::is_taken(&error) => return Err(failed(CREATE)(error)),
        Err(_) if config.exclusive => {
            return unsupported(format!(
                "{name} exists already: delete it, or use another name"
            ));
        }
        Err(_exists) => {}
    }
    let error = match queue.attach(name, wanted) {
        Ok(()) => return Ok((queue, wanted, false)),
        Err(error) if tun::is_mismatch(&error) => match queue.attach(name, other) {
            // An interface for several queues also works with one.
            Ok(()) if config.queues == 1 => return Ok((queue, other, false)),
            Ok(()) => return unsupported(single_queue(name, config.queues)),
            Err(error) if config.queues > 1 && tun::is_taken(&error) => {
                return unsupported(single_queue(name, config.queues));
            }
            Err(error) => error,
        },
        Err(error) => error,
    };
    if tun::is_mismatch(&error) {
        return unsupported(format!(
            "{name} exists and is not a {kind} interface: use another name"
        ));
    }
    if tun::is_taken(&error) {
        return unsupported(format!(
            "{name} is in use: end its other user, or use another name"
        ));
    }
    Err(failed(CREATE)(error))
}

const CREATE: &str = "create or attach to the interface";

fn single_queue(name: &str, queues: usize) -> String {
    format!("{name} exists with a single queue, not {queues}: use queues=1, or delete it first")
}

fn open_queue() -> Result<Queue, DeviceError> {
    Queue::open().map_err(failed("open /dev/net/tun"))
}

fn interface_of(queue: &Queue) -> Result<(String, u32), DeviceError> {
    queue.interface().or_else(|error| {
        unsupported(format!(
            "the descriptor is not attached to a TUN or TAP interface: {error}"
        ))
    })
}

/// Sets the header's form if permitted, and reads it back: it belongs to the interface, and
/// persists with a persistent one.
fn agree_on_header(queue: &Queue, name: &str, ours: bool) -> Result<HeaderLen, DeviceError> {
    let ask = || {
        queue
            .header_bytes()
            .map_err(failed("read the virtio-net header's size"))
    };
    let present = HeaderLen::from_bytes(ask()?);
    if (ours || present.is_none()) && present != Some(HeaderLen::V1) {
        // The read below shows whether it worked.
        queue.set_header_bytes(HeaderLen::V1.bytes()).unwrap_or(());
    }
    // Without the call the header is in the host's order.
    if let Err(error) = queue.set_little_endian()
        && cfg!(target_endian = "big")
    {
        return Err(failed("make the virtio-net header little endian")(error));
    }
    let bytes = ask()?;
    HeaderLen::from_bytes(bytes).ok_or_else(|| {
        DeviceError::Unsupported(format!(
            "{name} has a virtio-net header of {bytes} bytes, not 10 or 12, and keeps it"
        ))
    })
}

/// Sets the offloads that packets may be read with to `features`, as far as the kernel supports
/// them.
pub(in crate::port) fn offer(queue: &Queue, features: Features) -> io::Result<()> {
    queue.set_offload(mask_of(supported(features)))
}

/// Negotiates the offloads of packets from the kernel and of packets to it.
///
/// `TUNSETOFFLOAD` sets the offloads that the kernel may use, and each of its bits is for all
/// features of its row in [`OFFLOADS`]. Packets to the kernel may use any offload that it knows:
/// for them, a single feature of a row is enough.
fn agree_on_offloads(
    offload: Features,
    notes: &mut Vec<String>,
    mut set: impl FnMut(u32) -> io::Result<()>,
) -> io::Result<(Features, Features)> {
    let rows = OFFLOADS
        .iter()
        .filter(|row| !offload.intersection(**row).is_empty());
    let whole = rows.fold(Features::NONE, |all, row| all | *row);
    let known = probe_offload(whole, notes, &mut set)?;
    let tx = known.intersection(offload).consistent();
    let rx = supported(tx);
    if rx != known {
        set(mask_of(rx))?;
    }
    let listed = |features: Features| features.names().collect::<Vec<_>>().join(", ");
    let lacking = tx.without(rx);
    if !lacking.is_empty() {
        notes.push(format!(
            "packets from the kernel come without {}: it has one switch for both IP versions; add \
             {} to offload= to have them",
            listed(lacking),
            listed(known.without(tx)),
        ));
    }
    Ok((rx, tx))
}

/// Requests the offloads in `offload`, in ever smaller sets until the kernel accepts one: it
/// accepts or refuses a mask as a whole. Returns the accepted set.
fn probe_offload(
    offload: Features,
    notes: &mut Vec<String>,
    mut set: impl FnMut(u32) -> io::Result<()>,
) -> io::Result<Features> {
    let mut wanted = supported(offload);
    loop {
        let Err(error) = set(mask_of(wanted)) else {
            return Ok(wanted);
        };
        // The offload that is newest in the kernel is given up first.
        let Some(last) = OFFLOADS.iter().rev().find(|row| wanted.contains(**row)) else {
            return Err(error);
        };
        for name in last.names() {
            notes.push(format!(
                "the kernel refuses {name} (TUNSETOFFLOAD): {error}"
            ));
        }
        wanted = supported(wanted.without(*last));
    }
}

/// The part of `offload` that can be requested of the device: each bit stands for all of its
/// features.
fn supported(offload: Features) -> Features {
    Features::of_accept(Accept::from_tun_flags(mask_of(offload)))
}

fn mask_of(features: Features) -> u32 {
    features.accept().tun_flags()
}

fn unsupported<T>(why: String) -> Result<T, DeviceError> {
    Err(DeviceError::Unsupported(why))
}

/// An error of the system: the interface was removed, or `action` failed.
pub(in crate::port) fn failed(action: &'static str) -> impl FnOnce(io::Error) -> DeviceError {
    move |source| {
        if tun::is_removed(&source) {
            DeviceError::Removed
        } else {
            DeviceError::Failed { action, source }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that knows only the bits of `known`.
    fn probe(offload: Features, known: u32) -> (Features, Vec<u32>, Vec<String>) {
        let (mut asked, mut notes) = (Vec::new(), Vec::new());
        let granted = probe_offload(offload, &mut notes, |mask| {
            asked.push(mask);
            if mask & !known == 0 {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(22))
            }
        });
        (granted.expect("0 is always known"), asked, notes)
    }

    #[test]
    fn a_kernel_without_uso_is_asked_again_and_the_refusal_is_told() {
        let (granted, asked, notes) = probe(Features::ALL, 0x1f);
        assert_eq!(granted, Features::CSUM | Features::TSO);
        assert_eq!(asked, [0x6f, 0x0f]);
        assert_eq!(notes.len(), 2);
        assert!(
            notes[0].contains("uso4") && notes[1].contains("uso6"),
            "{notes:?}"
        );
    }

    #[test]
    fn probing_goes_from_the_largest_mask_to_the_smallest() {
        let (granted, asked, notes) = probe(Features::ALL, 0);
        assert_eq!(granted, Features::NONE);
        assert_eq!(asked, [0x6f, 0x0f, 0x07, 0x03, 0x01, 0]);
        assert_eq!(notes.len(), 7, "one sentence for each feature: {notes:?}");
    }

    #[test]
    fn only_masks_that_linux_takes_are_asked_for() {
        let masks = [
            (Features::NONE, 0),
            (Features::CSUM, 0x01),
            (Features::CSUM4, 0),
            (Features::TSO, 0),
            (Features::USO, 0),
            (Features::CSUM | Features::USO4, 0x01),
            (Features::CSUM | Features::USO, 0x61),
            (Features::CSUM | Features::TSO_ECN, 0x01),
            (Features::CSUM | Features::TSO6 | Features::TSO_ECN, 0x0d),
            (Features::VLAN | Features::LARGE_RECEIVE, 0),
            (Features::ALL, 0x6f),
        ];
        for (offload, mask) in masks {
            let (granted, asked, notes) = probe(offload, 0x6f);
            assert_eq!(asked, [mask], "{offload:?}");
            assert!(offload.contains(granted), "{offload:?}");
            assert!(notes.is_empty());
        }
    }

    /// With offloads of one IP version alone, the kernel accepts the packets that the key names,
    /// but delivers none: it has one bit for both versions.
    #[test]
    fn offloads_of_one_ip_version_are_for_packets_to_the_kernel() {
        let csum_tso4 = Features::CSUM | Features::TSO4;
        let tso4 = Features::CSUM4 | Features::TSO4;
        let uso6 = Features::CSUM6 | Features::USO6;
        let all = Features::CSUM | Features::TSO | Features::USO;
        for (offload, rx, tx, last_mask, add) in [
            (tso4, Features::NONE, tso4, 0, Some("ipv6-checksum")),
            (uso6, Features::NONE, uso6, 0, Some("ipv4-checksum, uso4")),
            (
                csum_tso4 | Features::USO4,
                csum_tso4,
                csum_tso4 | Features::USO4,
                0x03,
                Some("uso6"),
            ),
            (csum_tso4, csum_tso4, csum_tso4, 0x03, None),
            (Features::TSO4, Features::NONE, Features::NONE, 0, None),
            (Features::ALL, all, all, 0x6f, None),
            (Features::NONE, Features::NONE, Features::NONE, 0, None),
        ] {
            let (mut mask, mut notes) = (None, Vec::new());
            let agreed = agree_on_offloads(offload, &mut notes, |asked| {
                mask = Some(asked);
                Ok(())
            });
            assert_eq!(agreed.expect("all is known"), (rx, tx), "{offload:?}");
            assert_eq!(mask, Some(last_mask), "{offload:?}");
            let expected = add.map(|add| {
                let lacking = tx.without(rx).names().collect::<Vec<_>>().join(", ");
                format!(
                    "packets from the kernel come without {lacking}: it has one switch for both \
                     IP versions; add {add} to offload= to have them"
                )
            });
            assert_eq!(notes, Vec::from_iter(expected));
        }
    }

    #[test]
    fn a_refused_empty_mask_is_an_error() {
        let refuse = |_mask| Err(io::Error::from_raw_os_error(22));
        assert!(probe_offload(Features::ALL, &mut Vec::new(), refuse).is_err());
    }
}
