//! The bytes that are sent, and the checks at the other end.
//!
//! A payload is cut from one pseudo-random block that stays in the CPU's cache. Each round starts
//! at another offset of the block. So making a payload costs no time, no two chunks of a stream are
//! equal, and a swap, a loss or a repeat changes the hash. The only exception: for each position
//! there is one with equal content in each round, at a distance that is no multiple of a usual
//! segment size.

use packtrain_offload::random::Random;
use std::hash::Hasher;
use std::ops::Range;

use twox_hash::XxHash3_64;

use super::sequence::{Arrival, Sequences};

/// Bytes of the block: a power of two that fits a second level cache.
const BLOCK: usize = 1 << 18;

/// Bytes by which the start of each round advances in the block. Odd, so that all [`BLOCK`] rounds
/// differ.
const STRIDE: usize = 88_001;

/// Bytes of sequence number at the start of every datagram, big-endian.
pub const SEQUENCE_LEN: usize = 8;

/// Largest datagram payload: a 65535 byte IPv4 packet less its headers.
pub const DATAGRAM_MAX: usize = 65_507;

/// A reproducible pseudo-random byte source.
#[derive(Debug)]
pub struct Pattern {
    block: Box<[u8]>,
}

impl Pattern {
    /// The pattern of a seed.
    pub fn new(seed: u64) -> Self {
        let mut block = vec![0; BLOCK];
        Random::new(seed).fill(&mut block);
        Self {
            block: block.into(),
        }
    }

    /// The bytes of stream number `stream` from `position` on, as many as are contiguous in memory:
    /// at least 1 and at most 256 KiB.
    pub fn stream(&self, stream: u32, position: u64) -> &[u8] {
        &self.block[Self::place(stream, position)]
    }

    /// The hash of the first `bytes` bytes of stream number `stream`. An error of `goes_on`, which
    /// is called at least every 256 KiB, ends it.
    ///
    /// # Errors
    /// That of `goes_on`.
    pub fn stream_hash<E>(
        &self,
        stream: u32,
        bytes: u64,
        goes_on: impl Fn() -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut hash = StreamHash::new();
        while hash.bytes() < bytes {
            goes_on()?;
            let piece = self.stream(stream, hash.bytes());
            let left = usize::try_from(bytes - hash.bytes()).unwrap_or(usize::MAX);
            hash.add(&piece[..piece.len().min(left)]);
        }
        Ok(hash.finish())
    }

    /// The block that all streams are cut from: 256 KiB.
    pub(crate) fn block(&self) -> &[u8] {
        &self.block
    }

    /// Where in [`Self::block`] the bytes of [`Self::stream`] are.
    pub(crate) fn place(stream: u32, position: u64) -> Range<usize> {
        let block = BLOCK as u64;
        let offset = position % block;
        // Streams start at different offsets, too, 977 rounds apart: odd, so that no two of up to
        // BLOCK streams are equal.
        let round = (position / block).wrapping_add(u64::from(stream).wrapping_mul(977));
        let start = (offset + (round % block) * STRIDE as u64) % block;
        let len = (block - start).min(block - offset);
        // All three are below BLOCK, which fits a usize on every platform.
        start as usize..(start + len) as usize
    }

    /// The content of datagram number `sequence` of a flow after its sequence number: `len` bytes,
    /// at most [`DATAGRAM_MAX`].
    fn datagram(&self, stream: u32, sequence: u64, len: usize) -> &[u8] {
        let places = (BLOCK - DATAGRAM_MAX) as u64;
        let round = sequence.wrapping_add(u64::from(stream).wrapping_mul(977));
        let start = ((round % places) * (STRIDE as u64) % places) as usize;
        &self.block[start..start + len]
    }

    /// Writes datagram number `sequence` of flow `stream` into `to`, whose length is its payload
    /// size: [`SEQUENCE_LEN`] to [`DATAGRAM_MAX`] bytes.
    pub fn write_datagram(&self, stream: u32, sequence: u64, to: &mut [u8]) {
        let (head, rest) = to.split_at_mut(SEQUENCE_LEN);
        head.copy_from_slice(&sequence.to_be_bytes());
        rest.copy_from_slice(self.datagram(stream, sequence, rest.len()));
    }

