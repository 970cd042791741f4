//! `tool = "send"`: threads of this process send through handles of one port, as an application
//! that announces its senders does.

mod sockets;

use std::net::UdpSocket;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::getppid;
use packtrain::driver::{Driver, Port};
use packtrain::engine::{Report, SendError, Session, TrySendError, TxHandle, WorkerSnapshot};
use packtrain::limits::BURST_PACKETS_MAX;
use packtrain::packet::Burst;
use packtrain::policy::topology::CpuId;
use packtrain::port::AnyPort;
use packtrain::port::spec::PortKind;
use packtrain_measure::key::fields;
use packtrain_offload::offload::LinkType;
use packtrain_testkit::{VirtualMachine, load};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::counters::{self, Costs, Work, per};
use crate::cards;
use crate::cpu::Usage;
use crate::cpus::on_cpu;
use crate::error::{LabError, ToolError};
use crate::headers::udp_frame;
use crate::ip::IpVersion;
use crate::joined;
use crate::options::{Fields, PolicyOptions};
use crate::session;
use crate::sys;
use crate::testbed::{TestbedOptions, open, whole};
use crate::threads::{join, spawn};
use crate::tool::{Control, Measured, Watch};
use crate::tools::frame::{self, DISCARD};
use crate::topology::{self, Host};
use crate::traffic::pace::{Pacer, usual_burst};
use crate::units::{Rate, Time};

/// How long a sender waits for space in a queue before it checks whether the run has to end.
const QUANTUM: Duration = Duration::from_millis(10);

/// System calls that are timed, in less than a millisecond.
const CALLS_TIMED: u32 = 200;

/// The source port of the first sender; each has its own flow.
const FIRST_PORT: u16 = 1024;

/// UDP packets of announced application senders, flat out or at a rate. `a` of the testbed is the
/// port: a whole spec such as `null:` or `sim:rate=1000000`, or a TAP with its keys, which gets a
/// host of its own. The policies and the CPUs of the testbed apply.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Senders {
    /// Bytes of a frame with Ethernet header and FCS, as in RFC 2544.
    pub size: usize,
    /// Packets per second of all senders together; flat out without it.
    pub rate: Option<Rate>,
    /// Senders, each with a thread, a handle and a flow of its own: 1 to 64.
    pub senders: u32,
    /// The most packets in one call: 1 to 64.
    pub batch: u32,
    /// Instructions of a seccomp filter. A system call that passes it is made before each call, as
    /// by one that sends through a socket: 1 to 4092, or 0 for no system call.
    pub filter: u16,
    /// How long packets are sent.
    pub duration: Time,
    /// On a virtual machine: threads beside them that only compute, 0 to 64.
    pub busy: u32,
}

impl Default for Senders {
    fn default() -> Self {
        Self {
            size: 64,
            rate: None,
            senders: 1,
            batch: 32,
            filter: 0,
            duration: Time(Duration::from_secs(1)),
            busy: 0,
        }
    }
}

