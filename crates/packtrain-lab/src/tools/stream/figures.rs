//! The figures of a stream, from what was read after the warm-up and at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use packtrain::engine::Snapshot;
use packtrain::stats::DropReason;
use schemars::JsonSchema;
use serde::Serialize;

use super::options::{Direction, Stream};
use crate::counters::Counters;
use crate::cpu::napi_threads;
use crate::error::{LabError, ToolError};
use crate::link::LinkStats;
use crate::machine::{Activity, CpuFigures};
use crate::testbed::Testbed;
use crate::tool::Watch;
use crate::traffic::{Datagrams, Done, Opened, Protocol, Sample, TransferReport};
use crate::used::Used;

/// A side that uses so much of a CPU, in percent, has no more to give.
const BUSY_PERCENT: f64 = 95.0;

/// All counters at one moment.
pub(super) struct Reading {
    pub at: Instant,
    samples: Vec<Sample>,
    kernels: [Counters; 2],
    links: [LinkStats; 2],
    /// CPU time of the kernel threads of each host's interface.
    napi: [BTreeMap<u32, Duration>; 2],
    used: Used,
}

impl Reading {
    pub(super) fn now(testbed: &Testbed, opened: &[Opened<'_>]) -> Result<Self, LabError> {
        let hosts = testbed.hosts();
        let kernels = [hosts.left.counters()?, hosts.right.counters()?];
        let links = [hosts.left.stats()?, hosts.right.stats()?];
        let napi = [&hosts.left, &hosts.right].map(|host| napi_threads(&host.link.name));
        let used = testbed.used();
        // Last, and the time beside them: goodput is the most sensitive figure.
        let samples = opened.iter().map(Opened::sample);
        Ok(Self {
            samples: samples.collect::<Result<_, _>>()?,
            at: Instant::now(),
            kernels,
            links,
            napi,
            used,
        })
    }
}

/// What each kernel thread of a host's interface used between two readings.
fn napi_since<'a>(
    first: &'a Reading,
    last: &'a Reading,
    host: usize,
) -> impl Iterator<Item = Duration> {
    last.napi[host].iter().map(move |(thread, cpu)| {
        let before = first.napi[host].get(thread).copied();
        cpu.saturating_sub(before.unwrap_or_default())
    })
}

/// What happened in the steady part of a run.
pub(super) struct Steady {
    first: Reading,
    last: Reading,
    machine: Activity,
    pub flags: Vec<String>,
}

impl Steady {
    pub(super) fn between(first: Reading, last: Reading, watch: &Watch) -> Result<Self, ToolError> {
        let used = last.used.clone().since(&first.used);
        let kernel: Duration = (0..2)
            .flat_map(|host| napi_since(&first, &last, host))
            .sum();
        let (machine, flag) = watch.end(used.of_other_process() + kernel)?;
        Ok(Self {
            first,
            last,
            machine,
            flags: flag.into_iter().collect(),
        })
    }
}

/// What one side used of the CPUs, in percent of one CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    all: f64,
    /// Of its busiest thread.
    busiest: f64,
}

impl Share {
    fn of(threads: impl Iterator<Item = Duration>, time: Duration) -> Self {
        let percent = |cpu: Duration| 100.0 * cpu.as_secs_f64() / time.as_secs_f64();
        threads.map(percent).fold(Self::default(), |sum, one| Self {
            all: sum.all + one,
            busiest: sum.busiest.max(one),
        })
    }
}

/// A forwarder that found nothing in more of its polls than this has CPU time to spare, however
/// much of it the polls use.
const EMPTY_POLLS_PERCENT_MAX: f64 = 50.0;

/// What limits the stream: the busiest side with a thread that has a whole CPU; else all CPUs of
/// the machine together, which the sides share; else no CPU, but latency or the window. If the
/// forwarder polls in vain, `forwarder` is `None`.
fn bottleneck(
    sender: Share,
    receiver: Share,
    forwarder: Option<Share>,
    machine_percent: f64,
) -> &'static str {
    let sides = [
        ("sender", sender),
        ("receiver", receiver),
        ("forwarder", forwarder.unwrap_or_default()),
    ];
    let is_alone = |(_, share): &&(&str, Share)| share.busiest >= BUSY_PERCENT;
    let busiest = sides
        .iter()
        .filter(is_alone)
        .max_by(|(_, one), (_, other)| one.busiest.total_cmp(&other.busiest));
    match busiest {
        Some((name, _)) => name,
        // Polls in vain yield to other threads.
        None if machine_percent >= BUSY_PERCENT && forwarder.is_some() => "machine",
        None => "latency/window",
    }
}

