//! Nothing: a sink that takes every packet, and a source of generated ones.
//!
//! The sink accepts everything at once, GSO packets too, so what is measured against it is the
//! framework alone. The source makes UDP over IPv4 as fast as it is polled: frames with valid
//! checksums, in several flows, each numbered.

use crate::driver::{
    Accepted, Armed, Attach, Capabilities, DeviceCounters, DeviceError, Driver, Features, Input,
    QueuePair, Refused, RxBuffers, RxBurst, RxDescriptors, RxInfo, Token, TxDescriptors, TxPacket,
};
use crate::limits::{BURST_BYTES_MAX, BURST_PACKETS_MAX, QUEUES_MAX, SEGMENTS_MAX};
use crate::packet::{Arena, FrameClass, Packet};
use crate::time::Instant;
use packtrain_offload::checksum::{self, Sum};
use packtrain_offload::limits::{
    ETHERNET_HEADER_BYTES, IP_LENGTH_MAX, IPV4_HEADER_BYTES_MIN, UDP_HEADER_BYTES,
};
use packtrain_offload::offload::LinkType;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const HEADER_BYTES: usize = ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES_MIN + UDP_HEADER_BYTES;
/// Bytes of the number at the start of each payload: 64 bits, big-endian.
pub const NUMBER_BYTES: usize = 8;
/// Shortest frame that a source makes: a minimal Ethernet frame without its FCS.
pub const FRAME_BYTES_MIN: usize = 60;
/// Longest one.
pub const FRAME_BYTES_MAX: usize = ETHERNET_HEADER_BYTES + IP_LENGTH_MAX;
/// Most flows of a source: the number of a flow is its source port, from 1024 on.
pub const FLOWS_MAX: usize = 65_536 - 1024;

const UDP: usize = ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES_MIN;
const UDP_CHECKSUM: usize = UDP + 6;
const FIRST_PORT: u16 = 1024;
/// The discard service (RFC 863).
const DESTINATION_PORT: u16 = 9;

/// What a source makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Bytes of each frame, Ethernet header included, no FCS: [`FRAME_BYTES_MIN`] to
    /// [`FRAME_BYTES_MAX`].
    pub bytes: usize,
    /// Flows, from 1 to [`FLOWS_MAX`]. Flow `i` is always on queue `i` modulo the number of queues;
    /// rounded up to a multiple of that.
    pub flows: usize,
    /// Frames to make, over all queues; `None` to make them for ever.
    pub count: Option<u64>,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            bytes: FRAME_BYTES_MIN,
            flows: 1,
            count: None,
        }
    }
}

/// What a [`Null`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullConfig {
    /// What the port is called.
    pub name: String,
    /// Most queues it can have.
    pub queues: usize,
    /// What transmitted packets may come with.
    pub tx: Features,
    /// Makes packets to receive; without, there never are any.
    pub source: Option<Source>,
}

