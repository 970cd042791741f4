//! Why packets were merged or not, in words for people.

use packtrain_offload::coalesce::{FlushReason, NotTaken};

/// What a [`FlushReason`] means.
pub const fn of_flush(reason: FlushReason) -> &'static str {
    match reason {
        FlushReason::Full => "the merged packet was as large as it may be",
        FlushReason::Timeout => "the --hold window ended",
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
        NotTaken::Fragment => "an IP fragment",
        NotTaken::Options => "IPv4 options, a source route, or IPv6 extension headers",
        NotTaken::Gso => "it stands for several packets already",
        NotTaken::BadChecksum => "its checksum is wrong",
        NotTaken::NoChecksum => "it has no checksum that can be verified",
        NotTaken::ChecksumForm => "its checksum is a zero that segmentation would not restore",
        NotTaken::Padding => "it has bytes after the IP packet",
        NotTaken::Tunnel => "UDP to or from a tunnel's port (VXLAN, GENEVE)",
        NotTaken::UdpLength => "its UDP length is not that of its IP payload",
        NotTaken::Payload => "no payload (a pure ACK), or less than 8 bytes",
        NotTaken::Flags => "TCP flags that are never merged (SYN, RST, URG)",
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
        let flushes: BTreeSet<_> = FlushReason::ALL.iter().map(|one| of_flush(*one)).collect();
        assert_eq!(flushes.len(), FlushReason::ALL.len());
        let others: BTreeSet<_> = NotTaken::ALL.iter().map(|one| of_not_taken(*one)).collect();
        assert_eq!(others.len(), NotTaken::ALL.len());
        assert!(!flushes.contains("") && !others.contains(""));
    }
}