    /// The sequence number of a datagram if it is one of flow `stream` and its content is right.
    fn read_datagram(&self, stream: u32, payload: &[u8]) -> Option<u64> {
        let (head, rest) = payload.split_first_chunk::<SEQUENCE_LEN>()?;
        let sequence = u64::from_be_bytes(*head);
        (payload.len() <= DATAGRAM_MAX && rest == self.datagram(stream, sequence, rest.len()))
            .then_some(sequence)
    }
}

/// xxh3-64 over a byte stream, and its length.
#[derive(Clone, Default)]
pub struct StreamHash {
    hash: XxHash3_64,
    bytes: u64,
}

impl std::fmt::Debug for StreamHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamHash")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl StreamHash {
    /// Of no bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.hash.write(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Bytes added.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The hash of all bytes added.
    pub fn finish(&self) -> u64 {
        self.hash.finish()
    }
}

/// One hash for several streams, in their order.
pub(crate) fn combine(hashes: impl IntoIterator<Item = u64>) -> u64 {
    let mut all = XxHash3_64::new();
    for hash in hashes {
        all.write(&hash.to_le_bytes());
    }
    all.finish()
}

/// The hash of one datagram. Sums of these (wrapping) do not depend on the order of arrival, and
/// change with every loss, repeat and flipped bit.
pub fn datagram_hash(payload: &[u8]) -> u64 {
    XxHash3_64::oneshot(payload)
}

/// Counts of the datagrams of one or more flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Datagrams sent.
    pub sent: u64,
    /// Different datagrams that arrived with the right content.
    pub received: u64,
    /// Sent, and not arrived with the right content: `sent - received`.
    pub lost: u64,
    /// Copies of datagrams that had arrived already.
    pub duplicates: u64,
    /// Arrived after one with a higher number; 0 for a flow that was not reordered.
    pub reordered: u64,
    /// Arrived with the content of no sent datagram. Each is also counted as lost.
    pub damaged: u64,
}

impl Datagrams {
    /// Whether every datagram arrived exactly once and undamaged, in any order.
    pub fn intact(&self) -> bool {
        self.lost == 0 && self.duplicates == 0 && self.damaged == 0
    }

    /// The sum over two flows.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            lost: self.lost + other.lost,
            duplicates: self.duplicates + other.duplicates,
            reordered: self.reordered + other.reordered,
            damaged: self.damaged + other.damaged,
        }
    }
}

/// Checks the datagrams of one flow as they arrive.
#[derive(Debug)]
pub struct DatagramCheck<'a> {
    content: Content<'a>,
    sequences: Sequences,
    hash: u64,
    bytes: u64,
    /// The first sequence number after the mark, and the counts since then.
    mark: u64,
    marked: Datagrams,
}

/// What a datagram must contain after its sequence number.
#[derive(Debug)]
enum Content<'a> {
    /// That of this flow of a pattern.
    Of(&'a Pattern, u32),
    /// Anything, so that it has this length.
    Any(usize),
}

impl<'a> DatagramCheck<'a> {
    /// A checker for flow `stream` of `pattern`.
    pub fn new(pattern: &'a Pattern, stream: u32) -> Self {
        Self::with(Content::Of(pattern, stream))
    }

    /// A checker for datagrams of `len` bytes, of which it reads the sequence number only.
    pub fn plain(len: usize) -> Self {
        Self::with(Content::Any(len))
    }

    fn with(content: Content<'a>) -> Self {
        Self {
            content,
            sequences: Sequences::default(),
            hash: 0,
            bytes: 0,
            mark: 0,
            marked: Datagrams::default(),
        }
    }