/// What was measured in the steady part. A group that a stream does not have is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// How long that part is.
    pub seconds: f64,
    /// Requests and responses.
    #[serde(flatten)]
    pub transactions: Option<Transactions>,
    /// Payload that arrived, without requests and responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_gbps: Option<f64>,
    /// Of streams in both directions.
    #[serde(flatten)]
    pub both: Option<Both>,
    /// TCP: segments that were sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// UDP.
    #[serde(flatten)]
    pub datagrams: Option<DatagramFigures>,
    /// CPU time of the sender's threads, and of the kernel threads of its host's interface
    /// (`napi=threaded`), of one CPU.
    pub cpu_sender_percent: f64,
    /// Of its busiest thread.
    pub cpu_sender_busiest_percent: f64,
    /// CPU time of the receiver's threads, and of the kernel threads of its host's interface.
    pub cpu_receiver_percent: f64,
    /// Of its busiest thread.
    pub cpu_receiver_busiest_percent: f64,
    /// CPU time of both ends: the sender and the receiver.
    pub cpu_ends_percent: f64,
    /// CPU time of the forwarder's threads.
    pub cpu_forwarder_percent: f64,
    /// Of its busiest thread.
    pub cpu_forwarder_busiest_percent: f64,
    /// CPU time of the machine.
    #[serde(flatten)]
    pub machine: CpuFigures,
    /// `sender`, `receiver`, `forwarder`, `machine` or `latency/window`.
    pub bottleneck: &'static str,
    /// System calls of the sender.
    pub send_calls: u64,
    /// System calls of the receiver.
    pub receive_calls: u64,
    /// TCP: segments and acknowledgements.
    #[serde(flatten)]
    pub segments: Option<Segments>,
    /// Wire packets that packtrain dropped, by reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops: Option<IndexMap<&'static str, u64>>,
    /// What joined the hosts.
    pub forwarder: Forwarder,
    /// The counters of host A's interface.
    pub interface_a: Interface,
    /// Those of host B's.
    pub interface_b: Interface,
    /// The protocol counters of host A, by the names of nstat(8).
    pub nstat_a: IndexMap<&'static str, u64>,
    /// Those of host B.
    pub nstat_b: IndexMap<&'static str, u64>,
}

/// Requests and responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Transactions {
    /// Of all streams.
    pub transactions_per_second: f64,
    /// The time of one: each stream has one at a time.
    pub transaction_us: Option<f64>,
}

/// Payload that arrived, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Both {
    /// At host B.
    pub goodput_a_to_b_gbps: f64,
    /// At host A.
    pub goodput_b_to_a_gbps: f64,
}

/// Datagrams, counted until the last one arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DatagramFigures {
    /// Datagrams sent.
    pub sent_packets: u64,
    /// Datagrams that arrived whole.
    pub received_packets: u64,
    /// Those that did not.
    pub lost_packets: u64,
    /// Of those sent.
    pub lost_percent: Option<f64>,
    /// Datagrams that arrived again.
    pub duplicate_packets: u64,
    /// Datagrams that arrived after one that was sent later.
    pub reordered_packets: u64,
    /// Datagrams that arrived damaged.
    pub damaged_packets: u64,
}

/// Segments, from the counters of both kernels. In both directions each is data and an
/// acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Segments {
    /// Segments sent, retransmissions included.
    pub sent_segments: u64,
    /// Segments received.
    pub received_segments: u64,
    /// Of a stream in one direction.
    #[serde(flatten)]
    pub acks: Option<Acks>,
}

/// Acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Acks {
    /// Acknowledgements that the receiver sent.
    pub sent_acks: u64,
    /// Acknowledgements that the sender received.
    pub received_acks: u64,
    /// Segments sent for each acknowledgement.
    pub segments_per_ack: Option<f64>,
}

