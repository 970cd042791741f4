//! `blast`: UDP packets at a rate or flat out, as `netblast` and `pktgen` send them, and what
//! became of them.

mod figures;
mod flow;
mod options;

pub use figures::{Figures, Settings};
pub use options::{Blast, Sizes};

use std::hint;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::cpu::Usage;
use crate::cpus::on_cpu;
use crate::error::{LabError, ToolError};
use crate::ip::IpVersion;
use crate::machine::Activity;
use crate::testbed::Testbed;
use crate::threads::{AtEnd, join, spawn};
use crate::tool::{Control, Measured, Tool, Watch};
use crate::tools::frame;
use crate::topology::TwoHosts;
use crate::traffic::pace::usual_burst;
use crate::used::Used;
use flow::{Flow, Load, PAYLOAD_MIN, Received, Sent};

/// How often progress is reported.
const PROGRESS: Duration = Duration::from_millis(200);

/// A run of `blast`.
pub type Blasted = Measured<Settings, Figures>;

impl Tool for Blast {
    type Settings = Settings;
    type Figures = Figures;

    fn run(&self, testbed: &Testbed, control: &Control<'_>) -> Result<Blasted, ToolError> {
        let ((), measured) = self.measure(testbed, control, |flows, ends| {
            let start = Instant::now();
            while ends.recv_timeout(PROGRESS) == Err(RecvTimeoutError::Timeout) {
                let sent: u64 = flows.iter().map(Flow::sent).sum();
                let seconds = start.elapsed().as_secs_f64();
                let kpps = sent as f64 / seconds / 1e3;
                (control.progress)(&format!("{seconds:.1} s: {kpps:.0} kpps sent"));
            }
            Ok(())
        })?;
        Ok(measured)
    }
}

/// Receives, as [`Blast`] does, what another program sends to the address that `send` gets, for a
/// comparison. `send` runs in host A. Returns its result and the number of packets that arrived.
///
/// # Errors
/// As [`Tool::run`].
pub fn receive<T: Send>(
    testbed: &Testbed,
    control: &Control<'_>,
    send: impl FnOnce(SocketAddr) -> T + Send,
) -> Result<(T, u64), ToolError> {
    let hosts = testbed.hosts();
    let load = Blast::default().load(hosts.left.link.mtu)?;
    let (flow, _) = Flow::open(hosts, IpVersion::V4)?;
    let address = flow.address()?;
    let (sent, received) = thread::scope(|scope| {
        let receiver = spawn(scope, || flow.receive(&load, control))?;
        let sent = flow.sent_by(|| hosts.left.netns.run(|| send(address)));
        Ok::<_, LabError>((sent, join(receiver)))
    })?;
    // They are not numbered.
    Ok((sent?, received?.sequences.damaged))
}

impl Blast {
    const fn ip(&self) -> IpVersion {
        IpVersion::of(self.ipv6)
    }

    /// The load of each sender.
    fn load(&self, mtu: u32) -> Result<Load, ToolError> {
        let in_range = [
            ("--senders", u64::from(self.senders), 1..=64),
            ("--batch", u64::from(self.batch), 1..=1024),
            ("--busy", u64::from(self.busy), 0..=64),
            ("--burst", self.burst.map_or(1, u64::from), 1..=1_000_000),
            ("--count", self.count.unwrap_or(1), 1..=u64::MAX),
        ];
        for (option, value, range) in in_range {
            ToolError::unless_in(range, option, value)?;
        }
        let payloads = self.size.0.iter();
        let payloads: Result<Vec<usize>, ToolError> = payloads
            .map(|size| frame::payload("--size", *size, self.ip(), PAYLOAD_MIN, mtu))
            .collect();
        let pace = self.rate.map(|rate| {
            let rate = rate.0 / f64::from(self.senders);
            let usual = usual_burst(rate).min(self.batch.into());
            let burst = self.burst.map_or(usual, u64::from);
            (burst, burst as f64 / rate)
        });
        Ok(Load {
            payloads: payloads?,
            batch: self.batch as usize,
            pace,
            duration: self.duration.0,
            settle: self.settle.0,
        })
    }

    fn settings(&self, load: &Load, buffer: i32) -> Settings {
        Settings {
            ip: self.ip().to_string(),
            frame_bytes: self.size.0.clone(),
            rate_kpps: self.rate.map(|rate| rate.0 / 1e3),
            burst_packets: load.pace.map(|(burst, _)| burst),
            senders: self.senders,
            busy_threads: self.busy,
            batch_packets: self.batch,
            count_packets: self.count,
            duration_seconds: load.duration.as_secs_f64(),
            settle_seconds: load.settle.as_secs_f64(),
            receive_buffer_bytes: buffer,
        }
    }

