//! The features of a virtio network device, as bits of the protocol and as offloads.

use crate::driver::Features;
use crate::port::virtqueue::features::{
    ANY_LAYOUT, CTRL_VQ, EVENT_IDX, INDIRECT_DESC, MRG_RXBUF, VERSION_1,
};
use packtrain_offload::virtio_net::Accept;

pub(in crate::port) use crate::port::virtqueue::features::MQ;

/// Of vhost-user itself: the front end may ask for features of the protocol.
pub(in crate::port) const PROTOCOL_FEATURES: u64 = 1 << 30;

/// Features that depend on no offload.
const PLAIN: u64 =
    MRG_RXBUF | ANY_LAYOUT | INDIRECT_DESC | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1;

/// `VHOST_USER_PROTOCOL_F_MQ`: the front end may ask for the number of queues.
const PROTOCOL_MQ: u64 = 1 << 0;
/// `VHOST_USER_PROTOCOL_F_REPLY_ACK`: requests can be acknowledged.
pub(in crate::port) const REPLY_ACK: u64 = 1 << 3;

/// The features of the protocol that are offered to a port of `pairs` pairs of rings. Never more
/// than are built: QEMU uses all of them.
///
/// Without `PROTOCOL_MQ` a front end takes one pair for granted. With it those of rust-vmm expect
/// the number of rings, and would refuse one pair.
pub(in crate::port) const fn protocol(pairs: usize) -> u64 {
    if pairs > 1 {
        PROTOCOL_MQ | REPLY_ACK
    } else {
        REPLY_ACK
    }
}

/// The part of `wanted` that packets from a guest can have: a bit stands for all of its offloads.
pub(in crate::port) fn from_guest(wanted: Features) -> Features {
    Features::of_accept(accepted(wanted.accept().host_features()))
}

/// The part of `wanted` that packets to a guest can have.
pub(in crate::port) fn to_guest(wanted: Features) -> Features {
    wanted
        .intersection(Features::CSUM | Features::TSO | Features::USO)
        .consistent()
}

/// The features to offer, for offloads in both directions and a number of pairs of rings.
pub(in crate::port) fn offer(from: Features, to: Features, pairs: usize) -> u64 {
    let several = if pairs > 1 { MQ | CTRL_VQ } else { 0 };
    // One of both checksums is enough: the framework completes the others.
    let to = match to.intersection(Features::CSUM) {
        Features::NONE => to,
        _ => to | Features::CSUM,
    };
    PLAIN | several | from.accept().host_features() | to.accept().guest_features()
}

/// The offloads that packets from a guest with these features may have. None of them may say that
/// its checksum was verified: that is not for a guest.
pub(in crate::port) const fn accepted(features: u64) -> Accept {
    Accept::from_host_features(features)
}

/// The offloads that packets to a guest with these features may have.
pub(in crate::port) fn negotiated(features: u64) -> Features {
    Features::of_accept(Accept::from_guest_features(features))
}

/// What the guest has negotiated, as far as a ring depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) struct Form {
    /// Bytes of the virtio-net header: 10 or 12.
    pub(in crate::port) header: usize,
    /// A packet to the guest may be in several chains (`MRG_RXBUF`).
    pub(in crate::port) mergeable: bool,
    /// Kicks and calls are asked for by index (`EVENT_IDX`).
    pub(in crate::port) event_idx: bool,
    /// A descriptor may refer to a table of others (`INDIRECT_DESC`).
    pub(in crate::port) indirect: bool,
    /// All features, as the protocol has them.
    pub(in crate::port) features: u64,
}

impl Default for Form {
    /// A guest that has negotiated nothing: its header is the short one.
    fn default() -> Self {
        Self {
            header: 10,
            mergeable: false,
            event_idx: false,
            indirect: false,
            features: 0,
        }
    }
}

/// What a ring needs to know of the features.
pub(in crate::port) const fn form(features: u64) -> Form {
    Form {
        header: if features & (VERSION_1 | MRG_RXBUF) == 0 {
            10
        } else {
            12
        },
        mergeable: features & MRG_RXBUF != 0,
        event_idx: features & EVENT_IDX != 0,
        indirect: features & INDIRECT_DESC != 0,
        features,
    }
}

/// The index of the control ring: behind all pairs, or behind the only one.
pub(in crate::port) const fn control_ring(features: u64, pairs: usize) -> Option<usize> {
    if features & CTRL_VQ == 0 {
        return None;
    }
    Some(if features & MQ == 0 { 2 } else { 2 * pairs })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST_CSUM: u64 = 1 << 1;
    const GUEST_TSO4: u64 = 1 << 7;
    const GUEST_ECN: u64 = 1 << 9;
    const GUEST_USO4: u64 = 1 << 54;
    const HOST_USO: u64 = 1 << 56;

    #[test]
    fn each_offload_is_offered_by_its_own_bit_and_read_back() {
        let all = Features::CSUM | Features::TSO | Features::USO;
        let offered = offer(from_guest(all), to_guest(all), 1);
        assert_eq!(offered & !PLAIN, 0x01C0_0000_0000_3B83, "{offered:#x}");
        assert_eq!(negotiated(offered), all);
        assert_eq!(accepted(offered), Accept::ALL.without(Accept::DATA_VALID));
        let none = offer(Features::NONE, Features::NONE, 1);
        assert_eq!((none, negotiated(none)), (PLAIN, Features::NONE));
        assert_eq!(accepted(none), Accept::NONE);
        let protocols = [1, 2].map(protocol);
        assert_eq!(protocols, [0b1000, 0b1001], "what is offered is used");
        // Packed rings, logging, and all that is not built.
        for bit in [16, 18, 21, 23, 26, 33, 34, 35, 57, 61] {
            assert_eq!(offered & (1 << bit), 0, "bit {bit}");
        }
    }

    #[test]
    fn a_bit_for_both_ip_versions_is_offered_to_senders_only_for_both() {
        let four = Features::CSUM4 | Features::TSO4 | Features::USO4;
        assert_eq!(from_guest(four), Features::NONE);
        assert_eq!(
            from_guest(Features::CSUM | four),
            Features::CSUM | Features::TSO4
        );
        assert_eq!(to_guest(four), four);
        let offered = offer(from_guest(four), to_guest(four), 1);
        assert_eq!(offered & !PLAIN, GUEST_CSUM | GUEST_TSO4 | GUEST_USO4);
    }

    #[test]
    fn what_a_front_end_sets_without_what_it_needs_does_not_count() {
        assert_eq!(negotiated(GUEST_TSO4 | GUEST_ECN), Features::NONE);
        assert_eq!(accepted(HOST_USO), Accept::NONE);
        assert_eq!(negotiated(GUEST_CSUM | GUEST_ECN), Features::CSUM);
    }

    #[test]
    fn the_control_ring_is_behind_the_last_pair() {
        assert_eq!(control_ring(0, 4), None);
        assert_eq!(control_ring(CTRL_VQ, 4), Some(2));
        assert_eq!(control_ring(CTRL_VQ | MQ, 4), Some(8));
        assert_eq!(form(0).header, 10);
        assert_eq!(form(0), Form::default(), "also before features are set");
        assert_eq!(form(MRG_RXBUF).header, 12);
        assert_eq!(form(VERSION_1).header, 12);
    }
}
