//! Opens a port from the user's text.

use super::any::AnyPort;
use super::card::pci::is_function;
use super::spec::{PortKind, PortSpec, SpecError};
use super::tap::exists;
use super::wrap::{Capture, CaptureOptions, Fault, FaultOptions, Returning, Trace, Vlan};
use crate::advice;
use crate::driver::options::Options;
use crate::driver::{DeviceError, Driver, Port};
use packtrain_offload::offload::LinkType;
use rustix::io::Errno;
use std::fmt;
use std::io;

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
        let socket = matches!(spec.kind, PortKind::Vhost(_));
        let packet = matches!(spec.kind, PortKind::Packet(_));
        let xdp = matches!(spec.kind, PortKind::Xdp(_));
        let card = spec.kind.is_card();
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
            io::ErrorKind::PermissionDenied if packet => (
                OpenErrorKind::Privilege,
                "; run as root, or with CAP_NET_RAW, or pass on open sockets (fd=)",
            ),
            _ if packet && errno == Some(Errno::AFNOSUPPORT) => (
                OpenErrorKind::Privilege,
                "; the kernel needs packet sockets (CONFIG_PACKET)",
            ),
            io::ErrorKind::PermissionDenied if xdp => (
                OpenErrorKind::Privilege,
                "; run as root, or with CAP_NET_RAW, CAP_BPF and CAP_NET_ADMIN of the host (not of \
                 a user namespace), or pass on open sockets and a map (fd=, map=; before Linux \
                 5.19 with CAP_BPF)",
            ),
            _ if xdp && errno == Some(Errno::AFNOSUPPORT) => (
                OpenErrorKind::Privilege,
                "; the kernel needs AF_XDP (CONFIG_XDP_SOCKETS)",
            ),
            io::ErrorKind::PermissionDenied if card => (OpenErrorKind::Privilege, ""),
            io::ErrorKind::NotFound if file && !write => (
                OpenErrorKind::Open,
                "; check the path, or add `write` (pcap:FILE,write) to make the file",
            ),
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if socket => (
                OpenErrorKind::Open,
                "; check that the socket's directory exists, and its permissions",
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
    open_spec(&spec, None)
}

/// Opens one port. `link`, by default Ethernet, applies to a port that can have either link type
/// and names none: a file to write, a simulated NIC, a null port. A capture that is read has its
/// own link type, unless it has no Ethernet headers
/// ([`PcapRead::link`](super::pcap::PcapRead::link)).
///
/// # Errors
///
/// [`OpenError`].
pub fn open_spec(spec: &PortSpec, link: Option<LinkType>) -> Result<Port<AnyPort>, OpenError> {
    let mut spec = spec.clone();
    let port = open_device(&spec, link).map_err(|error| OpenError::device(&spec, &error))?;
    spec.config.queues = spec.config.queues.or(spec.kind.queues());
    if let AnyPort::Xdp(port) = &port {
        // A queue that is not opened leaves its packets to the kernel.
        spec.config.queues = spec.config.queues.or(Some(port.queues()));
    }
    let port = match spec.kind.waits() {
        true => AnyPort::Returning(Box::new(returning(port, spec.clone(), link))),
        false => port,
    };
    let config = spec.config;
    Ok(Port {
        driver: wrap(port, &spec)?,
        config,
    })
}

/// The device of a port, without wrappers.
fn open_device(spec: &PortSpec, link: Option<LinkType>) -> Result<AnyPort, DeviceError> {
    let request = spec.request(link);
    match &spec.kind {
        PortKind::Tap(options) | PortKind::Tun(options) => options.open(&request).map(AnyPort::Tap),
        PortKind::Packet(options) => options.open(&request).map(AnyPort::Packet),
        PortKind::E1000e(options) => options.open(&request).map(AnyPort::E1000e),
        PortKind::Virtio(options) => options.open(&request).map(AnyPort::Virtio),
        PortKind::Vmxnet3(options) => options.open(&request).map(AnyPort::Vmxnet3),
        PortKind::Pcap(options) => options.open(&request).map(AnyPort::Pcap),
        PortKind::Null(options) => options.open(&request).map(AnyPort::Null),
        PortKind::Sim(options) => options.open(&request).map(AnyPort::Sim),
        PortKind::Vhost(options) => options.open(&request).map(AnyPort::Vhost),
        PortKind::Xdp(options) => options.open(&request),
    }
}

