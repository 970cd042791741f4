//! `checksum` over any bytes, any split and any alignment. Every implementation that this processor
//! has gives the sum of RFC 1071, a copy is exact, and an update gives the same as summing again.
//! The functions that finish and verify packets accept any input.

#![no_main]

use core::mem::MaybeUninit;

use libfuzzer_sys::fuzz_target;
use packtrain_fuzz::{Input, be16, plain_sum};
use packtrain_offload::checksum::{
    Level, Sum, complete_partial, copy_and_sum, copy_and_sum_uninit, copy_and_sum_with,
    ipv4_header, sum, sum_with, udp_field, update_bytes, update_sums, update_u16, update_u32,
    update_udp,
};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::LinkType;
use packtrain_offload::verify::{
    Verdict, verify_ipv4_header, verify_transport, verify_transport_pieces,
};

/// Bytes that must be neither read nor written.
const GUARD: u8 = 0xA5;
/// The longest vector.
const ALIGNMENT: usize = 64;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (from, to) = (input.byte(), input.byte());
    let cuts = [input.word(), input.word(), input.word()];
    // Longer than libFuzzer makes them, so that loops of every length go around.
    let repeat = 1 + usize::from(input.byte() & 15);
    let (start, offset) = (input.word(), input.word());
    let link = input.link();
    let given = input.rest();

    let bytes = given.repeat(repeat);
    let memory = Memory::new(&bytes, from);
    check_sums(memory.bytes(), &cuts);
    check_copies(memory.bytes(), to);
    check_updates(given, &cuts);
    check_packets(given, link, start, offset, &cuts);
});

/// Bytes at a distance from the alignment of vectors, between others that would change the sum.
struct Memory {
    all: Vec<u8>,
    start: usize,
    end: usize,
}

impl Memory {
    fn new(bytes: &[u8], distance: u8) -> Self {
        let distance = usize::from(distance) % ALIGNMENT;
        let mut all = vec![GUARD; ALIGNMENT + distance + bytes.len() + ALIGNMENT];
        let start = all.as_ptr().align_offset(ALIGNMENT) + distance;
        let end = start + bytes.len();
        all[start..end].copy_from_slice(bytes);
        Self { all, start, end }
    }

    fn bytes(&self) -> &[u8] {
        &self.all[self.start..self.end]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.all[self.start..self.end]
    }

    /// The bytes around them are unchanged.
    fn check_guards(&self) {
        let around = self.all[..self.start].iter().chain(&self.all[self.end..]);
        assert!(around.copied().all(|byte| byte == GUARD));
    }
}

/// The ends of the pieces that `bytes` is cut into.
fn pieces<'a>(bytes: &'a [u8], cuts: &[u16]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts
        .iter()
        .map(|cut| usize::from(*cut) % (bytes.len() + 1))
        .chain([0, bytes.len()])
        .collect();
    at.sort_unstable();
    at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

fn check_sums(bytes: &[u8], cuts: &[u16]) {
    let expected = plain_sum(&[bytes]);
    assert_eq!(sum(bytes).fold(), expected);
    assert_eq!(sum(bytes).finish(), !expected);
    assert_eq!(sum(bytes).is_valid(), expected == 0xffff);
    let pieces = pieces(bytes, cuts);
    let mut pieced = Sum::new();
    pieced.add_pieces(pieces.iter().copied());
    assert_eq!(pieced.fold(), expected);
    for level in Level::available() {
        let whole = sum_with(level, bytes).expect("an available level");
        assert_eq!(whole.fold(), expected, "{level}");
        let mut joined = Sum::new();
        for piece in &pieces {
            joined.add_sum(sum_with(level, piece).expect("an available level"));
        }
        assert_eq!(joined.fold(), expected, "{level}, in pieces");
    }
}

fn check_copies(bytes: &[u8], distance: u8) {
    let expected = plain_sum(&[bytes]);
    let check = |copy: &dyn Fn(&mut [u8]) -> Sum| {
        let mut memory = Memory::new(&vec![!GUARD; bytes.len()], distance);
        assert_eq!(copy(memory.bytes_mut()).fold(), expected);
        assert!(memory.bytes() == bytes);
        memory.check_guards();
    };
    check(&|dst| copy_and_sum(dst, bytes));
    for level in Level::available() {
        check(&|dst| copy_and_sum_with(level, dst, bytes).expect("an available level"));
    }
    let mut spare = vec![MaybeUninit::new(GUARD); bytes.len() + 1];
    let (written, sum) = copy_and_sum_uninit(&mut spare, bytes);
    assert!(*written == *bytes);
    assert_eq!(sum.fold(), expected);
}

