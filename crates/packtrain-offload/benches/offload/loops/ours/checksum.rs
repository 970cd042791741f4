//! The checksum.

use crate::loops::contest::Side;
use crate::loops::pieces::{Copying, Summing};
use crate::loops::work::Place;
use packtrain_offload::checksum;

pub fn sum(bytes: usize, place: Place) -> Box<dyn Side> {
    let sum = |piece: &[u8]| checksum::sum(piece).fold();
    Box::new(Summing::new(bytes, place, sum))
}

pub fn copy_and_sum(bytes: usize) -> Box<dyn Side> {
    let copy = |to: &mut [u8], from: &[u8]| checksum::copy_and_sum(to, from).fold();
    Box::new(Copying::new(bytes, copy))
}
