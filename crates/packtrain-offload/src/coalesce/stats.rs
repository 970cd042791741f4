//! Counters of a coalescer, and their reasons.

use core::fmt;

macro_rules! reasons {
    (
        $(#[$enum_doc:meta])* $enum:ident,
        $(#[$counts_doc:meta])* $counts:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal,)*
        }
    ) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        pub enum $enum {
            $(
                $(#[$doc])*
                #[cfg_attr(feature = "serde", serde(rename = $name))]
                $variant,
            )*
        }

        impl $enum {
            /// Every variant, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name under which it is counted.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl fmt::Display for $enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        $(#[$counts_doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $counts([u64; $enum::ALL.len()]);

        /// The names of the counts that are not 0, each with its count.
        impl fmt::Debug for $counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let counted = self.iter().filter(|(_, count)| *count > 0);
                f.write_str(stringify!($counts))?;
                f.debug_map().entries(counted).finish()
            }
        }

        impl Default for $counts {
            fn default() -> Self {
                Self([0; $enum::ALL.len()])
            }
        }

        impl $counts {
            /// The count of one reason.
            #[must_use]
            pub const fn get(&self, reason: $enum) -> u64 {
                self.0[reason as usize]
            }

            /// Every reason with its count.
            pub fn iter(&self) -> impl Iterator<Item = ($enum, u64)> + '_ {
                $enum::ALL.iter().map(|&reason| (reason, self.get(reason)))
            }

            /// The sum over all reasons.
            #[must_use]
            pub fn total(&self) -> u64 {
                self.0.iter().sum()
            }

            #[inline]
            pub(super) fn add(&mut self, reason: $enum) {
                self.0[reason as usize] += 1;
            }
        }

        impl core::ops::AddAssign for $counts {
            fn add_assign(&mut self, other: Self) {
                for (mine, theirs) in self.0.iter_mut().zip(other.0) {
                    *mine += theirs;
                }
            }
        }

        /// A map of every name to its count.
        #[cfg(feature = "serde")]
        impl serde::Serialize for $counts {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_map(self.iter())
            }
        }

        /// A name that is not in the map has the count 0; an unknown name is an error.
        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $counts {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visitor;

                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = $counts;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a map of names to counts")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<Self::Value, A::Error> {
                        let mut counts = $counts::default();
                        while let Some((reason, count)) = map.next_entry::<$enum, u64>()? {
                            counts.0[reason as usize] = count;
                        }
                        Ok(counts)
                    }
                }

                from.deserialize_map(Visitor)
            }
        }
    };
}

reasons! {
    /// Why a held packet, merged or alone, was handed on.
    FlushReason,
    /// How often each [`FlushReason`] came up.
    FlushCounts {
        /// At a limit: the length limit, 64 datagrams, the ACK limit, or the packet type's own
        /// limit on pieces.
        Full = "full",
        /// The caller flushed: the end of a poll, or of a hold time.
        Timeout = "timeout",
        /// Held longer than [`flush_inactive`](super::Coalescer::flush_inactive) allowed.
        Inactive = "inactive",
        /// The next packet of the flow does not continue it: a gap, a repetition, an identification
        /// out of step, an older acknowledgement or timestamp, no payload.
        Order = "order",
        /// FIN, PSH, SYN, RST, URG, CWR or, for `stream`, any flag but ACK and PSH.
        Flags = "flags",
        /// The table, or the flow's set in it, was full, and this packet the oldest.
        Evict = "evict",
        /// The next packet of the flow has another header: TTL, TOS, ECN, DF, VLAN tag, options,
        /// link addresses; for `reversible` also window, acknowledgement, timestamps.
        Mismatch = "mismatch",
        /// A payload shorter than the first one, merged as the last, or a longer one.
        Size = "size",
        /// A packet of the flow arrived that is not taken for another reason ([`NotTaken`]).
        Refused = "refused",
    }
}

