//! Opens a port from the user's text.

use super::any::AnyPort;
use super::null::{Null, NullConfig, Source};
use super::pcap::{self, Pcap, PcapRead, PcapWrite, format_of};
use super::sim::{Sim, SimConfig};
use super::spec::{
    NullOptions, Pace, PcapOptions, PortKind, PortSpec, SimOptions, SpecError, TunTapOptions,
};
use super::sys::tun::adopt;
use super::tap::{Tap, TapConfig, TapKind};
use super::wrap::{Capture, CaptureOptions, Fault, FaultOptions, Trace, Vlan};
use crate::advice;
use crate::driver::{DeviceError, Driver, Port};
use packtrain_offload::offload::LinkType;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::Path;

/// The kind of change that is needed before a port can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// A privilege or a kernel feature is missing.
    Privilege,
    /// The device or file was not found, is in use, or does not match the spec.
    Open,
    /// The spec combines settings that exclude each other.
    Usage,
}

/// A port cannot be opened: one line with what, why and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    kind: OpenErrorKind,
    text: String,
}

impl OpenError {
    /// The kind of change that is needed.
    #[must_use]
    pub const fn kind(&self) -> OpenErrorKind {
        self.kind
    }

    fn device(spec: &PortSpec, error: &DeviceError) -> Self {
        let DeviceError::Failed { source, .. } = error else {
            return Self {
                kind: OpenErrorKind::Open,
                text: format!("{}{error}", prefix(spec, error)),
            };
        };
        let file = matches!(spec.kind, PortKind::Pcap(_));
        let write = matches!(&spec.kind, PortKind::Pcap(options) if options.write);
        let tunnel = matches!(spec.kind, PortKind::Tap(_) | PortKind::Tun(_));
        // /dev/net/tun has no device behind it, or another one.
        const NO_TUNNELS: [Errno; 3] = [Errno::NODEV, Errno::NXIO, Errno::NOTTY];
        let errno = Errno::from_io_error(source);
        let none = errno.is_some_and(|errno| NO_TUNNELS.contains(&errno));
        let (kind, hint) = match source.kind() {
            io::ErrorKind::PermissionDenied if tunnel => (
                OpenErrorKind::Privilege,
                "; run as root, or with CAP_NET_ADMIN, or as the owner of a persistent device",
            ),
            kind if tunnel && (none || kind == io::ErrorKind::NotFound) => (
                OpenErrorKind::Privilege,
                "; the kernel needs TUN/TAP: `modprobe tun`, or give the container /dev/net/tun",
            ),
            io::ErrorKind::NotFound if file && !write => (
                OpenErrorKind::Open,
                "; check the path, or add `write` (pcap:FILE,write) to make the file",
            ),
            kind if file => (OpenErrorKind::Open, advice::on_file(kind, write)),
            _ => (OpenErrorKind::Open, ""),
        };
        Self {
            kind,
            text: format!("{}{error}{hint}", prefix(spec, error)),
        }
    }

    /// The file that `capture=` names cannot be made. The port itself is open.
    fn capture(spec: &PortSpec, error: &io::Error) -> Self {
        let hint = advice::on_file(error.kind(), true);
        Self {
            kind: OpenErrorKind::Open,
            text: format!("{spec}: cannot write the capture: {error}{hint}"),
        }
    }
}

