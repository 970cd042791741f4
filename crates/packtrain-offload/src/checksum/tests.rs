use super::*;
use crate::test_packets::{Field, Spec};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// RFC 1071 word for word: 16-bit words in network order, end-around carry after each.
fn reference(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for (i, byte) in bytes.iter().enumerate() {
        sum += if i % 2 == 0 {
            u32::from(*byte) << 8
        } else {
            u32::from(*byte)
        };
        if sum > 0xFFFF {
            sum = (sum & 0xFFFF) + 1;
        }
    }
    sum as u16
}

#[test]
fn rfc_1071_section_3_example() {
    let bytes = [0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7];
    assert_eq!(sum(&bytes).fold(), 0xDDF2);
    assert_eq!(sum(&bytes).finish(), 0x220D);
}

/// Equation 2 of RFC 1624, which is that of RFC 1141 and is not used: it does not tell the zeros
/// apart.
fn rfc_1141(check: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(check) + u32::from(old) + u32::from(!new);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    ((sum & 0xFFFF) + (sum >> 16)) as u16
}

#[test]
fn rfc_1624_section_4_example() {
    assert_eq!(rfc_1141(0xDD2F, 0x5555, 0x3285), 0xFFFF);
    assert_eq!(update_u16(0xDD2F, 0x5555, 0x3285), 0x0000);
    // The word with the same one in front of it, and as bytes.
    assert_eq!(update_u32(0xDD2F, 0x1234_5555, 0x1234_3285), 0x0000);
    let (old, new) = ([0x55, 0x55], [0x32, 0x85]);
    assert_eq!(update_bytes(0xDD2F, &old, &new), 0x0000);
    assert_eq!(update_sums(0xDD2F, sum(&old), sum(&new)), 0x0000);
    // 0xFFFF for zero is specific to UDP.
    let update = |check| update_u16(check, 0x5555, 0x3285);
    assert_eq!(update_udp(0xDD2F, update), 0xFFFF);
}

/// Whatever a word was, it is changed into the one with which the sum becomes zero, and back.
#[test]
fn an_update_that_comes_out_as_zero_is_the_zero_that_summing_gives() {
    for rest in [
        1_u16, 0x1234, 0x5555, 0x7FFF, 0x8000, 0xABCD, 0xFFFE, 0xFFFF,
    ] {
        for old in (0..=u16::MAX).step_by(if cfg!(miri) { 4099 } else { 1 }) {
            let new = !rest;
            let before = [rest.to_be_bytes(), old.to_be_bytes()].concat();
            let check = !reference(&before);
            assert_eq!(!reference(&[rest, new].map(u16::to_be_bytes).concat()), 0);
            // But for sums that are zero before, and stay so, it is the other zero.
            let other = if check == 0 && old == 0 && new == 0xFFFF {
                0
            } else {
                0xFFFF
            };
            assert_eq!(rfc_1141(check, old, new), other);
            let at = (rest, old);
            assert_eq!(update_u16(check, old, new), 0, "{at:x?}");
            let [long_old, long_new] = [old, new].map(|word| u32::from(word) << 16 | 7);
            assert_eq!(update_u32(check, long_old, long_new), 0, "{at:x?}");
            let [old_bytes, new_bytes] = [old, new].map(u16::to_be_bytes);
            assert_eq!(update_bytes(check, &old_bytes, &new_bytes), 0, "{at:x?}");
            // A UDP field holds the other one, and both are understood when it changes again.
            let field = update_udp(udp_field(check), |check| update_u16(check, old, new));
            assert_eq!(field, 0xFFFF, "{at:x?}");
            assert_eq!(update_u16(0, new, old), check, "{at:x?}");
            let back = update_udp(field, |check| update_u16(check, new, old));
            assert_eq!(back, udp_field(check), "{at:x?}");
        }
    }
}

