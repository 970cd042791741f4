//! The suite must fail drivers that break a promise: each of these rigs breaks one.

mod fake;

use super::*;
use packtrain::driver::Attach;
use packtrain::packet::{Arena, ArenaConfig, Burst, Ingress};
use packtrain::plan::FitLimits;
use packtrain::port::sim::{Sim, SimConfig, SimRx, SimTx, pair};
use packtrain::queue::{RxQueue, TxQueue};
use packtrain::time::Instant;
use std::sync::Arc;

/// A fault of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    Lose,
    Duplicate,
    Swap,
    Flip,
}

/// Two endpoints, and a fault between the outside and the one under test.
struct Faulty {
    near: Sim,
    rx: RxQueue<SimRx>,
    tx: TxQueue<SimTx>,
    arena: Arena,
    fault: Fault,
    seen: Vec<Outside>,
    held: Option<Outside>,
}

impl Faulty {
    fn new(fault: Fault, seed: u64) -> Self {
        let config = SimConfig {
            flow_control: true,
            ..SimConfig::default()
        };
        let (near, mut far) = pair(config.clone(), config, seed);
        let arena = Arena::new(ArenaConfig::small()).unwrap();
        let capabilities = far.capabilities();
        let (rx, tx) = far.attach(&Attach::default(), &arena).unwrap().remove(0);
        let (limits, ring) = (FitLimits::new(&capabilities, None), capabilities.tx_ring);
        let (link, ingress) = (capabilities.link, Ingress::default());
        let (counters, drops) = (Arc::default(), Arc::default());
        Self {
            near,
            rx: RxQueue::new(
                rx,
                arena.clone(),
                link,
                ingress,
                Arc::default(),
                Arc::default(),
            ),
            tx: TxQueue::new(
                tx,
                arena.clone(),
                capabilities.tx,
                limits,
                ring,
                counters,
                drops,
            ),
            arena,
            fault,
            seen: Vec::new(),
            held: None,
        }
    }

    /// Passes `packet` on to `out`, with the fault for every tenth one.
    fn tamper(&mut self, number: usize, mut packet: Outside, out: &mut Vec<Outside>) {
        match self.fault {
            _ if number % 10 != 9 => out.push(packet),
            Fault::Nothing => out.push(packet),
            Fault::Lose => {}
            Fault::Duplicate => out.extend([packet.clone(), packet]),
            Fault::Swap => {
                self.held = Some(packet);
                return;
            }
            Fault::Flip => {
                let last = packet.bytes.len() - 1;
                packet.bytes[last] ^= 1;
                out.push(packet);
            }
        }
        out.extend(self.held.take());
    }

    fn send(&mut self, packet: &Outside) {
        let packet = packet.to_packet(&self.arena, Default::default(), || 1500);
        let mut burst = Burst::new();
        burst.push(packet.unwrap()).unwrap();
        self.tx.transmit(&mut burst).unwrap();
        self.tx.reclaim(Instant::default());
    }
}

impl Rig for Faulty {
    type Driver = Sim;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 16,
            fills: Fills::Yes,
            injects_offloads: Features::CSUM | Features::TSO | Features::USO,
            counts_exactly: true,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut Sim {
        &mut self.near
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        let number = self.tx.counters().packets.get() as usize;
        let mut out = Vec::new();
        self.tamper(number, packet.clone(), &mut out);
        out.iter().for_each(|packet| self.send(packet));
        true
    }

    fn observe(&mut self) -> Option<Outside> {
        if self.seen.is_empty() {
            let before = self.rx.counters().packets.get() as usize;
            let mut burst = Burst::new();
            self.rx.poll(Instant::default(), &mut burst, 64).unwrap();
            let mut seen = Vec::new();
            for (index, packet) in burst.iter().map(Outside::of).enumerate() {
                self.tamper(before + index, packet, &mut seen);
            }
            seen.reverse();
            self.seen = seen;
        }
        self.seen.pop()
    }

    fn tick(&mut self) {
        self.tx.transmit(&mut Burst::new()).unwrap();
        self.tx.reclaim(Instant::default());
    }
}

type Case = fn(Faulty, u64) -> Outcome;

/// Whether `case` fails with `fault`.
fn fails(fault: Fault, case: Case) -> bool {
    let run = || case(Faulty::new(fault, 1), 1);
    match std::panic::catch_unwind(run) {
        Ok(outcome) => {
            assert_eq!(outcome, Outcome::Passed);
            false
        }
        Err(_panic) => true,
    }
}

#[test]
fn faults_of_the_wire_are_found_by_every_case_that_checks() {
    let cases: [(&str, Case); 5] = [
        ("receives_in_order", receives_in_order),
        ("transmits_in_order", transmits_in_order),
        ("resumes_after_a_full_device", resumes_after_a_full_device),
        (
            "transmits_with_offloads",
            transmits_with_the_offloads_it_declares,
        ),
        (
            "receives_with_offloads",
            receives_with_the_offloads_it_declares,
        ),
    ];
    for (name, case) in cases {
        assert!(!fails(Fault::Nothing, case), "{name} fails without a fault");
        for fault in [Fault::Lose, Fault::Duplicate, Fault::Swap, Fault::Flip] {
            assert!(fails(fault, case), "{name} does not find {fault:?}");
        }
    }
}
