//! Kernel TCP and UDP between two TAPs under each moderation: every byte arrives, nothing is lost
//! or sent again for it, and a queue whose signals are held back wakes its worker no more often
//! than that allows.

use packtrain::driver::Wishes;
use packtrain::engine::{self, PortSnapshot, Report, Session};
use packtrain::plan::{Side as PlanSide, plan};
use packtrain::policy::idle::Idle;
use packtrain::policy::moderation::Moderation;
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain_lab::LabError;
use packtrain_lab::harness::{self, Outcome};
use packtrain_lab::link::LinkStats;
use packtrain_lab::topology::{Settings, Side, TwoHosts};
use packtrain_lab::traffic::{Amount, IpVersion, Protocol, Transfer, TransferReport};
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    harness::main(&[
        ("signals_are_as_far_apart_as_fixed_says", fixed),
        ("nothing_is_held_back_where_it_is_off", off),
        ("adaptive_loses_nothing", adaptive),
    ])
}

/// Room for all that TCP may have in flight, so that the kernel drops nothing in front of us.
const TX_QUEUE_LEN: u32 = 20_000;

/// What one transfer came to.
struct Account {
    transfer: TransferReport,
    report: Report,
    links: [LinkStats; 2],
    /// At least as long as the session was there.
    lasted: Duration,
}

fn run(protocol: Protocol, moderation: Moderation) -> Result<Account, LabError> {
    let what = format!("{protocol:?}, {moderation}");
    let settings = Settings {
        tx_queue_len: TX_QUEUE_LEN,
        ..Settings::default()
    };
    let (hosts, a, b) = TwoHosts::with(&settings, |side| {
        let name = match side {
            Side::Left => "moderate-a",
            Side::Right => "moderate-b",
        };
        let tap = Tap::open(&TapConfig::new(TapKind::Tap, name));
        let tap = tap.unwrap_or_else(|error| panic!("{what}: {error}"));
        Ok::<_, LabError>((name.to_owned(), tap))
    })?;
    let sides = [&a, &b].map(|tap| PlanSide::of(tap, Wishes::default()));
    let plan = plan(&sides[0], &sides[1]).unwrap_or_else(|error| panic!("{what}: {error}"));
    let settings = engine::Settings {
        moderation,
        // A worker that spins is signalled by nobody.
        idle: Idle::Halt,
        ..engine::Settings::default()
    };
    let start = Instant::now();
    let session = Session::forward_with(a, b, &plan, None, &settings);
    let session = session.unwrap_or_else(|error| panic!("{what}: {error}"));
    let transfer = match protocol {
        Protocol::Tcp => Transfer::tcp(IpVersion::V4, Amount::Bytes(8 << 20)),
        // One at a time: each of them is a signal, unless that is held back.
        Protocol::Udp => Transfer::udp(IpVersion::V4, Amount::Bytes(256 << 10)).window(1),
    };
    let transfer = transfer.run(&hosts.left, &hosts.right)?;
    let links = [hosts.left.stats()?, hosts.right.stats()?];
    let report = session.finish();
    Ok(Account {
        transfer,
        report,
        links,
        lasted: start.elapsed(),
    })
}

fn check(protocol: Protocol, moderation: Moderation) -> Account {
    let what = format!("{protocol:?}, {moderation}");
    let account = run(protocol, moderation).unwrap_or_else(|error| panic!("{what}: {error}"));
    let snapshot = &account.report.snapshot;
    assert!(account.report.error.is_none(), "{:?}", account.report.error);
    assert!(account.transfer.hash_ok, "{what}: bytes differ");
    assert!(snapshot.ledger.closed(), "{what}: {:?}", snapshot.ledger);
    assert_eq!(snapshot.ledger.held, 0, "{what}");
    assert_eq!(snapshot.ledger.dropped, 0, "{what}: {:?}", snapshot.drops);
    let lost = account
        .links
        .iter()
        .map(|link| link.tx_dropped + link.rx_dropped);
    assert_eq!(lost.sum::<u64>(), 0, "{what}: {:?}", account.links);
    for (port, link) in snapshot.ports.iter().zip(&account.links) {
        // What the kernel had sent when it was asked has been read.
        assert!(port.rx_total().packets >= link.tx_packets, "{what}");
    }
    account
}

/// Of each port that packets came from: wake-ups for them, and how often its queue went to sleep
/// with its signal held back.
fn signals(account: &Account) -> Vec<(u64, u64)> {
    let ports = account.report.snapshot.ports.iter();
    ports
        .map(PortSnapshot::rx_total)
        .filter(|rx| rx.packets > 0)
        .map(|rx| (rx.wakeups, rx.moderated))
        .collect()
}

fn fixed() -> Outcome {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for usecs in [500_u32, 5000] {
            let moderation = Moderation::Fixed { usecs, frames: 256 };
            let account = check(protocol, moderation);
            // One signal in so many microseconds at most, and the first.
            let most = account.lasted.as_micros() as u64 / u64::from(usecs) + 1;
            for (wakeups, moderated) in signals(&account) {
                println!("{protocol:?}, {moderation}: {wakeups} signals of {most}, {moderated}");
                assert!(wakeups <= most, "{wakeups} signals, at most {most}");
                assert!(moderated > 0, "nothing was held back");
            }
        }
    }
    Outcome::Done
}

fn off() -> Outcome {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let account = check(protocol, Moderation::Off);
        for (wakeups, moderated) in signals(&account) {
            println!("{protocol:?}, off: {wakeups} signals");
            assert!(wakeups > 0);
            assert_eq!(moderated, 0);
        }
    }
    Outcome::Done
}

fn adaptive() -> Outcome {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let account = check(protocol, Moderation::Adaptive);
        println!("{protocol:?}, adaptive: {:?}", signals(&account));
    }
    Outcome::Done
}
