//! Checks that do more than send packets: interfaces that go down, and TCP of two kernels.

use std::thread;
use std::time::{Duration, Instant};

use super::bench::{Bench, Found, any, lines};
use super::packet::{Form, Packet, Rule, Sent};
use super::packets::{Ground, Step};
use super::probe::{Fault, Outcome, SHORT_PATIENCE, Wrong};
use crate::error::{LabError, ToolError};
use crate::ip::IpVersion;
use crate::topology::Side;
use crate::traffic::{Amount, Payload, Transfer};

/// How long an interface is down.
const DOWN: Duration = Duration::from_millis(100);
/// How long the kernel may take to activate an interface again.
const UP_MAX: Duration = Duration::from_secs(10);

/// Bytes of each stream.
const STREAM_BYTES: u64 = 8 << 20;
/// How long a stream may make no progress.
const STALL: Duration = Duration::from_secs(5);

/// How long each goodput is measured.
const MEASURED: Duration = Duration::from_millis(500);
/// The segment size that is compared with that of the MTU.
pub(super) const SMALL_MSS: u32 = 300;
/// A program whose segments of [`SMALL_MSS`] take so many times as long as those of the MTU has
/// collapsed. The work for a segment does not grow when it gets shorter.
const COLLAPSE: f64 = 10.0;

/// Sets the receiver's interface down while packets arrive, and then the sender's.
pub(super) fn down_up(bench: &mut Bench<'_>) -> Result<Found, ToolError> {
    let Some(ip) = bench.options.versions.first().copied() else {
        return Ok(Found {
            is_empty: true,
            ..Found::default()
        });
    };
    for (from, down) in [
        (Side::Left, Side::Right),
        (Side::Left, Side::Left),
        (Side::Right, Side::Left),
        (Side::Right, Side::Right),
    ] {
        let (list, link) = (packets(from, ip), bench.probe.link);
        let host = bench.hosts.host(down);
        let (netns, index) = (&host.netns, host.link.index);
        let mut rtnl = netns.rtnl()?;
        rtnl.set_down(index)?;
        if down != from {
            // They are lost, as the interface is down.
            let lost = list.iter().map(|sent| sent.clone().rule(Rule::WholeOrNot));
            bench
                .probe
                .run(&lost.collect::<Vec<_>>(), false, SHORT_PATIENCE, || {}, any)?;
        }
        thread::sleep(DOWN);
        rtnl.set_up(index)?;
        let begin = Instant::now();
        while !rtnl.link_by_index(index)?.passes_packets() && begin.elapsed() < UP_MAX {
            thread::sleep(Duration::from_millis(5));
        }
        let ground = Ground {
            from,
            ip,
            link,
            mtu: bench.options.mtu as usize,
            routes: bench.options.routes,
        };
        let step = Step {
            list,
            ..Step::default()
        };
        let outcome = bench.step(&step, &ground, bench.options.patience)?;
        if outcome.doubt.is_some() {
            let doubt = outcome.doubt;
            return Ok(Found {
                doubt,
                ..Found::default()
            });
        }
        if let Some(fault) = &outcome.fault {
            let which = down.of(["host A", "host B"]);
            let what = format!("after the interface of {which} was down: {}", fault.what);
            return Ok(Found {
                fault: Some(Fault {
                    what,
                    ..fault.clone()
                }),
                least: lines(&step),
                outcome,
                ..Found::default()
            });
        }
    }
    // The kernel has removed the IPv6 addresses of the interfaces.
    bench.restart()?;
    Ok(Found::default())
}

fn packets(from: Side, ip: IpVersion) -> Vec<Sent> {
    let udp = |flow| Sent::new(from, Form::Wire(Packet::udp(ip, flow, 300)));
    let large = Form::Large {
        packet: Packet::tcp(ip, 9, 1, 3000),
        size: 1000,
    };
    vec![udp(1), Sent::new(from, large), udp(2)]
}

