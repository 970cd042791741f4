//! The hash of receive side scaling, as devices compute it.

use core::fmt;

use super::key::FlowKey;
use super::rss::{HashType, RssInput, TOEPLITZ_INPUT_BYTES_MAX};

/// Bytes of a key: as many as the longest input and 32 bits more need. Devices with keys of 52
/// bytes hash longer inputs with the rest, for which there is no use here.
pub const TOEPLITZ_KEY_BYTES: usize = TOEPLITZ_INPUT_BYTES_MAX + 4;

/// The key that Microsoft's RSS specification verifies implementations with, and that many drivers
/// have by default.
pub const TOEPLITZ_KEY_MICROSOFT: [u8; TOEPLITZ_KEY_BYTES] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// A key with a period of 16 bits: both directions of a connection hash alike (Woo and Park,
/// "Scalable TCP Session Monitoring with Symmetric Receive-side Scaling", 2012). The hash has 16
/// bits of freedom only: its two halves are equal.
pub const TOEPLITZ_KEY_SYMMETRIC: [u8; TOEPLITZ_KEY_BYTES] = {
    let mut key = [0x6d; TOEPLITZ_KEY_BYTES];
    let mut at = 1;
    while at < TOEPLITZ_KEY_BYTES {
        key[at] = 0x5a;
        at += 2;
    }
    key
};

/// The Toeplitz hash of any input, bit by bit: for each bit of `input` that is set, the 32 bits of
/// `key` that begin at the same position are added, modulo 2.
///
/// Nothing, if `key` is not at least 4 bytes longer than `input`. This is the definition;
/// [`Toeplitz`] is the same and fast.
#[must_use]
pub const fn toeplitz(key: &[u8], input: &[u8]) -> Option<u32> {
    if key.len() < 4 || key.len() - 4 < input.len() {
        return None;
    }
    let mut hash = 0;
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut at = 0;
    while at < input.len() {
        let mut bit = 8;
        while bit > 0 {
            bit -= 1;
            if input[at] >> bit & 1 != 0 {
                hash ^= window;
            }
            window = window << 1 | (key[at + 4] >> bit & 1) as u32;
        }
        at += 1;
    }
    Some(hash)
}

/// A key, prepared: one table of 256 words for each byte of input, 36 KiB in all.
///
/// The tables of an IPv4 packet take 12 KiB of cache. Tables for half bytes would be 4.5 KiB in
/// all; they take twice as long, and still 1.4 times as long if other work has emptied the first
/// level of cache between bursts of 32 packets.
///
/// It can be made at compile time, or where it is to stay:
///
/// ```
/// use packtrain_offload::flow::{TOEPLITZ_KEY_MICROSOFT, Toeplitz, toeplitz};
///
/// static RSS: Toeplitz = Toeplitz::new(&TOEPLITZ_KEY_MICROSOFT);
/// let input = [66, 9, 149, 187, 161, 142, 100, 80];
/// assert_eq!(RSS.hash(&input), Some(0x323e_8fc2));
/// assert_eq!(toeplitz(&TOEPLITZ_KEY_MICROSOFT, &input), Some(0x323e_8fc2));
/// ```
#[derive(Clone)]
pub struct Toeplitz {
    table: [[u32; 256]; TOEPLITZ_INPUT_BYTES_MAX],
}

impl fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toeplitz").finish_non_exhaustive()
    }
}

impl Toeplitz {
    /// Prepares a key.
    #[must_use]
    pub const fn new(key: &[u8; TOEPLITZ_KEY_BYTES]) -> Self {
        let mut table = [[0; 256]; TOEPLITZ_INPUT_BYTES_MAX];
        let mut at = 0;
        while at < TOEPLITZ_INPUT_BYTES_MAX {
            // The 39 bits of the key that one byte of input can reach.
            let bits = u64::from_be_bytes([
                key[at],
                key[at + 1],
                key[at + 2],
                key[at + 3],
                key[at + 4],
                0,
                0,
                0,
            ]);
            let mut byte = 1;
            while byte < 256_usize {
                // All but the lowest bit set are done already.
                let bit = byte.trailing_zeros();
                table[at][byte] = table[at][byte & (byte - 1)] ^ (bits >> (25 + bit)) as u32;
                byte += 1;
            }
            at += 1;
        }
        Self { table }
    }

    /// Prepares a key of any length from 40 bytes, such as the 52 of some devices; bytes beyond 40
    /// never meet an input.
    pub const fn from_slice(key: &[u8]) -> Result<Self, ToeplitzKeyTooShort> {
        match key.first_chunk() {
            Some(key) => Ok(Self::new(key)),
            None => Err(ToeplitzKeyTooShort { bytes: key.len() }),
        }
    }

    /// The hash of `input`; nothing, if that is longer than [`TOEPLITZ_INPUT_BYTES_MAX`].
    #[inline]
    #[must_use]
    pub fn hash(&self, input: &[u8]) -> Option<u32> {
        let table = self.table.get(..input.len())?;
        let look_up = |(table, &byte): (&[u32; 256], &u8)| table[usize::from(byte)];
        Some(table.iter().zip(input).map(look_up).fold(0, |a, b| a ^ b))
    }

    /// What a device with this key reports for a packet of this flow. 0 and [`HashType::None`] if
    /// it is not IP.
    #[inline]
    #[must_use]
    pub fn hash_flow(&self, key: &FlowKey) -> (u32, HashType) {
        let input = key.rss_input();
        (self.hash_input(&input), input.hash_type())
    }

    /// The hash of an input that is short enough.
    #[inline]
    #[must_use]
    pub fn hash_input(&self, input: &RssInput) -> u32 {
        let look_up = |(table, &byte): (&[u32; 256], &u8)| table[usize::from(byte)];
        let pairs = self.table.iter().zip(input.bytes());
        pairs.map(look_up).fold(0, |a, b| a ^ b)
    }
}

/// A key for [`Toeplitz`] has less than [`TOEPLITZ_KEY_BYTES`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ToeplitzKeyTooShort {
    /// Bytes it has.
    pub bytes: usize,
}

impl fmt::Display for ToeplitzKeyTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes } = self;
        write!(
            f,
            "a Toeplitz key of {bytes} bytes: give at least {TOEPLITZ_KEY_BYTES}"
        )
    }
}

crate::error::error!(ToeplitzKeyTooShort, InvalidInput);