/// What the forwarder did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Forwarder {
    /// Context switches: its threads gave the CPU away.
    pub voluntary_switches: u64,
    /// Context switches: the scheduler took the CPU away.
    pub involuntary_switches: u64,
    /// What packtrain did.
    #[serde(flatten)]
    pub packtrain: Option<Moved>,
}

/// What packtrain's workers and the TX queues in the data direction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Moved {
    /// Sleeps that a device or another thread ended.
    pub wakeups: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// System calls, those of the ports included.
    pub system_calls: u64,
    /// Packets sent; a GSO packet is one.
    pub packets: u64,
    /// Packets that a cable would carry.
    pub wire_packets: u64,
    /// Those in each packet.
    pub wire_packets_per_packet: Option<f64>,
    /// Doorbells.
    pub doorbells: u64,
    /// Packets sent for each of them.
    pub packets_per_doorbell: Option<f64>,
    /// Polls of the RX queues in the data direction that found no packet.
    pub empty_polls_percent: Option<f64>,
}

/// The counters of a host's interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Interface {
    /// Packets that it sent.
    pub tx_packets: u64,
    /// Packets dropped in front of it.
    pub tx_dropped: u64,
    /// Packets that it received.
    pub rx_packets: u64,
    /// Packets dropped behind it.
    pub rx_dropped: u64,
}

/// The figures of the steady part.
pub(super) fn figures(stream: &Stream, steady: &Steady, reports: &[TransferReport]) -> Figures {
    let (first, last) = (&steady.first, &steady.last);
    let time = last.at - first.at;
    let seconds = time.as_secs_f64();
    let pairs = || first.samples.iter().zip(&last.samples);
    let sum = |grown: fn(&Sample, &Sample) -> u64| -> u64 {
        pairs().map(|(before, after)| grown(before, after)).sum()
    };
    let goodputs: Vec<f64> = pairs()
        .map(|(before, after)| {
            let bytes = after.receiver.bytes - before.receiver.bytes;
            bytes as f64 * 8.0 / (after.at - before.at).as_secs_f64() / 1e9
        })
        .collect();
    let is_exchange = stream.exchange.is_some();
    let transactions = is_exchange.then(|| {
        let done = sum(|before, after| after.transactions - before.transactions);
        let per_second = done as f64 / seconds;
        let streams = goodputs.len() as f64 * f64::from(stream.streams);
        Transactions {
            transactions_per_second: per_second,
            transaction_us: ratio(1e6 * streams, per_second),
        }
    });
    let both = match goodputs[..] {
        [there, back] if !is_exchange && stream.direction == Direction::Both => Some(Both {
            goodput_a_to_b_gbps: there,
            goodput_b_to_a_gbps: back,
        }),
        _ => None,
    };
    let datagrams = reports.iter().map(|report| report.marked);
    let all = datagrams.fold(Datagrams::default(), |total, one| total.plus(&one));
    let datagrams = DatagramFigures {
        sent_packets: all.sent,
        received_packets: all.received,
        lost_packets: all.lost,
        lost_percent: ratio(100.0 * all.lost as f64, all.sent as f64),
        duplicate_packets: all.duplicates,
        reordered_packets: all.reordered,
        damaged_packets: all.damaged,
    };
    let is_tcp = stream.protocol == Protocol::Tcp;
    let side = |hosts: &[usize], end: fn(&Sample) -> &Done| {
        let grown = pairs().map(|(before, after)| end(after).since(end(before)));
        let grown: Vec<Done> = grown.collect();
        let threads = grown.iter().flat_map(|done| done.cpu.iter().copied());
        let napi = hosts.iter().flat_map(|&host| napi_since(first, last, host));
        let calls: u64 = grown.iter().map(|done| done.calls).sum();
        (Share::of(threads.chain(napi), time), calls)
    };
    // In both directions, the packets of each host's kernel threads are data more than ACKs.
    let (sends, receives): (&[usize], &[usize]) = match stream.direction {
        Direction::AToB => (&[0], &[1]),
        Direction::BToA => (&[1], &[0]),
        Direction::Both => (&[], &[0, 1]),
    };
    let (sender, send_calls) = side(sends, |sample| &sample.sender);
    let (receiver, receive_calls) = side(receives, |sample| &sample.receiver);
    let used = last.used.clone().since(&first.used);
    let forwarder = forwarder(&first.used, &last.used, time);
    let machine = &steady.machine;
    let packtrain = first
        .used
        .packtrain
        .as_ref()
        .zip(last.used.packtrain.as_ref());
    let empty = packtrain.and_then(|(before, after)| empty_polls_percent(stream, before, after));
    let has_work = empty.is_none_or(|percent| percent <= EMPTY_POLLS_PERCENT_MAX);
    let kernel = |index: usize| last.kernels[index].since(&first.kernels[index]);
    let kernels = [kernel(0), kernel(1)];
    let [nstat_a, nstat_b] = kernels.each_ref().map(|kernel| kernel.nstat().collect());
    let [interface_a, interface_b] = [0, 1].map(|index: usize| {
        let of = last.links[index].since(&first.links[index]);
        Interface {
            tx_packets: of.tx_packets,
            tx_dropped: of.tx_dropped,
            rx_packets: of.rx_packets,
            rx_dropped: of.rx_dropped,
        }
    });
    Figures {
        seconds,
        transactions,
        goodput_gbps: (!is_exchange).then(|| goodputs.iter().sum()),
        both,
        retransmits: is_tcp.then(|| sum(|before, after| after.retransmits - before.retransmits)),
        datagrams: (!is_tcp).then_some(datagrams),
        cpu_sender_percent: sender.all,
        cpu_sender_busiest_percent: sender.busiest,
        cpu_receiver_percent: receiver.all,
        cpu_receiver_busiest_percent: receiver.busiest,
        cpu_ends_percent: sender.all + receiver.all,
        cpu_forwarder_percent: forwarder.all,
        cpu_forwarder_busiest_percent: forwarder.busiest,
        machine: machine.figures(),
        bottleneck: bottleneck(
            sender,
            receiver,
            has_work.then_some(forwarder),
            machine.percent(machine.busy()).unwrap_or(0.0),
        ),
        send_calls,
        receive_calls,
        segments: is_tcp.then(|| segments(stream, &kernels)),
        drops: packtrain.map(|(before, after)| drops(before, after)),
        forwarder: Forwarder {
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
            packtrain: packtrain.map(|(before, after)| Moved {
                empty_polls_percent: empty,
                ..moved(stream, before, after)
            }),
        },
        interface_a,
        interface_b,
        nstat_a,
        nstat_b,
    }
}

