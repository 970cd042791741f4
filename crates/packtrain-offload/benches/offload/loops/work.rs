//! The kinds of work that are measured.

use crate::loops::sizes::{
    BURST, COLD_BURSTS, EVICT_BYTES, FRAME_BYTES, MSS, PER_FLOW, SEGMENTS, SLOTS, WINDOW,
};

/// The cache state of a sample's data when the clock starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the first or second level of cache: just written, or used repeatedly.
    Warm,
    /// In memory: as much other data as the caches have room for was read in between.
    Cold,
}

/// How a coalescer finds the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By a table.
    Hash,
    /// By sorting the queued packets.
    Sorted,
    /// Either, selected by the coalescer from the traffic.
    Auto,
}

/// One kind of work: a row of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Follow pointers through `bytes` bytes: the cost of a cache miss on this machine.
    Load {
        /// Footprint.
        bytes: usize,
    },
    /// Sum `bytes` bytes.
    Checksum {
        /// Length of the piece.
        bytes: usize,
        /// Where it is.
        place: Place,
    },
    /// Copy `bytes` bytes and sum them.
    CopySum {
        /// Length of the piece.
        bytes: usize,
    },
    /// Merge a burst of 64 TCP packets, and give all of it out.
    Burst {
        /// Flows whose packets alternate in the burst.
        flows: u32,
        /// Whether the checksum of each packet is verified; else the device did that.
        verify: bool,
        /// Where the headers are.
        place: Place,
    },
    /// Merge across bursts of 64 until each flow has had 4 packets, then give all out.
    Held {
        /// Flows, in another order each time around.
        flows: u32,
    },
    /// Windows of 1024 packets in which flows alternate with 4 packets each; all is given out
    /// after each window.
    Windows {
        /// Flows.
        flows: u32,
        /// How packets of a flow are found.
        mode: Mode,
    },
    /// Aggregate pure acknowledgements: 4 of each connection, across bursts of 64.
    Acks {
        /// Connections.
        flows: u32,
    },
    /// From wire packets of raw IP to the buffers of TUN writes: verified, merged, payload copied.
    TunWrite {
        /// Flows whose packets alternate in a burst of 64.
        flows: u32,
        /// UDP, else TCP.
        udp: bool,
    },
    /// Cut a packet into segments of 1448 bytes: copied, with checksums.
    SegmentCopy {
        /// UDP, else TCP.
        udp: bool,
        /// How many: [`SEGMENTS`] are 64 KB.
        segments: usize,
    },
    /// Cut 64 KB of TCP into segments of 1448 bytes that share its payload, checksums left open.
    SegmentShare,
    /// Group keys of 64 bits, each with an index.
    Group {
        /// How many.
        n: usize,
        /// Distinct keys.
        distinct: usize,
    },
}

impl Work {
    /// Every measured work, in the order of the report.
    pub fn all() -> Vec<Self> {
        use Place::{Cold, Warm};
        let mut all = Vec::new();
        let footprints = [32 << 10, 512 << 10, 8 << 20, 128 << 20, 640 << 20];
        all.extend(footprints.map(|bytes| Self::Load { bytes }));
        let sizes = [64, 128, 256, 512, 1500, 4096, 9000, 65_536];
        all.extend(sizes.map(|bytes| Self::Checksum { bytes, place: Warm }));
        all.extend([1500, 65_536].map(|bytes| Self::Checksum { bytes, place: Cold }));
        all.extend([1500, 65_536].map(|bytes| Self::CopySum { bytes }));
        for (verify, place) in [(false, Warm), (false, Cold), (true, Warm), (true, Cold)] {
            all.extend([1, 8, 64].map(|flows| Self::Burst {
                flows,
                verify,
                place,
            }));
        }
        let counts = [1, 8, 64, 1024, 16_384, 80_000];
        all.extend(counts.map(|flows| Self::Held { flows }));
        for flows in counts {
            // The other modes are compared with this one.
            let mode = Mode::Auto;
            all.push(Self::Windows { flows, mode });
        }
        all.extend(counts.map(|flows| Self::Acks { flows }));
        for udp in [false, true] {
            all.extend([1, 8].map(|flows| Self::TunWrite { flows, udp }));
        }
        for (udp, segments) in [(false, SEGMENTS), (true, SEGMENTS), (false, 2), (false, 8)] {
            all.push(Self::SegmentCopy { udp, segments });
        }
        all.push(Self::SegmentShare);
        for n in [64, 512, 4096, 65_536] {
            all.extend([1, 8, n].map(|distinct| Self::Group { n, distinct }));
        }
        all
    }