#[test]
fn ipv4_header_ignores_its_field() {
    let mut header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xDE, 0xAD, 0xC0, 0xA8, 0x00,
        0x01, 0xC0, 0xA8, 0x00, 0xC7,
    ];
    assert_eq!(ipv4_header(&header), 0xB861);
    header[10..12].copy_from_slice(&0xB861u16.to_be_bytes());
    assert!(sum(&header).is_valid());
    header[19] ^= 1;
    assert!(!sum(&header).is_valid());
}

#[test]
fn ipv4_header_takes_any_length() {
    let bytes = [0xA5; 64];
    for n in 0..bytes.len() {
        let mut zeroed = bytes[..n].to_vec();
        for byte in zeroed.iter_mut().skip(10).take(2) {
            *byte = 0;
        }
        assert_eq!(ipv4_header(&bytes[..n]), !reference(&zeroed), "{n}");
    }
}

#[test]
fn pseudo_headers_are_the_bytes_of_the_rfcs() {
    let (src, dst) = ([198, 18, 0, 2], [198, 18, 0, 1]);
    let v4 = [198, 18, 0, 2, 198, 18, 0, 1, 0, 6, 0x03, 0xFC];
    assert_eq!(pseudo_header_v4(src, dst, 6, 1020).fold(), reference(&v4));

    let (src, dst) = ([0xFD; 16], [0x17; 16]);
    let mut v6 = [src, dst].concat();
    v6.extend([0, 1, 0x11, 0x70, 0, 0, 0, 17]);
    assert_eq!(
        pseudo_header_v6(src, dst, 17, 70_000).fold(),
        reference(&v6)
    );
}

#[test]
fn all_zero_is_the_only_zero() {
    assert_eq!(sum(&[]).fold(), 0);
    assert_eq!(sum(&[0; 33]).fold(), 0);
    assert_eq!(sum(&[0xFF, 0xFF]).fold(), 0xFFFF);
    assert_eq!(sum(&[0xFF, 0xFE, 0, 1]).fold(), 0xFFFF);
}

#[test]
fn udp_zero_is_sent_as_all_ones() {
    assert_eq!(udp_field(0), 0xFFFF);
    assert_eq!(udp_field(0xFFFF), 0xFFFF);
    assert_eq!(udp_field(1), 1);
}

#[test]
fn carry_goes_around_the_accumulator() {
    for odd in [false, true] {
        for words in [u64::MAX, u64::MAX - 1, 1 << 63, u64::MAX << 32] {
            let mut sum = Sum { words, odd };
            let before = sum.fold();
            sum.add(&[0x12, 0x34]);
            let added = if odd { 0x3412 } else { 0x1234 };
            let expected = u32::from(before) + added;
            let expected = (expected & 0xFFFF) + (expected >> 16);
            // All ones and zero are the same number here.
            assert_eq!(
                u32::from(sum.fold()) % 0xFFFF,
                expected % 0xFFFF,
                "{words:#x} {odd}"
            );
        }
    }
}

/// Bytes without a pattern, the same for the same seed.
fn random_bytes(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    core::iter::repeat_with(step).take(bytes).collect()
}

/// Bytes that must be neither read nor written.
const GUARD: u8 = 0xA5;

/// Sums `piece` in every way there is, at this distance from a vector's alignment and between
/// bytes that would change the sum.
fn check_sums(piece: &[u8], align: usize) {
    let expected = reference(piece);
    let mut memory = vec![GUARD; 64 + align + piece.len() + 64];
    let start = memory.as_ptr().align_offset(64) + align;
    let end = start + piece.len();
    memory[start..end].copy_from_slice(piece);
    let there = &memory[start..end];
    let at = || std::format!("{} bytes at {align}", piece.len());
    assert_eq!(sum(there).fold(), expected, "{}", at());
    let longer = reference(&[piece, &[0x77]].concat());
    for level in Level::available() {
        let sum = sum_with(level, there).expect("an available level");
        assert_eq!(sum.fold(), expected, "{level}, {}", at());
        // An odd sum continues in the middle of a word.
        let mut more = sum;
        more.add(&[0x77]);
        assert_eq!(more.fold(), longer, "{level}, {}", at());
    }
}

