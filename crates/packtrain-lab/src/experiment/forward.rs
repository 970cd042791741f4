//! `tool = "forward"`: two ports are joined in this process, without hosts.

use std::mem;
use std::thread;
use std::time::Duration;

use packtrain::driver::Port;
use packtrain::engine::{Command, CommandError, PortSnapshot, Queues, Report, Session};
use packtrain::port::{AnyPort, open_pair};
use packtrain_measure::key::fields;
use packtrain_testkit::VirtualMachine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::counters::{self, Costs, Work, per};
use crate::cards;
use crate::error::{LabError, ToolError};
use crate::joined::Joined;
use crate::link::Rtnl;
use crate::options::Fields;
use crate::session;
use crate::testbed::{TestbedOptions, open, whole};
use crate::tool::{Control, Measured, Watch};
use crate::tools::frame;
use crate::topology::Host;
use crate::units::{Rate, Time};

/// How often the end of the input and the stop flag are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A session between two ports. `a` and `b` of the testbed are whole port specs, such as
/// `null:source,count=1000000`, or `b` is a TAP with its keys, which gets a host of its own. The
/// testbed's policies apply.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Forward {
    /// How long packets are received, unless the input or `count` ends earlier.
    pub duration: Time,
    /// How many wire packets are received at most.
    pub count: Option<u64>,
    /// Port B's TX queues are stopped and resumed in turn, or its host's interface is set down and
    /// up, a change each time that this time has passed.
    pub stop_resume: Option<Time>,
    /// On a virtual machine: packets a second that arrive at port A, one by one.
    pub rate: Option<Rate>,
    /// Bytes of their frames, with Ethernet header and FCS.
    pub size: usize,
}

impl Default for Forward {
    fn default() -> Self {
        Self {
            duration: Time(Duration::from_secs(1)),
            count: None,
            stop_resume: None,
            rate: None,
            size: 64,
        }
    }
}

impl Forward {
    /// One run.
    ///
    /// # Errors
    /// [`ToolError`]
    pub fn run(
        &self,
        testbed: &TestbedOptions,
        control: &Control<'_>,
    ) -> Result<Measured, ToolError> {
        testbed.refuse_through("forward")?;
        if let Some(machine) = &testbed.machine {
            return self.in_virtual_time(machine, testbed);
        }
        if self.rate.is_some() {
            let line = "rate= is that of a virtual machine's NIC: add machine= to the testbed, or \
                        leave it out";
            return Err(ToolError::Usage(line.to_owned()));
        }
        let policies = testbed.checked_policies()?;
        let (host, ports) = ports(testbed)?;
        let mut changes = Changes::of(self.stop_resume, host.as_ref())?;
        let sides = session::sides(&ports);
        let [a, b] = ports;
        let mut builder = Session::between(a, b).settings(policies.settings());
        if let Some(count) = self.count {
            builder = builder.packets(count);
        }
        let watch = Watch::start()?;
        let session = builder
            .start()
            .map_err(|error| ToolError::of_start(&error))?;
        let requested = [&*testbed.a, &*testbed.b];
        let mut settings = session::settings(&session, &sides, &policies, &requested);
        settings.extend(self.settings());
        let mut pauses = Pauses::default();
        while !session.is_over() && session.elapsed() < self.duration.0 && !control.stopped() {
            if let Some(changes) = &mut changes {
                changes.make(&session)?;
            }
            let sent = session.snapshot().ports[0].tx_total().packets;
            pauses.see(session.elapsed(), sent);
            thread::sleep(POLL_INTERVAL);
        }
        if control.stopped() {
            drop(session.finish());
            return Err(ToolError::Cancelled);
        }
        let report = session::checked(session.finish())?;
        let (_, flag) = watch.end(Duration::ZERO)?;
        let stops = changes.map_or(0, |changes| changes.made.div_ceil(2));
        Ok(Measured {
            settings,
            figures: figures(&report, pauses.longest, stops),
            flags: flag.into_iter().collect(),
            ..Measured::default()
        })
    }

