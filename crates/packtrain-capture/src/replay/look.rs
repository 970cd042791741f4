//! The parts of a packet of a capture that no configuration changes: headers, lengths, flow.

use super::interfaces::Lane;
use super::lead::Lead;
use super::length;
use super::options::RSS;
use super::report::{ETHERNET_MTU, InterfaceReport, LastFlow};
use crate::codec::LinkCode;
use packtrain_offload::checksum;
use packtrain_offload::flow::FlowKey;
use packtrain_offload::layout::{Layout, Network, ParseError, Transport};
use packtrain_offload::limits::{TCP_HEADER_BYTES_MAX, TCP_HEADER_BYTES_MIN};
use packtrain_offload::offload::LinkType;
use packtrain_offload::wire::ipv4;
use packtrain_offload::wire::tcp::{self, Flags};
use packtrain_offload::wire::udp;
use std::borrow::Cow;
use std::ops::Range;

/// The port of HTTP/3.
const QUIC_PORT: u16 = 443;
/// NOP, NOP and the timestamps (RFC 7323 appendix A).
const TIMESTAMPS_BYTES: usize = 12;
const TCP_OPTIONS_BYTES_MAX: usize = TCP_HEADER_BYTES_MAX - TCP_HEADER_BYTES_MIN;

/// A packet, parsed.
#[derive(Debug)]
pub(super) struct Look {
    /// The header that it starts with; `None` if it is not supported.
    pub link: Option<LinkType>,
    /// Its headers, by its length on the wire. With the length that is restored, if one is.
    pub layout: Result<Layout, ParseError>,
    /// The packet with its IP length, and its layout, if the length was left to a NIC.
    pub restored: Option<(Vec<u8>, Layout)>,
    /// The capture has all of it.
    pub is_whole: bool,
    /// The link header that an Ethernet header stands for meanwhile.
    pub lead: Lead,
    /// Its length on the wire, with that Ethernet header.
    pub bytes: u32,
    /// A hash of its flow; 0 if it has no ports.
    pub flow: u64,
    /// The lengths in the capture and on the wire.
    captured_bytes: usize,
    wire_bytes: u32,
    is_loopback: bool,
}

impl Look {
    /// Parses a packet. A link header other than Ethernet is replaced in `data`.
    pub fn at(lane: Lane, data: &mut Cow<'_, [u8]>, wire_bytes: u32, flows: &mut LastFlow) -> Self {
        let mut look = Self {
            link: lane.link,
            layout: Err(ParseError::HeadersNotContiguous),
            restored: None,
            is_whole: wire_bytes as usize == data.len(),
            lead: Lead::default(),
            bytes: wire_bytes,
            flow: 0,
            captured_bytes: data.len(),
            wire_bytes,
            is_loopback: is_loopback(lane.code, data),
        };
        if lane.code.is_cooked() {
            match Lead::replace(lane.code, data.to_mut(), &mut look.bytes) {
                Some(lead) => look.lead = lead,
                // It is passed on as it is.
                None => look.link = None,
            }
        }
        let Some(link) = look.link else { return look };
        look.layout = Layout::parse(link, data, look.bytes);
        if look.layout.is_err() {
            look.restored = length::restored(link, data, look.bytes);
            if let Some((_, layout)) = &look.restored {
                look.layout = Ok(*layout);
            }
        }
        if let Ok(layout) = &look.layout {
            look.flow = flows.hash(look.parsed(data), layout).unwrap_or(0);
        }
        look
    }

    /// Puts zeros in the place of TCP options that are cut off, if no decision depends on them: a
    /// segment without payload is never merged if it has more options than timestamps.
    pub fn complete(&mut self, data: &mut Cow<'_, [u8]>, flows: &mut LastFlow) {
        let (Some(link), Err(ParseError::HeadersNotContiguous)) = (self.link, &self.layout) else {
            return;
        };
        let captured = data.len();
        let headers = (captured + TCP_OPTIONS_BYTES_MAX).min(self.bytes as usize);
        data.to_mut().resize(headers.max(captured), 0);
        let layout = Layout::parse(link, data, self.bytes).ok().filter(|layout| {
            let [from, to] = [layout.transport, layout.payload].map(usize::from);
            layout.transport_kind == Transport::Tcp
                && layout.ip_end as usize == to
                && from + TCP_HEADER_BYTES_MIN <= captured
                && from + TCP_HEADER_BYTES_MIN + TIMESTAMPS_BYTES < to
        });
        match layout {
            Some(layout) => {
                self.flow = flows.hash(data, &layout).unwrap_or(0);
                self.layout = Ok(layout);
            }
            None => data.to_mut().truncate(captured),
        }
    }