    /// Runs `f` beside the load, and measures the load. Returns when both have ended.
    ///
    /// # Errors
    /// [`ToolError`]: that of `f`, or of the load.
    pub(super) fn beside<R>(
        &self,
        testbed: &Testbed,
        control: &Control<'_>,
        f: impl FnOnce() -> Result<R, ToolError>,
    ) -> Result<(R, Blasted), ToolError> {
        self.measure(testbed, control, |_, _| f())
    }

    /// The same. `f` gets the flows, and a channel that is closed when the last sender ends.
    fn measure<R>(
        &self,
        testbed: &Testbed,
        control: &Control<'_>,
        f: impl FnOnce(&[Flow], &Receiver<()>) -> Result<R, ToolError>,
    ) -> Result<(R, Blasted), ToolError> {
        let hosts = testbed.hosts();
        let load = self.load(hosts.left.link.mtu)?;
        let mut flows = Vec::new();
        let mut buffer = 0;
        for _ in 0..self.senders {
            let (flow, bytes) = Flow::open(hosts, self.ip())?;
            flows.push(flow);
            buffer = bytes;
        }
        let before = Lost::so_far(hosts)?;
        let (result, run) = self.blast(&load, &flows, testbed, control, |ends| f(&flows, ends))?;
        let lost = Lost::so_far(hosts)?.since(before);
        let measured = Measured {
            settings: self.settings(&load, buffer),
            figures: run.figures(lost),
            flags: run.flag.into_iter().collect(),
            ..Measured::default()
        };
        Ok((result, measured))
    }

    /// Sends and receives, with `f` beside it.
    fn blast<R>(
        &self,
        load: &Load,
        flows: &[Flow],
        testbed: &Testbed,
        control: &Control<'_>,
        f: impl FnOnce(&Receiver<()>) -> Result<R, ToolError>,
    ) -> Result<(R, Run), ToolError> {
        let (used, watch) = (testbed.used(), Watch::start()?);
        let start = Instant::now();
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            // If a thread cannot be started, those before it end.
            let busy = AtEnd(|| {
                ended.store(true, Ordering::Relaxed);
                flows.iter().for_each(Flow::end);
            });
            let cpus = testbed.cpus();
            let receive = |flow| {
                let receive = move || Flow::receive(flow, load, control);
                spawn(scope, move || on_cpu(cpus.receiver, receive))
            };
            let receivers: Vec<_> = flows.iter().map(receive).collect::<Result<_, _>>()?;
            // Every sender has an end of the channel, so it is closed when the last one ends.
            let (end, ends) = channel::<()>();
            let mut senders = Vec::new();
            for (index, flow) in (0u32..).zip(flows) {
                let end = end.clone();
                // Paced senders alternate.
                let interval = load.pace.map_or(0.0, |(_, interval)| interval);
                let offset = interval * f64::from(index) / f64::from(self.senders);
                let start = start + Duration::from_secs_f64(offset);
                let count = self.share(index);
                let sender = spawn(scope, move || {
                    let send = || flow.send(load, count, start, control);
                    let sent = on_cpu(cpus.sender, send);
                    drop(end);
                    sent
                });
                senders.push(sender?);
            }
            drop(end);
            for _ in 0..self.busy {
                spawn(scope, || {
                    while !ended.load(Ordering::Relaxed) {
                        hint::spin_loop();
                    }
                })?;
            }
            let result = f(&ends);
            // Nothing is sent: it ends when the channel is closed.
            while ends.recv().is_ok() {}
            drop(busy);
            // Now, before idle time follows.
            let forwarder = testbed.used().since(&used);
            let machine = watch.end(forwarder.of_other_process());
            let sent: Vec<_> = senders.into_iter().map(join).collect();
            let received: Vec<_> = receivers.into_iter().map(join).collect();
            let (machine, flag) = machine?;
            let sent: Vec<Sent> = sent.into_iter().collect::<Result<_, _>>()?;
            if control.stopped() && sent.iter().all(|one| one.packets == 0) {
                return Err(ToolError::Cancelled);
            }
            let run = Run {
                sent,
                received: received.into_iter().collect::<Result<_, _>>()?,
                forwarder,
                machine,
                flag,
            };
            Ok((result?, run))
        })
    }

    /// The packets of one sender.
    fn share(&self, sender: u32) -> u64 {
        let senders = u64::from(self.senders);
        self.count.map_or(u64::MAX, |count| {
            count / senders + u64::from(u64::from(sender) < count % senders)
        })
    }
}

