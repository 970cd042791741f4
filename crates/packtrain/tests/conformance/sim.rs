//! Endpoints with all kinds of descriptors keep the rules for every driver.

use super::Far;
use packtrain::driver::{Features, TxMemory};
use packtrain::port::sim::{CompletionDelay, Sim, SimConfig, pair};
use packtrain_offload::offload::LinkType;
use packtrain_testkit::conformance::{Fills, Injects, Observes, Outside, Rig, Skip, Traits};
use packtrain_testkit::driver_conformance;

/// The endpoint under test, and the other one as its outside.
struct SimRig {
    near: Sim,
    far: Option<Far>,
}

impl SimRig {
    fn new(near: SimConfig, seed: u64) -> Self {
        let link = near.link;
        let near = SimConfig {
            flow_control: true,
            ..near
        };
        let far = SimConfig {
            name: "far".to_owned(),
            link,
            rx_ring: 64,
            flow_control: true,
            ..SimConfig::default()
        };
        let (near, far) = pair(near, far, seed);
        Self {
            near,
            far: Some(Far::new(far)),
        }
    }

    fn far(&mut self) -> &mut Far {
        self.far.as_mut().unwrap()
    }
}

impl Rig for SimRig {
    type Driver = Sim;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 32,
            fills: Fills::Yes,
            injects_offloads: Features::CSUM | Features::TSO | Features::USO,
            injects_bad: true,
            counts_exactly: true,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut Sim {
        &mut self.near
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        self.tick();
        if !self.far().tx.is_ready() {
            return false;
        }
        self.far().send(packet);
        true
    }

    fn inject_bad(&mut self) -> bool {
        self.tick();
        if self.far().tx.in_flight() > 0 {
            // A packet waits for buffers, and would be the next to arrive.
            return false;
        }
        self.near.control().corrupt_next(1);
        self.inject(&Outside::complete(vec![0; 60]))
    }

    fn observe(&mut self) -> Option<Outside> {
        self.far().receive()
    }

    fn tick(&mut self) {
        self.far().tick();
    }
}

impl Drop for SimRig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.near.control().counters().unfit, 0);
            self.far.take().unwrap().close();
        }
    }
}

/// Rings small enough to be full at times.
fn small() -> SimConfig {
    SimConfig {
        tx_ring: 96,
        rx_ring: 128,
        ..SimConfig::default()
    }
}

fn plain(seed: u64) -> Result<SimRig, Skip> {
    Ok(SimRig::new(small(), seed))
}

fn like_virtio(seed: u64) -> Result<SimRig, Skip> {
    let rx = Features::CSUM | Features::TSO | Features::USO | Features::VLAN;
    let tx = Features::ALL.without(Features::LARGE_RECEIVE);
    Ok(SimRig::new(SimConfig { rx, tx, ..small() }, seed))
}

fn humble(seed: u64) -> Result<SimRig, Skip> {
    let config = SimConfig {
        tx: Features::NONE,
        segments: 1,
        gso_segments: 1,
        tx_ring: 16,
        min_packet_bytes: 60,
        ..small()
    };
    Ok(SimRig::new(config, seed))
}

fn late_and_reordered(seed: u64) -> Result<SimRig, Skip> {
    let delay = match seed % 3 {
        0 => CompletionDelay::Flushes(3),
        1 => CompletionDelay::Reclaims(4),
        _ => CompletionDelay::Packets(20),
    };
    Ok(SimRig::new(
        SimConfig {
            delay,
            reorder: true,
            ..small()
        },
        seed,
    ))
}

fn awkward(seed: u64) -> Result<SimRig, Skip> {
    let config = SimConfig {
        segments: 3,
        gso_segments: 8,
        segment_bytes: 1600,
        memory: TxMemory::SmallFrames,
        contiguous_headers: true,
        delay: CompletionDelay::Packets(7),
        ..small()
    };
    Ok(SimRig::new(config, seed))
}

fn refusing(seed: u64) -> Result<SimRig, Skip> {
    let config = SimConfig {
        refuse: Features::TSO4 | Features::USO6 | Features::CSUM6 | Features::VLAN,
        tx: Features::ALL,
        ..small()
    };
    Ok(SimRig::new(config, seed))
}

fn refusing_segments(seed: u64) -> Result<SimRig, Skip> {
    Ok(SimRig::new(
        SimConfig {
            refuse_segments: Some(2),
            ..small()
        },
        seed,
    ))
}

fn raw_ip(seed: u64) -> Result<SimRig, Skip> {
    let rx = Features::CSUM4 | Features::TSO4;
    Ok(SimRig::new(
        SimConfig {
            link: LinkType::RawIp,
            rx,
            ..small()
        },
        seed,
    ))
}

fn ipoib(seed: u64) -> Result<SimRig, Skip> {
    let config = SimConfig {
        link: LinkType::Ipoib,
        ..small()
    };
    Ok(SimRig::new(config, seed))
}

fn paced(seed: u64) -> Result<SimRig, Skip> {
    let config = SimConfig {
        rate: Some(500),
        ..small()
    };
    Ok(SimRig::new(config, seed))
}

driver_conformance!(paced, paced);
driver_conformance!(plain, plain);
driver_conformance!(like_virtio, like_virtio);
driver_conformance!(humble, humble);
driver_conformance!(late_and_reordered, late_and_reordered);
driver_conformance!(awkward, awkward);
driver_conformance!(refusing, refusing);
driver_conformance!(refusing_segments, refusing_segments);
driver_conformance!(raw_ip, raw_ip);
driver_conformance!(ipoib, ipoib);