/// The port in front of an error, unless the error already names the same file.
fn prefix(spec: &PortSpec, error: &DeviceError) -> String {
    let names_it = matches!(spec.kind, PortKind::Pcap(_))
        && matches!(error, DeviceError::Failed { source, .. }
            if source.to_string().starts_with(&format!("{}: ", spec.name)));
    if names_it {
        String::new()
    } else {
        format!("{spec}: ")
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for OpenError {}

/// Opens one port from its text, such as `tap:tap0,queues=4` ([`PortSpec`]). If the port can have
/// either link type and the text names none, it is an Ethernet port.
///
/// # Errors
///
/// [`OpenError`], also if the text is not a port.
pub fn open(text: &str) -> Result<Port<AnyPort>, OpenError> {
    let spec: PortSpec = text.parse().map_err(|error: SpecError| OpenError {
        kind: OpenErrorKind::Usage,
        text: error.to_string(),
    })?;
    open_spec(&spec, LinkType::Ethernet)
}

/// Opens one port. `link` applies to a port that can have either link type and names none: a file
/// to write, a simulated NIC, a null port.
///
/// # Errors
///
/// [`OpenError`].
pub fn open_spec(spec: &PortSpec, link: LinkType) -> Result<Port<AnyPort>, OpenError> {
    let port = match &spec.kind {
        PortKind::Tap(options) => open_tap(spec, TapKind::Tap, options).map(AnyPort::Tap),
        PortKind::Tun(options) => open_tap(spec, TapKind::Tun, options).map(AnyPort::Tap),
        PortKind::Pcap(options) => open_pcap(spec, options, link).map(AnyPort::Pcap),
        PortKind::Null(options) => Ok(AnyPort::Null(open_null(options, link))),
        PortKind::Sim(options) => open_sim(spec, options, link).map(AnyPort::Sim),
    };
    let port = port.map_err(|error| OpenError::device(spec, &error))?;
    Ok(Port {
        driver: wrap(port, spec)?,
        config: spec.config,
    })
}

/// Opens two ports to be joined. A port that leaves its link type open takes the other port's.
///
/// # Errors
///
/// [`OpenError`] of the first that cannot be opened.
pub fn open_pair(a: &PortSpec, b: &PortSpec) -> Result<[Port<AnyPort>; 2], OpenError> {
    if takes_any_link(a) && !takes_any_link(b) {
        let other = open_spec(b, LinkType::Ethernet)?;
        return Ok([open_spec(a, other.driver.capabilities().link)?, other]);
    }
    let first = open_spec(a, LinkType::Ethernet)?;
    let second = open_spec(b, first.driver.capabilities().link)?;
    Ok([first, second])
}

fn takes_any_link(spec: &PortSpec) -> bool {
    match &spec.kind {
        PortKind::Pcap(options) => options.write && options.link.is_none(),
        PortKind::Null(options) => options.link.is_none(),
        PortKind::Sim(options) => options.link.is_none(),
        _ => false,
    }
}

fn open_tap(spec: &PortSpec, kind: TapKind, options: &TunTapOptions) -> Result<Tap, DeviceError> {
    if options.fds.is_empty() {
        let queues = spec.config.queues.unwrap_or(1);
        let config = TapConfig {
            queues,
            offload: spec.config.offload,
            ..TapConfig::new(kind, &spec.name)
        };
        return Tap::open(&config);
    }
    let failed = |source| DeviceError::Failed {
        action: "use the given descriptor",
        source,
    };
    let fds = options.fds.iter().map(|&fd| {
        adopt(fd).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::BADF) => DeviceError::Unsupported(format!(
                "descriptor {fd} of fd= is not open: the program that starts packtrain has to open \
                 it and pass it on"
            )),
            _ => failed(error),
        })
    });
    let tap = Tap::from_fds(fds.collect::<Result<_, _>>()?, spec.config.offload)?;
    if tap.kind() != kind {
        let (is, say) = match tap.kind() {
            TapKind::Tap => ("TAP", "tap"),
            TapKind::Tun => ("TUN", "tun"),
        };
        return Err(DeviceError::Unsupported(format!(
            "the given descriptor is of a {is} interface: write {say}: in front instead"
        )));
    }
    if !spec.name.is_empty() && spec.name != tap.name() {
        return Err(DeviceError::Unsupported(format!(
            "the given descriptor is of {}: give that name, or none",
            tap.name()
        )));
    }
    Ok(tap)
}

fn open_pcap(spec: &PortSpec, options: &PcapOptions, link: LinkType) -> Result<Pcap, DeviceError> {
    let path = Path::new(&spec.name);
    if options.write {
        let format = options.format.unwrap_or_else(|| format_of(path));
        let link = options.link.unwrap_or(link);
        return Pcap::open_write(
            path,
            PcapWrite {
                format,
                link,
                snaplen: 0,
            },
        );
    }
    let pace = match options.pace {
        Pace::Fast => pcap::Pace::AsFast,
        Pace::Original => pcap::Pace::Original,
    };
    Pcap::open_read(
        path,
        PcapRead {
            repeat: options.repeat,
            pace,
            count: None,
        },
    )
}

fn open_null(options: &NullOptions, link: LinkType) -> Null {
    let link = options.link.unwrap_or(link);
    let (usual, timestamps) = (Source::default(), options.timestamps);
    let bytes = options.protocol.frame_bytes_usual(link, timestamps);
    let source = options.source.then(|| Source {
        protocol: options.protocol,
        bytes: options.bytes.unwrap_or(bytes),
        flows: options.flows.unwrap_or(usual.flows),
        active: options.active,
        train: options.train.unwrap_or(usual.train),
        count: options.count,
        burst: options.burst.unwrap_or(usual.burst),
        timestamps,
        out_of_order: options.out_of_order.unwrap_or(usual.out_of_order),
    });
    Null::new(NullConfig {
        link,
        source,
        ..NullConfig::default()
    })
}

fn open_sim(spec: &PortSpec, options: &SimOptions, link: LinkType) -> Result<Sim, DeviceError> {
    let usual = SimConfig::default();
    let segments = spec.config.segments.unwrap_or(usual.segments);
    let config = SimConfig {
        link: options.link.unwrap_or(link),
        queues: spec.config.queues.unwrap_or(usual.queues),
        tx_ring: options.rings.unwrap_or(usual.tx_ring),
        rx_ring: options.rings.unwrap_or(usual.rx_ring),
        segments,
        gso_segments: spec.config.gso_segments.unwrap_or(segments),
        delay: options.completion_delay,
        rate: options.rate,
        interrupts: options.interrupts,
        reorder: options.shuffled,
        corrupt_every: options.bad_descriptors.unwrap_or(0),
        flap: options.flap,
        flow_control: options.flow_control,
        ..usual
    };
    config.validate()?;
    let queues = config.queues;
    let sim = Sim::alone(config, options.far, spec.wrappers.seed.unwrap_or(1));
    let control = sim.control();
    if options.hang {
        (0..queues).for_each(|queue| control.hang(queue));
    }
    control.lose_completions(options.lose_completions.unwrap_or(0));
    control.lose_interrupts(options.lose_wakeups.unwrap_or(0));
    Ok(sim)
}