impl Senders {
    /// One run.
    ///
    /// # Errors
    /// [`ToolError`]
    pub fn run(
        &self,
        testbed: &TestbedOptions,
        control: &Control<'_>,
    ) -> Result<Measured, ToolError> {
        testbed.refuse_through("send")?;
        testbed.check_cpus()?;
        if testbed.cpus.is_some_and(|cpus| cpus.receiver.is_some()) {
            return Err(ToolError::Usage(
                "cpus has a CPU for receivers, and tool send has no such threads: leave receiver= \
                 out"
                .to_owned(),
            ));
        }
        if self.busy > 0 && testbed.machine.is_none() {
            let line =
                "busy= is for a virtual machine: add machine= to the testbed, or leave it out";
            return Err(ToolError::Usage(line.to_owned()));
        }
        ToolError::unless_in(topology::MTU, "mtu", testbed.mtu.into())?;
        let load = self.load(testbed.mtu)?;
        if let Some(card) = &testbed.host_a {
            return self.through_sockets(card, &load, testbed, control);
        }
        let (receiver, port) = port(testbed)?;
        let sides = session::sides(slice::from_ref(&port));
        let policies = testbed.checked_policies()?;
        if let Some(machine) = &testbed.machine {
            return self.in_virtual_time(machine, &load, port, &policies, testbed);
        }
        let session = Session::on(port)
            .settings(policies.settings())
            .senders(0, self.senders as usize)
            .start()
            .map_err(|error| ToolError::of_start(&error))?;
        let mut settings = session::settings(&session, &sides, &policies, &[&testbed.a]);
        settings.append(&mut self.settings(&load, testbed));
        let mtu = receiver.as_ref().map(|receiver| receiver.host.link.mtu);
        settings.extend(mtu.map(|mtu| ("mtu".to_owned(), json!(mtu))));
        let delivered = |receiver: &Option<Receiver>| {
            let count = receiver.as_ref().map(Receiver::delivered);
            count.transpose()
        };
        let before = delivered(&receiver)?;
        let to_port = receiver.as_ref().map_or(DISCARD, |receiver| receiver.port);
        let watch = Watch::start()?;
        let (start, used) = (session.elapsed(), Work::of(&session.snapshot()));
        let sent = self.send(&session, &load, to_port, testbed, control)?;
        let is_over = session.is_over();
        // What the queues have accepted is sent, for 2 s at most.
        let report = session::checked(session.finish())?;
        if control.stopped() {
            return Err(ToolError::Cancelled);
        }
        if is_over {
            return Err(ToolError::Failed(format!(
                "the input of '{}' ended before the senders did: use a port whose input does not \
                 end, or a shorter duration",
                testbed.a
            )));
        }
        settings.extend(priorities(&report.snapshot.workers));
        let (activity, flag) = watch.end(Duration::ZERO)?;
        let delivered = delivered(&receiver)?.zip(before);
        let run = Run {
            sent,
            delivered: delivered.map(|(after, before)| after - before),
            workers: Work::of(&report.snapshot).since(used),
            // Without the time in which the ports are closed.
            seconds: report.elapsed.saturating_sub(start).as_secs_f64(),
            switches_machine: Some(activity.switches),
        };
        Ok(Measured {
            settings,
            figures: run.figures(&report)?,
            flags: flag.into_iter().collect(),
            ..Measured::default()
        })
    }

    /// The same on a virtual machine.
    fn in_virtual_time(
        &self,
        machine: &VirtualMachine,
        load: &Load<'_>,
        port: Port<AnyPort>,
        policies: &PolicyOptions,
        testbed: &TestbedOptions,
    ) -> Result<Measured, ToolError> {
        let sides = session::sides(slice::from_ref(&port));
        let mut rig = machine.rig();
        let builder = Session::on(rig.wire(port, machine.vectors));
        let senders = self.senders as usize;
        let added = rig.try_add(builder.senders(0, senders), policies.settings(), senders);
        let at = added.map_err(|error| ToolError::of_start(&error))?;
        let session = &rig.sessions[at];
        let mut settings = session::settings(session, &sides, policies, &[&testbed.a]);
        settings.append(&mut self.settings(load, testbed));
        settings.insert("machine".to_owned(), joined::name(machine).into());
        rig.compute(self.busy);
        let frames = (FIRST_PORT..).take(senders);
        let frames = frames.map(|from| udp_frame(from, DISCARD, load.payload));
        let virtual_load = load::Load {
            batch: self.batch as usize,
            system_calls: u32::from(self.filter > 0),
            pace: load.pace,
            duration: self.duration.0,
        };
        let cpu = testbed.cpus.and_then(|cpus| cpus.sender);
        let cpu = cpu.map(|cpu| CpuId(cpu as u16));
        let sent = rig.send(at, frames.collect(), virtual_load, cpu);
        let report = session::checked(rig.finish().swap_remove(at))?;
        let run = Run {
            sent: sent.into_iter().map(Sent::from).collect(),
            delivered: None,
            workers: Work::of(&report.snapshot),
            seconds: report.elapsed.as_secs_f64(),
            switches_machine: None,
        };
        Ok(Measured {
            settings,
            figures: run.figures(&report)?,
            ..Measured::default()
        })
    }