    fn in_virtual_time(
        &self,
        machine: &VirtualMachine,
        testbed: &TestbedOptions,
    ) -> Result<Measured, ToolError> {
        if self.count.is_some() || self.stop_resume.is_some() {
            let line = "count= and stop-resume= are not for a virtual machine: leave them out";
            return Err(ToolError::Usage(line.to_owned()));
        }
        let frame = frame::udp("size", self.size, testbed.mtu)?;
        let arrive = self.rate.map(|rate| (rate, frame));
        let mut joined = Joined::new(machine, testbed, |_, _| {})?;
        let mut settings = mem::take(&mut joined.settings);
        settings.extend(self.settings());
        let (_, report) = joined.run(arrive, self.duration.0, Duration::ZERO)?;
        Ok(Measured {
            settings,
            figures: figures(&report, Duration::ZERO, 0),
            ..Measured::default()
        })
    }

    fn settings(&self) -> Fields {
        let seconds = |time: Time| time.0.as_secs_f64();
        let rate = self.rate.map(|rate| rate.0 / 1e3);
        let own = [
            ("duration_seconds", json!(seconds(self.duration))),
            ("count_packets", json!(self.count)),
            ("stop_resume_seconds", json!(self.stop_resume.map(seconds))),
            ("rate_kpps", json!(rate)),
            ("frame_bytes", json!(rate.map(|_| self.size))),
        ];
        let own = own.into_iter();
        own.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Opens both ports, for a TAP as port B with the host that it leads to.
fn ports(testbed: &TestbedOptions) -> Result<(Option<Host>, [Port<AnyPort>; 2]), ToolError> {
    let hint = "tool forward takes whole ports, as in null:source,count=1000000";
    let a = whole("a", &testbed.a, hint)?;
    if testbed.b.split(',').next() == Some("tap") {
        let (host, b) = testbed.open_alone("b", &testbed.b)?;
        return Ok((Some(host), [open(&a)?, b]));
    }
    let ports = open_pair(&a, &whole("b", &testbed.b, hint)?);
    let mut ports = ports.map_err(|error| ToolError::of_open(&error))?;
    for (text, port) in [&testbed.a, &testbed.b].into_iter().zip(&mut ports) {
        cards::wait_for_port(text, port)?;
    }
    Ok((None, ports))
}

/// The times in which port A sent nothing, as far as its counters are read.
#[derive(Debug, Default)]
struct Pauses {
    sent: u64,
    since: Duration,
    longest: Duration,
}

impl Pauses {
    /// The packets sent until a time since the start. The time before the first one is no pause.
    fn see(&mut self, now: Duration, packets: u64) {
        if self.sent > 0 {
            self.longest = self.longest.max(now.saturating_sub(self.since));
        }
        if packets > self.sent {
            (self.sent, self.since) = (packets, now);
        }
    }
}

/// Stops and resumes port B in turn: its TX queues, or the interface of its host.
#[derive(Debug)]
struct Changes {
    every: Duration,
    at: Duration,
    made: u64,
    link: Option<(Rtnl, u32)>,
}

impl Changes {
    fn of(every: Option<Time>, host: Option<&Host>) -> Result<Option<Self>, LabError> {
        let Some(Time(every)) = every else {
            return Ok(None);
        };
        let link = host.map(|host| Ok::<_, LabError>((host.netns.rtnl()?, host.link.index)));
        Ok(Some(Self {
            every,
            at: every,
            made: 0,
            link: link.transpose()?,
        }))
    }

    /// Makes the change that is due.
    fn make(&mut self, session: &Session) -> Result<(), ToolError> {
        if session.elapsed() < self.at {
            return Ok(());
        }
        let stops = self.made.is_multiple_of(2);
        match &mut self.link {
            Some((rtnl, index)) if stops => rtnl.set_down(*index)?,
            Some((rtnl, index)) => rtnl.set_up(*index)?,
            None => {
                let command = [Command::Resume, Command::Pause][usize::from(stops)];
                match session.command(Queues::tx(1), command) {
                    // The input may have ended meanwhile.
                    Ok(_) | Err(CommandError::Ended { .. }) => {}
                    Err(error) => return Err(ToolError::Failed(error.to_string())),
                }
            }
        }
        self.made += 1;
        self.at = session.elapsed() + self.every;
        Ok(())
    }
}

/// What was measured, beside packtrain's counters. Packets are wire packets of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// How long the session ran.
    pub seconds: f64,
    /// Packets received.
    pub packets: f64,
    /// Of those received, the ones that the other port then sent.
    pub received_kpps: f64,
    /// Bytes sent.
    pub gbps: f64,
    /// CPU time of the workers, of one CPU.
    pub cpu_percent: f64,
    /// Packets received for each that was sent, GSO packets as one.
    pub packets_per_sent: f64,
    /// Packets lost.
    pub lost: f64,
    /// Of those received.
    pub lost_percent: f64,
    /// The longest time in which port A sent nothing.
    pub longest_pause_ms: f64,
    /// Times that port B was stopped, or its interface set down.
    pub stops: u64,
    /// What a packet cost.
    #[serde(flatten)]
    pub costs: Costs,
}

/// Rates and costs by packet, of both directions together. Packets are wire packets received;
/// `received_kpps` counts those that the other port then sent.
fn figures(report: &Report, longest_pause: Duration, stops: u64) -> Fields {
    let snapshot = &report.snapshot;
    let sum =
        |of: fn(&PortSnapshot) -> u64| -> f64 { snapshot.ports.iter().map(of).sum::<u64>() as f64 };
    let wire_packets = counters::received(snapshot);
    let packets = wire_packets as f64;
    let passed_on = sum(|port| port.tx_total().wire_packets);
    let received = sum(|port| port.rx_total().packets);
    let sent = sum(|port| port.tx_total().packets);
    let bytes = sum(|port| port.tx_total().bytes);
    let lost = snapshot.drops.total() as f64;
    let seconds = report.elapsed.as_secs_f64();
    let mut figures = fields(&Figures {
        seconds,
        packets,
        received_kpps: per(passed_on / 1e3, seconds),
        gbps: per(bytes * 8.0, seconds) / 1e9,
        cpu_percent: per(snapshot.cpu_ns as f64 / 1e7, seconds),
        packets_per_sent: per(received, sent),
        lost,
        lost_percent: per(100.0 * lost, packets),
        longest_pause_ms: longest_pause.as_secs_f64() * 1e3,
        stops,
        costs: Work::of(snapshot).costs(wire_packets, seconds),
    });
    figures.append(&mut counters::figures(report));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::options;

    #[test]
    fn pauses_are_the_times_without_a_packet() {
        let mut pauses = Pauses::default();
        let ms = Duration::from_millis;
        for (at, packets) in [
            (50, 0),
            (60, 3),
            (62, 9),
            (70, 9),
            (74, 9),
            (76, 10),
            (78, 11),
        ] {
            pauses.see(ms(at), packets);
        }
        assert_eq!(pauses.longest, ms(14));
    }

    #[test]
    fn what_is_dropped_is_not_received() {
        let forward: Forward = options(&["count = 1000"]);
        let testbed = options(&["a = 'null:source', b = 'sim:far=echo,bad-descriptors=10'"]);
        let figures = forward.run(&testbed, &Control::default()).unwrap().figures;
        let number = |name: &str| figures[name].as_f64().expect(name);
        let passed_on = number("received_kpps") * number("seconds") * 1e3;
        assert!(number("lost") > 0.0);
        assert!((passed_on - (number("packets") - number("lost"))).abs() < 0.5);
    }

    #[test]
    fn a_queue_that_is_stopped_and_resumed_loses_nothing() {
        let forward: Forward = options(&["duration = '3s', stop-resume = '100ms'"]);
        let testbed = options(&["a = 'null:source', b = 'sim:far=echo'"]);
        let measured = forward.run(&testbed, &Control::default()).unwrap();
        assert_eq!(measured.settings["stop_resume_seconds"], 0.1);
        let figures = measured.figures;
        for key in ["stall_flush", "restarts"] {
            assert!(figures["b"]["tx"][key].as_u64() > Some(0), "{key}");
        }
        assert_eq!(figures["drops"]["total"], 0);
        // Its begin and its end are each read up to one interval late and early.
        let least = Duration::from_millis(100) - 2 * POLL_INTERVAL;
        let longest = figures["longest_pause_ms"].as_f64().unwrap();
        assert!(longest >= least.as_secs_f64() * 1e3, "{longest}");
    }
}