/// `bytes` is the covered data, followed by the replacement and its position.
fn check_updates(bytes: &[u8], cuts: &[u16]) {
    let (covered, new) = bytes.split_at(bytes.len() - bytes.len() / 4);
    if covered.iter().all(|byte| *byte == 0) {
        // The one case where the two zeros differ; no real packet is.
        return;
    }
    let check = !plain_sum(&[covered]);
    let at = usize::from(cuts[0]) % (covered.len() + 1) & !1;
    let most = covered.len() - at;
    let mut old_bytes = usize::from(cuts[1]) % (most + 1);
    if old_bytes % 2 != new.len() % 2 {
        let Some(fewer) = old_bytes.checked_sub(1) else {
            return;
        };
        old_bytes = fewer;
    }
    let (before, behind) = covered.split_at(at);
    let (old, behind) = behind.split_at(old_bytes);
    let updated = [before, new, behind].concat();
    if updated.iter().any(|byte| *byte != 0) {
        let expected = !plain_sum(&[&updated]);
        assert_eq!(update_bytes(check, old, new), expected);
        assert_eq!(update_sums(check, sum(old), sum(new)), expected);
        let field = update_udp(udp_field(check), |field| update_bytes(field, old, new));
        assert_eq!(field, udp_field(expected));
    }
    check_word_updates(check, covered, at, cuts);
}

/// One word, then two, are replaced by numbers.
fn check_word_updates(check: u16, covered: &[u8], at: usize, cuts: &[u16]) {
    let summed_again = |new: &[u8]| {
        let mut bytes = covered.to_vec();
        bytes[at..at + new.len()].copy_from_slice(new);
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        (!is_zero).then(|| !plain_sum(&[&bytes]))
    };
    if at + 2 > covered.len() {
        return;
    }
    let old = be16(covered, at);
    if let Some(expected) = summed_again(&cuts[2].to_be_bytes()) {
        assert_eq!(update_u16(check, old, cuts[2]), expected);
    }
    if at + 4 > covered.len() {
        return;
    }
    let old = u32::from(old) << 16 | u32::from(be16(covered, at + 2));
    let new = u32::from(cuts[2]) << 16 | u32::from(cuts[1]);
    if let Some(expected) = summed_again(&new.to_be_bytes()) {
        assert_eq!(update_u32(check, old, new), expected);
    }
}

/// `bytes` are a packet, its headers end wherever, and `start` and `offset` may be anything.
fn check_packets(bytes: &[u8], link: LinkType, start: u16, offset: u16, cuts: &[u16]) {
    let (headers, rest) = bytes.split_at(usize::from(cuts[0]) % (bytes.len() + 1));
    let rest = pieces(rest, cuts);
    // Anywhere, and somewhere in the packet.
    let within = |place: u16| place % (headers.len() as u16).max(1);
    for (start, offset) in [
        (start, offset),
        (within(start), offset % 32),
        (within(start), 6),
    ] {
        check_completion(headers, &rest, start, offset);
    }
    assert_eq!(sum(bytes).is_valid(), plain_sum(&[bytes]) == 0xffff);
    let mut zeroed = headers.to_vec();
    zeroed
        .iter_mut()
        .skip(10)
        .take(2)
        .for_each(|byte| *byte = 0);
    assert_eq!(ipv4_header(headers), !plain_sum(&[&zeroed]));

    let Ok(layout) = Layout::parse(link, bytes, bytes.len() as u32) else {
        return;
    };
    let header = verify_ipv4_header(bytes, &layout);
    if header != Verdict::NotApplicable {
        let range = usize::from(layout.network)..usize::from(layout.transport);
        assert_eq!(header.is_valid(), plain_sum(&[&bytes[range]]) == 0xffff);
    }
    let whole = verify_transport(bytes, &layout);
    assert_eq!(verify_transport_pieces(bytes, [], &layout), whole);
    let (headers, rest) = bytes.split_at(usize::from(layout.payload));
    let rest = pieces(rest, cuts);
    assert_eq!(verify_transport_pieces(headers, rest, &layout), whole);
    // The layout of another packet, of which less is there.
    let _ = verify_transport(&bytes[..usize::from(cuts[1]) % (bytes.len() + 1)], &layout);
}

fn check_completion(headers: &[u8], rest: &[&[u8]], start: u16, offset: u16) {
    let mut finished = headers.to_vec();
    let stored = complete_partial(&mut finished, rest.iter().copied(), start, offset);
    let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
    let Some(stored) = stored else {
        assert!(at + 2 > headers.len() && finished == headers);
        return;
    };
    let rest = rest.concat();
    let expected = match !plain_sum(&[&[&headers[start..], &rest].concat()]) {
        0 if offset == 6 => 0xffff,
        expected => expected,
    };
    assert_eq!((stored, be16(&finished, at)), (expected, expected));
    finished[at..at + 2].copy_from_slice(&headers[at..at + 2]);
    assert!(finished == headers, "nothing else is changed");
}
