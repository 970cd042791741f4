//! Writes a line for every packet that passes.

use super::{Output, Progress, info_of, lock};
use crate::driver::{
    Accepted, BadPackets, DeviceError, Driver, QueuePair, Refused, RxBurst, RxDescriptors, Token,
    TxDescriptors, TxPacket, WrapDriver, WrapRx, WrapTx, wraps,
};
use crate::name::printable;
use crate::packet::{Arena, Burst, Packet};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, Ecn, LinkType};
use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Traces the packets that a driver receives and transmits, one line each:
///
/// ```text
/// rx eth0/0 1514 B wire=1 csum=partial(34+16) tcp 198.18.0.1:443 > 198.18.0.2:51000
/// rx eth0/0 65226 B wire=45 csum=partial(34+16) gso=TcpV4/1448 tcp 198.18.0.1:443 > …
/// rx eth0/0 bad too_long wire=1
/// tx eth0/0 1514 B wire=1 csum=ok udp [fd00::1]:53 > [fd00::2]:4000 pending
/// ```
///
/// If the device takes packets later, for lack of descriptors or since it is busy, their lines are
/// written then. After a device reset, unsent packets are offered again, and each has another line.
/// An output that fails ends only the trace ([`TraceStatus::note`]).
#[derive(Debug)]
pub struct Trace<D> {
    inner: D,
    log: Arc<Mutex<Log>>,
}

/// The status of a [`Trace`], also after it was moved into its port. The output may read it while
/// it is written to.
#[derive(Clone, Debug)]
pub struct TraceStatus(Arc<Progress>);

impl TraceStatus {
    /// Lines written so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.0.records.load(Relaxed)
    }

    /// Why tracing stopped, if it did: one sentence.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.0.note()
    }
}

struct Log {
    output: Output,
    /// The line being made; kept to reuse its memory.
    line: String,
    progress: Arc<Progress>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

impl Log {
    fn write(&mut self, line: fmt::Arguments<'_>) {
        if self.progress.has_stopped() {
            return;
        }
        self.line.clear();
        // Writing to a string fails only if a `Display` does, and these do not.
        if writeln!(self.line, "{line}").is_err() {
            return;
        }
        match self.output.write_all(self.line.as_bytes()) {
            Ok(()) => {
                self.progress.records.fetch_add(1, Relaxed);
            }
            Err(error) => self.progress.stop("the trace", &error),
        }
    }

    fn flush(&mut self) {
        if !self.progress.has_stopped()
            && let Err(error) = self.output.flush()
        {
            self.progress.stop("the trace", &error);
        }
    }
}

/// One queue, for the start of a line.
#[derive(Clone, Debug)]
struct Place {
    port: Arc<str>,
    queue: usize,
    link: LinkType,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.queue)
    }
}

/// A packet, as the rest of a line.
struct Shown<'a>(&'a Packet, LinkType);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(packet, link) = *self;
        let meta = packet.meta();
        write!(f, "{} B wire={}", packet.bytes(), meta.wire_packets)?;
        match meta.checksum {
            ChecksumState::None => f.write_str(" csum=none")?,
            ChecksumState::Unnecessary => f.write_str(" csum=ok")?,
            ChecksumState::Partial { start, offset } => {
                write!(f, " csum=partial({start}+{offset})")?;
            }
        }
        if let Some(gso) = meta.gso {
            let ecn = match gso.ecn() {
                Ecn::None => "",
                Ecn::Cwr => "/ecn",
                Ecn::Accurate => "/accecn",
            };
            let id = if gso.fixed_id() { "/fixed-id" } else { "" };
            write!(f, " gso={:?}/{}{ecn}{id}", gso.kind, gso.size)?;
        }
        if let Some(tag) = meta.vlan {
            write!(f, " vlan={}", tag.control & 0x0fff)?;
        }
        let Some(layout) = packet.parsed_layout(link) else {
            return f.write_str(" unparsed");
        };
        let mut copy = [0; HEADER_BYTES_MAX];
        show_flow(f, &layout, packet.front(layout.payload.into(), &mut copy))
    }
}

fn show_flow(f: &mut fmt::Formatter<'_>, layout: &Layout, headers: &[u8]) -> fmt::Result {
    if layout.vlans > 0 {
        write!(f, " tags={}", layout.vlans)?;
    }
    if layout.fragment {
        f.write_str(" fragment")?;
    }
    let ports = match layout.transport_kind {
        Transport::Tcp => {
            f.write_str(" tcp")?;
            true
        }
        Transport::Udp => {
            f.write_str(" udp")?;
            true
        }
        Transport::Icmp | Transport::Icmpv6 => {
            f.write_str(" icmp")?;
            false
        }
        Transport::Other | Transport::None if layout.is_ip() => {
            write!(f, " protocol={}", layout.protocol.0)?;
            false
        }
        Transport::Other | Transport::None => {
            return write!(f, " ethertype=0x{:04x}", layout.ethertype.0);
        }
    };
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    for (separator, side) in [("", 0), (" >", 1)] {
        let port = field::<2>(headers, transport + 2 * side).filter(|_| ports);
        let port = port.map(u16::from_be_bytes);
        write!(f, "{separator} ")?;
        if layout.kind == Network::Ipv6 {
            let address =
                Ipv6Addr::from(field(headers, network + 8 + 16 * side).unwrap_or([0; 16]));
            match port {
                Some(port) => write!(f, "[{address}]:{port}")?,
                None => write!(f, "{address}")?,
            }
        } else {
            let address = Ipv4Addr::from(field(headers, network + 12 + 4 * side).unwrap_or([0; 4]));
            match port {
                Some(port) => write!(f, "{address}:{port}")?,
                None => write!(f, "{address}")?,
            }
        }
    }
    Ok(())
}