/// Copies and sums `piece` in every way there is, into memory of this alignment.
fn check_copies(piece: &[u8], align: usize) {
    let expected = reference(piece);
    let mut memory = vec![GUARD; 64 + align + piece.len() + 64];
    let guards = memory.clone();
    let start = memory.as_ptr().align_offset(64) + align;
    let end = start + piece.len();
    let mut check = |how: &str, copy: &mut dyn FnMut(&mut [u8]) -> Sum| {
        memory.fill(GUARD);
        let sum = copy(&mut memory[start..end]);
        let at = || std::format!("{how}, {} bytes at {align}", piece.len());
        assert_eq!(sum.fold(), expected, "{}", at());
        assert!(memory[start..end] == *piece, "{}", at());
        // As slices: Miri compares those with native code.
        assert!(memory[..start] == guards[..start], "{}", at());
        assert!(memory[end..] == guards[end..], "{}", at());
    };
    check("best", &mut |dst| copy_and_sum(dst, piece));
    for level in Level::available() {
        check(level.name(), &mut |dst| {
            copy_and_sum_with(level, dst, piece).expect("an available level")
        });
    }
    let mut spare: Vec<u8> = Vec::with_capacity(piece.len() + 1);
    let (written, sum) = copy_and_sum_uninit(spare.spare_capacity_mut(), piece);
    assert_eq!(sum.fold(), expected);
    assert!(*written == *piece);
}

const LENGTHS: usize = 300;
/// Miri takes a second for a millisecond of native code.
const STEP: usize = if cfg!(miri) { 13 } else { 1 };
const ALIGNMENT_STEP: usize = if cfg!(miri) { 33 } else { 1 };

#[test]
fn every_level_sums_every_length_at_every_alignment() {
    let random = random_bytes(LENGTHS, 1);
    for align in (0..=64).step_by(ALIGNMENT_STEP) {
        for bytes in (0..=LENGTHS).step_by(STEP) {
            check_sums(&random[..bytes], align);
        }
    }
}

#[test]
fn every_level_copies_every_length_to_every_alignment() {
    let random = random_bytes(LENGTHS + 64, 2);
    for align in (0..=64).step_by(ALIGNMENT_STEP) {
        for bytes in (0..=LENGTHS).step_by(STEP) {
            // Where the bytes come from moves too, but not with where they go.
            let from = (align * 7 + bytes) % 64;
            check_copies(&random[from..from + bytes], align);
        }
    }
}

#[test]
fn every_level_carries_and_tells_the_zeros_apart() {
    for bytes in (0..=LENGTHS).step_by(STEP) {
        for fill in [0, 0xFF] {
            check_sums(&vec![fill; bytes], bytes % 64);
        }
        // One word that is not zero, in each lane in turn.
        let mut piece = vec![0; bytes];
        if let Some(last) = piece.last_mut() {
            *last = 0x80;
        }
        check_sums(&piece, 0);
    }
}

// 16 MiB of interpreted code would run for hours.
#[cfg(not(miri))]
#[test]
fn blocks_join_without_a_seam() {
    // One block of the inner loops and a bit more, all ones: the largest lanes there can be.
    let mut bytes = vec![0xFF; (1 << 24) + 37];
    check_sums(&bytes, 1);
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = ((i * 31) >> 3) as u8;
    }
    check_sums(&bytes, 0);
    check_copies(&bytes, 3);
}

