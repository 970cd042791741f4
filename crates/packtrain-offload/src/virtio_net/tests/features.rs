use super::*;

/// Linux's `set_offload()` (drivers/net/tun.c, 6.12), line by line: whether it takes the argument.
fn linux_takes(mut arg: u32) -> bool {
    if arg & 0x01 != 0 {
        arg &= !0x01;
        if arg & (0x02 | 0x04) != 0 {
            arg &= !0x08;
            arg &= !(0x02 | 0x04);
        }
        arg &= !0x10;
        if arg & 0x20 != 0 && arg & 0x40 != 0 {
            arg &= !(0x20 | 0x40);
        }
    }
    arg == 0
}

fn all_sets() -> impl Iterator<Item = Accept> {
    (0..128).map(Accept)
}

#[test]
fn the_bits_are_those_of_linux_and_of_virtio() {
    // One by one, as linux/if_tun.h and virtio 1.3 §5.1.3 have them.
    let csum = Accept::CSUM;
    for (accept, tun, host, guest) in [
        (csum, 0x01, 0, 1),
        (csum | Accept::TSO4, 0x02, 11, 7),
        (csum | Accept::TSO6, 0x04, 12, 8),
        (csum | Accept::TSO4 | Accept::TSO_ECN, 0x08, 13, 9),
        (csum | Accept::USO4, 0, 64, 54),
        (csum | Accept::USO6, 0, 64, 55),
        (csum | Accept::USO4 | Accept::USO6, 0x60, 56, 54),
    ] {
        assert_eq!(accept.tun_flags() & tun, tun, "{accept:?}");
        let bit = |bit| 1_u64.checked_shl(bit).unwrap_or(0);
        assert_eq!(accept.host_features() & bit(host), bit(host), "{accept:?}");
        assert_eq!(
            accept.guest_features() & bit(guest),
            bit(guest),
            "{accept:?}"
        );
    }
    assert_eq!(Accept::ALL.tun_flags(), 0x6f);
    assert_eq!(Accept::ALL.host_features(), 0x0100_0000_0000_3801);
    assert_eq!(Accept::ALL.guest_features(), 0x00c0_0000_0000_0382);
    // What has another meaning says nothing: UFO, MRG_RXBUF, VERSION_1 and the like.
    assert_eq!(Accept::from_tun_flags(!0x6f), Accept::NONE);
    assert_eq!(
        Accept::from_host_features(!Accept::ALL.host_features()),
        Accept::NONE
    );
    assert_eq!(
        Accept::from_guest_features(!Accept::ALL.guest_features()),
        Accept::NONE
    );
}

#[test]
fn every_set_has_flags_that_linux_takes_and_that_come_back() {
    let uso = Accept::USO4 | Accept::USO6;
    for set in all_sets() {
        assert!(linux_takes(set.tun_flags()), "{set:?}");
        let consistent = set.consistent();
        assert_eq!(consistent.consistent(), consistent);
        assert!(set.contains(consistent), "{set:?}");
        let negotiated = consistent.without(Accept::DATA_VALID);
        assert_eq!(
            Accept::from_guest_features(set.guest_features()),
            negotiated
        );
        // One bit, or one switch, for both IP versions.
        let both = if negotiated.contains(uso) {
            negotiated
        } else {
            negotiated.without(uso)
        };
        assert_eq!(Accept::from_host_features(set.host_features()), both);
        assert_eq!(Accept::from_tun_flags(set.tun_flags()), both);
        assert!(both.tun_flags() == set.tun_flags(), "{set:?}");
    }
    // What Linux takes, the set has: the flags of the set are those that were set.
    for flags in (0..0x80).filter(|flags| linux_takes(*flags)) {
        let ufo = 0x10;
        assert_eq!(
            Accept::from_tun_flags(flags).tun_flags(),
            flags & !ufo,
            "{flags:#x}"
        );
    }
}

#[test]
fn attempts_go_from_all_to_nothing_and_each_is_less() {
    let attempts = Accept::TUN_ATTEMPTS.map(Accept::tun_flags);
    assert_eq!(attempts, [0x6f, 0x0f, 0x07, 0x01, 0]);
    assert!(Accept::TUN_ATTEMPTS.is_sorted_by(|more, less| more.contains(*less) && more != less));
}
