//! What guests and ports of a bridge cost two hosts beside them: TCP from one host to the other,
//! with pings.
//!
//! Each case is a pair, such as guests that do wrong and well-behaved guests with the same load. A
//! measurement has a bridge of its own. Every round runs both of a pair, in an order that
//! alternates, and figures are compared within a round only.
//!
//! `cargo bench -p packtrain-lab --bench neighbours -- --help` lists the options.

#[path = "../tests/neighbours/bed.rs"]
mod bed;
#[allow(dead_code, reason = "`vhost` of packtrain uses all of it")]
#[path = "../../packtrain/tests/vhost/guest.rs"]
mod guest;

use bed::{Bed, Exchanged, LOADS, Load, PINGS, Sends, Takes, bridge, exchange, while_repeated};
use clap::Parser;
use guest::Guest;
use packtrain::limits::PORTS_MAX;
use packtrain_lab::link::Rtnl;
use packtrain_lab::netns::Netns;
use packtrain_lab::topology::{Settings, Side, TwoHosts};
use packtrain_lab::traffic::{Amount, IpVersion, Transfer, TransferReport};
use packtrain_lab::{LabError, rootless, tap};
use packtrain_measure::claim::{compared, save};
use packtrain_measure::options::{self, Common, Timed};
use packtrain_measure::report::Conditions;
use packtrain_measure::{Claim, Expected, statistics};
use serde_json::json;
use std::error::Error;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

#[derive(clap::Parser)]
struct Arguments {
    /// Runs of each side, 2 to 10000
    #[arg(long, value_name = "N", value_parser = options::rounds, default_value_t = 8)]
    #[arg(default_value_if("quick", "true", "2"))]
    rounds: usize,
    /// Only the cases whose names contain this
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    timed: Timed,
}

/// Packets that the slow port takes in a millisecond, and those that may wait for it in the kernel.
const SLOW_PACKETS: u128 = 10;
const SLOW_QUEUE: u32 = 1000;
/// How long the guests do what they do before the stream begins.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long a stream may make no progress, and an answer to a ping may take.
const STALL: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    // The first thing, since it needs a process with one thread.
    let entered = rootless::enter_if_needed();
    let arguments = Arguments::parse();
    if let Err(missing) = entered.and_then(|_| tap::available()) {
        println!("SKIP: neighbours: {missing}");
        return ExitCode::SUCCESS;
    }
    options::status("neighbours", run(&arguments).map(|()| true))
}

/// The bridge of a measurement.
#[derive(Clone, Copy)]
enum Middle {
    Guests(Load),
    Ports(usize),
    /// With a slow port, of packtrain or of the kernel.
    Slow,
    SlowKernel,
}

/// A name, the least ratio of goodput, and what is compared.
type Case = (&'static str, f64, [(&'static str, Middle); 2]);

fn cases() -> Vec<Case> {
    let guests = LOADS[1..].iter().map(|&wrong| {
        let mut honest = wrong;
        honest.takes = Takes::All;
        honest.sends = match wrong.sends {
            Sends::BadChains => Sends::Frames(64),
            Sends::Addresses => Sends::Frames(10),
            sends => sends,
        };
        let pair = [("wrong", wrong), ("honest", honest)];
        let pair = pair.map(|(name, load)| (name, Middle::Guests(load)));
        (wrong.name, 0.7, pair)
    });
    let slow = [("packtrain", Middle::Slow), ("kernel", Middle::SlowKernel)];
    let many = [("many", PORTS_MAX.min(64)), ("three", 3)];
    let many = many.map(|(name, ports)| (name, Middle::Ports(ports)));
    let others = [("slow_port", 0.9, slow), ("idle_ports", 0.8, many)];
    guests.chain(others).collect()
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (rounds, time) = (arguments.rounds, arguments.timed.time);
    let mut conditions = Conditions::of_host();
    let samples = format!(
        "{rounds} rounds of {} s each, IPv4, 1 stream",
        time.as_secs_f64()
    );
    conditions.add("samples", samples);
    conditions.print();
    let (mut rows, mut claims) = (Vec::new(), Vec::new());
    for (name, goal, mut pair) in cases() {
        if !name.contains(&arguments.only) {
            continue;
        }
        let (beside, mut ratios) = (pair[1].0, Vec::new());
        for round in 0..rounds {
            let mut both = [0.0; 2];
            for (side, middle) in pair {
                let ((stream, pings), note) = measure(middle, time)?;
                // A stream that stalls has no goodput.
                let gbps = stream.as_ref().map_or(0.0, TransferReport::gbps);
                let stalled = stream.err().map(|error| error.to_string());
                let (sent, lost) = pings.map_or((PINGS, PINGS), |pings| (pings.sent, pings.lost));
                let note = [note, stalled.unwrap_or_default()].join(" ");
                println!("{name}, {side}: {gbps:.3} Gbit/s, {lost} of {sent} pings lost; {note}");
                both[usize::from(side == beside)] = gbps;
                rows.push(json!({
                    "case": name, "side": side, "round": round, "gbps": gbps,
                    "pings": sent, "pings_lost": lost, "note": note,
                }));
            }
            // An estimate is of ratios above 0. Without a goodput of the other side there is none.
            ratios.extend((both[1] > 0.0).then(|| both[0].max(1e-3) / both[1]));
            pair.reverse();
        }
        let (estimate, goal) = (statistics::estimate(&ratios), Expected::AtLeast(goal));
        let claim = Claim::of_ratio("neighbours", name.to_owned(), beside, estimate, goal);
        claims.push(claim);
    }
    if claims.is_empty() {
        let names: Vec<_> = cases().iter().map(|case| case.0).collect();
        let (only, names) = (&arguments.only, names.join(", "));
        return Err(format!("no case has {only} in its name; the cases are {names}").into());
    }
    claims.iter().for_each(|claim| println!("{claim}"));
    if let Some(file) = &arguments.common.json {
        let document = compared("neighbours", &conditions, rounds, &rows, [], &claims);
        save(file, &document)?;
    }
    Ok(())
}

