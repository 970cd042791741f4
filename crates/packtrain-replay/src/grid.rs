//! Configurations, each combination of a few values.

use packtrain_capture::replay::{Limits, Options};
use packtrain_offload::coalesce::{Mode, Semantics};
use packtrain_offload::layout::TunnelPorts;

/// The values of each setting; [`runs`](Self::runs) has all combinations. A setting that is not
/// here has the value of `base` in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// All other settings.
    pub base: Options,
    /// The rules of merging.
    pub coalesce: Vec<Option<Semantics>>,
    /// The ways to find flows.
    pub mode: Vec<Mode>,
    /// The most flows that are held at once.
    pub flows: Vec<u32>,
    /// The length of a window, in nanoseconds.
    pub hold_ns: Vec<u64>,
    /// The queues of each interface.
    pub queues: Vec<u16>,
    /// The pure ACKs of a merged packet, at most.
    pub ack_limit: Vec<Option<u16>>,
    /// The longest IP datagram that is made.
    pub bytes: Vec<Option<u32>>,
    /// The most packets that are held at once.
    pub packets: Vec<Option<u32>>,
}

impl Grid {
    /// One configuration.
    #[must_use]
    pub fn of(base: &Options) -> Self {
        let limits = &base.limits;
        Self {
            base: *base,
            coalesce: vec![base.coalesce],
            mode: vec![base.mode],
            flows: vec![limits.flows.unwrap_or(Self::FLOWS)],
            hold_ns: vec![base.hold_ns],
            queues: vec![base.queues],
            ack_limit: vec![limits.ack_limit],
            bytes: vec![limits.bytes],
            packets: vec![limits.packets],
        }
    }

    /// The flows of a configuration that does not state them.
    pub const FLOWS: u32 = 1024;

    /// The combinations, with those that are the same; `None` if they are too many to count.
    #[must_use]
    pub fn combinations(&self) -> Option<usize> {
        let lengths = [
            self.coalesce.len(),
            self.mode.len(),
            self.flows.len(),
            self.hold_ns.len(),
            self.queues.len(),
            self.ack_limit.len(),
            self.bytes.len(),
            self.packets.len(),
        ];
        lengths.into_iter().try_fold(1, usize::checked_mul)
    }

    /// Each combination once: the last setting changes first. A limit of ACKs has no meaning
    /// without [`Semantics::Stream`], so such combinations are one.
    #[must_use]
    pub fn runs(&self) -> Vec<Options> {
        let mut runs = vec![self.base];
        each(&mut runs, &self.coalesce, |run, value| run.coalesce = value);
        each(&mut runs, &self.mode, |run, value| run.mode = value);
        each(&mut runs, &self.flows, |run, value| {
            run.limits.flows = Some(value);
        });
        each(&mut runs, &self.hold_ns, |run, value| run.hold_ns = value);
        each(&mut runs, &self.queues, |run, value| run.queues = value);
        each(&mut runs, &self.ack_limit, |run, value| {
            let merges_acks = run.coalesce == Some(Semantics::Stream);
            run.limits.ack_limit = value.filter(|_| merges_acks);
        });
        each(&mut runs, &self.bytes, |run, value| {
            run.limits.bytes = value;
        });
        each(&mut runs, &self.packets, |run, value| {
            run.limits.packets = value;
        });
        let mut once: Vec<Options> = Vec::new();
        for run in runs {
            if !once.contains(&run) {
                once.push(run);
            }
        }
        once
    }
}

/// Replaces each configuration by one for each value.
fn each<T: Copy>(runs: &mut Vec<Options>, values: &[T], set: impl Fn(&mut Options, T)) {
    let combined = runs.iter().flat_map(|run| {
        values.iter().map(|&value| {
            let mut run = *run;
            set(&mut run, value);
            run
        })
    });
    *runs = combined.collect();
}

/// The settings of a configuration, as text: equal for equal configurations, the same in every
/// release.
#[must_use]
pub fn settings(options: &Options) -> Vec<(&'static str, String)> {
    let Options {
        coalesce,
        mode,
        limits,
        hold_ns,
        queues,
        headers_only,
        ..
    } = *options;
    let Limits {
        flows,
        bytes,
        packets,
        ack_limit,
        exact_id,
        tunnels,
        inactive_ns,
        window_packets,
    } = limits;
    let number = |value: Option<u64>| value.map_or_else(|| "default".into(), |n| n.to_string());
    let coalesce = match coalesce {
        Some(Semantics::Reversible) => "reversible",
        Some(Semantics::Stream) => "stream",
        None => "off",
    };
    let mode = match mode {
        Mode::Hash => "hash",
        Mode::Sorted => "sorted",
        Mode::Auto => "auto",
    };
    let mut settings = vec![
        ("coalesce", coalesce.into()),
        ("mode", mode.into()),
        ("flows", flows.unwrap_or(Grid::FLOWS).to_string()),
        ("hold_ns", hold_ns.to_string()),
        ("queues", queues.max(1).to_string()),
        ("headers_only", headers_only.to_string()),
        ("ack_limit", number(ack_limit.map(u64::from))),
        ("bytes", number(bytes.map(u64::from))),
        ("packets", number(packets.map(u64::from))),
        ("exact_id", exact_id.to_string()),
        ("inactive_ns", number(inactive_ns)),
        ("window_packets", number(window_packets.map(u64::from))),
    ];
    // Left out by default: configurations of data sets keep their names.
    if tunnels != TunnelPorts::KNOWN {
        settings.push(("tunnel_ports", tunnels.to_string()));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_there_once() {
        let grid = Grid {
            flows: vec![8, 64, 8],
            hold_ns: vec![20_000, 100_000],
            coalesce: vec![Some(Semantics::Reversible), Some(Semantics::Stream)],
            ack_limit: vec![None, Some(4)],
            ..Grid::of(&Options::default())
        };
        let runs = grid.runs();
        // The limit of ACKs makes two of each with `stream` only.
        assert_eq!(runs.len(), 2 * 2 * (1 + 2));
        assert_eq!((runs[0].limits.flows, runs[0].hold_ns), (Some(8), 20_000));
        assert_eq!((runs[1].limits.flows, runs[1].hold_ns), (Some(8), 100_000));
        let names: Vec<_> = runs.iter().map(settings).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name:?}");
        }
        assert_eq!(Grid::of(&runs[3]).runs(), [runs[3]]);
    }
}
