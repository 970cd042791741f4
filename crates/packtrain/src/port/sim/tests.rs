use super::*;
use crate::conformance::{Injects, Observes, Outside, Rig, Skip, Traits};
use crate::driver::{Driver, RxDescriptors};
use crate::driver_conformance;
use crate::packet::{ArenaConfig, Burst, Ingress};
use crate::queue::{FitLimits, RxQueue, TxQueue};
use crate::time::Instant;
use std::collections::VecDeque;

/// An attached endpoint with its own arena and one queue of the framework each way.
struct Station {
    rx: RxQueue<SimRx>,
    tx: TxQueue<SimTx>,
    driver: Sim,
    arena: Arena,
}

impl Station {
    fn new(mut driver: Sim, how: &Attach) -> Self {
        let arena = Arena::new(ArenaConfig::small()).unwrap();
        let capabilities = driver.capabilities();
        let (rx, tx) = driver.attach(how, &arena).unwrap().remove(0);
        let (ingress, link) = (Ingress::default(), capabilities.link);
        let mut rx = RxQueue::new(
            rx,
            arena.clone(),
            link,
            ingress,
            Arc::default(),
            Arc::default(),
        );
        assert!(rx.device_mut().refill(&arena));
        let tx = TxQueue::new(
            tx,
            arena.clone(),
            capabilities.tx,
            FitLimits::new(&capabilities, None),
            capabilities.tx_ring,
            Arc::default(),
            Arc::default(),
        );
        Self {
            rx,
            tx,
            driver,
            arena,
        }
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

    fn send(&mut self, packets: &[Outside]) {
        let mut burst = Burst::new();
        for packet in packets {
            let packet = packet.to_packet(&self.arena, self.driver.config().link, || 1500);
            burst.push(packet.unwrap()).unwrap();
        }
        self.tx.transmit(&mut burst).unwrap();
        assert!(burst.is_empty());
    }

    fn receive(&mut self) -> Vec<Outside> {
        let mut burst = Burst::new();
        self.rx.poll(Instant::default(), &mut burst, 64).unwrap();
        burst.iter().map(Outside::of).collect()
    }
}

/// The endpoint under test, and the other one as its outside.
struct SimRig {
    near: Sim,
    far: Option<Station>,
    seen: VecDeque<Outside>,
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
            far: Some(Station::new(far, &Attach::default())),
            seen: VecDeque::new(),
        }
    }

    fn far(&mut self) -> &mut Station {
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
            fills: true,
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
        self.far().send(std::slice::from_ref(packet));
        true
    }

    fn inject_bad(&mut self) -> bool {
        self.near.control().corrupt_next(1);
        self.inject(&Outside::finished(vec![0; 60]))
    }

    fn observe(&mut self) -> Option<Outside> {
        if self.seen.is_empty() {
            let received = self.far().receive();
            self.seen.extend(received);
        }
        self.seen.pop_front()
    }

    fn tick(&mut self) {
        let far = self.far();
        far.tx.transmit(&mut Burst::new()).unwrap();
        far.tx.reclaim();
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

/// Rings small enough to be full now and then.
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

driver_conformance!(conformance_plain, plain);
driver_conformance!(conformance_like_virtio, like_virtio);
driver_conformance!(conformance_humble, humble);
driver_conformance!(conformance_late_and_reordered, late_and_reordered);
driver_conformance!(conformance_awkward, awkward);
driver_conformance!(conformance_refusing, refusing);
driver_conformance!(conformance_refusing_segments, refusing_segments);
driver_conformance!(conformance_raw_ip, raw_ip);
