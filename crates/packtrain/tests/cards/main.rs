//! Drivers of network cards on the cards that QEMU emulates, without a guest.

mod e1000e;
#[allow(dead_code, reason = "`tap` uses all of it")]
#[path = "../tap/line.rs"]
mod line;
mod tap;
#[allow(dead_code, reason = "`tap` uses all of it")]
#[path = "../tap/traffic.rs"]
mod traffic;
mod virtio;
#[allow(dead_code, reason = "`tap` uses all of it")]
#[path = "../tap/world.rs"]
mod world;

use packtrain_testkit::conformance::Skip;
use packtrain_testkit::qtest::{Card, Qtest};

/// Starts a machine with these cards, or says why there is none.
fn start(cards: Vec<Card>) -> Result<Vec<Qtest>, Skip> {
    if let Err(why) = Qtest::available() {
        assert!(!rustix::process::geteuid().is_root(), "as root: {why}");
        return Err(Skip(why.to_string()));
    }
    Ok(Qtest::start(cards).expect("a machine"))
}

/// Starts a machine with one card.
fn start_one(card: Card) -> Result<Qtest, Skip> {
    Ok(start(vec![card])?.remove(0))
}
