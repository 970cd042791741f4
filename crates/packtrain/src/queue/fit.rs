//! A packet of n segments must fit what the device takes: as is, else collapsed in place, else
//! copied into fresh frames, else dropped with its reason (S0).

use crate::driver::{Capabilities, TxMemory};
use crate::limits::{RING_FRACTION_PER_PACKET, SEGMENTS_FRAMEWORK_MAY_ADD, SEGMENTS_MAX};
use crate::packet::{Arena, FrameClass, Packet};
use crate::stats::DropReason;

/// What a packet has to look like for one TX queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitLimits {
    /// Segments of an ordinary packet; at least 1.
    pub segments_max: usize,
    /// Segments of a GSO packet; at least 1.
    pub gso_segments_max: usize,
    /// Bytes of one segment.
    pub segment_bytes_max: usize,
    /// Where segments may be.
    pub memory: TxMemory,
    /// All headers in the first segment.
    pub contiguous_headers: bool,
    /// Shorter packets are padded with zeros to this many bytes.
    pub min_packet_bytes: usize,
}

impl FitLimits {
    /// The limits of a device, lowered by `segments` if the user asked for fewer, and clipped so
    /// that one packet takes at most a twelfth of a descriptor ring.
    #[must_use]
    pub fn new(capabilities: &Capabilities, segments: Option<usize>) -> Self {
        let share = capabilities
            .tx_ring
            .map_or(SEGMENTS_MAX, |n| n / RING_FRACTION_PER_PACKET);
        let bound = share
            .min(segments.unwrap_or(SEGMENTS_MAX))
            .min(SEGMENTS_MAX);
        Self {
            segments_max: capabilities.tx_segments_max.min(bound).max(1),
            gso_segments_max: capabilities.tx_gso_segments_max.min(bound).max(1),
            segment_bytes_max: capabilities.tx_segment_bytes_max.max(1),
            memory: capabilities.tx_memory,
            contiguous_headers: capabilities.contiguous_headers,
            min_packet_bytes: capabilities.min_packet_bytes,
        }
    }

    /// The number of segments to build packets with: the smaller limit less what the framework may
    /// add after that (a header segment in front). Without this slack nearly every packet built to
    /// the limit would have to be copied (S0: 3119 against 3440 Mbit/s). At least 1.
    #[must_use]
    pub const fn advertised(&self) -> usize {
        let limit = if self.segments_max < self.gso_segments_max {
            self.segments_max
        } else {
            self.gso_segments_max
        };
        let left = limit.saturating_sub(SEGMENTS_FRAMEWORK_MAY_ADD);
        if left == 0 { 1 } else { left }
    }

    /// The limit that applies to `packet`.
    fn limit(&self, packet: &Packet) -> usize {
        if packet.meta().gso.is_some() {
            self.gso_segments_max
        } else {
            self.segments_max
        }
    }

    fn is_fit(&self, packet: &Packet) -> bool {
        let limit = self.limit(packet);
        let whole = packet.segment_count() <= limit || packet.segments().count() <= limit;
        whole
            && (self.segment_bytes_max == usize::MAX
                || packet.segments().all(|s| s.len() <= self.segment_bytes_max))
            && (self.memory == TxMemory::Any || packet.in_small_frames())
            && (!self.contiguous_headers || self.has_contiguous_headers(packet))
    }

    fn has_contiguous_headers(&self, packet: &Packet) -> bool {
        let headers = packet
            .meta()
            .layout
            .map_or(0, |layout| usize::from(layout.payload));
        packet.first().len() >= headers.min(packet.bytes())
    }
}

/// How a packet was made to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitted {
    /// It did already.
    AsIs,
    /// By merging neighbouring segments in place.
    Collapsed,
    /// By copying everything into fresh frames, after collapsing did not do.
    Defragged,
}

/// A packet that cannot be made to fit.
#[derive(Debug)]
pub struct Unfit {
    /// The packet, its bytes unchanged.
    pub packet: Packet,
    /// Why.
    pub reason: DropReason,
}

/// Makes `packet` fit.
///
/// # Errors
///
/// [`Unfit`], when the packet has too many bytes for the limits, or no frame is free to copy to.
pub fn fit(
    mut packet: Packet,
    limits: &FitLimits,
    arena: &Arena,
) -> Result<(Packet, Fitted), Unfit> {
    if packet.bytes() < limits.min_packet_bytes {
        packet = pad(packet, limits.min_packet_bytes)?;
    }
    if limits.is_fit(&packet) {
        return Ok((packet, Fitted::AsIs));
    }
    if packet.collapse(limits.limit(&packet)) && limits.is_fit(&packet) {
        return Ok((packet, Fitted::Collapsed));
    }
    defrag(packet, limits, arena).map(|packet| (packet, Fitted::Defragged))
}

/// Copies `packet` into as few fresh frames as the limits allow.
///
/// # Errors
///
/// [`Unfit`], as [`fit`].
pub fn defrag(packet: Packet, limits: &FitLimits, arena: &Arena) -> Result<Packet, Unfit> {
    let small = limits.memory == TxMemory::SmallFrames
        || packet.bytes() <= FrameClass::Small.data_bytes()
        || limits.segment_bytes_max < FrameClass::Large.data_bytes();
    let class = if small {
        FrameClass::Small
    } else {
        FrameClass::Large
    };
    let piece_max = class.data_bytes().min(limits.segment_bytes_max);
    if packet.bytes().div_ceil(piece_max) > limits.limit(&packet) {
        return Err(Unfit {
            packet,
            reason: DropReason::TooManySegments,
        });
    }
    match copy(&packet, class, piece_max, arena) {
        Ok(copy) => Ok(copy),
        Err(_no_frame) => Err(Unfit {
            packet,
            reason: DropReason::NoBuffer,
        }),
    }
}

fn copy(
    packet: &Packet,
    class: FrameClass,
    piece_max: usize,
    arena: &Arena,
) -> Result<Packet, crate::packet::PacketError> {
    let mut fresh = arena.packet(class)?;
    let mut room = piece_max;
    for mut piece in packet.segments() {
        while !piece.is_empty() {
            if room == 0 {
                fresh.add_frame(class)?;
                room = piece_max;
            }
            let n = piece.len().min(room);
            fresh.tailroom_mut()[..n].copy_from_slice(&piece[..n]);
            fresh.grow(n)?;
            room -= n;
            piece = &piece[n..];
        }
    }
    fresh.copy_meta(packet);
    Ok(fresh)
}

/// Zeros up to `bytes`, behind a copy if the frame is shared.
fn pad(mut packet: Packet, bytes: usize) -> Result<Packet, Unfit> {
    const ZEROS: [u8; 64] = [0; 64];
    let mut missing = bytes - packet.bytes();
    let own = packet.pull(packet.bytes()).and_then(|_copied| {
        while missing > 0 {
            let n = missing.min(ZEROS.len());
            packet.append_copy(FrameClass::Small, &ZEROS[..n])?;
            missing -= n;
        }
        Ok(())
    });
    match own {
        Ok(()) => Ok(packet),
        Err(_no_frame) => Err(Unfit {
            packet,
            reason: DropReason::NoBuffer,
        }),
    }
}
