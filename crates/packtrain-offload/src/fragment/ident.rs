//! Identifications for packets that get new ones.

use crate::random::mix;

/// Allocates IPv4 identifications that are safe for reassembly.
///
/// A receiver reassembles fragments by source, destination, protocol and identification. So none of
/// these may be reused while a fragment with it can still arrive (RFC 6864 §4.3). A host that makes
/// packets that may be fragmented takes their identifications from here: an outer tunnel header
/// without DF, or a datagram cut into more pieces than it was merged from. A packet that is merely
/// forwarded keeps its own, and so do its fragments; with DF set the field means nothing (RFC 6864
/// §4.1).
///
/// The rule is the one of `ip_idents_reserve()` in Linux, without its clock: one counter for all
/// flows that hash to the same place, plus a constant of the flow. So an identification of one
/// source, destination and protocol repeats after exactly 65 536 were allocated from its counter,
/// never sooner. Whether that is late enough depends on the rate. At 64 Ki packets within the
/// lifetime of a fragment (RFC 791 §3.2 suggests 15 seconds for reassembly) no 16-bit number is
/// safe, and only the transport checksum detects wrong pieces (RFC 4963). More counters delay the
/// repetition.
///
/// That holds among identifications from here. If some datagrams of a source, destination and
/// protocol keep those of their sender, one of each kind may coincide: by chance, once in 65 536
/// pairs that are in flight at the same time.
///
/// A known seed makes identifications predictable (RFC 7739), so it should be random.
/// Equal seeds and calls give equal numbers.
///
/// ```
/// use packtrain_offload::fragment::IdSource;
///
/// let mut counters = [0; 256];
/// let mut ids = IdSource::new(&mut counters, 0x5EED).unwrap();
/// let (from, to) = ([198, 18, 0, 1], [198, 18, 0, 2]);
/// let first = ids.take(from, to, 17, 3);
/// assert_eq!(ids.take(from, to, 17, 1), first.wrapping_add(3));
/// ```
#[derive(Debug)]
pub struct IdSource<'a> {
    counters: &'a mut [u16],
    seed: u64,
}

impl<'a> IdSource<'a> {
    /// Counts in `counters`, with any initial content; `None` if the slice is empty. Linux has 2048
    /// or more.
    #[must_use]
    pub fn new(counters: &'a mut [u16], seed: u64) -> Option<Self> {
        (!counters.is_empty()).then_some(Self { counters, seed })
    }

    /// The first of `count` consecutive identifications, modulo 2^16, for packets of this source,
    /// destination and protocol. A GSO packet takes as many as it has segments.
    pub fn take(&mut self, source: [u8; 4], destination: [u8; 4], protocol: u8, count: u16) -> u16 {
        let addresses = u64::from(u32::from_be_bytes(source)) << 32
            | u64::from(u32::from_be_bytes(destination));
        let hash = mix(mix(addresses ^ self.seed).wrapping_add(u64::from(protocol)));
        // The high half chooses the counter, the low half the flow's constant.
        let place = ((hash >> 32) * self.counters.len() as u64) >> 32;
        let Some(counter) = self.counters.get_mut(place as usize) else {
            return hash as u16;
        };
        let id = counter.wrapping_add(hash as u16);
        *counter = counter.wrapping_add(count);
        id
    }
}
