//! The figures of a stream, from what was read after the warm-up and at the end.

use std::time::{Duration, Instant};

use packtrain::engine::Snapshot;
use packtrain::stats::DropReason;
use serde_json::{Map, Value, json};

use packtrain_measure::key::fields;

use super::options::{Direction, Stream};
use crate::counters::Counters;
use crate::error::{LabError, ToolError};
use crate::link::LinkStats;
use crate::machine::Activity;
use crate::options::Fields;
use crate::testbed::{Testbed, Used};
use crate::tool::Watch;
use crate::traffic::{Datagrams, Done, Opened, Protocol, Sample, TransferReport};

/// A side that uses so much of a CPU, in percent, has no more to give.
const BUSY_PERCENT: f64 = 95.0;

/// All counters at one moment.
pub(super) struct Reading {
    pub at: Instant,
    samples: Vec<Sample>,
    kernels: [Counters; 2],
    links: [LinkStats; 2],
    used: Used,
}

impl Reading {
    pub(super) fn now(testbed: &Testbed, opened: &[Opened<'_>]) -> Result<Self, LabError> {
        let hosts = testbed.hosts();
        let kernels = [hosts.left.counters()?, hosts.right.counters()?];
        let links = [hosts.left.stats()?, hosts.right.stats()?];
        let used = testbed.used();
        // Last, and the time beside them: goodput is the most sensitive figure.
        let samples = opened.iter().map(Opened::sample);
        Ok(Self {
            samples: samples.collect::<Result<_, _>>()?,
            at: Instant::now(),
            kernels,
            links,
            used,
        })
    }
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
        let (machine, flag) = watch.end(used.of_other_process())?;
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

/// The figures of the steady part.
pub(super) fn figures(stream: &Stream, steady: &Steady, reports: &[TransferReport]) -> Fields {
    let (first, last) = (&steady.first, &steady.last);
    let time = last.at - first.at;
    let seconds = time.as_secs_f64();
    let mut figures = Fields::new();
    let mut set = |name: &str, value: Value| figures.insert(name.to_owned(), value);
    set("seconds", seconds.into());

    let pairs = || first.samples.iter().zip(&last.samples);
    let sum = |grown: fn(&Sample, &Sample) -> u64| -> u64 {
        pairs().map(|(before, after)| grown(before, after)).sum()
    };
    let gbps = |bytes: u64, time: Duration| bytes as f64 * 8.0 / time.as_secs_f64() / 1e9;
    if stream.exchange.is_some() {
        let done = sum(|before, after| after.transactions - before.transactions);
        let per_second = done as f64 / seconds;
        set("transactions_per_second", per_second.into());
        // Each stream has one transaction at a time.
        let streams = pairs().len() as f64 * f64::from(stream.streams);
        set("transaction_us", ratio(1e6 * streams, per_second));
    } else {
        let goodputs = pairs().map(|(before, after)| {
            let bytes = after.receiver.bytes - before.receiver.bytes;
            gbps(bytes, after.at - before.at)
        });
        let goodputs: Vec<f64> = goodputs.collect();
        set("goodput_gbps", goodputs.iter().sum::<f64>().into());
        if stream.direction == Direction::Both {
            let names = ["goodput_a_to_b_gbps", "goodput_b_to_a_gbps"];
            for (name, goodput) in names.iter().zip(&goodputs) {
                set(name, (*goodput).into());
            }
        }
    }
    match stream.protocol {
        Protocol::Tcp => {
            let again = sum(|before, after| after.retransmits - before.retransmits);
            set("retransmits", again.into());
        }
        Protocol::Udp => {
            let all = reports.iter().map(|report| report.marked);
            let all = all.fold(Datagrams::default(), |total, one| total.plus(&one));
            set("sent_packets", all.sent.into());
            set("received_packets", all.received.into());
            set("lost_packets", all.lost.into());
            set(
                "lost_percent",
                ratio(100.0 * all.lost as f64, all.sent as f64),
            );
            set("duplicate_packets", all.duplicates.into());
            set("reordered_packets", all.reordered.into());
            set("damaged_packets", all.damaged.into());
        }
    }

    let side = |end: fn(&Sample) -> &Done| {
        let grown = pairs().map(|(before, after)| end(after).since(end(before)));
        let grown: Vec<Done> = grown.collect();
        let threads = grown.iter().flat_map(|done| done.cpu.iter().copied());
        let calls: u64 = grown.iter().map(|done| done.calls).sum();
        (Share::of(threads, time), calls)
    };
    let (sender, send_calls) = side(|sample| &sample.sender);
    let (receiver, receive_calls) = side(|sample| &sample.receiver);
    let used = last.used.clone().since(&first.used);
    let forwarder = forwarder(&first.used, &last.used, time);
    let machine = &steady.machine;
    for (name, share) in [
        ("sender", sender),
        ("receiver", receiver),
        ("forwarder", forwarder),
    ] {
        set(&format!("cpu_{name}_percent"), share.all.into());
        set(&format!("cpu_{name}_busiest_percent"), share.busiest.into());
    }
    for (name, percent) in fields(&machine.figures()) {
        set(&name, percent);
    }
    let empty = match (&first.used.packtrain, &last.used.packtrain) {
        (Some(before), Some(after)) => empty_polls_percent(stream, before, after),
        _ => None,
    };
    let has_work = empty.is_none_or(|percent| percent <= EMPTY_POLLS_PERCENT_MAX);
    let limit = bottleneck(
        sender,
        receiver,
        has_work.then_some(forwarder),
        machine.percent(machine.busy()).unwrap_or(0.0),
    );
    set("bottleneck", limit.into());
    set("send_calls", send_calls.into());
    set("receive_calls", receive_calls.into());

    let kernel = |index: usize| last.kernels[index].since(&first.kernels[index]);
    let kernels = [kernel(0), kernel(1)];
    if stream.protocol == Protocol::Tcp {
        segments(stream, &kernels, &mut set);
    }
    let mut forwarded = Map::new();
    let switches = [used.voluntary_switches, used.involuntary_switches];
    forwarded.insert("voluntary_switches".into(), switches[0].into());
    forwarded.insert("involuntary_switches".into(), switches[1].into());
    if let (Some(before), Some(after)) = (&first.used.packtrain, &last.used.packtrain) {
        set("drops", drops(before, after));
        forwarded.append(&mut moved(stream, before, after));
        forwarded.insert("empty_polls_percent".into(), json!(empty));
    }
    set("forwarder", forwarded.into());
    for (index, name) in [(0, "a"), (1, "b")] {
        let link = last.links[index].since(&first.links[index]);
        let dropped = json!({
            "tx_packets": link.tx_packets, "tx_dropped": link.tx_dropped,
            "rx_packets": link.rx_packets, "rx_dropped": link.rx_dropped,
        });
        set(&format!("interface_{name}"), dropped);
    }
    for (kernel, name) in kernels.iter().zip(["a", "b"]) {
        let counters = kernel
            .nstat()
            .map(|(name, value)| (name.to_owned(), value.into()));
        set(&format!("nstat_{name}"), Value::Object(counters.collect()));
    }
    figures
}

/// A quotient; `null` without a divisor.
fn ratio(dividend: f64, divisor: f64) -> Value {
    if divisor > 0.0 {
        (dividend / divisor).into()
    } else {
        Value::Null
    }
}

/// Segments and acknowledgements, from the counters of both kernels.
fn segments(
    stream: &Stream,
    kernels: &[Counters; 2],
    set: &mut impl FnMut(&str, Value) -> Option<Value>,
) {
    let one_way = stream.exchange.is_none();
    let (from, to) = match stream.direction {
        Direction::AToB if one_way => (&kernels[0], &kernels[1]),
        Direction::BToA if one_way => (&kernels[1], &kernels[0]),
        // Each segment is data and an acknowledgement.
        _ => {
            let sum = |count: fn(&Counters) -> u64| kernels.iter().map(count).sum::<u64>();
            let sent = sum(|kernel| kernel.tcp_out_segs + kernel.tcp_retrans_segs);
            set("sent_segments", sent.into());
            set("received_segments", sum(|kernel| kernel.tcp_in_segs).into());
            return;
        }
    };
    let sent = from.tcp_out_segs + from.tcp_retrans_segs;
    set("sent_segments", sent.into());
    set("received_segments", to.tcp_in_segs.into());
    set("sent_acks", to.tcp_out_segs.into());
    set("received_acks", from.tcp_in_segs.into());
    set(
        "segments_per_ack",
        ratio(sent as f64, to.tcp_out_segs as f64),
    );
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
    let ingress: &[usize] = match stream.direction {
        Direction::AToB => &[0],
        Direction::BToA => &[1],
        Direction::Both => &[0, 1],
    };
    let total = |snapshot: &Snapshot| {
        let ports = ingress
            .iter()
            .filter_map(|index| snapshot.ports.get(*index));
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
fn moved(stream: &Stream, before: &Snapshot, after: &Snapshot) -> Fields {
    let egress: &[usize] = match stream.direction {
        Direction::AToB => &[1],
        Direction::BToA => &[0],
        Direction::Both => &[0, 1],
    };
    let total = |snapshot: &Snapshot| {
        let ports = egress.iter().filter_map(|index| snapshot.ports.get(*index));
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
    let mut fields = Fields::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("wakeups", (wakeups(after) - wakeups(before)).into());
    set("sleeps", (after.sleeps - before.sleeps).into());
    set("system_calls", (after.syscalls - before.syscalls).into());
    set("packets", packets.into());
    set("wire_packets", wire.into());
    set(
        "wire_packets_per_packet",
        ratio(wire as f64, packets as f64),
    );
    set("doorbells", doorbells.into());
    set(
        "packets_per_doorbell",
        ratio(packets as f64, doorbells as f64),
    );
    fields
}

/// Wire packets that packtrain dropped, by reason; reasons that dropped none are left out.
fn drops(before: &Snapshot, after: &Snapshot) -> Value {
    let grown = |reason: DropReason| {
        let count = after.drops.get(reason) - before.drops.get(reason);
        (count > 0).then(|| (reason.name().to_owned(), count.into()))
    };
    Value::Object(DropReason::all().filter_map(grown).collect())
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
