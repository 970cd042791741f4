//! What is measured of one contestant in one round.

use crate::arguments::Arguments;
use crate::process::Error;
use packtrain_lab::cpus;
use packtrain_lab::machine::CpuFigures;
use packtrain_lab::testbed::Testbed;
use packtrain_lab::tool::{Control, Tool};
use packtrain_lab::tools::blast::Blast;
use packtrain_lab::tools::ping::Ping;
use packtrain_lab::tools::stream::{Stream, WarmUp};
use packtrain_lab::units::Time;
use serde::Serialize;
use std::time::Duration;

/// How long TCP runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(200);

/// A load, and its figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Goodput of one TCP stream.
    Tcp1,
    /// Of eight.
    Tcp8,
    /// Packets of 64 bytes.
    Packets,
    /// The median of round trips.
    RoundTrip,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tcp1, Self::Tcp8, Self::Packets, Self::RoundTrip];

    /// As in claims.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp1 => "goodput of 1 TCP stream",
            Self::Tcp8 => "goodput of 8 TCP streams",
            Self::Packets => "packets of 64 bytes",
            Self::RoundTrip => "round trip",
        }
    }

    /// Of a row.
    pub const fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Tcp1 => figures.tcp1_gbps,
            Self::Tcp8 => figures.tcp8_gbps,
            Self::Packets => figures.kpps,
            Self::RoundTrip => figures.round_trip_us,
        }
    }
}

/// The figures. Those of the machine have the hosts' CPU time, too; `None` if there is none.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figures {
    /// Payload of one TCP stream, in Gbit/s.
    pub tcp1_gbps: Option<f64>,
    /// CPU seconds of the forwarder for 10^9 bytes of it.
    pub tcp1_cpu_s_per_gb: Option<f64>,
    /// CPU seconds of the machine.
    pub tcp1_machine_s_per_gb: Option<f64>,
    /// The same of eight streams.
    pub tcp8_gbps: Option<f64>,
    /// Of the forwarder.
    pub tcp8_cpu_s_per_gb: Option<f64>,
    /// Of the machine.
    pub tcp8_machine_s_per_gb: Option<f64>,
    /// Thousands of 64-byte packets a second that arrived; of front ends in both directions
    /// together.
    pub kpps: Option<f64>,
    /// Packets that did not arrive.
    pub lost_percent: Option<f64>,
    /// CPU seconds of the forwarder for a million of those that arrived.
    pub cpu_s_per_mpps: Option<f64>,
    /// CPU seconds of the machine.
    pub machine_s_per_mpps: Option<f64>,
    /// The median of round trips, one at a time.
    pub round_trip_us: Option<f64>,
    /// The 99th percentile.
    pub round_trip_p99_us: Option<f64>,
}

/// One round of one contestant.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// The path.
    pub path: &'static str,
    /// The contestant.
    pub forwarder: &'static str,
    /// The offloads of the hosts' veths.
    pub far_offloads: &'static str,
    /// Figures of one round are compared.
    pub round: usize,
    /// What was measured.
    #[serde(flatten)]
    pub figures: Figures,
}

/// All loads between two hosts, from left to right.
pub fn of_hosts(arguments: &Arguments, testbed: &Testbed) -> Result<Figures, Error> {
    let time = arguments.timed.time;
    let [tcp1, tcp8] = [1, 8].map(|streams| tcp(testbed, streams, time));
    let ([gbps, own, machine], [gbps8, own8, machine8]) = (tcp1?, tcp8?);
    let blast = Blast {
        duration: Time(time),
        ..Blast::default()
    };
    let blasted = blast.run(testbed, &Control::default())?.figures;
    let ping = Ping {
        flood: true,
        duration: Time(time),
        ..Ping::default()
    };
    let latency = ping.run(testbed, &Control::default())?.figures;
    let latency = latency.phase.latency_us;
    let mpps = blasted.received_kpps / 1e3;
    let cpu = Cpu::of(testbed, blasted.cpu_forwarder_percent, &blasted.machine)?;
    Ok(Figures {
        tcp1_gbps: gbps,
        tcp1_cpu_s_per_gb: own,
        tcp1_machine_s_per_gb: machine,
        tcp8_gbps: gbps8,
        tcp8_cpu_s_per_gb: own8,
        tcp8_machine_s_per_gb: machine8,
        kpps: Some(blasted.received_kpps),
        lost_percent: Some(blasted.lost_percent),
        cpu_s_per_mpps: cpu.own.map(|cpus| cpus / mpps),
        machine_s_per_mpps: cpu.machine.map(|cpus| cpus / mpps),
        round_trip_us: latency.p50,
        round_trip_p99_us: latency.p99,
    })
}

/// Goodput in Gbit/s, and CPU seconds for 10^9 bytes: of the forwarder and of the machine.
fn tcp(testbed: &Testbed, streams: u32, time: Duration) -> Result<[Option<f64>; 3], Error> {
    let stream = Stream {
        streams,
        duration: Time(WARM_UP + time),
        warm_up: WarmUp::For(WARM_UP),
        ..Stream::default()
    };
    let figures = stream.run(testbed, &Control::default())?.figures;
    let cpu = Cpu::of(testbed, figures.cpu_forwarder_percent, &figures.machine)?;
    let gigabytes = figures.goodput_gbps.map(|gbps| gbps / 8.0);
    let for_each = |cpus: Option<f64>| Some(cpus? / gigabytes?);
    Ok([
        figures.goodput_gbps,
        for_each(cpu.own),
        for_each(cpu.machine),
    ])
}

/// CPUs in use.
struct Cpu {
    /// By the forwarder; `None` if the kernel forwards.
    own: Option<f64>,
    /// By all programs and the kernel.
    machine: Option<f64>,
}

impl Cpu {
    fn of(testbed: &Testbed, own_percent: f64, machine: &CpuFigures) -> Result<Self, Error> {
        let has_forwarder = testbed.used().threads > 0;
        let cpus = cpus::allowed()?.len() as f64;
        Ok(Self {
            own: has_forwarder.then_some(own_percent / 100.0),
            machine: machine
                .cpu_machine_percent
                .map(|percent| percent / 100.0 * cpus),
        })
    }
}
