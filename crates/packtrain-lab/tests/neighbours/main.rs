//! Guests of a bridge that take nothing, take slowly, or send what costs much: the TCP and the
//! pings of two hosts pass all the same, and only packets for the guests are dropped.

mod bed;
#[allow(dead_code, reason = "`vhost` of packtrain uses all of it")]
#[path = "../../../packtrain/tests/vhost/guest.rs"]
mod guest;

use bed::{Bed, LOADS, Load, PINGS, Sends, Takes, exchange};
use packtrain_lab::harness::{self, need_tap, wait_for};
use packtrain_lab::topology::Settings;
use packtrain_lab::traffic::{Amount, IpVersion, Transfer};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    macro_rules! beside {
        ($($load:literal)*) => { [$((LOADS[$load].name, || hosts_pass_beside(LOADS[$load]))),*] };
    }
    harness::main(&beside!(0 1 2 3 4 5 6 7))
}

const BYTES: u64 = 32 << 20;
/// Bytes of a socket's buffer: packets of any size that are in flight fit a ring.
const BUFFER: u32 = 128 << 10;
/// Packets that wait in the kernel of a host, which drops more. Those of a load are 40 in a
/// millisecond, and a worker may have no CPU for a while.
const QUEUE: u32 = 100_000;
/// Only a hang is a failure.
const LATE: Duration = Duration::from_secs(60);

fn assert_pass(bed: &Bed, when: &str) {
    let mut stream = Transfer::tcp(IpVersion::V4, Amount::Bytes(BYTES));
    stream.buffers = Some(BUFFER);
    let (stream, pings) = exchange(&bed.hosts, &stream, LATE);
    let (stream, pings) = (stream.expect(when), pings.expect(when));
    assert!(stream.hash_ok, "{when}: {stream:?}");
    assert_eq!((pings.sent, pings.lost), (PINGS, 0), "{when}: {pings:?}");
}

fn hosts_pass_beside(load: Load) {
    need_tap();
    let settings = Settings {
        tx_queue_len: QUEUE,
        ..Settings::default()
    };
    let mut bed = Bed::new(&settings, true, 0).expect("a bridge");
    // The bridge learns the hosts when its table is full.
    if load.sends != Sends::Addresses {
        assert_pass(&bed, "before");
    }
    let has_empty = load.takes == Takes::Empty || load.sends == Sends::BadChains;
    let ((), strange) = bed.beside(load, |bed| {
        assert_pass(bed, load.name);
        if has_empty {
            wait_for("a broken ring", || bed.problem().is_some());
        }
    });
    assert_pass(&bed, "after");
    // What precedes the first answer goes to all ports.
    assert!(strange < 10, "{strange} packets for a host");
    let snapshot = bed.finish().into_result().expect("no failure");
    assert!(snapshot.ledger.closed(), "{:?}", snapshot.ledger);
    for host in &snapshot.ports[..2] {
        assert_eq!(host.tx_total().egress_full, 0, "{}", host.name);
    }
    let drops = snapshot.drops;
    let own = "egress_full bad_descriptor too_long link_down shutdown";
    let mut reasons = drops.nonzero().map(|(reason, _)| reason.name());
    assert!(reasons.all(|reason| own.contains(reason)), "{drops:?}");
    let drops_some = has_empty || load.takes != Takes::All;
    assert!(!drops_some || drops.total() > 0, "nothing is dropped");
}