    /// Starts the counts of [`marked`](Self::marked) at a sequence number, if it is another one
    /// than before. It must not be older than the window of the numbers that are kept.
    pub fn mark(&mut self, sequence: u64) {
        if sequence != self.mark {
            self.mark = sequence;
            self.marked = Datagrams {
                received: self.sequences.since(sequence),
                ..Datagrams::default()
            };
        }
    }

    /// Checks one received payload. Numbers from `sent` on cannot have been sent yet: they are
    /// counted as damaged. Returns false for a copy of one that had arrived already.
    pub fn add(&mut self, payload: &[u8], sent: u64) -> bool {
        let sequence = match self.content {
            Content::Of(pattern, stream) => {
                self.hash = self.hash.wrapping_add(datagram_hash(payload));
                pattern.read_datagram(stream, payload)
            }
            Content::Any(len) => payload
                .first_chunk::<SEQUENCE_LEN>()
                .filter(|_| payload.len() == len)
                .map(|head| u64::from_be_bytes(*head)),
        };
        let arrival = self.sequences.add(sequence, sent);
        if arrival.is_first() {
            self.bytes += payload.len() as u64;
        }
        if arrival == Arrival::Damaged || sequence >= Some(self.mark) {
            self.marked.received += u64::from(arrival.is_first());
            self.marked.duplicates += u64::from(arrival == Arrival::Duplicate);
            self.marked.reordered += u64::from(arrival == Arrival::Reordered);
            self.marked.damaged += u64::from(arrival == Arrival::Damaged);
        }
        arrival != Arrival::Duplicate
    }

    /// Wrapping sum of [`datagram_hash`] over all arrived datagrams, right or wrong; 0 if their
    /// content is not read.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Payload bytes of the datagrams counted as received, sequence numbers included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The counts after `sent` datagrams were sent, if no more arrive.
    pub fn finish(&self, sent: u64) -> Datagrams {
        let Sequences {
            unique,
            duplicates,
            reordered,
            damaged,
            ..
        } = self.sequences;
        Datagrams {
            sent,
            received: unique,
            lost: sent - unique.min(sent),
            duplicates,
            reordered,
            damaged,
        }
    }

