//! What merging does to the packets of a capture, without an output.

use super::engine::{Counted, Engine, Output, Place};
use super::intake::{Batch, Event, Looked};
use super::options::{Options, queue_of};
use super::report::{InterfaceReport, Report, Totals};
use packtrain_offload::checksum::{self, Sum};
use packtrain_offload::coalesce::{Done, Finish, FlushReason, NotTaken, Packet};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::ChecksumState;
use std::fmt;
use std::ops::Range;

/// Why a train ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The coalescer handed it on.
    Flushed(FlushReason),
    /// It is one packet that the coalescer did not take.
    NotTaken(NotTaken),
    /// It is one packet that the coalescer did not see: of a link type that is not parsed, without
    /// its headers, with its IP length left to a NIC, or where packets are not merged.
    PassedBy,
}

impl End {
    /// The name under which it is counted.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flushed(reason) => reason.name(),
            Self::NotTaken(reason) => reason.name(),
            Self::PassedBy => "passed_by",
        }
    }

    /// Whether its packets were held.
    #[must_use]
    pub const fn was_held(self) -> bool {
        matches!(self, Self::Flushed(_))
    }
}

/// Packets of a flow that leave as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// When its first packet arrived, in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// Its interface, as an index of [`Report::interfaces`].
    pub interface: u32,
    /// Its queue.
    pub queue: u16,
    /// A hash of its addresses, ports and protocol, the same on every machine; 0 without ports.
    pub flow: u64,
    /// Its packets.
    pub packets: u32,
    /// Its bytes as one packet, with the link header.
    pub bytes: u32,
    /// How long its first packet was held.
    pub held_ns: u64,
    /// Why it ended.
    pub end: End,
}

/// A packet without its payload, and the packets that were merged into it. Its memory is used
/// again.
#[derive(Debug)]
struct Lean(Box<Kept>);

#[derive(Debug)]
struct Kept {
    /// The lengths are those of the merged packet.
    packet: Looked,
    head: Vec<u8>,
    more: Vec<Lean>,
}

impl Lean {
    /// In the place of a packet that is out of use, if there is one.
    fn new(unused: Option<Self>, packet: &Looked, head: &[u8]) -> Self {
        let packet = *packet;
        let Some(Self(mut kept)) = unused else {
            return Self(Box::new(Kept {
                packet,
                head: head.into(),
                more: Vec::new(),
            }));
        };
        kept.packet = packet;
        kept.head.clear();
        kept.head.extend_from_slice(head);
        Self(kept)
    }
}

impl Counted for Lean {
    const FINISH: Finish = Finish::Partial;

    fn count(&self) -> u64 {
        1 + self.0.more.len() as u64
    }
}

impl Packet for Lean {
    fn head(&self) -> &[u8] {
        &self.0.head
    }

    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.0.head.get_mut(..bytes)
    }

    fn bytes(&self) -> u32 {
        self.0.packet.bytes
    }

    fn checksum(&self) -> ChecksumState {
        self.0.packet.checksum
    }

    fn layout(&self) -> Option<Layout> {
        self.0.packet.layout
    }

    fn sum(&self, range: Range<u32>) -> Sum {
        let Looked {
            layout, payload, ..
        } = &self.0.packet;
        if layout.is_some_and(|layout| range == (layout.payload.into()..layout.ip_end)) {
            return *payload;
        }
        let range = range.start as usize..range.end as usize;
        checksum::sum(self.head().get(range).unwrap_or_default())
    }

    fn truncate(&mut self, bytes: u32) {
        let packet = &mut self.0.packet;
        let cut = packet.bytes.saturating_sub(bytes);
        packet.bytes -= cut;
        packet.wire_bytes -= cut;
    }

    fn append(&mut self, mut tail: Self, payload: Range<u32>) -> Result<(), Self> {
        let Kept { packet, more, .. } = &mut *self.0;
        packet.bytes += payload.end - payload.start;
        packet.wire_bytes += payload.end - payload.start;
        more.append(&mut tail.0.more);
        more.push(tail);
        Ok(())
    }
}

/// What one configuration makes of the batches of an [`Intake`](super::Intake).
pub struct Analysis {
    options: Options,
    engine: Engine<Lean>,
    tally: Tally,
    /// Packets that are out of use: at most as many as were held at once.
    unused: Vec<Lean>,
}