/// What the kernels of the hosts lost.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// In front of the sender's interface, as a rule because a TAP's ring was full.
    interface: u64,
    /// At the receiver's sockets, because their buffers were full.
    socket: u64,
}

impl Lost {
    fn so_far(hosts: &TwoHosts) -> Result<Self, LabError> {
        let counters = hosts.right.counters()?;
        Ok(Self {
            interface: hosts.left.stats()?.tx_dropped,
            socket: counters.udp_rcvbuf_errors + counters.udp6_rcvbuf_errors,
        })
    }

    const fn since(self, earlier: Self) -> Self {
        Self {
            interface: self.interface - earlier.interface,
            socket: self.socket - earlier.socket,
        }
    }
}

/// What all threads did.
#[derive(Debug)]
struct Run {
    sent: Vec<Sent>,
    received: Vec<Received>,
    forwarder: Used,
    machine: Activity,
    flag: Option<String>,
}

impl Run {
    fn figures(&self, lost: Lost) -> Figures {
        let sent: u64 = self.sent.iter().map(|one| one.packets).sum();
        let count = |what: fn(&Received) -> u64| self.received.iter().map(what).sum::<u64>();
        let received = count(|one| one.sequences.unique);
        let missing = sent - received;
        let longest = |times: &mut dyn Iterator<Item = Duration>| times.max().unwrap_or_default();
        let sending = longest(&mut self.sent.iter().map(|one| one.time));
        // A receiver ends later than the senders if queues were full, and not earlier, so that
        // the last interval counts for both.
        let receiving = longest(&mut self.received.iter().map(|one| one.time)).max(sending);
        let (sending, receiving) = (sending.as_secs_f64(), receiving.as_secs_f64());
        let (offered, arrived) = (sent as f64 / sending, received as f64 / receiving);
        let sender = sum(self.sent.iter().map(|one| one.cpu));
        let receiver = sum(self.received.iter().map(|one| one.cpu));
        let percent = |cpu: Duration, seconds: f64| 100.0 * cpu.as_secs_f64() / seconds;
        let cpu = [
            percent(sender.cpu(), sending),
            percent(receiver.cpu(), receiving),
            percent(self.forwarder.cpu, sending),
        ];
        let total: f64 = cpu.iter().sum();
        let switches = |one: &Usage| one.voluntary_switches + one.involuntary_switches;
        let forwarder = self.forwarder.voluntary_switches + self.forwarder.involuntary_switches;
        let per_second = |number: u64, seconds: f64| number as f64 / seconds;
        Figures {
            sent_packets: sent,
            received_packets: received,
            lost_packets: missing,
            lost_percent: 100.0 * missing as f64 / sent.max(1) as f64,
            lost_at_interface_packets: lost.interface,
            lost_at_socket_packets: lost.socket,
            duplicate_packets: count(|one| one.sequences.duplicates),
            reordered_packets: count(|one| one.sequences.reordered),
            damaged_packets: count(|one| one.sequences.damaged),
            longest_pause_ms: {
                let pauses = self.received.iter().map(|one| one.pause);
                pauses.max().unwrap_or_default().as_secs_f64() * 1e3
            },
            offered_kpps: offered / 1e3,
            received_kpps: arrived / 1e3,
            cpu_sender_percent: cpu[0],
            cpu_receiver_percent: cpu[1],
            cpu_forwarder_percent: cpu[2],
            cpus_used: total / 100.0,
            cpu_percent_per_kpps: total / (arrived / 1e3),
            switches_sender_per_second: per_second(switches(&sender), sending),
            switches_receiver_per_second: per_second(switches(&receiver), receiving),
            switches_forwarder_per_second: per_second(forwarder, sending),
            wakeups_forwarder_per_second: per_second(self.forwarder.voluntary_switches, sending),
            switches_machine_per_second: per_second(self.machine.switches, sending),
            ipis_per_second: per_second(self.machine.ipis, sending),
            send_calls: self.sent.iter().map(|one| one.calls).sum(),
            receive_calls: count(|one| one.calls),
            machine: self.machine.figures(),
        }
    }
}

fn sum(usages: impl Iterator<Item = Usage>) -> Usage {
    usages.fold(Usage::default(), |total, one| total.plus(&one))
}