    /// The same of the datagrams sent since the mark. `damaged` are those that arrived since.
    pub fn marked(&self, sent: u64) -> Datagrams {
        let sent = sent - self.mark.min(sent);
        Datagrams {
            sent,
            lost: sent - self.marked.received.min(sent),
            ..self.marked
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The first `len` bytes of a stream, put together from its pieces.
    fn take(pattern: &Pattern, stream: u32, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let piece = pattern.stream(stream, bytes.len() as u64);
            assert!(!piece.is_empty());
            bytes.extend_from_slice(&piece[..piece.len().min(len - bytes.len())]);
        }
        bytes
    }

    fn hash(bytes: &[u8]) -> u64 {
        let mut hash = StreamHash::new();
        hash.add(bytes);
        hash.finish()
    }

    #[test]
    fn a_stream_does_not_depend_on_how_it_is_cut() {
        let pattern = Pattern::new(7);
        let whole = take(&pattern, 3, 3 * BLOCK + 12_345);
        for position in [
            0,
            1,
            BLOCK - 1,
            BLOCK,
            2 * BLOCK + 77_777,
            3 * BLOCK + 12_344,
        ] {
            let piece = pattern.stream(3, position as u64);
            let len = piece.len().min(whole.len() - position);
            assert_eq!(
                piece[..len],
                whole[position..position + len],
                "at {position}"
            );
        }
        let mut pieces = StreamHash::new();
        whole.chunks(1448).for_each(|chunk| pieces.add(chunk));
        assert_eq!(pieces.finish(), hash(&whole));
        let hashed = pattern.stream_hash(3, whole.len() as u64, || Ok::<_, ()>(()));
        assert_eq!(hashed, Ok(hash(&whole)));
        assert_eq!(pieces.bytes(), whole.len() as u64);
    }

    #[test]
    fn the_hash_of_a_long_stream_can_be_ended() {
        let left = Cell::new(10);
        let goes_on = || {
            left.set(left.get() - 1);
            if left.get() == 0 {
                Err("ended")
            } else {
                Ok(())
            }
        };
        let hashed = Pattern::new(7).stream_hash(0, u64::MAX, goes_on);
        assert_eq!(hashed, Err("ended"));
    }

    #[test]
    fn seeds_streams_and_rounds_differ() {
        let pattern = Pattern::new(7);
        let whole = take(&pattern, 0, 2 * BLOCK);
        assert_ne!(whole[..BLOCK], whole[BLOCK..]);
        assert_ne!(hash(&take(&pattern, 1, BLOCK)), hash(&whole[..BLOCK]));
        assert_ne!(
            hash(&take(&Pattern::new(8), 0, BLOCK)),
            hash(&whole[..BLOCK])
        );
        // Far positions neither panic nor repeat the start.
        assert_ne!(pattern.stream(0, u64::MAX - 5), pattern.stream(0, 0));
    }

    #[test]
    fn stream_hash_sees_flip_swap_loss_and_repeat() {
        let pattern = Pattern::new(1);
        let good = take(&pattern, 0, 1 << 20);
        let expected = hash(&good);
        for at in [0, 1, 70_000, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_ne!(hash(&bad), expected, "flip at {at}");
        }
        // Whole segments of usual sizes, next to each other and far apart.
        for size in [536, 1220, 1428, 1440, 1448, 1460, 8948, 65_536, BLOCK] {
            for (a, b) in [(0, 1), (1, 3), (0, good.len() / size - 1)] {
                if a == b || (b + 1) * size > good.len() {
                    continue;
                }
                let mut bad = good.clone();
                bad[a * size..(a + 1) * size].copy_from_slice(&good[b * size..(b + 1) * size]);
                assert_ne!(hash(&bad), expected, "{size}: repeat {b} in place of {a}");
                bad[b * size..(b + 1) * size].copy_from_slice(&good[a * size..(a + 1) * size]);
                assert_ne!(hash(&bad), expected, "{size}: swap of {a} and {b}");
            }
            let mut bad = good.clone();
            bad.drain(size..2 * size);
            assert_ne!(hash(&bad), expected, "{size}: loss");
        }
    }

    #[test]
    fn combining_sees_exchanged_streams() {
        assert_ne!(combine([1, 2]), combine([2, 1]));
        assert_eq!(combine([1, 2]), combine([1, 2]));
    }

    /// `count` datagrams of 100 bytes each.
    fn datagrams(pattern: &Pattern, count: u64) -> Vec<Vec<u8>> {
        (0..count)
            .map(|sequence| {
                let mut payload = vec![0; 100];
                pattern.write_datagram(2, sequence, &mut payload);
                payload
            })
            .collect()
    }

    fn judge(pattern: &Pattern, arrived: &[Vec<u8>], sent: u64) -> (Datagrams, u64) {
        let mut check = DatagramCheck::new(pattern, 2);
        for payload in arrived {
            let before = check.finish(sent).duplicates;
            let is_new = check.add(payload, sent);
            assert_eq!(is_new, check.finish(sent).duplicates == before);
        }
        (check.finish(sent), check.hash())
    }

    #[test]
    fn datagrams_are_judged() {
        let pattern = Pattern::new(9);
        let good = datagrams(&pattern, 200);
        let sums = good.iter().map(|payload| datagram_hash(payload));
        let sum = sums.fold(0, u64::wrapping_add);
        let judged = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let mut arrived = good.clone();
            change(&mut arrived);
            let (counts, hash) = judge(&pattern, &arrived, 200);
            assert_eq!(counts.sent, 200);
            assert_eq!(counts.intact(), hash == sum, "{counts:?}");
            assert_eq!(counts.lost, 200 - counts.received);
            let of = [counts.lost, counts.duplicates, counts.reordered];
            (of, counts.damaged, counts.intact())
        };
        assert_eq!(judged(&|_| {}), ([0, 0, 0], 0, true));
        // Order is not part of intactness.
        assert_eq!(judged(&|all| all.swap(10, 11)), ([0, 0, 1], 0, true));
        let lost = judged(&|all| drop(all.remove(63)));
        assert_eq!(lost, ([1, 0, 0], 0, false));
        let twice = judged(&|all| all.push(all[5].clone()));
        assert_eq!(twice, ([0, 1, 0], 0, false));
        for (datagram, byte) in [(0, 0), (7, 7), (64, 8), (199, 99)] {
            let flipped = judged(&|all| all[datagram][byte] ^= 1);
            assert_eq!(flipped, ([1, 0, 0], 1, false), "{datagram} {byte}");
        }
    }