fn field<const N: usize>(headers: &[u8], at: usize) -> Option<[u8; N]> {
    headers.get(at..)?.first_chunk().copied()
}

impl<D: Driver> Trace<D> {
    /// Traces to `output`, which is given whole lines and flushed after each batch.
    #[must_use]
    pub fn new(inner: D, output: Output) -> Self {
        let log = Log {
            output,
            line: String::with_capacity(256),
            progress: Arc::default(),
        };
        Self {
            inner,
            log: Arc::new(Mutex::new(log)),
        }
    }

    /// A handle to read the status.
    #[must_use]
    pub fn status(&self) -> TraceStatus {
        TraceStatus(Arc::clone(&lock(&self.log).progress))
    }
}

impl<D: Driver> WrapDriver for Trace<D> {
    type Rx = TraceRx<D::Rx>;
    type Tx = TraceTx<D::Tx>;
    wraps! { D, self => self.inner }

    fn wrap(&mut self, queue: usize, (rx, tx): QueuePair<D>, _: &Arena) -> QueuePair<Self> {
        let place = Place {
            port: printable(self.inner.name()).into(),
            queue,
            link: self.inner.capabilities().link,
        };
        let rx = TraceRx {
            inner: rx,
            stage: Burst::new(),
            place: place.clone(),
            log: Arc::clone(&self.log),
        };
        let tx = TraceTx {
            inner: tx,
            place,
            written: false,
            log: Arc::clone(&self.log),
        };
        (rx, tx)
    }
}

/// The receiving half of a [`Trace`].
#[derive(Debug)]
pub struct TraceRx<R> {
    inner: R,
    stage: Burst,
    place: Place,
    log: Arc<Mutex<Log>>,
}

/// Writes down bad packets and passes them on.
#[derive(Debug)]
struct TraceBad<'a, 'b> {
    burst: &'a mut RxBurst<'b>,
    place: &'a Place,
    log: &'a Mutex<Log>,
}

impl BadPackets for TraceBad<'_, '_> {
    fn bad(&mut self, reason: DropReason, wire_packets: u64) {
        let place = self.place;
        lock(self.log).write(format_args!("rx {place} bad {reason} wire={wire_packets}"));
        self.burst.bad(reason, wire_packets);
    }
}

impl<R: RxDescriptors> WrapRx for TraceRx<R> {
    wraps! { R, self => self.inner }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let (budget, place) = (burst.budget(), &self.place);
        let mut bad = TraceBad {
            burst,
            place,
            log: &self.log,
        };
        let mut staged = RxBurst::new(&mut self.stage, budget, &mut bad);
        let result = self.inner.receive(now, &mut staged);
        if staged.budget() == budget {
            return result;
        }
        let mut log = lock(&self.log);
        while let Some(packet) = self.stage.pop() {
            let shown = Shown(&packet, place.link);
            log.write(format_args!("rx {place} {shown}"));
            let info = info_of(&packet);
            burst.push(packet, &info);
        }
        log.flush();
        result
    }
}

/// The transmitting half of a [`Trace`].
#[derive(Debug)]
pub struct TraceTx<T> {
    inner: T,
    place: Place,
    written: bool,
    log: Arc<Mutex<Log>>,
}

impl<T: TxDescriptors> WrapTx for TraceTx<T> {
    wraps! { T, self => self.inner }

    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let result = self.inner.encap(packet, token);
        let place = &self.place;
        let shown = Shown(packet.packet(), place.link);
        let mut log = lock(&self.log);
        match result {
            Ok(Accepted::Complete) => log.write(format_args!("tx {place} {shown}")),
            Ok(Accepted::Pending) => log.write(format_args!("tx {place} {shown} pending")),
            // Offered again, possibly many times.
            Err(Refused::NoDescriptor | Refused::Busy | Refused::NoMemory) => return result,
            Err(Refused::Bad(reason)) => {
                log.write(format_args!("tx {place} {shown} refused {reason}"));
            }
            Err(refused) => log.write(format_args!("tx {place} {shown} refused {refused:?}")),
        }
        self.written = true;
        result
    }

    fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
        if std::mem::take(&mut self.written) {
            lock(&self.log).flush();
        }
        self.inner.flush(now)
    }
}