/// Puts the wrappers around a port. Those that change packets are innermost, so that a capture
/// shows the packets that the engine sees.
fn wrap(port: AnyPort, spec: &PortSpec) -> Result<AnyPort, OpenError> {
    let wrappers = &spec.wrappers;
    let mut port = port;
    if wrappers.has_faults() {
        let delayed = !wrappers.delay.is_zero();
        let options = FaultOptions {
            seed: wrappers.seed.unwrap_or(1),
            drop: wrappers.drop,
            duplicate: wrappers.duplicate,
            corrupt: wrappers.corrupt,
            reorder: wrappers.reorder,
            delay: if delayed { 1.0 } else { 0.0 },
            delay_time: wrappers.delay,
            ..FaultOptions::default()
        };
        port = AnyPort::Fault(Box::new(Fault::new(port, options)));
    }
    if let Some(id) = wrappers.vlan {
        port = AnyPort::Vlan(Box::new(Vlan::single(port, id)));
    }
    if wrappers.trace {
        port = AnyPort::Trace(Box::new(Trace::new(port, Box::new(io::stderr()))));
    }
    if let Some(path) = &wrappers.capture {
        let capture = Capture::create(port, path, CaptureOptions::default());
        let capture = capture.map_err(|error| OpenError::capture(spec, &error))?;
        port = AnyPort::Capture(Box::new(capture));
    }
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Features;

    #[test]
    fn a_port_has_the_settings_of_its_text() {
        let port = open("sim:queues=2,offload=off,link=ip").expect("in memory");
        assert_eq!(port.driver.capabilities().link, LinkType::RawIp);
        assert_eq!(port.config.queues, Some(2));
        assert_eq!(port.config.offload, Features::NONE);
        let port = open("sim:link=ipoib,segs=8,gso-segs=17,flap=10ms").expect("in memory");
        let has = port.driver.capabilities();
        assert_eq!(has.link, LinkType::Ipoib);
        assert_eq!((has.tx_segments_max, has.tx_gso_segments_max), (8, 17));
        assert_eq!(has.notes.len(), 1, "{:?}", has.notes);
        let echo = open("sim:far=echo,bad-descriptors=3,flow-control=on").expect("in memory");
        let notes = echo.driver.capabilities().notes;
        assert!(notes[0].starts_with("1 of 3 packets"), "{notes:?}");
        assert!(notes[1].ends_with("(flow-control=)"), "{notes:?}");
        let null = open("null:source,link=ipoib").expect("in memory");
        assert_eq!(null.driver.capabilities().link, LinkType::Ipoib);
        let error = open("taq:a").expect_err("no such kind");
        assert_eq!(error.kind(), OpenErrorKind::Usage);
        assert!(error.to_string().contains("did you mean 'tap'?"), "{error}");
    }

    #[test]
    fn a_null_port_takes_the_link_of_the_other_one() {
        for (a, b) in [
            ("null:source,proto=tcp", "sim:link=ip"),
            ("sim:link=ip", "null:"),
        ] {
            let [a, b] = [a, b].map(|text| text.parse().expect("a spec"));
            let ports = open_pair(&a, &b).expect("in memory");
            let links = ports.map(|port| port.driver.capabilities().link);
            assert_eq!(links, [LinkType::RawIp; 2]);
        }
    }

    #[test]
    fn what_a_capture_fails_with_is_not_taken_for_the_port_behind_it() {
        let spec: PortSpec = "tap:a,capture=/none/x".parse().expect("a spec");
        for (kind, advice) in [
            (io::ErrorKind::NotFound, "make its directory first"),
            (io::ErrorKind::PermissionDenied, "check the permissions"),
        ] {
            let error = OpenError::capture(&spec, &kind.into());
            assert_eq!(error.kind(), OpenErrorKind::Open);
            let line = error.to_string();
            assert!(
                line.starts_with("tap:a,capture=/none/x: cannot write the capture: "),
                "{line}"
            );
            assert!(line.contains(advice), "{line}");
        }
    }

    #[test]
    fn where_there_are_no_tunnels_it_says_what_to_do() {
        let spec: PortSpec = "tap:a".parse().expect("a spec");
        for errno in [Errno::NOENT, Errno::NODEV, Errno::NXIO, Errno::NOTTY] {
            let error = DeviceError::Failed {
                action: "open it",
                source: errno.into(),
            };
            let error = OpenError::device(&spec, &error);
            assert_eq!(error.kind(), OpenErrorKind::Privilege, "{error}");
            assert!(error.to_string().contains("`modprobe tun`"), "{error}");
        }
    }

    #[test]
    fn a_capture_whose_device_is_full_is_told_so() {
        let line = open("null:capture=/dev/full")
            .expect_err("it is full")
            .to_string();
        assert!(
            line.ends_with("; make room, or name a file elsewhere"),
            "{line}"
        );
    }
}