reasons! {
    /// Why a packet was handed on at once, neither merged nor held.
    NotTaken,
    /// How often each [`NotTaken`] came up.
    NotTakenCounts {
        /// Neither TCP nor UDP, or not IP.
        Protocol = "protocol",
        /// It ends before its headers do, or they contradict themselves.
        Malformed = "malformed",
        /// An IP fragment.
        Fragment = "fragment",
        /// IPv4 options, a source route, or IPv6 extension headers where they are not supported.
        Options = "options",
        /// It is a GSO packet already.
        Gso = "gso",
        /// The IPv4 header checksum or the transport checksum is wrong. The bytes are untouched.
        BadChecksum = "bad_checksum",
        /// The checksum is neither marked as verified nor verifiable: UDP without one, or a partial
        /// one that is not that of the transport header.
        NoChecksum = "no_checksum",
        /// The checksum field has the representation of zero that segmenters do not write:
        /// `reversible` could not restore it.
        ChecksumForm = "checksum_form",
        /// Bytes behind the IP datagram, which `reversible` could not restore.
        Padding = "padding",
        /// A packet of a tunnel: a UDP datagram to or from one of
        /// [`Config::tunnels`](super::Config::tunnels), GRE, IP in IP, MPLS, PPPoE.
        Tunnel = "tunnel",
        /// A UDP length that differs from that of the IP payload, also one that is impossible.
        UdpLength = "udp_length",
        /// No payload, or too little for a first packet ([`TCP_GSO_SIZE_MIN`]): a pure ACK, for
        /// `reversible`.
        ///
        /// [`TCP_GSO_SIZE_MIN`]: crate::segment::TCP_GSO_SIZE_MIN
        Payload = "payload",
        /// PSH and no other such flag: it ends a merged packet, and no packet was held before it.
        Push = "push",
        /// TCP flags that neither start nor continue a merged packet.
        Flags = "flags",
        /// An IP length that is already at the limit, or above the maximum of one packet.
        Length = "length",
        /// The headers are not contiguous or cannot be written to.
        Shared = "shared",
        /// The protocol is switched off in the configuration, or no packet was held that it could
        /// have merged with. Such a packet is not parsed.
        Off = "off",
    }
}

/// 64-bit counts of a coalescer since it was made. One coalescer has one writer.
///
/// While nothing is held, `packets = emitted + merged - supers`: every packet was handed on, alone
/// or in a merged one. And always `emitted = flushes.total() + not_taken.total()`. What
/// [`clear`](super::Coalescer::clear) drops is in `packets` alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stats {
    /// Packets given to the coalescer.
    pub packets: u64,
    /// Packets handed on, merged or not.
    pub emitted: u64,
    /// Merged packets handed on (`gro_packets`).
    pub supers: u64,
    /// Packets that `supers` were made of, absorbed ACKs included (`gro_wire_packets`).
    pub merged: u64,
    /// Pure ACKs that were merged and freed; for `stream` only.
    pub absorbed: u64,
    /// Packets with a wrong IPv4 header or transport checksum.
    pub bad_checksums: u64,
    /// Payload bytes summed to verify checksums.
    pub summed_bytes: u64,
    /// Windows that were run in sorted mode.
    pub sorted_windows: u64,
    /// Why held packets were handed on.
    pub flushes: FlushCounts,
    /// Why packets were not taken.
    pub not_taken: NotTakenCounts,
}

impl Stats {
    /// Counts a packet that is handed on because there was none to merge with.
    pub(crate) fn alone(&mut self) {
        self.packets += 1;
        self.emitted += 1;
        self.not_taken.add(NotTaken::Off);
    }
}

/// Adds up the counts of several coalescers, or of one that is made anew for every batch.
impl core::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.emitted += other.emitted;
        self.supers += other.supers;
        self.merged += other.merged;
        self.absorbed += other.absorbed;
        self.bad_checksums += other.bad_checksums;
        self.summed_bytes += other.summed_bytes;
        self.sorted_windows += other.sorted_windows;
        self.flushes += other.flushes;
        self.not_taken += other.not_taken;
    }
}