/// TCP in each direction: one stream and four, with segments of the MTU and small ones.
pub(super) fn tcp_stream(bench: &mut Bench<'_>) -> Result<Found, ToolError> {
    for ip in &bench.options.versions {
        for from in [Side::Left, Side::Right] {
            for (streams, mss) in [(1, None), (4, None), (1, Some(SMALL_MSS))] {
                let bytes = STREAM_BYTES * u64::from(streams);
                let mut transfer = Transfer::tcp(*ip, Amount::Bytes(bytes)).streams(streams);
                (transfer.mss, transfer.stall) = (mss, STALL);
                transfer.stop = Some(bench.control.stop.clone());
                let named = || {
                    let mss = mss.map_or("of the MTU".to_owned(), |mss| mss.to_string());
                    let direction = from.of(["A to B", "B to A"]);
                    format!("{direction}: {streams} TCP streams over {ip}, MSS {mss}")
                };
                if let Some(fault) = transferred(bench, &transfer, from, &named())? {
                    let outcome = Outcome::default();
                    let least = vec![named()];
                    return Ok(Found {
                        fault: Some(fault),
                        least,
                        outcome,
                        ..Found::default()
                    });
                }
            }
        }
    }
    Ok(Found::default())
}

fn transferred(
    bench: &Bench<'_>,
    transfer: &Transfer,
    from: Side,
    named: &str,
) -> Result<Option<Fault>, ToolError> {
    let (sender, receiver) = (bench.hosts.host(from), bench.hosts.host(from.other()));
    let before = receiver.counters()?;
    let ran = transfer.run(sender, receiver);
    if let Some(end) = bench.end() {
        return Ok(Some(end));
    }
    let report = match ran {
        Ok(report) => report,
        Err(error @ (LabError::Stalled { .. } | LabError::TimeLimit { .. })) => {
            return Ok(Some(Fault::new(Wrong::Lost, format!("{named}: {error}"))));
        }
        // A connection that nothing answers.
        Err(LabError::Os {
            what,
            errno: libc::ETIMEDOUT,
        }) => {
            let what = format!("{named}: no connection ({what} timed out)");
            return Ok(Some(Fault::new(Wrong::Lost, what)));
        }
        Err(error) => return Err(error.into()),
    };
    let after = receiver.counters()?.since(&before);
    let bad = after.tcp_in_csum_errors + after.ip_in_csum_errors;
    let what = if !report.hash_ok {
        format!("{named}: other bytes arrived than were sent, with right checksums")
    } else if bad > 0 {
        format!("{named}: the receiving kernel counted {bad} wrong checksums (InCsumErrors)")
    } else {
        return Ok(None);
    };
    Ok(Some(Fault::new(Wrong::Bytes, what)))
}

/// Compares goodput at a small MSS with that of the MTU.
pub(super) fn mss_speed(bench: &mut Bench<'_>) -> Result<Found, ToolError> {
    let Some(ip) = bench.options.versions.first().copied() else {
        return Ok(Found {
            is_empty: true,
            ..Found::default()
        });
    };
    let mut goodputs = Vec::new();
    for mss in [None, Some(SMALL_MSS)] {
        let mut transfer = Transfer::tcp(ip, Amount::Time(MEASURED));
        (transfer.mss, transfer.stall) = (mss, STALL);
        (transfer.payload, transfer.stop) = (Payload::Plain, Some(bench.control.stop.clone()));
        match transfer.run(&bench.hosts.left, &bench.hosts.right) {
            Ok(report) => goodputs.push(report.gbps()),
            Err(LabError::Stalled { .. } | LabError::TimeLimit { .. }) => goodputs.push(0.0),
            Err(error) => return Err(error.into()),
        }
    }
    let [full, small] = goodputs[..] else {
        return Ok(Found::default());
    };
    let mss = bench.options.mtu - 40 - if ip == IpVersion::V4 { 0 } else { 20 };
    let longer = full / f64::from(mss) / (small / f64::from(SMALL_MSS)).max(1e-9);
    let figures = format!("{full:.2} Gbit/s, with an MSS of {SMALL_MSS}: {small:.2} Gbit/s");
    let fault = if full == 0.0 {
        Some(Fault::new(Wrong::Lost, "TCP made no progress"))
    } else {
        (longer > COLLAPSE).then(|| {
            let longer = format!("a segment takes {longer:.0} times as long as one of the MTU");
            Fault::new(Wrong::Slow, format!("{figures}: {longer}"))
        })
    };
    Ok(Found {
        fault,
        figures,
        ..Found::default()
    })
}
