//! The output, in the order of the input.

use super::hash::StableHash;
use super::lead::Lead;
use crate::codec::{COMMENT, MAX_OPTION_BYTES, PACKET_FLAGS, Record, select_options};
use std::collections::VecDeque;

/// The record of a packet without its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    pub timestamp_ns: u64,
    pub interface: u32,
    /// Length on the wire.
    pub original_bytes: u32,
    /// The link header that an Ethernet header stands for meanwhile.
    pub lead: Lead,
    /// Its comments, direction and so on, as they are written.
    pub options: Vec<u8>,
}

impl Arrival {
    /// From a record. A packet without a timestamp gets that of the packet before it.
    pub(super) fn of(record: &Record<'_>, now: u64) -> (Self, Vec<u8>) {
        let arrival = Self {
            timestamp_ns: record.timestamp_ns.unwrap_or(now),
            interface: record.interface,
            original_bytes: record.original_bytes,
            lead: Lead::default(),
            options: record.options.to_vec(),
        };
        (arrival, record.data.to_vec())
    }
}

/// A packet to be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Out {
    /// Unchanged, and perhaps not whole.
    AsIs(Vec<u8>),
    /// A whole packet.
    Whole(Vec<u8>),
}

/// What is written next.
#[derive(Debug)]
pub(super) enum Next {
    /// These packets, in the place of one of the input.
    Packets(Arrival, Vec<Out>),
    /// A block of this type that holds no packet.
    Block(u32, Vec<u8>),
}

impl Out {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::AsIs(bytes) | Self::Whole(bytes) => bytes,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// The length on the wire of an unchanged packet; 0 for others.
    pub(super) const fn as_is(&self, arrival: &Arrival) -> u32 {
        match self {
            Self::AsIs(_) => arrival.original_bytes,
            Self::Whole(_) => 0,
        }
    }
}

/// One packet of the input, or a block between packets.
#[derive(Debug)]
struct Place {
    arrival: Arrival,
    print: Fingerprint,
    bytes: usize,
    /// Its checksum is partial: the sum of the pseudo-header.
    partial: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// In a coalescer.
    Waiting,
    /// Merged into an earlier packet.
    Merged,
    Ready(Vec<Out>),
    /// Not a packet, but a block of this type.
    Block(u32, Vec<u8>),
}

/// A hash to compare packets without their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fingerprint {
    bytes: usize,
    hash: u64,
}

impl Fingerprint {
    fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.len(),
            hash: StableHash::new().with(bytes).finish(),
        }
    }
}

/// All packets from the oldest that is not written to the newest.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Number of the first place.
    base: u64,
    places: VecDeque<Place>,
    bytes: usize,
}

impl Order {
    /// Adds a place for the next packet of the input, and returns its number.
    pub(super) fn push(&mut self, arrival: Arrival, data: &[u8], partial: bool) -> u64 {
        let number = self.base + self.places.len() as u64;
        let bytes = data.len() + arrival.options.len();
        self.bytes += bytes;
        self.places.push_back(Place {
            arrival,
            print: Fingerprint::of(data),
            bytes,
            partial,
            state: State::Waiting,
        });
        number
    }

    /// Adds a block without a packet, which is written in its place.
    pub(super) fn push_block(&mut self, kind: u32, body: Vec<u8>) {
        self.bytes += body.len();
        self.places.push_back(Place {
            arrival: Arrival::default(),
            print: Fingerprint::default(),
            bytes: body.len(),
            partial: false,
            state: State::Block(kind, body),
        });
    }

    /// Packets from the oldest to the newest.
    pub(super) fn span(&self) -> usize {
        self.places.len()
    }

    /// Bytes of these packets in the input.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn place(&mut self, number: u64) -> Option<&mut Place> {
        let at = number.checked_sub(self.base)?;
        self.places.get_mut(at as usize)
    }

    /// The packet is written unchanged.
    pub(super) fn as_is(&mut self, number: u64, bytes: Vec<u8>) {
        self.ready(number, vec![Out::AsIs(bytes)]);
    }

    /// These are written in its place.
    pub(super) fn ready(&mut self, number: u64, out: Vec<Out>) {
        if let Some(place) = self.place(number) {
            place.state = State::Ready(out);
        }
    }

    /// The packet was merged into packet `into`, which gets its comments: nothing is written in its
    /// place.
    pub(super) fn merged(&mut self, number: u64, into: u64) {
        let Some(place) = self.place(number) else {
            return;
        };
        place.state = State::Merged;
        let more = select_options(&std::mem::take(&mut place.arrival.options), &[COMMENT]);
        if let Some(first) = self.place(into) {
            let options = &mut first.arrival.options;
            if options.len() + more.len() <= MAX_OPTION_BYTES {
                options.extend_from_slice(&more);
            }
        }
    }

    /// Other packets are merged into this one: options that hold for it alone are left out.
    pub(super) fn is_merged(&mut self, number: u64) {
        if let Some(place) = self.place(number) {
            place.arrival.options =
                select_options(&place.arrival.options, &[COMMENT, PACKET_FLAGS]);
        }
    }

    /// When the packet arrived.
    pub(super) fn arrived(&mut self, number: u64) -> Option<u64> {
        self.place(number).map(|place| place.arrival.timestamp_ns)
    }

    /// Whether the packet had a partial checksum.
    pub(super) fn is_partial(&mut self, number: u64) -> bool {
        self.place(number).is_some_and(|place| place.partial)
    }

    /// Whether the packet had these bytes.
    pub(super) fn is(&mut self, number: u64, bytes: &[u8]) -> bool {
        let print = Fingerprint::of(bytes);
        self.place(number).is_some_and(|place| place.print == print)
    }

    /// The oldest packet, with the packets to write in its place, or the oldest block; `None` while
    /// it is held.
    pub(super) fn pop(&mut self) -> Option<Next> {
        if matches!(self.places.front()?.state, State::Waiting) {
            return None;
        }
        let place = self.places.pop_front()?;
        self.base += 1;
        self.bytes -= place.bytes;
        Some(match place.state {
            State::Block(kind, body) => Next::Block(kind, body),
            State::Ready(out) => Next::Packets(place.arrival, out),
            State::Merged | State::Waiting => Next::Packets(place.arrival, Vec::new()),
        })
    }
}