impl Default for NullConfig {
    fn default() -> Self {
        Self {
            name: "null0".to_owned(),
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

/// What went through, over all queues. Added to once a batch, since a locked addition for each
/// packet would cost as much as all else that this port does.
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
    /// A port as `config` says.
    #[must_use]
    pub fn new(config: NullConfig) -> Self {
        Self {
            config,
            counts: Arc::default(),
        }
    }

    fn check(&self, how: &Attach) -> Result<(), DeviceError> {
        let source = self.config.source.unwrap_or_default();
        let bounds = [
            ("queues", how.queues, 1, self.config.queues.min(QUEUES_MAX)),
            ("bytes", source.bytes, FRAME_BYTES_MIN, FRAME_BYTES_MAX),
            ("flows", source.flows, 1, FLOWS_MAX),
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
            link: LinkType::Ethernet,
            queues_max: self.config.queues,
            input: match self.config.source {
                None => Input::None,
                Some(Source { count: None, .. }) => Input::Endless,
                Some(Source { count: Some(_), .. }) => Input::Finite,
            },
            tx: self.config.tx.consistent(),
            tx_segments_max: SEGMENTS_MAX,
            tx_gso_segments_max: SEGMENTS_MAX,
            gso_pays: false,
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
                    .map(|source| Generator::new(source, queue, how));
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
        let Some(generator) = self.generator.as_ref().filter(|g| !g.is_finished()) else {
            return true;
        };
        while self.buffers.len() < generator.posted() {
            match arena.packet(generator.class) {
                Ok(buffer) => self.buffers.push(buffer),
                Err(_no_buffer) => return false,
            }
        }
        true
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let Some(generator) = &mut self.generator else {
            return Ok(());
        };
        let (mut made, mut made_bytes) = (0, 0);
        while burst.budget() > 0 && !generator.is_finished() {
            let Some(packet) = generator.next(&mut self.buffers) else {
                break;
            };
            made += 1;
            made_bytes += packet.bytes() as u64;
            burst.push(packet, &RxInfo::default());
        }
        if made > 0 {
            add(&self.counts.made, made);
            add(&self.counts.made_bytes, made_bytes);
        }
        if generator.is_finished() {
            self.buffers.clear();
            return Err(DeviceError::Finished);
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        // The end is work, too: the next poll reports it.
        if self.generator.is_some() {
            Armed::WorkPending
        } else {
            Armed::Idle
        }
    }
}

/// Makes the frames of one queue.
#[derive(Debug)]
struct Generator {
    /// A whole frame with source port 0 and number 0, and the right UDP checksum for those.
    template: Vec<u8>,
    /// The buffers that a frame is made in.
    class: FrameClass,
    queue: usize,
    queues: usize,
    /// Flows of this queue.
    flows: u64,
    made: u64,
    count: Option<u64>,
}

impl Generator {
    fn new(source: Source, queue: usize, how: &Attach) -> Self {
        let (queue64, queues64) = (queue as u64, how.queues as u64);
        let share = |count: u64| count / queues64 + u64::from(queue64 < count % queues64);
        let small = source.bytes <= FrameClass::Small.data_bytes();
        Self {
            template: template(source.bytes),
            class: if small || how.rx_buffers == RxBuffers::Pieces {
                FrameClass::Small
            } else {
                FrameClass::Large
            },
            queue,
            queues: how.queues,
            flows: source.flows.div_ceil(how.queues) as u64,
            made: 0,
            count: source.count.map(share),
        }
    }

    fn is_finished(&self) -> bool {
        self.count.is_some_and(|count| self.made >= count)
    }

    /// Buffers of one frame.
    const fn pieces(&self) -> usize {
        self.template.len().div_ceil(self.class.data_bytes())
    }

    /// Buffers of the frames that fit a burst: at most two for each of its packets.
    fn posted(&self) -> usize {
        let packets = BURST_BYTES_MAX.div_ceil(self.template.len());
        packets.min(BURST_PACKETS_MAX) * self.pieces()
    }

    /// The next frame, in some of `buffers`; `None` if there are too few.
    fn next(&mut self, buffers: &mut Vec<Packet>) -> Option<Packet> {
        if buffers.len() < self.pieces() {
            return None;
        }
        let mut pieces = self.template.chunks(self.class.data_bytes());
        let mut packet = filled(buffers, pieces.next()?, |bytes| self.fill_in(bytes))?;
        for piece in pieces {
            packet.append(filled(buffers, piece, |_| ())?).ok()?;
        }
        self.made += 1;
        Some(packet)
    }

    /// Fills in what is different in each frame. `frame` is the start of one, with all headers.
    fn fill_in(&self, frame: &mut [u8]) {
        // Counted per flow, so that a receiver of one flow alone can tell what was lost.
        let flow = (self.made % self.flows) as usize * self.queues + self.queue;
        let number = self.made / self.flows;
        let port = FIRST_PORT.wrapping_add(flow as u16);
        frame[UDP..UDP + 2].copy_from_slice(&port.to_be_bytes());
        let number = number.to_be_bytes();
        frame[HEADER_BYTES..HEADER_BYTES + NUMBER_BYTES].copy_from_slice(&number);
        let field = u16::from_be_bytes([frame[UDP_CHECKSUM], frame[UDP_CHECKSUM + 1]]);
        let mut check = checksum::update_u16(field, 0, port);
        let (high, low) = number.split_at(4);
        for half in [high, low] {
            let word = u32::from_be_bytes([half[0], half[1], half[2], half[3]]);
            check = checksum::update_u32(check, 0, word);
        }
        let check = checksum::udp_field(check);
        frame[UDP_CHECKSUM..UDP_CHECKSUM + 2].copy_from_slice(&check.to_be_bytes());
    }
}

/// One of `buffers` with a copy of `bytes`, changed by `change`.
fn filled(
    buffers: &mut Vec<Packet>,
    bytes: &[u8],
    change: impl FnOnce(&mut [u8]),
) -> Option<Packet> {
    let mut packet = buffers.pop()?;
    let room = packet.tailroom_mut().get_mut(..bytes.len())?;
    room.copy_from_slice(bytes);
    change(room);
    packet.grow(bytes.len()).ok()?;
    Some(packet)
}

/// A frame of the benchmarking network (RFC 2544, 198.18.0.0/15), complete but for source port and
/// number.
fn template(bytes: usize) -> Vec<u8> {
    const SOURCE: [u8; 4] = [198, 18, 0, 1];
    const DESTINATION: [u8; 4] = [198, 19, 0, 1];
    const UDP_PROTOCOL: u8 = 17;
    let mut frame = vec![0; bytes];
    // Locally administered addresses.
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    let ip_bytes = (bytes - ETHERNET_HEADER_BYTES) as u16;
    let ip = &mut frame[ETHERNET_HEADER_BYTES..UDP];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = UDP_PROTOCOL;
    ip[12..16].copy_from_slice(&SOURCE);
    ip[16..20].copy_from_slice(&DESTINATION);
    let check = checksum::ipv4_header(ip);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    let udp_bytes = ip_bytes - IPV4_HEADER_BYTES_MIN as u16;
    frame[UDP + 2..UDP + 4].copy_from_slice(&DESTINATION_PORT.to_be_bytes());
    frame[UDP + 4..UDP + 6].copy_from_slice(&udp_bytes.to_be_bytes());
    for (index, byte) in frame[HEADER_BYTES + NUMBER_BYTES..].iter_mut().enumerate() {
        *byte = index as u8;
    }
    let mut sum = Sum::new();
    sum.add_sum(checksum::pseudo_header_v4(
        SOURCE,
        DESTINATION,
        UDP_PROTOCOL,
        u32::from(udp_bytes),
    ));
    sum.add(&frame[UDP..]);
    let check = sum.finish().to_be_bytes();
    frame[UDP_CHECKSUM..UDP_CHECKSUM + 2].copy_from_slice(&check);
    frame
}

#[cfg(test)]
mod tests;