impl fmt::Debug for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Analysis")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Analysis {
    /// Nothing was taken yet. [`Options::segment`] has no meaning here.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self {
            options: *options,
            engine: Engine::new(*options),
            tally: Tally::default(),
            unused: Vec::new(),
        }
    }

    /// Takes the packets of a batch. Each train that ends meanwhile goes to `sink`: in the order in
    /// which they end.
    pub fn take(&mut self, batch: &Batch, sink: &mut impl FnMut(&Train)) {
        let Self {
            options,
            engine,
            tally,
            unused,
        } = self;
        let out = &mut Trains {
            tally,
            unused,
            sink,
        };
        for event in &batch.events {
            let packet = match event {
                Event::Packet(packet) => packet,
                Event::SectionEnds(interfaces) => {
                    engine.finish_of(batch.ended(interfaces), out);
                    continue;
                }
                Event::Back { from, to } => {
                    engine.advance(*from, out);
                    engine.advance(*to, out);
                    continue;
                }
            };
            engine.advance(packet.at, out);
            let queue = queue_of(packet.rss, options.queues);
            let tally = out.tally.of(packet.interface, options.queues);
            tally.arrived(queue, packet.wire_bytes);
            let taken = packet.link.is_some_and(|link| {
                let place = Place {
                    interface: packet.interface,
                    queue,
                    link,
                };
                let frame = packet
                    .merges
                    .then(|| Lean::new(out.unused.pop(), packet, batch.head(packet)));
                engine.take(place, frame, out).is_ok() && packet.merges
            });
            if !taken {
                out.single(packet, queue, End::PassedBy);
            }
        }
    }

    /// Ends all trains: no batch follows.
    pub fn finish(&mut self, sink: &mut impl FnMut(&Train)) {
        let out = &mut Trains {
            tally: &mut self.tally,
            unused: &mut self.unused,
            sink,
        };
        self.engine.finish(out);
    }

    /// The report, from what was read.
    #[must_use]
    pub fn report(&self, read: &Report) -> Report {
        let mut report = read.clone();
        report.totals = self.tally.totals;
        for (seen, tally) in report.interfaces.iter_mut().zip(&self.tally.interfaces) {
            seen.merge(tally);
        }
        for (place, stats, held_max) in self.engine.stats() {
            if let Some(seen) = report.interfaces.get_mut(place.interface as usize) {
                seen.stats += *stats;
                seen.held_max = seen.held_max.max(held_max);
            }
        }
        report
    }
}

/// The part of a report that depends on the configuration.
#[derive(Debug, Default)]
struct Tally {
    interfaces: Vec<InterfaceReport>,
    totals: Totals,
}

impl Tally {
    fn of(&mut self, interface: u32, queues: u16) -> &mut InterfaceReport {
        let index = interface as usize;
        while self.interfaces.len() <= index {
            self.interfaces.push(InterfaceReport::of_queues(queues));
        }
        &mut self.interfaces[index]
    }
}

/// Counts trains, and hands them on.
struct Trains<'a, S> {
    tally: &'a mut Tally,
    unused: &'a mut Vec<Lean>,
    sink: &'a mut S,
}

impl<S: FnMut(&Train)> Trains<'_, S> {
    fn single(&mut self, packet: &Looked, queue: u16, end: End) {
        let train = Train {
            time_ns: packet.at,
            interface: packet.interface,
            queue,
            flow: packet.flow,
            packets: 1,
            bytes: packet.wire_bytes,
            held_ns: 0,
            end,
        };
        let totals = &mut self.tally.totals;
        totals.transmitted += 1;
        self.count(&train, std::iter::once(0));
    }

    fn count(&mut self, train: &Train, delays: impl Iterator<Item = u64>) {
        if let Some(seen) = self.tally.interfaces.get_mut(train.interface as usize) {
            seen.records += 1;
            seen.record_bytes += u64::from(train.bytes);
            seen.left(train.queue, train.packets.into());
            delays.for_each(|ns| seen.delays.add(ns));
        }
        (self.sink)(train);
    }
}

impl<S: FnMut(&Train)> Output<Lean> for Trains<'_, S> {
    fn output(&mut self, place: Place, mut frame: Lean, done: &Done, at: u64) {
        let count = frame.count();
        let totals = &mut self.tally.totals;
        let end = match done {
            Done::Passed(reason) => End::NotTaken(*reason),
            Done::Alone(reason) => End::Flushed(*reason),
            Done::Merged(merged) => End::Flushed(merged.reason),
        };
        let absorbed = match done {
            Done::Merged(merged) => u64::from(merged.absorbed),
            Done::Passed(_) | Done::Alone(_) => 0,
        };
        totals.absorbed += absorbed;
        totals.transmitted += count - absorbed;
        let Kept { packet, more, .. } = &mut *frame.0;
        let held_ns = |packet: &Looked| at.saturating_sub(packet.at);
        let train = Train {
            time_ns: packet.at,
            interface: place.interface,
            queue: place.queue,
            flow: packet.flow,
            packets: count as u32,
            bytes: packet.wire_bytes,
            held_ns: held_ns(packet),
            end,
        };
        let others = more.iter().map(|other| held_ns(&other.0.packet));
        self.count(&train, std::iter::once(train.held_ns).chain(others));
        self.unused.append(more);
        self.unused.push(frame);
    }
}
