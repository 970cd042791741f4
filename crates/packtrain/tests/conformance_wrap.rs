//! Wrappers that are told to do nothing keep the promises of the driver they wrap.

use packtrain::conformance::{Injects, Observes, Outside, Rig, Skip, Traits};
use packtrain::driver::{Attach, Driver, Features};
use packtrain::driver_conformance;
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress};
use packtrain::plan::FitLimits;
use packtrain::port::sim::{Sim, SimConfig, SimRx, SimTx, pair};
use packtrain::port::wrap::{Capture, CaptureOptions, Fault, FaultOptions, Trace};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::time::Instant;
use packtrain_offload::offload::LinkType;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

type Wrapped = Trace<Capture<Fault<Sim>>>;

/// A wrapped endpoint, and the other one in the hands of the suite.
struct Pair {
    near: Wrapped,
    rx: RxQueue<SimRx>,
    tx: TxQueue<SimTx>,
    arena: Arena,
    seen: VecDeque<Outside>,
}

fn wrapped(seed: u64) -> Result<Pair, Skip> {
    let config = SimConfig {
        flow_control: true,
        ..SimConfig::default()
    };
    let (near, mut far) = pair(config.clone(), config, seed);
    let fault = Fault::new(near, FaultOptions::default());
    let capture = Capture::new(fault, Box::new(io::sink()), CaptureOptions::default()).unwrap();
    let near = Trace::new(capture, Box::new(io::sink()));
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let capabilities = far.capabilities();
    let (rx, tx) = far.attach(&Attach::default(), &arena).unwrap().remove(0);
    let (limits, ring) = (FitLimits::new(&capabilities, None), capabilities.tx_ring);
    let rx = RxQueue::new(
        rx,
        arena.clone(),
        capabilities.link,
        Ingress::default(),
        Arc::default(),
        Arc::default(),
    );
    let tx = TxQueue::new(
        tx,
        arena.clone(),
        capabilities.tx,
        limits,
        ring,
        Arc::default(),
        Arc::default(),
    );
    Ok(Pair {
        near,
        rx,
        tx,
        arena,
        seen: VecDeque::new(),
    })
}

impl Rig for Pair {
    type Driver = Wrapped;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 16,
            fills: true,
            injects_offloads: Features::CSUM | Features::TSO | Features::USO,
            counts_exactly: true,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut Wrapped {
        &mut self.near
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        let packet = packet.to_packet(&self.arena, LinkType::Ethernet, || 1500);
        let mut burst = Burst::new();
        burst.push(packet.unwrap()).unwrap();
        self.tx.transmit(&mut burst).unwrap();
        self.tx.reclaim();
        true
    }

    fn observe(&mut self) -> Option<Outside> {
        if self.seen.is_empty() {
            let mut burst = Burst::new();
            self.rx.poll(Instant::default(), &mut burst, 64).unwrap();
            self.seen.extend(burst.iter().map(Outside::of));
        }
        self.seen.pop_front()
    }

    fn tick(&mut self) {
        self.tx.transmit(&mut Burst::new()).unwrap();
        self.tx.reclaim();
    }
}

driver_conformance!(wrapped_sim, wrapped);
