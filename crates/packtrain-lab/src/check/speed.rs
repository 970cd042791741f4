//! What a program carries, and what it costs, beside the kernel's own ways and a forwarder in C.

use std::time::Duration;

use serde::Serialize;

use super::bench::Options;
use crate::error::{LabError, ToolError};
use crate::ip::IpVersion;
use crate::testbed::{Testbed, TestbedOptions, Through};
use crate::tool::Control;
use crate::traffic::{Amount, Exchange, Payload, Transfer, TransferReport};

/// Rounds, in each of which all are measured.
const ROUNDS: usize = 5;
/// How long each measurement takes.
const MEASURED: Duration = Duration::from_millis(200);
/// How long a stream may make no progress.
const STALL: Duration = Duration::from_secs(5);
/// Bytes of a request and of its response.
const EXCHANGE: usize = 64;

/// What one of them carried: medians of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// `program`, `c`, `bridge` or `veth`.
    pub through: &'static str,
    /// One TCP stream from host A to host B, in Gbit/s of payload.
    pub goodput_gbps: f64,
    /// The same, with a maximum segment size of 300 bytes.
    pub goodput_mss_300_gbps: f64,
    /// CPU time of the forwarder for a gigabyte of the first stream, in seconds; 0 for the kernel.
    pub forwarder_seconds_per_gb: f64,
    /// The same, with that of both ends.
    pub cpu_seconds_per_gb: f64,
    /// The mean time of a TCP request of 64 bytes and its response, one at a time.
    pub round_trip_us: f64,
}

/// Measures the program and what it is compared with, in turns. What cannot run here is left out.
pub(super) fn speeds(options: &Options, control: &Control<'_>) -> Result<Vec<Speed>, ToolError> {
    let ways = [
        ("c", Through::C),
        ("bridge", Through::Bridge),
        ("veth", Through::Veth),
    ];
    let program = Testbed::of_program(&options.exec, &options.settings())?;
    let mut beds = vec![("program", program, Vec::new())];
    for (name, through) in ways {
        let testbed = TestbedOptions {
            through,
            mtu: options.mtu,
            ..TestbedOptions::default()
        };
        match Testbed::start(&testbed) {
            Ok(bed) => beds.push((name, bed, Vec::new())),
            // Without a C compiler.
            Err(ToolError::Missing(_)) if through == Through::C => {}
            Err(error) => return Err(error),
        }
    }
    let ip = options.versions.first().copied().unwrap_or(IpVersion::V4);
    for _ in 0..ROUNDS {
        for (_, bed, rounds) in &mut beds {
            if control.stopped() {
                return Err(ToolError::Cancelled);
            }
            rounds.push(round(bed, ip, control)?);
        }
    }
    let mut speeds = Vec::new();
    for (through, bed, rounds) in beds {
        bed.finish()?;
        let median = |of: fn(&Round) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        speeds.push(Speed {
            through,
            goodput_gbps: median(|round| round.full),
            goodput_mss_300_gbps: median(|round| round.small),
            forwarder_seconds_per_gb: median(|round| round.forwarder),
            cpu_seconds_per_gb: median(|round| round.all),
            round_trip_us: median(|round| round.round_trip),
        });
    }
    Ok(speeds)
}

/// The figures of one round, as in [`Speed`].
struct Round {
    full: f64,
    small: f64,
    forwarder: f64,
    all: f64,
    round_trip: f64,
}

fn round(bed: &Testbed, ip: IpVersion, control: &Control<'_>) -> Result<Round, ToolError> {
    let stream = |mss| {
        let mut transfer = Transfer::tcp(ip, Amount::Time(MEASURED));
        (transfer.mss, transfer.payload) = (mss, Payload::Plain);
        run(bed, transfer, control)
    };
    let before = bed.used();
    let full = stream(None)?;
    let forwarder = bed.used().since(&before).cpu.as_secs_f64();
    let small = stream(Some(super::own::SMALL_MSS))?;
    let mut exchange = Transfer::tcp(ip, Amount::Time(MEASURED));
    exchange.payload = Payload::Plain;
    exchange.exchange = Some(Exchange {
        request: EXCHANGE,
        response: EXCHANGE,
    });
    let exchanged = run(bed, exchange, control)?;
    let per_gb = |seconds: f64, bytes: u64| seconds / (bytes.max(1) as f64 / 1e9);
    let (bytes, ends) = match &full {
        Some(report) => (
            report.received_bytes,
            report.send_cpu.cpu() + report.receive_cpu.cpu(),
        ),
        None => (0, Duration::ZERO),
    };
    let goodput = |report: Option<TransferReport>| report.map_or(0.0, |one| one.gbps());
    let round_trip = exchanged.map_or(f64::INFINITY, |one| {
        let responses = (one.received_bytes / EXCHANGE as u64).max(1) as f64;
        one.elapsed.as_secs_f64() * 1e6 / responses
    });
    Ok(Round {
        forwarder: per_gb(forwarder, bytes),
        all: per_gb(forwarder + ends.as_secs_f64(), bytes),
        full: goodput(full),
        small: goodput(small),
        round_trip,
    })
}

/// `None` if it made no progress.
fn run(
    bed: &Testbed,
    mut transfer: Transfer,
    control: &Control<'_>,
) -> Result<Option<TransferReport>, ToolError> {
    (transfer.stall, transfer.stop) = (STALL, Some(control.stop.clone()));
    match transfer.run(&bed.hosts().left, &bed.hosts().right) {
        Ok(report) => Ok(Some(report)),
        Err(LabError::Stalled { .. } | LabError::TimeLimit { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