    /// The row's name; with [`flows`](Self::flows) it is unique.
    pub fn row(self) -> String {
        let cold = |place| if place == Place::Cold { ", cold" } else { "" };
        match self {
            Self::Load { bytes } if bytes < 1 << 20 => {
                format!("dependent load, {} KiB", bytes >> 10)
            }
            Self::Load { bytes } => format!("dependent load, {} MiB", bytes >> 20),
            Self::Checksum { bytes, place } => format!("checksum {bytes} B{}", cold(place)),
            Self::CopySum { bytes } => format!("copy and sum {bytes} B"),
            Self::Burst { verify, place, .. } => {
                let verified = if verify { "verify" } else { "device-verified" };
                format!("coalesce burst, {verified}{}", cold(place))
            }
            Self::Held { .. } => "coalesce held".to_owned(),
            Self::Windows { mode, .. } => format!("coalesce windows, {}", mode.name()),
            Self::Acks { .. } => "aggregate pure ACKs".to_owned(),
            Self::TunWrite { udp, .. } => format!("coalesce to TUN write, {}", protocol(udp)),
            Self::SegmentCopy { udp, segments } => {
                let few = if segments == SEGMENTS {
                    String::new()
                } else {
                    format!(", {segments} segments")
                };
                format!("segment, copy and checksum, {}{few}", protocol(udp))
            }
            Self::SegmentShare => "segment, zero-copy".to_owned(),
            Self::Group { n, .. } => format!("group n={n}"),
        }
    }

    /// Flows, or distinct keys; 1 if neither applies.
    pub fn flows(self) -> u32 {
        match self {
            Self::Burst { flows, .. }
            | Self::Held { flows }
            | Self::Windows { flows, .. }
            | Self::Acks { flows }
            | Self::TunWrite { flows, .. } => flows,
            Self::Group { distinct, .. } => distinct as u32,
            Self::Load { .. }
            | Self::Checksum { .. }
            | Self::CopySum { .. }
            | Self::SegmentCopy { .. }
            | Self::SegmentShare => 1,
        }
    }

    /// The unit of one figure in nanoseconds.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Load { .. } => "load",
            Self::Checksum { .. } | Self::CopySum { .. } => "piece",
            Self::SegmentCopy { .. } | Self::SegmentShare => "segment",
            Self::Group { .. } => "element",
            Self::Acks { .. } => "ACK",
            _ => "packet",
        }
    }

    /// Payload bytes of one unit, if a bandwidth is meaningful.
    pub const fn bytes(self) -> Option<usize> {
        match self {
            Self::Checksum { bytes, .. } | Self::CopySum { bytes } => Some(bytes),
            Self::SegmentCopy { .. } | Self::TunWrite { .. } => Some(MSS),
            Self::Burst { verify: true, .. } => Some(MSS),
            _ => None,
        }
    }

    /// Bytes that a sample accesses: buffers of packets, or the array.
    pub fn footprint(self) -> usize {
        let frames = |packets: usize| packets * FRAME_BYTES;
        match self {
            Self::Load { bytes } => bytes,
            Self::Checksum { bytes, place } => match place {
                Place::Warm => bytes,
                Place::Cold => EVICT_BYTES,
            },
            Self::CopySum { bytes } => 2 * bytes,
            Self::Burst { place, .. } => match place {
                Place::Warm => frames(BURST),
                Place::Cold => frames(COLD_BURSTS * BURST),
            },
            Self::Held { flows } | Self::Acks { flows } => {
                frames((flows * PER_FLOW).max(BURST as u32) as usize)
            }
            Self::Windows { .. } => frames(WINDOW),
            Self::TunWrite { .. } => BURST << 16,
            Self::SegmentCopy { segments, .. } => {
                // Packets of a sample, and the buffers of one of them.
                SLOTS * segments * MSS + frames(segments)
            }
            Self::SegmentShare => 1 << 16,
            Self::Group { n, .. } => 16 * n,
        }
    }

    /// Required wire packets for each packet out, at any time.
    pub const fn merge_goal(self) -> Option<f64> {
        match self {
            Self::Held { .. } => Some(3.9),
            Self::Windows { flows, .. } if flows as usize * PER_FLOW as usize >= WINDOW => {
                Some(3.9)
            }
            Self::Acks { .. } => Some(3.0),
            _ => None,
        }
    }
}

impl Mode {
    /// As in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Sorted => "sorted",
            Self::Auto => "auto",
        }
    }
}

const fn protocol(udp: bool) -> &'static str {
    if udp { "UDP" } else { "TCP" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_told_apart_by_name_and_flows() {
        let names: BTreeSet<_> = Work::all().iter().map(|w| (w.row(), w.flows())).collect();
        assert_eq!(names.len(), Work::all().len());
    }
}
