//! Frames for tests: TCP and UDP with right checksums.

use packtrain_offload::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};

/// What differs between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Source port: the flow.
    pub port: u16,
    pub seq: u32,
    pub ack: u32,
    /// IPv4 identification.
    pub id: u16,
    /// Bytes of payload.
    pub payload: usize,
}

impl Default for Segment {
    fn default() -> Self {
        Self {
            port: 1000,
            seq: 1,
            ack: 1,
            id: 0,
            payload: 0,
        }
    }
}

const ADDRESSES4: [[u8; 4]; 2] = [[198, 18, 0, 1], [198, 18, 0, 2]];
const ADDRESSES6: [[u8; 16]; 2] = [
    [0xfd, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    [0xfd, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Payload that tells where in the stream it is from.
fn payload(segment: &Segment) -> impl Iterator<Item = u8> {
    let first = segment.seq as usize;
    (first..first + segment.payload).map(|i| (i % 251) as u8)
}

fn transport(segment: &Segment, protocol: u8, pseudo: impl Fn(u32) -> Sum) -> Vec<u8> {
    let mut bytes = [segment.port.to_be_bytes(), 80_u16.to_be_bytes()].concat();
    let at = if protocol == TCP {
        bytes.extend(segment.seq.to_be_bytes());
        bytes.extend(segment.ack.to_be_bytes());
        bytes.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        16
    } else {
        bytes.extend((8 + segment.payload as u16).to_be_bytes());
        bytes.extend([0, 0]);
        6
    };
    bytes.extend(payload(segment));
    let mut sum = pseudo(bytes.len() as u32);
    sum.add(&bytes);
    let value = match (sum.finish(), protocol) {
        (0, UDP) => 0xffff,
        (value, _) => value,
    };
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    bytes
}

fn ipv4(segment: &Segment, protocol: u8) -> Vec<u8> {
    let [from, to] = ADDRESSES4;
    let transport = transport(segment, protocol, |bytes| {
        pseudo_header_v4(from, to, protocol, bytes)
    });
    let mut ip = vec![0x45, 0];
    ip.extend((20 + transport.len() as u16).to_be_bytes());
    ip.extend(segment.id.to_be_bytes());
    ip.extend([0x40, 0, 64, protocol, 0, 0]);
    ip.extend([from, to].concat());
    let mut sum = Sum::new();
    sum.add(&ip);
    ip[10..12].copy_from_slice(&sum.finish().to_be_bytes());
    ethernet([8, 0], &[ip, transport].concat())
}

fn ethernet(ethertype: [u8; 2], ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ethertype);
    frame.extend(ip);
    frame
}

/// TCP over IPv4 with DF, 54 bytes of headers, ACK.
pub fn tcp4(segment: &Segment) -> Vec<u8> {
    ipv4(segment, TCP)
}

/// UDP over IPv4 with DF, 42 bytes of headers. `seq` only chooses the payload.
pub fn udp4(segment: &Segment) -> Vec<u8> {
    ipv4(segment, UDP)
}

/// TCP over IPv6, 74 bytes of headers, ACK.
pub fn tcp6(segment: &Segment) -> Vec<u8> {
    let [from, to] = ADDRESSES6;
    let transport = transport(segment, TCP, |bytes| pseudo_header_v6(from, to, TCP, bytes));
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((transport.len() as u16).to_be_bytes());
    ip.extend([TCP, 64]);
    ip.extend([from, to].concat());
    ethernet([0x86, 0xdd], &[ip, transport].concat())
}