    fn load(&self, mtu: u32) -> Result<Load<'_>, ToolError> {
        let in_range = [
            ("senders", self.senders, 64),
            ("batch", self.batch, BURST_PACKETS_MAX as u64),
        ];
        for (option, value, most) in in_range {
            ToolError::unless_in(1..=most, option, value.into())?;
        }
        let filter = 0..=sys::FILTER_INSTRUCTIONS_MAX.into();
        ToolError::unless_in(filter, "filter", self.filter.into())?;
        ToolError::unless_in(0..=64, "busy", self.busy.into())?;
        Ok(Load {
            options: self,
            payload: frame::payload("size", self.size, IpVersion::V4, 0, mtu)?,
            pace: self.rate.map(|rate| {
                let rate = rate.0 / f64::from(self.senders);
                let burst = usual_burst(rate).min(self.batch.into());
                (burst as usize, burst as f64 / rate)
            }),
        })
    }

    fn settings(&self, load: &Load<'_>, testbed: &TestbedOptions) -> Fields {
        let cpus = testbed.cpus.map(|cpus| cpus.to_string());
        let fields = [
            ("frame_bytes", json!(self.size)),
            ("rate_kpps", json!(self.rate.map(|rate| rate.0 / 1e3))),
            ("burst_packets", json!(load.pace.map(|(burst, _)| burst))),
            ("senders", json!(self.senders)),
            ("batch_packets", json!(self.batch)),
            ("filter_instructions", json!(self.filter)),
            ("duration_seconds", json!(self.duration.0.as_secs_f64())),
            ("cpus", json!(cpus)),
            ("busy_threads", json!(self.busy)),
        ];
        let fields = fields.into_iter();
        fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Runs the senders. Returns after the last one has ended.
    fn send(
        &self,
        session: &Session,
        load: &Load<'_>,
        to_port: u16,
        testbed: &TestbedOptions,
        control: &Control<'_>,
    ) -> Result<Vec<Sent>, ToolError> {
        let queues = session.plan().attach[0].queues;
        let handles: Option<Vec<TxHandle>> = (0..self.senders as usize)
            .map(|sender| session.handle(0, sender % queues))
            .collect();
        let handles = handles
            .ok_or_else(|| ToolError::Failed("the session has no queue for senders".to_owned()))?;
        let cpu = testbed.cpus.and_then(|cpus| cpus.sender);
        // Paced senders alternate.
        let offset = load.pace.map_or(0.0, |(_, interval)| interval) / f64::from(self.senders);
        let start = Instant::now();
        let failed = AtomicBool::new(false);
        let stopped = &|| control.stopped() || failed.load(Ordering::Relaxed);
        let sent: Result<Vec<Sent>, LabError> = thread::scope(|scope| {
            let senders: Result<Vec<_>, _> = handles
                .into_iter()
                .zip(0u16..)
                .map(|(handle, index)| {
                    let start = start + Duration::from_secs_f64(offset * f64::from(index));
                    let sender = Sender {
                        handle,
                        frame: udp_frame(FIRST_PORT + index, to_port, load.payload),
                        burst: Burst::new(),
                        sent: Sent::default(),
                    };
                    spawn(scope, move || {
                        on_cpu(cpu, || sender.run(load, start, stopped))
                    })
                })
                .collect();
            // Those that have started end.
            let senders = senders.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            senders.into_iter().map(join).collect()
        });
        Ok(sent?)
    }
}

/// What each sender sends.
#[derive(Debug)]
struct Load<'a> {
    options: &'a Senders,
    /// Payload bytes of a packet.
    payload: usize,
    /// Packets sent back to back, and the seconds from one such burst to the next; `None` if a
    /// sender sends flat out.
    pace: Option<(usize, f64)>,
}