    /// The bytes that the layout is of; `data` are those of the capture.
    pub fn parsed<'a>(&'a self, data: &'a [u8]) -> &'a [u8] {
        self.restored.as_ref().map_or(data, |(bytes, _)| bytes)
    }

    /// The hash that a device finds the queue by, of the packet with these bytes. 0 without one.
    pub fn rss(&self, data: &[u8]) -> u32 {
        let layout = self.layout.as_ref().ok();
        let data = self.parsed(data);
        let key = layout.and_then(|layout| FlowKey::new(layout, data, 0));
        key.map_or(0, |key| RSS.hash_flow(&key).0)
    }

    /// Counts the packet with these bytes.
    pub fn count(&self, data: &[u8], seen: &mut InterfaceReport) {
        seen.frames += 1;
        seen.bytes += u64::from(self.wire_bytes);
        seen.captured_bytes += self.captured_bytes as u64;
        seen.other_link += u64::from(self.link.is_none());
        seen.no_length += u64::from(self.restored.is_some());
        let Ok(layout) = &self.layout else { return };
        if self.flow != 0 {
            seen.flows.add(self.flow);
        }
        let bytes = layout.ip_end.saturating_sub(layout.network.into());
        let is_tcp = layout.transport_kind == Transport::Tcp && !self.is_loopback;
        let is_large = bytes > ETHERNET_MTU || self.restored.is_some();
        seen.large += u64::from(is_tcp && is_large);
        count_kind(self.parsed(data), layout, seen);
    }
}

/// Counts pure ACKs, UDP and QUIC.
fn count_kind(packet: &[u8], layout: &Layout, seen: &mut InterfaceReport) {
    if layout.fragment {
        return;
    }
    let transport = packet.get(layout.transport.into()..).unwrap_or_default();
    match layout.transport_kind {
        Transport::Tcp => {
            let is_empty = layout.ip_end == u32::from(layout.payload);
            let at = tcp::field::OFFSET_FLAGS;
            let flags = transport.get(at..at + 2).map_or(0, |field| field[1]);
            seen.pure_acks += u64::from(is_empty && u16::from(flags) == Flags::ACK.0);
        }
        Transport::Udp => {
            seen.udp += 1;
            let port = |at: usize| transport.get(at..at + 2) == Some(&QUIC_PORT.to_be_bytes());
            seen.quic += u64::from(port(udp::field::SRC_PORT) || port(udp::field::DST_PORT));
        }
        _ => {}
    }
}

/// The place of the checksum of the IPv4 header in a packet, and its right value.
pub(super) fn ipv4_checksum(packet: &[u8], layout: &Layout) -> Option<(Range<usize>, u16)> {
    let at = usize::from(layout.network) + ipv4::field::CHECKSUM;
    let header = packet.get(layout.network.into()..layout.transport.into())?;
    let field = packet
        .get(at..at + 2)
        .filter(|_| layout.kind == Network::Ipv4)?;
    let mut sum = checksum::sum(header);
    // Adding the complement of the field removes it from the sum.
    sum.add_u16(!u16::from_be_bytes([field[0], field[1]]));
    Some((at..at + 2, !sum.fold()))
}

/// Whether a packet is of an interface that only reaches its own host. On Linux it has an Ethernet
/// header of zeros, or the device type of loopback (`ARPHRD_LOOPBACK`) in a cooked header.
fn is_loopback(link: LinkCode, packet: &[u8]) -> bool {
    const ARPHRD_LOOPBACK: [u8; 2] = 772_u16.to_be_bytes();
    let has = |at: usize, bytes: &[u8]| packet.get(at..at + bytes.len()) == Some(bytes);
    match link {
        LinkCode::NULL | LinkCode::LOOP => true,
        LinkCode::ETHERNET => has(0, &[0; 12]),
        LinkCode::LINUX_SLL => has(2, &ARPHRD_LOOPBACK),
        LinkCode::LINUX_SLL2 => has(8, &ARPHRD_LOOPBACK),
        _ => false,
    }
}
