//! Why packets were lost, merged or not merged, in words for people.

use packtrain::stats::DropReason;
use packtrain_offload::coalesce::{FlushReason, NotTaken};

/// What a [`DropReason`] means.
pub fn of_drop(reason: DropReason) -> String {
    let words = match reason {
        DropReason::NoBuffer => "no free packet buffer: too many packets were in flight",
        DropReason::LinkDown => {
            "the link of the egress port was down: for an interface ip link set NAME up"
        }
        DropReason::Truncated => "shorter than its link header, or than the device said",
        DropReason::TooLong => "longer than a packet may be, or than the buffers posted for it",
        DropReason::BadDescriptor => {
            "the device marked it as received in error, or the guest's descriptors are wrong"
        }
        DropReason::BadChecksumPlace => "its unfinished checksum is outside of the packet",
        DropReason::TooManySegments => {
            "in more pieces than the device accepts, also after what fit= permits"
        }
        DropReason::HeadersTooLong => "its headers do not fit the one segment that must have them",
        DropReason::DeviceRefused => "the device refused it, for no offload that it uses",
        DropReason::DeviceReset => "in the device when it was reset, failed or was removed",
        DropReason::Shutdown => "still waiting when the run ended",
        DropReason::FaultInjected => "dropped on request (drop=)",
        DropReason::ReadOnly => "for a capture file that is only read (no `write`)",
        DropReason::SocketFull => {
            "not read fast enough from the interface (its socket or ring was full): for bursts \
             more room (buffer= of packet:, rings= of xdp:), for more load more queues (queues=)"
        }
        DropReason::Mtu => "longer than the MTU of the egress interface",
        DropReason::CutShort => "not captured whole (snapshot length)",
        DropReason::BadRecord => "the capture's record cannot be read as a packet",
        DropReason::LinkType => "its link header does not exist on the other port",
        DropReason::NoEgress => {
            "not forwarded: for an address behind its own port, or for bridges only"
        }
        DropReason::EgressFull => "the queue of the egress port was full (`egress_full` of its TX)",
        DropReason::Vnet(error) => return error.to_string(),
        DropReason::Segment(error) => return error.to_string(),
        _ => "",
    };
    words.to_owned()
}

/// What a [`FlushReason`] means.
pub const fn of_flush(reason: FlushReason) -> &'static str {
    match reason {
        FlushReason::Full => "the merged packet was as large as it may be",
        FlushReason::Timeout => "the --hold window ended, or a limit ended it",
        FlushReason::Inactive => "it was held for too long",
        FlushReason::Order => "the next packet of its flow did not continue it",
        FlushReason::Flags => "a TCP flag ended it (FIN, PSH, SYN, RST, URG, CWR)",
        FlushReason::Evict => "the flow table was full: see --flows",
        FlushReason::Mismatch => "the next packet of its flow had another header",
        FlushReason::Size => "its payload was shorter, or the next one longer",
        FlushReason::Refused => "the next packet of its flow cannot be merged",
        _ => "",
    }
}

/// What a [`NotTaken`] means.
pub const fn of_not_taken(reason: NotTaken) -> &'static str {
    match reason {
        NotTaken::Protocol => "neither TCP nor UDP over IP",
        NotTaken::Malformed => {
            "malformed: too short for its headers, or they contradict themselves"
        }
        NotTaken::Fragment => "an IP fragment",
        NotTaken::Options => "IPv4 options, a source route, or IPv6 extension headers",
        NotTaken::Gso => "it stands for several packets already",
        NotTaken::BadChecksum => "its checksum is wrong",
        NotTaken::NoChecksum => "it has no checksum that can be verified",
        NotTaken::ChecksumForm => "its checksum is a zero that segmentation would not restore",
        NotTaken::Padding => "it has bytes after the IP packet",
        NotTaken::Tunnel => "in a tunnel (VXLAN, GENEVE, GRE, IP in IP, MPLS, PPPoE)",
        NotTaken::UdpLength => "its UDP length is not that of its IP payload",
        NotTaken::Payload => "no payload (a pure ACK), or less than 8 bytes",
        NotTaken::Push => "PSH ends a merged packet, and no packet was held before it",
        NotTaken::Flags => "TCP flags that never start a merged packet (SYN, FIN, RST, URG)",
        NotTaken::Length => "it is as large as a packet may be",
        NotTaken::Shared => "its headers are in several pieces or shared",
        NotTaken::Off => "merging of its kind is off, or it was alone",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_words_of_its_own() {
        let drops: BTreeSet<_> = DropReason::all().map(of_drop).collect();
        assert_eq!(drops.len(), DropReason::all().count());
        assert!(drops.iter().all(|words| words.lines().count() == 1));
        let flushes: BTreeSet<_> = FlushReason::ALL.iter().map(|one| of_flush(*one)).collect();
        assert_eq!(flushes.len(), FlushReason::ALL.len());
        let others: BTreeSet<_> = NotTaken::ALL.iter().map(|one| of_not_taken(*one)).collect();
        assert_eq!(others.len(), NotTaken::ALL.len());
        assert!(!flushes.contains("") && !others.contains(""));
    }
    #[test]
    fn the_remedy_for_a_full_socket_names_a_key_of_each_kind() {
        let words = of_drop(DropReason::SocketFull);
        for (kind, key) in [("packet", "buffer="), ("xdp", "rings=")] {
            assert!(words.contains(&format!("{key} of {kind}:")), "{words}");
            let refused = packtrain::port::open(&format!("{kind}:none,{key}x"));
            let error = refused.expect_err("no number").to_string();
            assert!(error.contains(&format!("{key} cannot be 'x'")), "{error}");
        }
    }
}