/// A quotient; `None` without a divisor.
fn ratio(dividend: f64, divisor: f64) -> Option<f64> {
    (divisor > 0.0).then(|| dividend / divisor)
}

/// Segments and acknowledgements, from the counters of both kernels.
fn segments(stream: &Stream, kernels: &[Counters; 2]) -> Segments {
    let one_way = stream.exchange.is_none();
    let (from, to) = match stream.direction {
        Direction::AToB if one_way => (&kernels[0], &kernels[1]),
        Direction::BToA if one_way => (&kernels[1], &kernels[0]),
        _ => {
            let sum = |count: fn(&Counters) -> u64| kernels.iter().map(count).sum::<u64>();
            return Segments {
                sent_segments: sum(|kernel| kernel.tcp_out_segs + kernel.tcp_retrans_segs),
                received_segments: sum(|kernel| kernel.tcp_in_segs),
                acks: None,
            };
        }
    };
    let sent = from.tcp_out_segs + from.tcp_retrans_segs;
    Segments {
        sent_segments: sent,
        received_segments: to.tcp_in_segs,
        acks: Some(Acks {
            sent_acks: to.tcp_out_segs,
            received_acks: from.tcp_in_segs,
            segments_per_ack: ratio(sent as f64, to.tcp_out_segs as f64),
        }),
    }
}

/// CPU time of the forwarder. The C forwarder has one thread.
fn forwarder(before: &Used, after: &Used, time: Duration) -> Share {
    match (&before.packtrain, &after.packtrain) {
        (Some(before), Some(after)) => {
            let workers = before.workers.iter().zip(&after.workers);
            let cpu = workers.map(|(before, after)| after.cpu_ns.saturating_sub(before.cpu_ns));
            Share::of(cpu.map(Duration::from_nanos), time)
        }
        _ => Share::of([after.cpu.saturating_sub(before.cpu)].into_iter(), time),
    }
}

