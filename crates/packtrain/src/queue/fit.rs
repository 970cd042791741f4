//! Makes packets fit the limits of a device: unchanged, else collapsed in place, else copied into
//! fresh frames, else dropped with a reason.

use crate::driver::{Features, Fit, TxMemory};
use crate::packet::{Arena, FrameClass, Meta, Packet};
use crate::plan::FitLimits;
use crate::plant::planted;
use crate::stats::DropReason;

/// Whether a device with `features` takes a packet of this metadata, which is not to be cut.
#[inline(never)]
fn is_whole_and_taken(meta: &Meta, features: Features) -> bool {
    meta.gso.is_none() && features.contains(Features::needed_by(meta))
}

impl FitLimits {
    /// The limit that applies to `packet`.
    fn limit(&self, packet: &Packet) -> usize {
        let limit = if packet.meta().gso.is_some() {
            self.gso_segments_max
        } else {
            self.segments_max
        };
        if planted!(SegmentLimit) {
            return limit.saturating_add(1);
        }
        limit
    }

    fn is_fit(&self, packet: &Packet) -> bool {
        let limit = self.limit(packet);
        let whole = packet.segment_count() <= limit || packet.segments().count() <= limit;
        whole
            && (self.segment_bytes_max == usize::MAX
                || packet.segments().all(|s| s.len() <= self.segment_bytes_max))
            && (self.memory == TxMemory::Any || packet.in_small_frames())
            && packet.first().len() >= self.first_bytes_min(packet)
    }

    /// Whether [`fit`] would change nothing.
    pub(super) fn takes(&self, packet: &Packet) -> bool {
        packet.bytes() >= self.min_packet_bytes
            && (!packet.has_empty_front() || packet.segment_count() <= 1)
            && self.is_fit(packet)
    }

    /// Whether a device with `features` accepts `packet` unchanged: it needs no work in software.
    #[inline]
    pub(super) fn takes_as_is(&self, packet: &Packet, features: Features) -> bool {
        let bytes = packet.bytes();
        let meta = packet.meta();
        // The common case: one small frame, within the limits, that is not to be cut.
        let is_usual = packet.is_one_small_frame()
            && (meta.is_plain() || is_whole_and_taken(meta, features))
            && bytes >= self.min_packet_bytes
            && bytes <= self.segment_bytes_max
            && !self.mtu.may_be_exceeded_by(bytes);
        is_usual || self.takes_unusual(packet, features)
    }

    #[inline(never)]
    fn takes_unusual(&self, packet: &Packet, features: Features) -> bool {
        let missing = Features::needed_by(packet.meta()).without(features);
        missing.is_empty() && !self.mtu.is_exceeded_by(packet) && self.takes(packet)
    }

    /// The fewest bytes of the first segment.
    fn first_bytes_min(&self, packet: &Packet) -> usize {
        let layout = packet.meta().layout.filter(|_| self.contiguous_headers);
        let headers = layout.map_or(0, |layout| usize::from(layout.payload));
        headers.min(packet.bytes())
    }
}

/// How a packet was made to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitted {
    /// Unchanged.
    AsIs,
    /// Adjacent segments were merged in place.
    Collapsed {
        /// Bytes copied.
        copied: usize,
    },
    /// All bytes were copied into fresh frames, since the collapsed packet did not fit.
    Defragged {
        /// Bytes copied, including those of the collapse.
        copied: usize,
    },
}

/// A packet that cannot be made to fit.
#[derive(Debug)]
pub struct Unfit {
    /// The packet, its bytes unchanged.
    pub packet: Packet,
    /// The reason.
    pub reason: DropReason,
}

/// Makes `packet` fit.
///
/// # Errors
///
/// [`Unfit`], if the packet has too many segments and is not to be copied ([`Fit::Collapse`]), if
/// it has too many bytes for the limits, if its headers are too long for the
/// first segment, or if no frame is free to copy to.
pub fn fit(
    mut packet: Packet,
    limits: &FitLimits,
    arena: &Arena,
) -> Result<(Packet, Fitted), Unfit> {
    if packet.bytes() < limits.min_packet_bytes {
        packet = pad(packet, limits.min_packet_bytes)?;
    }
    // Else a header that the device prepends would be one segment more than is counted here.
    packet.drop_empty_front();
    if limits.is_fit(&packet) {
        return Ok((packet, Fitted::AsIs));
    }
    let collapsed = packet.collapse_counted(limits.limit(&packet));
    if limits.is_fit(&packet) {
        return Ok((packet, Fitted::Collapsed { copied: collapsed }));
    }
    let limit = limits.limit(&packet);
    if limits.fit == Fit::Collapse && packet.segments().count() > limit {
        let reason = DropReason::TooManySegments;
        return Err(Unfit { packet, reason });
    }
    let copied = collapsed + packet.bytes();
    defrag(packet, limits, arena).map(|packet| (packet, Fitted::Defragged { copied }))
}

/// Copies `packet` into fresh frames: small ones if it fits, else as few as the limits allow.
///
/// # Errors
///
/// [`Unfit`], as [`fit`].
pub fn defrag(packet: Packet, limits: &FitLimits, arena: &Arena) -> Result<Packet, Unfit> {
    let mut reason = DropReason::TooManySegments;
    for class in classes(&packet, limits).into_iter().flatten() {
        let piece_max = class.data_bytes().min(limits.segment_bytes_max);
        // No piece is longer than the first one.
        if limits.first_bytes_min(&packet) > piece_max {
            reason = DropReason::HeadersTooLong;
            continue;
        }
        if packet.bytes().div_ceil(piece_max) > limits.limit(&packet) {
            continue;
        }
        match copy(&packet, class, piece_max, arena) {
            Ok(copy) => {
                debug_assert!(limits.is_fit(&copy), "{limits:?}: {copy:?}");
                return Ok(copy);
            }
            Err(_no_frame) => reason = DropReason::NoBuffer,
        }
    }
    Err(Unfit { packet, reason })
}

/// The classes to copy `packet` to, best first.
fn classes(packet: &Packet, limits: &FitLimits) -> [Option<FrameClass>; 2] {
    let small = FrameClass::Small.data_bytes();
    if limits.memory == TxMemory::SmallFrames || limits.segment_bytes_max <= small {
        [Some(FrameClass::Small), None]
    } else if packet.bytes() <= small {
        [Some(FrameClass::Small), Some(FrameClass::Large)]
    } else {
        [Some(FrameClass::Large), Some(FrameClass::Small)]
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

/// Appends zeros up to `bytes`, to a copy if the frame is shared.
fn pad(mut packet: Packet, bytes: usize) -> Result<Packet, Unfit> {
    const ZEROS: [u8; 64] = [0; 64];
    let mut missing = bytes - packet.bytes();
    // Without a pull `append_copy` adds a frame, and `fit` handles it as any other segment.
    let pulled = if bytes <= FrameClass::Small.data_bytes() {
        packet.pull(packet.bytes())
    } else {
        Ok(false)
    };
    let own = pulled.and_then(|_copied| {
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

#[cfg(test)]
mod tests;