    #[test]
    fn strange_datagrams_are_damaged_not_fatal() {
        let pattern = Pattern::new(9);
        let mut unsent = vec![0; 64];
        pattern.write_datagram(2, 1 << 60, &mut unsent);
        let mut other_flow = vec![0; 64];
        pattern.write_datagram(3, 0, &mut other_flow);
        for payload in [vec![], vec![1; 7], vec![0; 70_000], unsent, other_flow] {
            let (counts, _) = judge(&pattern, std::slice::from_ref(&payload), 5);
            assert_eq!(
                (counts.damaged, counts.lost),
                (1, 5),
                "{} bytes",
                payload.len()
            );
        }
        let mut largest = vec![0; DATAGRAM_MAX];
        pattern.write_datagram(2, 4, &mut largest);
        assert_eq!(judge(&pattern, &[largest], 5).0.received, 1);
    }

    #[test]
    fn counts_since_a_mark_are_of_later_datagrams() {
        let pattern = Pattern::new(9);
        let good = datagrams(&pattern, 200);
        let mut check = DatagramCheck::new(&pattern, 2);
        // Lost: 3 before the mark at 70, 90 and 130 after it. 10 and 100 come twice.
        let before = (0..70).filter(|number| *number != 3).chain([10]);
        let after = (70..200).filter(|number| ![90, 130].contains(number));
        before.for_each(|number| {
            check.add(&good[number], 200);
        });
        check.mark(70);
        after.for_each(|number| assert!(check.add(&good[number], 200)));
        for number in [10, 100] {
            check.mark(70);
            assert!(!check.add(&good[number], 200));
        }
        let marked = Datagrams {
            sent: 130,
            received: 128,
            lost: 2,
            duplicates: 1,
            ..Datagrams::default()
        };
        assert_eq!(check.marked(200), marked);
        let all = check.finish(200);
        assert_eq!((all.received, all.lost, all.duplicates), (197, 3, 3));
        // A mark where nothing has arrived, and none at all.
        check.mark(500);
        assert_eq!(check.marked(510).lost, 10);
        check.mark(0);
        assert_eq!(
            (check.marked(200).received, check.marked(200).lost),
            (197, 3)
        );
    }

    #[test]
    fn a_long_flow_takes_no_memory() {
        let mut check = DatagramCheck::plain(SEQUENCE_LEN);
        for number in [0, 1 << 50, 0, 1 << 51] {
            check.add(&u64::to_be_bytes(number), u64::MAX);
        }
        let counts = check.finish(1 << 52);
        // Too old to know whether it is a copy.
        assert_eq!((counts.received, counts.duplicates), (3, 1));
    }

    #[test]
    fn a_plain_datagram_has_its_number_and_its_length() {
        let mut check = DatagramCheck::plain(20);
        let mut payload = [0xaa; 20];
        payload[..SEQUENCE_LEN].copy_from_slice(&1u64.to_be_bytes());
        assert!(check.add(&payload, 3));
        assert!(!check.add(&payload, 3));
        // Cut short, not sent yet, and empty.
        assert!(check.add(&payload[..19], 3));
        payload[SEQUENCE_LEN - 1] = 3;
        assert!(check.add(&payload, 3) && check.add(&[], 3));
        let counts = check.finish(3);
        let found = (counts.received, counts.lost, counts.duplicates);
        assert_eq!((found, counts.damaged, check.hash()), ((1, 2, 1), 3, 0));
        assert_eq!(check.bytes(), 20);
    }
}
