//! Writes a copy of every packet that passes to a pcapng file.

use super::wire::{self, Scratch};
use super::{Output, PassBad, Progress, info_of, lock};
use crate::driver::{
    Accepted, DeviceError, Driver, QueuePair, Refused, RxBurst, RxDescriptors, Token,
    TxDescriptors, TxPacket, WrapDriver, WrapRx, WrapTx, wraps,
};
use crate::file::{Counted, remove_last};
use crate::packet::{Arena, Burst, Packet};
use crate::port::pcap::{link_code, wall_clock_ns};
use crate::time::{Clock, Instant};
use packtrain_capture::{Format, Interface, IoFault, WriteError, Writer};
use packtrain_offload::offload::LinkType;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, TryLockError};

/// The settings of a [`Capture`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// One record for each packet as it is in memory: checksums unfinished, GSO packets large. By
    /// default there is one finished record for each wire packet.
    pub whole: bool,
    /// The most bytes to keep of each packet; 0 for all.
    pub snaplen: u32,
}

/// Captures received and transmitted packets, as pcapng with one interface for each direction.
///
/// Capturing never disturbs the traffic: if the file cannot be written, capturing stops, and
/// [`CaptureStatus::note`] says why. If a pipe is full, packets are left out
/// ([`CaptureStatus::missed`]). Packets that were received in error are not captured. Records
/// have the wall clock's time at the start of their batch, also those of packets from a capture;
/// [`Capture::with_clock`] takes another clock's.
/// After a device reset, unsent packets are offered again, and are captured again. Such a copy is
/// recognizable by its bytes only, and may be segmented or finished in another way by then.
#[derive(Debug)]
pub struct Capture<D> {
    inner: D,
    /// Those of received and of transmitted packets.
    interfaces: [u32; 2],
    sink: Arc<Mutex<Sink>>,
}

/// The status of a [`Capture`], also after it was moved into its port. The output may read it while
/// it is written to.
#[derive(Clone, Debug)]
pub struct CaptureStatus {
    progress: Arc<Progress>,
    sink: Arc<Mutex<Sink>>,
}

impl CaptureStatus {
    /// Records written so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.progress.records.load(Relaxed)
    }

    /// Why capturing stopped, if it did: one sentence.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.progress.note()
    }

    /// Records that a full pipe does not have: left out, or not written yet.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.progress.missed.load(Relaxed) + self.progress.unwritten.load(Relaxed)
    }

    /// Writes the records that a full pipe does not have yet, as far as it has room. Returns
    /// whether none is left; false also while another call writes to the output. After the run no
    /// other call writes them.
    #[must_use]
    pub fn flush(&self) -> bool {
        let mut sink = match self.sink.try_lock() {
            Ok(sink) => sink,
            Err(TryLockError::Poisoned(after_panic)) => after_panic.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        sink.flush();
        self.progress.unwritten.load(Relaxed) == 0 || self.progress.has_stopped()
    }
}

struct Sink {
    writer: Writer<Output>,
    /// The file behind the output, if [`Capture::create`] made it.
    file: Option<File>,
    /// By interface.
    links: Vec<LinkType>,
    options: CaptureOptions,
    /// `None` for the wall clock.
    clock: Option<Arc<dyn Clock>>,
    scratch: Box<Scratch>,
    progress: Arc<Progress>,
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink")
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

impl Sink {
    /// Adds an interface, and returns its number.
    fn add(&mut self, name: &str, link: LinkType) -> io::Result<u32> {
        let number = self.writer.add_interface(&Interface {
            link: link_code(link),
            snaplen: self.options.snaplen,
            name: Some(name),
        });
        let number = number.map_err(refused)?;
        self.links.push(link);
        Ok(number)
    }

    fn now_ns(&self) -> u64 {
        let clock = self.clock.as_ref();
        clock.map_or_else(wall_clock_ns, |clock| clock.now().as_nanos())
    }

    fn write(&mut self, interface: u32, now_ns: u64, packet: &Packet) {
        if self.progress.has_stopped() {
            return;
        }
        let before = self.writer.records();
        let (mut result, mut missed) = (Ok(()), 0);
        let mut settle = |written: Result<(), WriteError>| match written {
            Err(error) if is_full(&error) => missed += 1,
            Err(_) if result.is_err() => {}
            other => result = other,
        };
        let writer = &mut self.writer;
        let link = self.links[interface as usize];
        let visited = !self.options.whole
            && wire::for_each(packet, link, true, &mut self.scratch, |wire| {
                let bytes = (wire.header.len() + wire.rest.len()) as u32;
                let rest = packet.pieces(wire.rest).into_iter().flatten();
                let pieces = std::iter::once(wire.header).chain(rest);
                settle(writer.write(interface, now_ns, bytes, pieces));
            });
        if !visited {
            // Requested, or no wire packets can be made of the packet: recorded as it is in memory.
            let bytes = packet.bytes() as u32;
            settle(writer.write(interface, now_ns, bytes, packet.segments()));
        }
        let progress = &self.progress;
        progress.missed.fetch_add(missed, Relaxed);
        progress
            .unwritten
            .fetch_add(self.writer.records() - before, Relaxed);
        progress.records.store(self.writer.records(), Relaxed);
        self.settle(result);
    }

    fn flush(&mut self) {
        if self.progress.has_stopped() {
            return;
        }
        match self.writer.flush() {
            Ok(()) => self.progress.unwritten.store(0, Relaxed),
            Err(error) if is_full(&error) => {}
            Err(error) => self.settle(Err(error)),
        }
    }

