//! A sink that accepts every packet, and a source that generates packets.
//!
//! The sink accepts everything at once, GSO packets too, so a measurement against it is of the
//! framework alone. The source makes IPv4 packets at the rate at which it is polled: numbered UDP
//! datagrams, TCP data segments, or pure ACKs. Their checksums are right. In each flow,
//! identifications and sequence numbers continue from packet to packet, so the packets can be
//! merged. The same settings always make the same packets.

mod keys;
mod source;

pub use keys::NullOptions;
pub use source::{
    ACKS_EACH_MAX, FLOWS_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MIN, NUMBER_BYTES, OUT_OF_ORDER_MAX,
    Protocol, Source, TRAIN_MAX,
};

use crate::driver::{
    Accepted, Armed, Attach, Capabilities, DeviceCounters, DeviceError, Driver, Features, Input,
    QueuePair, Refused, RxBurst, RxDescriptors, RxInfo, Token, TxDescriptors, TxPacket,
};
use crate::limits::{BURST_PACKETS_MAX, QUEUES_MAX, SEGMENTS_MAX};
use crate::packet::{Arena, Packet};
use crate::time::Instant;
use packtrain_offload::offload::LinkType;
use source::Generator;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The settings of a [`Null`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullConfig {
    /// The name of the port.
    pub name: String,
    /// The link type.
    pub link: LinkType,
    /// The largest number of queues.
    pub queues: usize,
    /// The offloads that transmitted packets may use.
    pub tx: Features,
    /// The source of received packets; without one, the port receives none.
    pub source: Option<Source>,
}

impl Default for NullConfig {
    fn default() -> Self {
        Self {
            name: "null0".to_owned(),
            link: LinkType::Ethernet,
            queues: QUEUES_MAX,
            tx: Features::ALL.without(Features::LARGE_RECEIVE),
            source: None,
        }
    }
}

/// The port.
#[derive(Debug)]
pub struct Null {
    config: NullConfig,
    counts: Arc<Counts>,
}

/// Packets and bytes over all queues. They are added once a batch, since a locked addition for each
/// packet would cost as much as the rest of this port.
#[derive(Debug, Default)]
struct Counts {
    taken: AtomicU64,
    taken_bytes: AtomicU64,
    made: AtomicU64,
    made_bytes: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Null {
    /// A port with the settings `config`.
    #[must_use]
    pub fn new(config: NullConfig) -> Self {
        Self {
            config,
            counts: Arc::default(),
        }
    }

    fn check(&self, how: &Attach) -> Result<(), DeviceError> {
        let source = self.config.source.unwrap_or_default();
        let (protocol, link) = (source.protocol, self.config.link);
        let (least, most) = protocol.frame_bytes(link, source.timestamps).into_inner();
        let late = usize::from(source.out_of_order);
        let each = source.acks.unwrap_or(ACKS_EACH_MAX);
        let bounds = [
            ("queues", how.queues, 1, self.config.queues.min(QUEUES_MAX)),
            ("bytes", source.bytes, least, most),
            ("flows", source.flows, 1, FLOWS_MAX),
            ("active", source.active.unwrap_or(1), 1, FLOWS_MAX),
            ("train", source.train, 1, TRAIN_MAX),
            ("burst", source.burst, 1, BURST_PACKETS_MAX),
            ("acks", each as usize, 2, ACKS_EACH_MAX as usize),
            ("out-of-order", late, 0, usize::from(OUT_OF_ORDER_MAX)),
        ];
        for (what, value, min, max) in bounds {
            if value < min || value > max {
                return Err(DeviceError::Unsupported(format!(
                    "{}: {what} is {value}, and must be from {min} to {max}",
                    self.config.name
                )));
            }
        }
        Ok(())
    }
}

impl Driver for Null {
    type Rx = NullRx;
    type Tx = NullTx;

    fn name(&self) -> &str {
        &self.config.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            link: self.config.link,
            queues_max: self.config.queues,
            input: match self.config.source {
                None => Input::None,
                Some(Source { count: None, .. }) => Input::Endless,
                Some(Source { count: Some(_), .. }) => Input::Finite,
            },
            rx_waits: true,
            tx: self.config.tx.consistent(),
            tx_segments_max: SEGMENTS_MAX,
            tx_gso_segments_max: SEGMENTS_MAX,
            gso_pays: false,
            notes: self.config.source.iter().map(Source::described).collect(),
            ..Capabilities::default()
        }
    }

    fn attach(
        &mut self,
        how: &Attach,
        _arena: &Arena,
    ) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        self.check(how)?;
        Ok((0..how.queues)
            .map(|queue| {
                let generator = self
                    .config
                    .source
                    .map(|source| Generator::new(source, self.config.link, queue, how));
                let posted = generator.as_ref().map_or(0, Generator::posted);
                let rx = NullRx {
                    generator,
                    buffers: Vec::with_capacity(posted),
                    counts: Arc::clone(&self.counts),
                };
                let tx = NullTx {
                    counts: Arc::clone(&self.counts),
                    batch: 0,
                    batch_bytes: 0,
                    doorbells: 0,
                };
                (rx, tx)
            })
            .collect())
    }

    fn device_counters(&mut self) -> Option<DeviceCounters> {
        let counts = &*self.counts;
        Some(DeviceCounters {
            rx_packets: counts.taken.load(Ordering::Relaxed),
            rx_bytes: counts.taken_bytes.load(Ordering::Relaxed),
            tx_packets: counts.made.load(Ordering::Relaxed),
            tx_bytes: counts.made_bytes.load(Ordering::Relaxed),
            ..DeviceCounters::default()
        })
    }
}