#[test]
fn levels_say_what_this_processor_has() {
    let available: Vec<Level> = Level::available().collect();
    assert_eq!(available[0], Level::Scalar);
    assert!(available.contains(&Level::selected()));
    for &level in Level::ALL {
        let mut dst = [GUARD; 200];
        let there = available.contains(&level);
        assert_eq!(level.is_available(), there);
        assert_eq!(sum_with(level, &[1; 200]).is_some(), there);
        assert_eq!(
            copy_and_sum_with(level, &mut dst, &[1; 200]).is_some(),
            there
        );
        assert_eq!(dst == [1; 200], there);
    }
    if cfg!(target_arch = "x86_64") {
        assert!(!Level::Neon.is_available());
    } else {
        assert!(!Level::Avx2.is_available());
    }
    if cfg!(all(
        target_arch = "aarch64",
        target_endian = "little",
        target_feature = "neon"
    )) {
        assert_eq!(Level::selected(), Level::Neon);
    }
    // CI checks for it where it expects NEON.
    let names: Vec<_> = available.iter().map(|level| level.name()).collect();
    std::println!("levels: {}", names.join(" "));
}

// The result of the standard library's own detection.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn levels_are_those_that_std_finds() {
    use std::arch::is_x86_feature_detected as has;
    assert_eq!(Level::Sse41.is_available(), has!("sse4.1"));
    assert_eq!(Level::Avx2.is_available(), has!("avx2"));
    let avx512 = has!("avx512f") && has!("avx512bw");
    assert_eq!(Level::Avx512.is_available(), avx512);
}

#[test]
fn a_copy_ends_with_the_shorter_slice() {
    for (to, from) in [(0, 9), (9, 0), (100, 300), (300, 100), (301, 300)] {
        let src = random_bytes(from, 3);
        let bytes = to.min(from);
        let expected = [&src[..bytes], &vec![GUARD; to - bytes]].concat();
        let mut dst = vec![GUARD; to];
        assert_eq!(
            copy_and_sum(&mut dst, &src).fold(),
            reference(&src[..bytes])
        );
        assert_eq!(dst, expected);
        let mut dst = vec![MaybeUninit::uninit(); to];
        let (written, sum) = copy_and_sum_uninit(&mut dst, &src);
        assert_eq!(*written, src[..bytes]);
        assert_eq!(sum.fold(), reference(&src[..bytes]));
    }
}

#[test]
fn a_partial_checksum_is_completed_over_pieces() {
    for payload in [0, 1, 64, 65, 1447] {
        for spec in [
            Spec::tcp4(payload),
            Spec::udp4(payload),
            Spec::tcp6(payload),
            Spec::udp6(payload).ethernet(),
        ] {
            let (start, offset) = (spec.transport() as u16, spec.checksum_offset());
            let mut packet = spec.build(Field::Preload);
            let finished = spec.build(Field::Final);
            let (headers, rest) = packet.split_at_mut(spec.header_bytes());
            let pieces = rest.chunks(payload / 3 + 1);
            let stored = complete_partial(headers, pieces, start, offset);
            let at = usize::from(start + offset);
            let field = u16::from_be_bytes([finished[at], finished[at + 1]]);
            assert_eq!(stored, Some(field), "{spec:?}");
            assert_eq!(packet, finished, "{spec:?}");
        }
    }
}

#[test]
fn a_partial_field_of_udp_is_never_stored_as_none() {
    let mut zeroed = [0xFF; 8];
    assert_eq!(complete_partial(&mut zeroed, [], 0, 6), Some(0xFFFF));
    let mut zeroed = [0xFF; 18];
    assert_eq!(complete_partial(&mut zeroed, [], 0, 16), Some(0));
}

#[test]
fn a_partial_field_outside_of_the_headers_is_refused() {
    let mut headers = [7; 40];
    for (start, offset) in [
        (20, 19),
        (20, 20),
        (39, 0),
        (40, 0),
        (0, 0xFFFF),
        (0xFFFF, 0xFFFF),
    ] {
        assert_eq!(complete_partial(&mut headers, [], start, offset), None);
        assert_eq!(headers, [7; 40]);
    }
    assert!(complete_partial(&mut headers, [], 20, 18).is_some());
}

#[test]
fn an_updated_udp_field_keeps_its_meaning() {
    assert_eq!(update_udp(0, |_| 7), 0);
    assert_eq!(update_udp(9, |check| check + 1), 10);
    assert_eq!(update_udp(9, |_| 0), 0xFFFF);
}

