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
mod vmxnet3;
#[allow(dead_code, reason = "`tap` uses all of it")]
#[path = "../tap/world.rs"]
mod world;

use packtrain::driver::Driver;
use packtrain_testkit::conformance::{Fills, Injects, Observes, Outside, Rig, Skip, Traits};
use packtrain_testkit::qtest::{Card, Qtest};
use std::time::Duration;

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

/// A port of a card whose frames the test has.
struct Plugged<D> {
    port: D,
    card: Qtest,
}

impl<D: Driver> Rig for Plugged<D> {
    type Driver = D;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 8,
            fills: Fills::Never("QEMU keeps the frames for which the cable has no room"),
            latency: Duration::from_millis(20),
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut D {
        &mut self.port
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        self.card.inject(&packet.bytes).is_ok()
    }

    fn observe(&mut self) -> Option<Outside> {
        let mut bytes = vec![0; 1 << 16];
        let count = self.card.socket().recv(&mut bytes).ok()?;
        bytes.truncate(count);
        Some(Outside::complete(bytes))
    }

    fn detached(&mut self) {
        // An address that the card was not given, also one of a frame that is free again.
        self.card.check_untouched().expect("the card's accesses");
    }
}