/// Also the drops, and why a ring is broken.
fn measure(middle: Middle, time: Duration) -> Result<(Exchanged, String), Box<dyn Error>> {
    let stream = |time| {
        let mut stream = Transfer::tcp(IpVersion::V4, Amount::Time(time));
        (stream.stall, stream.limit) = (STALL, time + 3 * STALL);
        stream
    };
    let run = |bed: &Bed| {
        thread::sleep(WARM_UP);
        let exchanged = exchange(&bed.hosts, &stream(time), STALL);
        (exchanged, bed.problem().unwrap_or_default())
    };
    let (bed, (exchanged, problem)) = match middle {
        // TCP has to lose packets a few times.
        Middle::Slow => return slow(true, &stream(5 * time)),
        Middle::SlowKernel => return slow(false, &stream(5 * time)),
        Middle::Guests(load) => {
            let mut bed = Bed::new(&Settings::default(), true, 0)?;
            let (result, _) = bed.beside(Load { enough: 0, ..load }, run);
            (bed, result)
        }
        Middle::Ports(ports) => {
            let bed = Bed::new(&Settings::default(), false, ports - 2)?;
            let result = run(&bed);
            (bed, result)
        }
    };
    let drops = bed.finish().snapshot.drops;
    Ok((exchanged, format!("{drops:?} {problem}")))
}

/// A guest as the other end of a port, which is read and written as that of a TAP.
struct GuestEnd(Guest);

impl Read for GuestEnd {
    fn read(&mut self, frame: &mut [u8]) -> io::Result<usize> {
        let (_, bytes) = self.0.receive(0).ok_or(ErrorKind::WouldBlock)?;
        frame[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

impl Write for GuestEnd {
    fn write(&mut self, frame: &[u8]) -> io::Result<usize> {
        let is_sent = self.0.send(0, &[0; 12], frame);
        Ok(if is_sent { frame.len() } else { 0 })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A bridge of the left host's interface, of a port that takes slowly, behind which the right host
/// is, and of packtrain's a third one that is idle.
fn slow(is_ours: bool, stream: &Transfer) -> Result<(Exchanged, String), Box<dyn Error>> {
    let middle = Netns::new()?;
    let (hosts, (near, _), (_, far)) = TwoHosts::with(&Settings::default(), |side| {
        let kept = match side {
            Side::Left if is_ours => (Some(bed::port("tap:near")), None),
            Side::Left => {
                Rtnl::open()?.create_veth("near", "near", &middle, 1)?;
                (None, None)
            }
            Side::Right => (None, tap::Tap::new("far").open()?.pop()),
        };
        Ok::<_, LabError>((side.of(["near", "far"]).to_owned(), kept))
    })?;
    let far = File::from(far.expect("a queue"));
    if let Some(near) = near {
        let (port, connect) = bed::vhost(0, 256);
        let session = bridge(vec![near, port, middle.run(|| bed::port("tap:idle"))?])?;
        let exchanged = exchange_slowly(&hosts, stream, GuestEnd(connect().0), far);
        let drops = session.finish().snapshot.drops;
        return Ok((exchanged, format!("{drops:?}")));
    }
    let mut rtnl = middle.rtnl()?;
    rtnl.create_bridge("bridge")?;
    let bridge = rtnl.link("bridge")?.index;
    rtnl.set_up(bridge)?;
    let slow = middle.run(|| tap::Tap::new("slow").open())??.pop();
    for name in ["near", "slow"] {
        let index = rtnl.link(name)?.index;
        rtnl.set_tx_queue_len(index, SLOW_QUEUE)?;
        rtnl.set_bridge(index, bridge)?;
        rtnl.set_up(index)?;
    }
    let slow = File::from(slow.expect("a queue"));
    let exchanged = exchange_slowly(&hosts, stream, slow, far);
    Ok((exchanged, "none".to_owned()))
}

/// Runs the stream while [`SLOW_PACKETS`] a millisecond are carried from `slow` to the right host
/// at `far`, and all packets from that host.
fn exchange_slowly(
    hosts: &TwoHosts,
    stream: &Transfer,
    mut slow: impl Read + Write + Send,
    mut far: File,
) -> Exchanged {
    let (start, mut taken, mut frame) = (Instant::now(), 0, [0; 2048]);
    let carry = move || {
        let due = start.elapsed().as_millis() * SLOW_PACKETS;
        while taken < due {
            // The time of an empty queue is not made up for.
            taken = slow.read(&mut frame).map_or(due, |bytes| {
                // A packet that the host refuses is lost.
                far.write(&frame[..bytes]).map_or(taken, |_| taken + 1)
            });
        }
        while let Ok(bytes) = far.read(&mut frame) {
            if slow.write_all(&frame[..bytes]).is_err() {
                // A packet that the port refuses is lost, too.
                break;
            }
        }
    };
    while_repeated(Duration::from_micros(100), carry, || {
        exchange(hosts, stream, STALL)
    })
}