/// The scheduling classes and nice values that the workers' threads had, in a list each.
fn priorities(workers: &[WorkerSnapshot]) -> Fields {
    let listed = |of: fn(&WorkerSnapshot) -> String| {
        let all: Vec<_> = workers.iter().map(of).collect();
        json!(all.join(", "))
    };
    let class = listed(|worker| if worker.batch { "batch" } else { "other" }.to_owned());
    let nice = listed(|worker| worker.nice.to_string());
    let fields = [("worker_class", class), ("worker_nice", nice)];
    let fields = fields.into_iter();
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The kernel at the other end of a TAP.
#[derive(Debug)]
struct Receiver {
    host: Host,
    port: u16,
    /// Never read. Without it the kernel would answer by ICMP messages.
    _socket: UdpSocket,
}

impl Receiver {
    fn new(host: Host) -> Result<Self, LabError> {
        let address = (host.ip(IpVersion::V4), 0);
        let socket = host.netns.run(|| UdpSocket::bind(address))?;
        let socket = socket.map_err(LabError::from_io("bind"))?;
        let local = socket.local_addr();
        let port = local.map_err(LabError::from_io("getsockname"))?.port();
        Ok(Self {
            host,
            port,
            _socket: socket,
        })
    }

    /// IPv4 packets that its kernel has delivered to UDP so far; no other ones arrive. Unlike the
    /// counters of the interface, this one is there after the interface.
    fn delivered(&self) -> Result<u64, LabError> {
        Ok(self.host.counters()?.ip_in_delivers)
    }
}

/// Opens the port, for a TAP with the host that it leads to.
fn port(testbed: &TestbedOptions) -> Result<(Option<Receiver>, Port<AnyPort>), ToolError> {
    let text = &testbed.a;
    testbed.refuse_real("a", text)?;
    let is_tap = text.split(',').next() == Some("tap");
    let (receiver, port) = if is_tap {
        let (host, port) = testbed.open_alone("a", text)?;
        if host.link.mtu != testbed.mtu {
            let wanted = testbed.mtu;
            return Err(ToolError::Failed(format!(
                "the interface did not take an MTU of {wanted}"
            )));
        }
        (Some(Receiver::new(host)?), port)
    } else {
        let hint = "tool send takes a TAP, as in tap,queues=2, or a whole port, as in \
                    sim:rate=1000000";
        let spec = whole("a", text, hint)?;
        if matches!(spec.kind, PortKind::Tap(_) | PortKind::Tun(_)) {
            return Err(ToolError::Usage(format!(
                "a cannot be '{text}', an interface without a host: write tap and its keys, as in \
                 tap,queues=2"
            )));
        }
        let mut port = open(&spec)?;
        cards::wait_for_port(text, &mut port)?;
        (None, port)
    };
    if port.driver.capabilities().link != LinkType::Ethernet {
        return Err(ToolError::Usage(format!(
            "a cannot be '{text}': tool send has Ethernet frames only"
        )));
    }
    Ok((receiver, port))
}

/// What one sender did.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Packets that the queue accepted.
    packets: u64,
    calls: u64,
    /// Calls after which the queue was full.
    full: u64,
    cpu: Duration,
    /// What the system call through the filter took before the run.
    system_call: Duration,
}

impl From<load::Sent> for Sent {
    fn from(sent: load::Sent) -> Self {
        Self {
            packets: sent.packets,
            calls: sent.calls,
            full: sent.full,
            cpu: sent.cpu,
            system_call: Duration::ZERO,
        }
    }
}

struct Sender {
    handle: TxHandle,
    frame: Vec<u8>,
    burst: Burst,
    sent: Sent,
}

impl Sender {
    /// Sends from `start` on, or from when its thread runs.
    fn run(
        mut self,
        load: &Load<'_>,
        start: Instant,
        stopped: &impl Fn() -> bool,
    ) -> Result<Sent, LabError> {
        let Senders {
            batch,
            filter,
            duration,
            ..
        } = *load.options;
        if filter > 0 {
            sys::filter_getppid(filter).map_err(LabError::from_io("seccomp"))?;
            let before = Instant::now();
            for _ in 0..CALLS_TIMED {
                getppid();
            }
            self.sent.system_call = before.elapsed() / CALLS_TIMED;
        }
        let cpu = Usage::of_thread();
        let start = start.max(Instant::now());
        let end = start + duration.0;
        let mut pacer = load.pace.map(|(_, interval)| Pacer::new(start, interval));
        let burst = load.pace.map_or(batch as usize, |(burst, _)| burst);
        let is_over = || stopped() || Instant::now() >= end;
        loop {
            match &mut pacer {
                Some(pacer) if pacer.due() < end => pacer.wait(stopped),
                Some(_) => break,
                None => {}
            }
            if filter > 0 {
                getppid();
            }
            if !self.send(burst, end, is_over) || is_over() {
                break;
            }
        }
        self.sent.cpu = Usage::of_thread().since(&cpu).cpu();
        Ok(self.sent)
    }

