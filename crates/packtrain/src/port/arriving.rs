//! A packet that arrives in several frames.

use crate::packet::{Packet, PacketError};
use crate::stats::DropReason;

/// The pieces of a packet that have arrived, or why it cannot be used: a piece that is bad costs
/// the whole packet, and no other.
#[derive(Debug)]
pub struct Arriving(Result<Option<Packet>, DropReason>);

impl Default for Arriving {
    fn default() -> Self {
        Self(Ok(None))
    }
}

impl Arriving {
    /// Adds the next piece, or why there is none.
    pub fn add(&mut self, piece: Result<Packet, DropReason>) {
        self.0 = match (std::mem::replace(&mut self.0, Ok(None)), piece) {
            (Err(reason), _) | (_, Err(reason)) => Err(reason),
            (Ok(None), Ok(piece)) => Ok(Some(piece)),
            (Ok(Some(mut whole)), Ok(piece)) => match whole.append(piece) {
                Ok(()) => Ok(Some(whole)),
                Err((PacketError::TooManySegments, _)) => Err(DropReason::TooManySegments),
                Err(_no_line) => Err(DropReason::NoBuffer),
            },
        };
    }

    /// Whether no piece of the next packet has arrived.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        matches!(self.0, Ok(None))
    }

    /// The packet, with its last piece; the next one begins.
    ///
    /// # Errors
    ///
    /// The reason of the first bad piece; [`DropReason::BadDescriptor`] without any piece.
    pub fn finish(&mut self) -> Result<Packet, DropReason> {
        let whole = std::mem::replace(&mut self.0, Ok(None));
        whole.and_then(|whole| whole.ok_or(DropReason::BadDescriptor))
    }
}