/// A port that is opened again as long as the run lasts. One that has made its interface makes it
/// again; else another program does, or a card is plugged in, and only what is there is opened.
fn returning(port: AnyPort, mut spec: PortSpec, link: Option<LinkType>) -> Returning<AnyPort> {
    // The name of the spec may be a pattern.
    port.name().clone_into(&mut spec.name);
    let creates = matches!(&port, AnyPort::Tap(tap) if tap.created());
    Returning::new(port, move || {
        let failed = |source| DeviceError::Failed {
            action: "look the device up",
            source,
        };
        let is_there = match spec.kind.is_card() {
            true => is_function(&spec.name),
            false => exists(&spec.name),
        };
        if !creates && !is_there.map_err(failed)? {
            return Err(DeviceError::Removed);
        }
        match open_device(&spec, link)? {
            // It was deleted after it was found. The one that was made instead is deleted here.
            AnyPort::Tap(tap) if tap.created() && !creates => Err(DeviceError::Removed),
            port => Ok(port),
        }
    })
}

/// Opens two ports to be joined. A port that leaves its link type open takes the other port's.
///
/// # Errors
///
/// [`OpenError`] of the first that cannot be opened.
pub fn open_pair(a: &PortSpec, b: &PortSpec) -> Result<[Port<AnyPort>; 2], OpenError> {
    let [a, b] = <[_; 2]>::try_from(open_all([a, b])?)
        .unwrap_or_else(|_| unreachable!("a port for each spec"));
    Ok([a, b])
}

/// Opens ports to be joined, in the order of `specs`. A port that leaves its link type open takes
/// that of the first one that does not.
///
/// # Errors
///
/// [`OpenError`] of the first that cannot be opened.
pub fn open_all<'a>(
    specs: impl IntoIterator<Item = &'a PortSpec>,
) -> Result<Vec<Port<AnyPort>>, OpenError> {
    let mut specs: Vec<_> = specs.into_iter().enumerate().collect();
    specs.sort_by_key(|(_, spec)| spec.kind.takes_link());
    let (mut link, mut ports) = (None, Vec::with_capacity(specs.len()));
    for (index, spec) in specs {
        let port = open_spec(spec, link)?;
        link = link.or(Some(port.driver.capabilities().link));
        ports.push((index, port));
    }
    ports.sort_by_key(|(index, _)| *index);
    Ok(ports.into_iter().map(|(_, port)| port).collect())
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
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};

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
    fn a_socket_for_a_guest_is_given_if_it_listens() {
        let path = std::env::temp_dir().join(format!("packtrain-given-{}", std::process::id()));
        let socket = UnixListener::bind(&path).expect("a socket");
        std::fs::remove_file(&path).expect("its file");
        let port = open(&format!("vhost-user:vm0,fd={}", socket.as_raw_fd())).expect("it listens");
        assert_eq!(port.driver.name(), "vm0");
        let refused = |fd: &dyn AsRawFd| {
            let error = open(&format!("vhost-user:vm0,fd={}", fd.as_raw_fd())).map(drop);
            error.expect_err("no such socket").to_string()
        };
        let (connected, _other) = UnixStream::pair().expect("a pair");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let file = std::fs::File::open("/dev/null").expect("it is there");
        for other in [&connected as &dyn AsRawFd, &tcp, &file] {
            let line = refused(other);
            assert!(line.contains("no Unix socket that listens"), "{line}");
        }
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
    fn a_card_that_is_away_is_waited_for() {
        for name in ["0000:ff:1f.7", "ffff:00:00.0"] {
            assert_eq!(is_function(name).ok(), Some(false), "{name}");
        }
        is_function("eth0").expect_err("no address");
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