    /// Sends `count` packets in one burst, or fewer if the run is over. False if the session ends.
    fn send(&mut self, count: usize, end: Instant, is_over: impl Fn() -> bool) -> bool {
        while self.burst.len() < count {
            let packet = self.handle.arena().packet_from(&self.frame);
            let Some(Ok(())) = packet.ok().map(|packet| self.burst.push(packet)) else {
                // The device has the buffers: those that it has completed are free after this.
                self.handle.reclaim();
                thread::yield_now();
                if is_over() {
                    break;
                }
                continue;
            };
        }
        loop {
            let before = self.burst.len();
            self.sent.calls += 1;
            let mut is_closed = false;
            match self.handle.try_send(&mut self.burst) {
                Ok(_) => {}
                Err(TrySendError::Closed) => is_closed = true,
                Err(TrySendError::Full { .. }) => {
                    self.sent.full += 1;
                    let left = end.saturating_duration_since(Instant::now());
                    let sent = self
                        .handle
                        .send_blocking(&mut self.burst, left.min(QUANTUM));
                    is_closed = sent == Err(SendError::Closed);
                }
            }
            self.sent.packets += (before - self.burst.len()) as u64;
            if is_closed {
                return false;
            }
            if self.burst.is_empty() || is_over() {
                return true;
            }
        }
    }
}

/// What was measured, beside packtrain's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// From the start of the senders until the last accepted packet was sent or dropped.
    pub seconds: f64,
    /// Packets that the queues accepted.
    pub offered_packets: u64,
    /// Those of the sender with the fewest.
    pub offered_least_packets: Option<u64>,
    /// Packets that the device accepted.
    pub sent_packets: u64,
    /// Packets that the kernel at the other end received, or the device in memory.
    pub received_packets: u64,
    /// Of those offered, the ones that were not received.
    pub lost_packets: u64,
    /// Of those offered.
    pub lost_percent: f64,
    /// The rate at which the device accepted packets.
    pub sent_kpps: f64,
    /// The rate at which packets were received.
    pub received_kpps: f64,
    /// CPU time of the senders, of one CPU.
    pub cpu_sender_percent: f64,
    /// CPU time of the workers, of one CPU.
    pub cpu_worker_percent: f64,
    /// CPU time of the senders for a packet that was received.
    pub ns_per_packet_sender: f64,
    /// CPU time of the workers for a packet that was received.
    pub ns_per_packet_worker: f64,
    /// Calls of the senders.
    pub send_calls: u64,
    /// Of these, the ones after which the queue was full.
    pub full_percent: f64,
    /// Context switches of the machine, of all CPUs; not in virtual time.
    pub switches_machine: Option<u64>,
    /// What the system call through the filter takes, the mean of all senders.
    pub system_call_ns: f64,
    /// What a packet cost senders and workers.
    #[serde(flatten)]
    pub costs: Costs,
}

/// What all did.
#[derive(Debug)]
struct Run {
    sent: Vec<Sent>,
    /// What the kernel at the other end of a TAP received.
    delivered: Option<u64>,
    /// What the workers used since the start of the senders, whose reading is up to 10 ms old.
    workers: Work,
    /// From the start of the senders until the last accepted packet was sent or dropped.
    seconds: f64,
    switches_machine: Option<u64>,
}