    fn settle(&mut self, result: Result<(), WriteError>) {
        if let Err(error) = result {
            if let Some(file) = &self.file {
                // If that fails, too, the last record stays cut. The first error is reported.
                remove_last(file, self.writer.begun()).ok();
            }
            // Nothing follows, not even if the file has room again.
            self.writer.truncate(0);
            self.progress.stop("the capture", &io::Error::other(error));
        }
    }
}

fn refused(error: WriteError) -> io::Error {
    match error {
        WriteError::Io(IoFault { kind, .. }) => io::Error::new(kind, error),
        other => io::Error::other(other),
    }
}

/// Whether the output accepts nothing now: a pipe.
fn is_full(error: &WriteError) -> bool {
    matches!(error, WriteError::Io(fault) if fault.kind == ErrorKind::WouldBlock)
}

impl<D: Driver> Capture<D> {
    /// Captures to a file, which is made as [`create`](crate::file::create) does.
    ///
    /// # Errors
    ///
    /// When the file cannot be created or written.
    pub fn create(inner: D, path: &Path, options: CaptureOptions) -> io::Result<Self> {
        let file = crate::file::create(path)?;
        let own = file.try_clone()?;
        let output = Counted::new(file);
        output.set_nonblocking()?;
        let capture = Self::new(inner, Box::new(output), options)?;
        lock(&capture.sink).file = Some(own);
        Ok(capture)
    }

    /// Captures to any output.
    ///
    /// # Errors
    ///
    /// If it does not accept the file header.
    pub fn new(inner: D, output: Output, options: CaptureOptions) -> io::Result<Self> {
        let sink = Sink {
            writer: Writer::new(output, Format::PcapNg, &[]).map_err(refused)?,
            file: None,
            links: Vec::new(),
            options,
            clock: None,
            scratch: Box::default(),
            progress: Arc::default(),
        };
        Self::on(inner, Arc::new(Mutex::new(sink)))
    }

    /// Captures to the output of another port's capture, with two interfaces more.
    ///
    /// # Errors
    ///
    /// If it does not accept them.
    pub fn beside(inner: D, other: &CaptureStatus) -> io::Result<Self> {
        Self::on(inner, Arc::clone(&other.sink))
    }

    fn on(inner: D, sink: Arc<Mutex<Sink>>) -> io::Result<Self> {
        let (name, link) = (inner.name(), inner.capabilities().link);
        let mut open = lock(&sink);
        let interfaces = [
            open.add(&format!("{name} received"), link)?,
            open.add(&format!("{name} transmitted"), link)?,
        ];
        open.writer.flush().map_err(refused)?;
        drop(open);
        Ok(Self {
            inner,
            interfaces,
            sink,
        })
    }

    /// The records of this output have the time of `clock` instead, as nanoseconds since 1970.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        lock(&self.sink).clock = Some(clock);
        self
    }

    /// A handle to read the status.
    #[must_use]
    pub fn status(&self) -> CaptureStatus {
        CaptureStatus {
            progress: Arc::clone(&lock(&self.sink).progress),
            sink: Arc::clone(&self.sink),
        }
    }
}

impl<D: Driver> WrapDriver for Capture<D> {
    type Rx = CaptureRx<D::Rx>;
    type Tx = CaptureTx<D::Tx>;
    wraps! { D, self => self.inner }

    fn wrap(&mut self, _: usize, (rx, tx): QueuePair<D>, _: &Arena) -> QueuePair<Self> {
        let rx = CaptureRx {
            inner: rx,
            stage: Burst::new(),
            interface: self.interfaces[0],
            sink: Arc::clone(&self.sink),
        };
        let tx = CaptureTx {
            inner: tx,
            batch_ns: None,
            interface: self.interfaces[1],
            sink: Arc::clone(&self.sink),
        };
        (rx, tx)
    }
}

/// The receiving half of a [`Capture`].
#[derive(Debug)]
pub struct CaptureRx<R> {
    inner: R,
    stage: Burst,
    interface: u32,
    sink: Arc<Mutex<Sink>>,
}

impl<R: RxDescriptors> WrapRx for CaptureRx<R> {
    wraps! { R, self => self.inner }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let budget = burst.budget();
        let mut bad = PassBad(burst);
        let mut staged = RxBurst::new(&mut self.stage, budget, &mut bad);
        let result = self.inner.receive(now, &mut staged);
        if self.stage.is_empty() {
            return result;
        }
        let mut sink = lock(&self.sink);
        let now_ns = sink.now_ns();
        while let Some(packet) = self.stage.pop() {
            sink.write(self.interface, now_ns, &packet);
            let info = info_of(&packet);
            burst.push(packet, &info);
        }
        sink.flush();
        result
    }
}

/// The transmitting half of a [`Capture`].
#[derive(Debug)]
pub struct CaptureTx<T> {
    inner: T,
    /// When the batch began, in nanoseconds since 1970.
    batch_ns: Option<u64>,
    interface: u32,
    sink: Arc<Mutex<Sink>>,
}

impl<T: TxDescriptors> WrapTx for CaptureTx<T> {
    wraps! { T, self => self.inner }

    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let accepted = self.inner.encap(packet, token)?;
        let mut sink = lock(&self.sink);
        let now_ns = *self.batch_ns.get_or_insert_with(|| sink.now_ns());
        sink.write(self.interface, now_ns, packet.packet());
        Ok(accepted)
    }

    fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
        let result = self.inner.flush(now);
        if self.batch_ns.take().is_some() {
            lock(&self.sink).flush();
        }
        result
    }
}