/// Polls of the RX queues in the data direction that found no packet, in percent; `None` if they
/// were not polled.
fn empty_polls_percent(stream: &Stream, before: &Snapshot, after: &Snapshot) -> Option<f64> {
    let ways = stream.direction.ways();
    let total = |snapshot: &Snapshot| {
        let ports = ways.iter().map(|from| &snapshot.ports[from.of([0, 1])]);
        ports.fold((0, 0), |sum, port| {
            let filled = port.rx_batches.iter().map(|sizes| sizes.poll.count());
            (sum.0 + port.rx_total().polls, sum.1 + filled.sum::<u64>())
        })
    };
    let (then, now) = (total(before), total(after));
    let (polls, filled) = (now.0 - then.0, now.1 - then.1);
    // The two counters of a queue are not read at the same moment.
    let empty = polls.saturating_sub(filled);
    (polls > 0).then(|| 100.0 * empty as f64 / polls as f64)
}

/// What packtrain's workers and the TX queues in the data direction did.
fn moved(stream: &Stream, before: &Snapshot, after: &Snapshot) -> Moved {
    let ways = stream.direction.ways();
    let total = |snapshot: &Snapshot| {
        let ports = ways.iter().map(|from| &snapshot.ports[from.of([1, 0])]);
        ports.fold((0, 0, 0), |sum, port| {
            let tx = port.tx_total();
            (
                sum.0 + tx.packets,
                sum.1 + tx.wire_packets,
                sum.2 + tx.doorbells,
            )
        })
    };
    let (then, now) = (total(before), total(after));
    let (packets, wire, doorbells) = (now.0 - then.0, now.1 - then.1, now.2 - then.2);
    let wakeups = |snapshot: &Snapshot| -> u64 {
        let workers = snapshot.workers.iter();
        workers.map(|worker| worker.wakeups).sum()
    };
    Moved {
        wakeups: wakeups(after) - wakeups(before),
        sleeps: after.sleeps - before.sleeps,
        system_calls: after.syscalls - before.syscalls,
        packets,
        wire_packets: wire,
        wire_packets_per_packet: ratio(wire as f64, packets as f64),
        doorbells,
        packets_per_doorbell: ratio(packets as f64, doorbells as f64),
        empty_polls_percent: None,
    }
}

/// Wire packets that packtrain dropped, by reason; reasons that dropped none are left out.
fn drops(before: &Snapshot, after: &Snapshot) -> IndexMap<&'static str, u64> {
    let grown = |reason: DropReason| {
        let count = after.drops.get(reason) - before.drops.get(reason);
        (count > 0).then(|| (reason.name(), count))
    };
    DropReason::all().filter_map(grown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_side_with_a_whole_cpu_is_the_bottleneck() {
        let share = |busiest| Share {
            all: 150.0,
            busiest,
        };
        let named = |shares: [f64; 3], machine| {
            let [sender, receiver, forwarder] = shares.map(share);
            bottleneck(sender, receiver, Some(forwarder), machine)
        };
        assert_eq!(named([96.0, 20.0, 95.0], 60.0), "sender");
        assert_eq!(named([20.0, 95.0, 94.9], 100.0), "receiver");
        assert_eq!(named([20.0, 97.0, 99.0], 60.0), "forwarder");
        // Two threads that use 75 % each are not limited by a CPU of their own.
        assert_eq!(named([75.0, 75.0, 75.0], 94.9), "latency/window");
        assert_eq!(named([75.0, 75.0, 50.0], 100.0), "machine");
        // A forwarder that polls in vain limits nothing.
        let [sender, receiver] = [share(60.0), share(20.0)];
        let limit = bottleneck(sender, receiver, None, 100.0);
        assert_eq!(limit, "latency/window");
    }

    #[test]
    fn a_share_is_of_one_cpu() {
        let threads = [Duration::from_millis(300), Duration::from_millis(900)];
        let share = Share::of(threads.into_iter(), Duration::from_secs(1));
        assert!((share.all - 120.0).abs() < 1e-9 && (share.busiest - 90.0).abs() < 1e-9);
    }
}
