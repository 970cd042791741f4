use super::*;
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

#[test]
fn blocks_join_without_a_seam() {
    // One block of the inner loop and a bit more, all ones: the largest lanes there can be.
    let mut bytes = vec![0xFF; (1 << 24) + 37];
    assert_eq!(sum(&bytes).fold(), reference(&bytes));
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = ((i * 31) >> 3) as u8;
    }
    assert_eq!(sum(&bytes).fold(), reference(&bytes));
}

#[test]
fn every_length_at_every_alignment() {
    let bytes: Vec<u8> = (0..400u32).map(|i| (i * i + 7 * i) as u8 ^ 0x5A).collect();
    for start in 0..16 {
        for end in start..bytes.len() {
            let piece = &bytes[start..end];
            assert_eq!(sum(piece).fold(), reference(piece), "{start}..{end}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn equals_the_reference_however_split(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
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
}
