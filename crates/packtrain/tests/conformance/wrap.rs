//! Wrappers without a configured effect keep the promises of the driver they wrap, alone, nested,
//! and in the closed set of ports; the tagging one keeps them on tagged packets.

use super::Far;
use packtrain::driver::{DeviceError, Driver, Features};
use packtrain::packet::VlanTag;
use packtrain::port::AnyPort;
use packtrain::port::sim::{Sim, SimConfig, pair};
use packtrain::port::wrap::{Capture, CaptureOptions, Fault, FaultOptions, Returning, Trace, Vlan};
use packtrain_testkit::conformance::{Fills, Injects, Observes, Outside, Rig, Skip, Traits};
use packtrain_testkit::driver_conformance;
use std::io;

/// A wrapped endpoint, and the other one.
struct Pair<D> {
    near: D,
    far: Far,
    traits: Traits,
}

fn wrapped<D: Driver>(seed: u64, wrap: impl FnOnce(Sim) -> D) -> Result<Pair<D>, Skip> {
    let config = SimConfig {
        flow_control: true,
        ..SimConfig::default()
    };
    let (near, far) = pair(config.clone(), config, seed);
    Ok(Pair {
        near: wrap(near),
        far: Far::new(far),
        traits: Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 16,
            fills: Fills::Yes,
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
        self.far.send(packet);
        true
    }

    fn observe(&mut self) -> Option<Outside> {
        self.far.receive()
    }

    fn tick(&mut self) {
        self.far.tick();
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

fn returning(seed: u64) -> Result<Pair<Returning<Sim>>, Skip> {
    wrapped(seed, |sim| {
        Returning::new(sim, || Err(DeviceError::Removed))
    })
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
driver_conformance!(sim_returning, returning);
driver_conformance!(any_sim, any);
driver_conformance!(any_sim_nested, any_nested);
