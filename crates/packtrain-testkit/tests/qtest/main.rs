//! QEMU's cards without a guest: what the bus of [`packtrain_testkit::qtest`] promises.

mod cards;
mod e1000e;

use packtrain_testkit::qtest::{Card, Qtest};

/// Starts the cards; `None` where QEMU is not installed.
fn start(cards: Vec<Card>) -> Option<Vec<Qtest>> {
    if let Err(why) = Qtest::available() {
        println!("SKIP: a machine with {cards:?}: {why}");
        return None;
    }
    Some(Qtest::start(cards).expect("a machine"))
}

fn start_one(card: Card) -> Option<Qtest> {
    start(vec![card])?.pop()
}