fn config() -> ProptestConfig {
    let mut config = ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 });
    if cfg!(miri) {
        // Miri has no file system to store failures in.
        config.failure_persistence = None;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn equals_the_reference_however_split(
        bytes in prop::collection::vec(any::<u8>(), 0..if cfg!(miri) { 700 } else { 3000 }),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let (mut whole, mut joined) = (Sum::new(), Sum::new());
        for ends in cuts.windows(2) {
            let piece = &bytes[ends[0]..ends[1]];
            whole.add(piece);
            joined.add_sum(sum(piece));
        }
        prop_assert_eq!(whole.fold(), reference(&bytes));
        prop_assert_eq!(joined.fold(), reference(&bytes));
        prop_assert_eq!(whole.finish(), !reference(&bytes));
    }

    #[test]
    fn numbers_are_their_bytes(
        before in prop::collection::vec(any::<u8>(), 0..40),
        small: u16,
        large: u32,
        after in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut numbers = sum(&before);
        numbers.add_u16(small);
        numbers.add_u32(large);
        numbers.add(&after);
        let mut bytes = before;
        bytes.extend(small.to_be_bytes());
        bytes.extend(large.to_be_bytes());
        bytes.extend(after);
        prop_assert_eq!(numbers.fold(), reference(&bytes));
    }

    #[test]
    fn update_equals_summing_again(
        mut words in prop::collection::vec(any::<u16>(), 4..40),
        new: u32,
        at: prop::sample::Index,
    ) {
        // Not everything zero, the one case where the two zeros differ; no real packet is.
        words[0] |= 1;
        let bytes = |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        let check = !reference(&bytes(&words));
        let at = 1 + at.index(words.len() - 2);
        let old = u32::from(words[at]) << 16 | u32::from(words[at + 1]);

        words[at] = (new >> 16) as u16;
        let one = update_u16(check, (old >> 16) as u16, (new >> 16) as u16);
        prop_assert_eq!(one, !reference(&bytes(&words)));
        words[at + 1] = new as u16;
        prop_assert_eq!(update_u16(one, old as u16, new as u16), !reference(&bytes(&words)));
        prop_assert_eq!(update_u32(check, old, new), !reference(&bytes(&words)));
    }

    #[test]
    fn long_pieces_are_summed_and_copied_by_every_level(
        bytes in 301usize..if cfg!(miri) { 700 } else { 100_000 },
        seed: u64,
        align in 0usize..64,
    ) {
        let piece = random_bytes(bytes, seed);
        check_sums(&piece, align);
        check_copies(&piece, align);
    }

    #[test]
    fn pieces_are_summed_as_if_joined(
        before in prop::collection::vec(any::<u8>(), 0..3),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 0..9),
    ) {
        let mut pieced = sum(&before);
        pieced.add_pieces(pieces.iter().map(Vec::as_slice));
        let joined = [before, pieces.concat()].concat();
        prop_assert_eq!(pieced.fold(), reference(&joined));
    }

    #[test]
    fn replacing_bytes_equals_summing_again(
        mut packet in prop::collection::vec(any::<u8>(), 2..300),
        at: prop::sample::Index,
        old_bytes: prop::sample::Index,
        mut new in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        // Not everything zero, the one case where the two zeros differ; no real packet is.
        packet[0] |= 1;
        let at = 2 + 2 * at.index((packet.len() - 2) / 2 + 1);
        let old_bytes = old_bytes.index(packet.len().saturating_sub(at) + 1);
        if new.len() % 2 != old_bytes % 2 {
            new.push(0x5C);
        }
        let check = !reference(&packet);
        let at = at.min(packet.len() & !1);
        let old = packet[at..].iter().copied().take(old_bytes).collect::<Vec<_>>();
        let updated = update_bytes(check, &old, &new);
        prop_assert_eq!(update_sums(check, sum(&old), sum(&new)), updated);
        packet.splice(at..at + old.len(), new);
        prop_assert_eq!(updated, !reference(&packet));
    }
}
