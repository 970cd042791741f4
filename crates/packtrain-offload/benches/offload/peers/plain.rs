//! Loops in plain C.

use super::library::{Item, PlainShim};
use crate::loops::keys::{Grouper, Grouping};
use crate::loops::pieces::{Destination, Pieces};
use crate::loops::{Place, Sample, Side};
use packtrain_measure::clock::Laps;
use packtrain_measure::keys::is_grouped;
use std::hint::black_box;
use std::path::Path;
use std::rc::Rc;

/// The loops, loaded.
pub type Plain = PlainShim;

/// Whether this CPU has what the loops use where they can.
pub fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512bw");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Which sum.
#[derive(Clone, Copy, Debug)]
pub enum Sum {
    /// 64-bit additions with carry.
    Adc,
    /// Vectors.
    Wide,
    /// No sum: as many vectors read.
    Read,
}

/// Which way to copy and sum.
#[derive(Clone, Copy, Debug)]
pub enum Copy {
    /// One after the other.
    ThenSum,
    /// Both in one pass.
    Once,
    /// No sum.
    Only,
}

/// A loop in C over pieces, as a side.
pub struct Summing<F> {
    pieces: Pieces,
    sum: F,
}

impl<F: Fn(&Pieces) -> u64> Summing<F> {
    /// `sum` makes all passes over all pieces.
    pub fn new(bytes: usize, place: Place, sum: F) -> Self {
        Self {
            pieces: Pieces::new(bytes, place),
            sum,
        }
    }
}

impl<F: Fn(&Pieces) -> u64> Side for Summing<F> {
    fn sample(&mut self, seed: u64) -> Sample {
        self.pieces.refresh(seed);
        let mut laps = Laps::new();
        laps.time(|| black_box((self.sum)(&self.pieces)));
        Sample::new(laps.per(self.pieces.calls()))
    }
}

pub fn summing(plain: Rc<Plain>, sum: Sum, bytes: usize, place: Place) -> Box<dyn Side> {
    match sum {
        Sum::Adc => Box::new(Summing::new(bytes, place, move |p| plain.sum_adc(p))),
        Sum::Wide => Box::new(Summing::new(bytes, place, move |p| plain.sum_wide(p))),
        Sum::Read => Box::new(Summing::new(bytes, place, move |p| plain.read(p))),
    }
}

struct Copying {
    plain: Rc<Plain>,
    copy: Copy,
    pieces: Pieces,
    to: Destination,
}

impl Side for Copying {
    fn sample(&mut self, seed: u64) -> Sample {
        self.pieces.refresh(seed);
        let (to, mut laps) = (self.to.bytes_mut(), Laps::new());
        laps.time(|| {
            black_box(match self.copy {
                Copy::ThenSum => self.plain.copy_then_sum(to, &self.pieces),
                Copy::Once => self.plain.copy_sum_once(to, &self.pieces),
                Copy::Only => self.plain.copy(to, &self.pieces),
            })
        });
        Sample::new(laps.per(self.pieces.calls()))
    }
}

pub fn copying(plain: Rc<Plain>, copy: Copy, bytes: usize) -> Box<dyn Side> {
    Box::new(Copying {
        plain,
        copy,
        pieces: Pieces::new(bytes, Place::Warm),
        to: Destination::new(bytes),
    })
}

impl Plain {
    /// Compiles and loads the loops, and sees whether the sums are sums.
    pub fn find(directory: &Path) -> Result<Self, String> {
        let plain = Self::load(directory)?;
        for bytes in [
            1, 2, 7, 63, 64, 65, 127, 128, 129, 191, 192, 193, 1500, 9000,
        ] {
            let mut pieces = Pieces::new(bytes, Place::Warm);
            pieces.passes = 1;
            let block = pieces.block().chunks_exact(pieces.stride);
            let right = block.fold(0, |sum, piece| sum + slow_sum(&piece[..bytes]));
            let mut to = vec![0; bytes];
            let sums = [
                plain.sum_adc(&pieces),
                plain.sum_wide(&pieces),
                plain.copy_then_sum(&mut to, &pieces),
                plain.copy_sum_once(&mut to, &pieces),
            ];
            if sums != [right; 4] {
                return Err(format!("plain.c: wrong sums of {bytes} bytes: {sums:?}"));
            }
            // The last piece is what is left there.
            let last = (pieces.count - 1) * pieces.stride;
            let copies = [Self::copy, Self::copy_sum_once].map(|copy| {
                to.fill(0);
                copy(&plain, &mut to, &pieces);
                to == pieces.block()[last..last + bytes]
            });
            if copies != [true; 2] {
                return Err(format!(
                    "plain.c: wrong copies of {bytes} bytes: {copies:?}"
                ));
            }
        }
        Ok(plain)
    }
}

/// The folded sum of the words as they lie in memory.
fn slow_sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum
}

/// A partition by bits of the key.
struct Partition {
    plain: Rc<Plain>,
    /// With the number of arrival below the key, as FreeBSD has it: without it packets of a flow
    /// may change their order.
    with_index: bool,
}

/// With the number of arrival: in which array the items are does not matter, only their order.
const INDEX_BITS: u32 = 24;

impl Grouper for Partition {
    type Item = Item;

    fn item(key: u64, index: u64) -> Item {
        Item { key, index }
    }

    fn check(&mut self, items: &mut [Item]) -> bool {
        self.group(items);
        let shift = if self.with_index { INDEX_BITS } else { 0 };
        is_grouped(
            items,
            |item| (item.key >> shift, item.index),
            self.with_index,
        )
    }

    fn prepare(&mut self, items: &mut [Item]) {
        if self.with_index {
            for item in items {
                item.key = item.key << INDEX_BITS | item.index;
            }
        }
    }

    fn group(&mut self, items: &mut [Item]) {
        self.plain.bits(items);
    }
}

pub fn grouping(
    plain: Rc<Plain>,
    with_index: bool,
    n: usize,
    distinct: usize,
) -> Result<Box<dyn Side>, String> {
    let partition = Partition { plain, with_index };
    Ok(Box::new(Grouping::new(partition, n, distinct)?))
}
