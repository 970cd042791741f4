//! The seed of a world changes the random choices of its ports.

use packtrain::engine::{Handler, RxId, Session};
use packtrain::packet::Burst;
use packtrain::policy::dispatch::Dispatch;
use packtrain::port;
use packtrain::time::Instant;
use packtrain_testkit::rig::{Rig, burst, fixed, ms, number, twice};
use packtrain_testkit::{Costs, machine};
use std::sync::{Arc, Mutex};

/// The numbers of the packets that arrive.
struct Arrived(Arc<Mutex<Vec<u64>>>);

impl Handler for Arrived {
    fn handle(&mut self, _: Instant, _: RxId, burst: &mut Burst) {
        let mut arrived = self.0.lock().unwrap();
        arrived.extend(burst.iter().map(|packet| number(packet.first())));
        burst.clear();
    }
}

/// Which of 64 packets arrive at a port that loses half of them.
fn arrived(seed: u64) -> Vec<u64> {
    twice(|| {
        let mut rig = Rig::new(machine(2), Costs::default(), seed);
        let port = port::open("sim:far=echo,drop=0.5,seed=7").unwrap();
        let arrived = Arc::<Mutex<Vec<_>>>::default();
        let ours = Arc::clone(&arrived);
        let builder = Session::on(port).handler(move |_| Arrived(Arc::clone(&ours)));
        let session = rig.add(builder.senders(0, 1), fixed(Dispatch::Deferred), 1);
        let mut handle = rig.handle(session, 0);
        let mut packets = burst(&handle, 0..64);
        assert_eq!(handle.try_send(&mut packets), Ok(64));
        drop(handle);
        rig.world.run(ms(10));
        rig.end();
        let arrived = arrived.lock().unwrap();
        arrived.clone()
    })
}

#[test]
fn with_another_seed_other_packets_are_lost() {
    let first = arrived(1);
    assert!((1..64).contains(&first.len()), "{first:?}");
    assert_ne!(first, arrived(2));
}
