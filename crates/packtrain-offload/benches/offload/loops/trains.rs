//! Trains of packets: headers of many flows, with correct checksums.
//!
//! All packets of a train have the same payload bytes: a receive buffer already contains them, and
//! making the next packet only writes its headers. Sequence numbers, timestamps and identifications
//! start at other values for each seed and flow.

use crate::loops::sizes::MSS;
use packtrain_measure::random::{Random, mix};
use packtrain_offload::checksum::{self, Sum};

/// The packets of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP segments of [`MSS`] bytes with timestamps.
    Tcp,
    /// TCP acknowledgements without payload, with timestamps; each acknowledges two segments more.
    Ack,
    /// UDP datagrams with [`MSS`] bytes of payload.
    Udp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    sequence: u32,
    acknowledged: u32,
    id: u16,
}

/// Flows and their progress.
#[derive(Clone, Debug)]
pub struct Train {
    kind: Kind,
    link_bytes: usize,
    flows: Vec<Flow>,
    payload: Vec<u8>,
    payload_sum: Sum,
    timestamp: u32,
}

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const TCP_BYTES: usize = 32;

impl Train {
    /// `flows` flows of IPv4, on Ethernet or on a raw IP link.
    pub fn new(kind: Kind, ethernet: bool, flows: u32) -> Self {
        let mut payload = vec![0; if kind == Kind::Ack { 0 } else { MSS }];
        Random::new(0).fill(&mut payload);
        let mut train = Self {
            kind,
            link_bytes: if ethernet { ETHERNET_BYTES } else { 0 },
            flows: vec![Flow::default(); flows as usize],
            payload_sum: checksum::sum(&payload),
            payload,
            timestamp: 0,
        };
        train.restart(0);
        train
    }

    /// Restarts every flow, at other numbers for each seed.
    pub fn restart(&mut self, seed: u64) {
        let mut random = Random::new(mix(seed));
        self.timestamp = random.next() as u32;
        for flow in &mut self.flows {
            let word = random.next();
            *flow = Flow {
                sequence: word as u32,
                acknowledged: (word >> 32) as u32,
                id: (word >> 16) as u16,
            };
        }
    }

    /// Flows.
    pub const fn flows(&self) -> u32 {
        self.flows.len() as u32
    }

    /// Link, IP and transport header.
    pub const fn header_bytes(&self) -> usize {
        let transport = match self.kind {
            Kind::Udp => UDP_BYTES,
            Kind::Tcp | Kind::Ack => TCP_BYTES,
        };
        self.link_bytes + IPV4_BYTES + transport
    }

    /// The payload of every packet.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Writes the headers of the next packet of `flow` to the start of `out`; returns the length
    /// of the packet with its payload.
    pub fn write(&mut self, flow: u32, out: &mut [u8]) -> usize {
        let headers = self.header_bytes();
        let out = &mut out[..headers];
        if self.link_bytes > 0 {
            out[..ETHERNET_BYTES].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        }
        let ip_bytes = headers - self.link_bytes + self.payload.len();
        let state = &mut self.flows[flow as usize];
        let (protocol, before) = (if self.kind == Kind::Udp { 17 } else { 6 }, *state);
        state.id = state.id.wrapping_add(1);
        state.sequence = state.sequence.wrapping_add(self.payload.len() as u32);
        if self.kind == Kind::Ack {
            state.acknowledged = state.acknowledged.wrapping_add(2 * MSS as u32);
        }
        let (ip, transport) = out[self.link_bytes..].split_at_mut(IPV4_BYTES);
        let (source, destination) = addresses(flow);
        ip[..4].copy_from_slice(&[0x45, 0, (ip_bytes >> 8) as u8, ip_bytes as u8]);
        ip[4..6].copy_from_slice(&before.id.to_be_bytes());
        ip[6..12].copy_from_slice(&[0x40, 0, 64, protocol, 0, 0]);
        ip[12..16].copy_from_slice(&source);
        ip[16..20].copy_from_slice(&destination);
        let sum = checksum::ipv4_header(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        self.write_transport(flow, before, transport);
        let l4_bytes = (ip_bytes - IPV4_BYTES) as u32;
        let mut sum = checksum::pseudo_header_v4(source, destination, protocol, l4_bytes);
        sum.add(transport);
        sum.add_sum(self.payload_sum);
        let (at, field) = match self.kind {
            Kind::Udp => (6, checksum::udp_field(sum.finish())),
            Kind::Tcp | Kind::Ack => (16, sum.finish()),
        };
        transport[at..at + 2].copy_from_slice(&field.to_be_bytes());
        headers + self.payload.len()
    }

    /// With 0 in the checksum field.
    fn write_transport(&self, flow: u32, state: Flow, out: &mut [u8]) {
        out[..2].copy_from_slice(&port(flow).to_be_bytes());
        out[2..4].copy_from_slice(&443_u16.to_be_bytes());
        if self.kind == Kind::Udp {
            let length = (UDP_BYTES + self.payload.len()) as u16;
            out[4..6].copy_from_slice(&length.to_be_bytes());
            out[6..8].fill(0);
            return;
        }
        out[4..8].copy_from_slice(&state.sequence.to_be_bytes());
        out[8..12].copy_from_slice(&state.acknowledged.to_be_bytes());
        const ACK: u8 = 0x10;
        out[12..20].copy_from_slice(&[(TCP_BYTES as u8 / 4) << 4, ACK, 0x20, 0, 0, 0, 0, 0]);
        out[20..24].copy_from_slice(&[1, 1, 8, 10]);
        out[24..28].copy_from_slice(&self.timestamp.to_be_bytes());
        out[28..32].copy_from_slice(&self.timestamp.wrapping_sub(7).to_be_bytes());
    }

    /// A GSO packet of `segments` payloads with the pseudo-header sum in its checksum field, as a
    /// kernel passes it to a TUN or a NIC.
    pub fn gso_packet(&mut self, flow: u32, segments: usize) -> Vec<u8> {
        let headers = self.header_bytes();
        let payload = self.payload.repeat(segments);
        let one = std::mem::take(&mut self.payload);
        let sum = std::mem::replace(&mut self.payload_sum, Sum::new());
        self.payload = payload;
        let mut packet = vec![0; headers + self.payload.len()];
        self.write(flow, &mut packet);
        packet[headers..].copy_from_slice(&self.payload);
        (self.payload, self.payload_sum) = (one, sum);
        let ip = self.link_bytes;
        let udp = self.kind == Kind::Udp;
        let (source, destination) = addresses(flow);
        let l4_bytes = (packet.len() - ip - IPV4_BYTES) as u32;
        let protocol = if udp { 17 } else { 6 };
        let partial = checksum::pseudo_header_v4(source, destination, protocol, l4_bytes).fold();
        let at = ip + IPV4_BYTES + if udp { 6 } else { 16 };
        packet[at..at + 2].copy_from_slice(&partial.to_be_bytes());
        packet
    }
}

/// Source and destination of a flow: benchmark addresses (RFC 2544 appendix C.2.2).
fn addresses(flow: u32) -> ([u8; 4], [u8; 4]) {
    let source = 0xC612_0001 + (flow >> 14);
    (source.to_be_bytes(), [198, 19, 0, 1])
}

const fn port(flow: u32) -> u16 {
    5000 + (flow & 0x3FFF) as u16
}

/// The order in which flows alternate.
#[derive(Clone, Debug)]
pub struct Turns {
    shuffle: packtrain_measure::random::Shuffle,
    random: Random,
    flows: u64,
    base: u64,
    of: u64,
    left: u64,
    rounds_left: u32,
    rounds: u32,
}

impl Turns {
    /// Each of `flows` flows once per round, in a different order each round.
    pub fn all(flows: u32, seed: u64) -> Self {
        Self::windows(flows, flows, 1, seed)
    }

