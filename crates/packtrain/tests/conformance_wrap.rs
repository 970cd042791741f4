//! Wrappers without a configured effect keep the promises of the driver they wrap, alone, nested,
//! and in the closed set of ports; the tagging one keeps them on tagged packets.

use packtrain::conformance::{Injects, Observes, Outside, Rig, Skip, Traits};
use packtrain::driver::{Attach, Driver, Features};
use packtrain::driver_conformance;
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress, VlanTag};
use packtrain::plan::FitLimits;
use packtrain::port::AnyPort;
use packtrain::port::sim::{Sim, SimConfig, SimRx, SimTx, pair};
use packtrain::port::wrap::{Capture, CaptureOptions, Fault, FaultOptions, Trace, Vlan};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::time::Instant;
use packtrain_offload::offload::LinkType;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A wrapped endpoint, and the other one, which the suite controls.
struct Pair<D> {
    near: D,
    rx: RxQueue<SimRx>,
    tx: TxQueue<SimTx>,
    arena: Arena,
    seen: VecDeque<Outside>,
    traits: Traits,
}

fn wrapped<D: Driver>(seed: u64, wrap: impl FnOnce(Sim) -> D) -> Result<Pair<D>, Skip> {
    let config = SimConfig {
        flow_control: true,
        ..SimConfig::default()
    };
    let (near, mut far) = pair(config.clone(), config, seed);
    let near = wrap(near);
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
        traits: Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 16,
            fills: true,
            injects_offloads: Features::CSUM | Features::TSO | Features::USO,
            counts_exactly: true,
            ..Traits::default()
        },
    })
}

impl<D: Driver> Rig for Pair<D> {
    type Driver = D;

    fn traits(&self) -> Traits {
        self.traits
    }

    fn driver(&mut self) -> &mut D {
        &mut self.near
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        let packet = packet.to_packet(&self.arena, LinkType::Ethernet, || 1500);
        let mut burst = Burst::new();
        burst.push(packet.unwrap()).unwrap();
        self.tx.transmit(&mut burst).unwrap();
        self.tx.reclaim(Instant::default());
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
        self.tx.reclaim(Instant::default());
    }
}

fn capture<D: Driver>(inner: D) -> Capture<D> {
    Capture::new(inner, Box::new(io::sink()), CaptureOptions::default()).unwrap()
}

fn fault<D: Driver>(inner: D) -> Fault<D> {
    Fault::new(inner, FaultOptions::default())
}

fn trace<D: Driver>(inner: D) -> Trace<D> {
    Trace::new(inner, Box::new(io::sink()))
}

fn nested(seed: u64) -> Result<Pair<Trace<Capture<Fault<Sim>>>>, Skip> {
    wrapped(seed, |sim| trace(capture(fault(sim))))
}

fn captured(seed: u64) -> Result<Pair<Capture<Sim>>, Skip> {
    wrapped(seed, capture)
}

const TAG: VlanTag = VlanTag {
    protocol: 0x8100,
    control: 100,
};

/// The device counts packets without the tag.
fn with_tag<D: Driver>(pair: Pair<D>) -> Pair<D> {
    let traits = Traits {
        tag: Some(TAG),
        counts_exactly: false,
        ..pair.traits
    };
    Pair { traits, ..pair }
}

fn tagging(seed: u64) -> Result<Pair<Vlan<Sim>>, Skip> {
    wrapped(seed, |sim| Vlan::single(sim, TAG.control)).map(with_tag)
}

fn any(seed: u64) -> Result<Pair<AnyPort>, Skip> {
    wrapped(seed, AnyPort::Sim)
}

fn any_nested(seed: u64) -> Result<Pair<AnyPort>, Skip> {
    let all = |sim| {
        let port = AnyPort::Fault(Box::new(fault(AnyPort::Sim(sim))));
        let port = AnyPort::Vlan(Box::new(Vlan::single(port, TAG.control)));
        let port = AnyPort::Trace(Box::new(trace(port)));
        AnyPort::Capture(Box::new(capture(port)))
    };
    wrapped(seed, all).map(with_tag)
}

driver_conformance!(sim_nested, nested);
driver_conformance!(sim_captured, captured);
driver_conformance!(sim_tagging, tagging);
driver_conformance!(any_sim, any);
driver_conformance!(any_sim_nested, any_nested);