impl Run {
    /// Rates and costs by packet that was received: by the kernel, or by a device in memory.
    fn figures(&self, report: &Report) -> Result<Fields, ToolError> {
        let snapshot = &report.snapshot;
        let tx = snapshot.ports[0].tx_total();
        let count = |of: fn(&Sent) -> u64| self.sent.iter().map(of).sum::<u64>();
        let (offered, sent) = (count(|one| one.packets), tx.wire_packets);
        let counted = snapshot.ledger.generated;
        if offered != counted {
            return Err(ToolError::Check(format!(
                "packets are not accounted for: the senders offered {offered}, and packtrain \
                 counted {counted}"
            )));
        }
        let received = self.delivered.unwrap_or(sent);
        let lost = offered.checked_sub(received).ok_or_else(|| {
            ToolError::Check(format!(
                "the kernel received {received} of {offered} packets"
            ))
        })?;
        let (senders, workers) = (self.sent.iter().map(|one| one.cpu).sum(), self.workers);
        let all = Work {
            cpu: senders + workers.cpu,
            ..workers
        };
        let senders = Work {
            cpu: senders,
            ..Work::default()
        };
        let percent = |work: Work| per(100.0 * work.cpu.as_secs_f64(), self.seconds);
        let (calls, full) = (count(|one| one.calls), count(|one| one.full));
        let per_second = |value: f64| per(value, self.seconds);
        let timed: Duration = self.sent.iter().map(|one| one.system_call).sum();
        let mut figures = counters::figures(report);
        figures.extend(fields(&Figures {
            seconds: self.seconds,
            offered_packets: offered,
            offered_least_packets: self.sent.iter().map(|one| one.packets).min(),
            sent_packets: sent,
            received_packets: received,
            lost_packets: lost,
            lost_percent: per(100.0 * lost as f64, offered as f64),
            sent_kpps: per_second(sent as f64 / 1e3),
            received_kpps: per_second(received as f64 / 1e3),
            cpu_sender_percent: percent(senders),
            cpu_worker_percent: percent(workers),
            ns_per_packet_sender: senders.ns_per_packet(received),
            ns_per_packet_worker: workers.ns_per_packet(received),
            send_calls: calls,
            full_percent: per(100.0 * full as f64, calls as f64),
            switches_machine: self.switches_machine,
            system_call_ns: per(1e9 * timed.as_secs_f64(), self.sent.len() as f64),
            costs: all.costs(received, self.seconds),
        }));
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{assert_refused, options, stopped};
    use std::fs;

    fn testbed(port: &str) -> TestbedOptions {
        options(&[&format!("a = '{port}'")])
    }

    fn senders(keys: &str) -> Senders {
        options(&["senders = 2, duration = '100ms'", keys])
    }

    #[test]
    fn every_packet_of_every_sender_is_accounted_for() {
        let mut all = 0;
        for port in [
            "null:",
            "sim:",
            "sim:rate=200000",
            "sim:queues=2",
            "sim:far=echo",
            "sim:far=echo,bad-descriptors=10",
        ] {
            for count in [1, 3] {
                let measured = senders(&format!("senders = {count}"))
                    .run(&testbed(port), &Control::default())
                    .unwrap_or_else(|error| panic!("{port}: {error}"));
                let figure = |name: &str| measured.figures[name].as_u64().expect(name);
                let sent = figure("sent_packets");
                assert_eq!(sent, figure("offered_packets"), "{port}");
                assert_eq!(sent, figure("received_packets"), "{port}");
                assert_eq!(figure("lost_packets"), 0, "{port}");
                let least = figure("offered_least_packets");
                assert!(count * least <= sent, "{port}: {count} x {least} of {sent}");
                assert!(count > 1 || least == sent, "{port}: {least} of {sent}");
                // One run of 100 ms may get no CPU; all runs together send.
                all += sent;
                let tx = &measured.figures["a"]["tx"];
                assert_eq!(tx["packets"], sent, "{port}");
                assert_eq!(tx["bytes"], 60 * sent, "{port}");
                assert_eq!(measured.settings["path_a"], "shared");
                // Also where the port receives.
                let number = |name: &str| measured.figures[name].as_f64().expect(name);
                let parts = number("ns_per_packet_sender") + number("ns_per_packet_worker");
                assert!((number("ns_per_packet") - parts).abs() < 1e-6, "{port}");
            }
        }
        assert!(all > 0);
    }

    #[test]
    fn a_rate_is_not_exceeded_and_bursts_are_whole() {
        let paced = senders("rate = '60k', duration = '1s'");
        let measured = paced.run(&testbed("null:"), &Control::default()).unwrap();
        assert_eq!(measured.settings["burst_packets"], 3);
        let number = |name: &str| measured.figures[name].as_f64().expect(name);
        let (sent, calls) = (number("sent_packets"), number("send_calls"));
        // Both ends of the interval count.
        assert!((3.0..=60_006.0).contains(&sent), "{sent}");
        // A burst that finds the queue full may take more calls.
        if number("full_percent") == 0.0 {
            assert_eq!(sent, 3.0 * calls);
        }
    }

    #[test]
    fn system_calls_of_a_sender_pass_its_filter_and_others_do_not() {
        let filters = || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("Seccomp_filters:"));
            line.expect("Linux 5.9").trim().parse::<u32>().unwrap()
        };
        let before = filters();
        let there = thread::spawn(move || {
            sys::filter_getppid(1).unwrap();
            filters()
        });
        assert_eq!((there.join().unwrap(), filters()), (before + 1, before));
        let run = |filter| {
            let senders = senders(&format!("filter = {filter}"));
            let measured = senders.run(&testbed("null:"), &Control::default());
            measured.unwrap().figures["system_call_ns"].as_f64()
        };
        assert!(run(4092) > Some(0.0));
        assert_eq!(run(0), Some(0.0));
    }

    #[test]
    fn a_queue_that_is_not_drained_ends_it() {
        let slow = testbed("sim:rate=1");
        let measured = senders("").run(&slow, &Control::default()).unwrap();
        let figure = |name: &str| measured.figures[name].as_u64().expect(name);
        assert_eq!(
            figure("offered_packets"),
            figure("sent_packets") + measured.figures["drops"]["total"].as_u64().unwrap()
        );
    }

    #[test]
    fn the_end_of_the_input_is_no_good_run() {
        let ended = senders("").run(&testbed("null:source,count=10"), &Control::default());
        assert!(
            matches!(&ended, Err(ToolError::Failed(line)) if line.contains("ended before")),
            "{ended:?}"
        );
    }

    #[test]
    fn a_stop_ends_it() {
        let forever = senders("duration = '600s'");
        // The queue of the slow one is full, and drained in 0.1 s.
        for port in ["null:", "sim:rate=20000"] {
            let ended = stopped(|control| forever.run(&testbed(port), control));
            assert_eq!(ended, Err(ToolError::Cancelled), "{port}");
        }
    }

    #[test]
    fn wrong_options_are_explained() {
        let cpu = crate::cpus::allowed().unwrap()[0];
        let both = format!("a = 'null:', cpus = 'sender={cpu},receiver={cpu}'");
        let twice = format!("a = 'null:', cpus = 'worker={cpu}', placement = 'none'");
        for (keys, bed, expected) in [
            ("senders = 0", "a = 'null:'", "senders cannot be '0'"),
            ("batch = 65", "a = 'null:'", "batch cannot be '65'"),
            ("filter = 4093", "a = 'null:'", "filter cannot be '4093'"),
            ("size = 1519", "a = 'null:'", "^size cannot be '1519'"),
            ("", "a = 'nul:'", "tool send takes"),
            ("", "a = 'null:link=ip'", "Ethernet"),
            ("", "a = 'tap,offlod=off'", "^a: "),
            ("", "a = 'tap:pt'", "write tap and its keys"),
            ("", "a = 'tap:pt,queues=2'", "write tap and its keys"),
            ("", "a = 'tun:pt'", "write tap and its keys"),
            ("", "a = 'null:', mtu = 1279", "^mtu cannot be '1279'"),
            ("", &both, "leave receiver= out"),
            (
                "",
                &twice,
                "^--placement none and a worker in --cpus contradict each other",
            ),
        ] {
            let outcome = senders(keys).run(&options(&[bed]), &Control::default());
            assert_refused(outcome, expected);
        }
    }
}