    /// `at_once` neighbours of `flows` flows alternate for `rounds` rounds; then the next ones do.
    pub fn windows(flows: u32, at_once: u32, rounds: u32, seed: u64) -> Self {
        let mut random = Random::new(mix(seed ^ 0x5EED));
        let flows = u64::from(flows.max(1));
        let of = u64::from(at_once.max(1)).min(flows);
        Self {
            shuffle: packtrain_measure::random::Shuffle::new(of, &mut random),
            base: random.below(flows),
            random,
            flows,
            of,
            left: of,
            rounds_left: rounds,
            rounds,
        }
    }

    /// The flow of the next packet.
    pub fn turn(&mut self) -> u32 {
        if self.left == 0 {
            self.left = self.of;
            self.rounds_left -= 1;
            if self.rounds_left == 0 {
                self.rounds_left = self.rounds;
                self.base = (self.base + self.of) % self.flows;
            }
            self.shuffle = packtrain_measure::random::Shuffle::new(self.of, &mut self.random);
        }
        self.left -= 1;
        ((self.base + self.shuffle.next()) % self.flows) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_offload::layout::{Layout, Transport};
    use packtrain_offload::offload::LinkType;

    #[test]
    fn packets_have_right_checksums_and_follow_each_other() {
        for kind in [Kind::Tcp, Kind::Ack, Kind::Udp] {
            let mut train = Train::new(kind, true, 80_000);
            train.restart(3);
            let mut packet = vec![0; 2000];
            let at = train.header_bytes();
            packet[at..at + train.payload().len()].copy_from_slice(train.payload());
            let mut sequence = None;
            for flow in [79_999, 79_999, 79_999] {
                let bytes = train.write(flow, &mut packet);
                let packet = &packet[..bytes];
                let layout = Layout::parse(LinkType::Ethernet, packet, bytes as u32).unwrap();
                assert_eq!(layout.ip_end as usize, bytes);
                assert!(checksum::sum(&packet[14..34]).is_valid());
                let (source, destination) = addresses(flow);
                let l4 = bytes as u32 - 34;
                let protocol = layout.protocol.0;
                let mut sum = checksum::pseudo_header_v4(source, destination, protocol, l4);
                sum.add(&packet[34..]);
                assert!(sum.is_valid());
                let tcp = !matches!(layout.transport_kind, Transport::Udp);
                assert_eq!(tcp, kind != Kind::Udp);
                let now = u32::from_be_bytes(packet[38..42].try_into().unwrap());
                if let (true, Some(before)) = (tcp, sequence) {
                    let step = if kind == Kind::Ack { 0 } else { MSS as u32 };
                    assert_eq!(now.wrapping_sub(before), step);
                }
                sequence = Some(now);
            }
        }
    }

    #[test]
    fn windows_give_each_flow_its_turns_before_the_next_window() {
        let mut turns = Turns::windows(1000, 10, 4, 9);
        for _ in 0..100 {
            let window: Vec<u32> = (0..40).map(|_| turns.turn()).collect();
            for flow in &window {
                assert_eq!(window.iter().filter(|other| *other == flow).count(), 4);
            }
        }
    }

    #[test]
    fn all_flows_take_turns() {
        let mut turns = Turns::all(64, 1);
        for _ in 0..10 {
            let mut round: Vec<u32> = (0..64).map(|_| turns.turn()).collect();
            round.sort_unstable();
            assert!(round.into_iter().eq(0..64));
        }
    }
}