/// The sink.
#[derive(Debug)]
pub struct NullTx {
    counts: Arc<Counts>,
    /// Packets and bytes since the last flush.
    batch: u64,
    batch_bytes: u64,
    doorbells: u64,
}

impl TxDescriptors for NullTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        self.batch += 1;
        self.batch_bytes += packet.packet().bytes() as u64;
        Ok(Accepted::Complete)
    }

    fn flush(&mut self, _now: Instant) -> Result<(), DeviceError> {
        if self.batch > 0 {
            let (packets, bytes) = (&mut self.batch, &mut self.batch_bytes);
            add(&self.counts.taken, std::mem::take(packets));
            add(&self.counts.taken_bytes, std::mem::take(bytes));
            self.doorbells += 1;
        }
        Ok(())
    }

    fn doorbells(&self) -> u64 {
        self.doorbells
    }
}

/// The source.
#[derive(Debug)]
pub struct NullRx {
    generator: Option<Generator>,
    buffers: Vec<Packet>,
    counts: Arc<Counts>,
}

impl RxDescriptors for NullRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        let generator = self.generator.as_ref().filter(|made| made.left() > 0);
        generator.is_none_or(|of| arena.fill(of.class, &mut self.buffers, of.posted()))
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let Some(generator) = &mut self.generator else {
            return Ok(());
        };
        let (mut made, mut made_bytes) = (0, 0);
        let most = generator.left().min(generator.source.burst as u64);
        while burst.budget() > 0
            && made < most
            && let Some(packet) = generator.next(&mut self.buffers)
        {
            made += 1;
            made_bytes += packet.bytes() as u64;
            burst.push(packet, &RxInfo::default());
        }
        add(&self.counts.made, made);
        add(&self.counts.made_bytes, made_bytes);
        if generator.left() == 0 {
            self.buffers.clear();
            return Err(DeviceError::Finished);
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        // The end of the input is work, too: the next poll reports it.
        if self.generator.is_some() {
            Armed::WorkPending
        } else {
            Armed::Idle
        }
    }
}

#[cfg(test)]
mod tests;
