//! The ports of the framework keep the promises of the driver contract.

mod null;
mod pcap;
mod sim;
mod wrap;

use packtrain::driver::{Attach, Driver};
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress};
use packtrain::plan::FitLimits;
use packtrain::port::sim::{Sim, SimRx, SimTx};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::time::Instant;
use packtrain_offload::offload::LinkType;
use packtrain_testkit::conformance::Outside;
use std::collections::VecDeque;
use std::sync::Arc;

/// The other endpoint of a pair, which the suite controls.
struct Far {
    rx: RxQueue<SimRx>,
    tx: TxQueue<SimTx>,
    link: LinkType,
    arena: Arena,
    seen: VecDeque<Outside>,
}

impl Far {
    fn new(mut driver: Sim) -> Self {
        let arena = Arena::new(ArenaConfig::small()).unwrap();
        let capabilities = driver.capabilities();
        let (rx, tx) = driver.attach(&Attach::default(), &arena).unwrap().remove(0);
        let (limits, ring) = (FitLimits::new(&capabilities, None), capabilities.tx_ring);
        let (link, ingress) = (capabilities.link, Ingress::default());
        let (counters, drops) = (Arc::default(), Arc::default());
        let rx = RxQueue::new(rx, arena.clone(), link, ingress, counters, drops);
        let (counters, drops) = (Arc::default(), Arc::default());
        let features = capabilities.tx;
        let tx = TxQueue::new(tx, arena.clone(), features, limits, ring, counters, drops);
        Self {
            rx,
            tx,
            link,
            arena,
            seen: VecDeque::new(),
        }
    }

    fn send(&mut self, packet: &Outside) {
        let packet = packet.to_packet(&self.arena, self.link, || 1500);
        let mut burst = Burst::new();
        burst.push(packet.unwrap()).unwrap();
        self.tx.transmit(&mut burst).unwrap();
        self.tx.reclaim(Instant::default());
    }

    fn receive(&mut self) -> Option<Outside> {
        if self.seen.is_empty() {
            let mut burst = Burst::new();
            self.rx.poll(Instant::default(), &mut burst, 64).unwrap();
            self.seen.extend(burst.iter().map(Outside::of));
        }
        self.seen.pop_front()
    }

    fn tick(&mut self) {
        self.tx.transmit(&mut Burst::new()).unwrap();
        self.tx.reclaim(Instant::default());
    }

    /// Drops the queues and checks that no frame is left anywhere.
    fn close(self) {
        let Self { rx, tx, arena, .. } = self;
        drop((rx, tx));
        let (census, config) = (arena.census(), arena.config());
        assert_eq!(census.small_free, config.small_frames);
        assert_eq!(census.large_free, config.large_frames);
        assert_eq!(census.lines_free, config.lines);
    }
}
