//! A device in memory, whose driver may break a promise about waiting.

use super::{Fills, Injects, Observes, Outcome, Outside, Rig, Traits};
use crate::conformance as suite;
use packtrain::driver::{
    Accepted, Armed, Attach, Capabilities, DeviceError, Driver, QueuePair, Refused, RxBurst,
    RxDescriptors, RxInfo, Token, TxDescriptors, TxPacket,
};
use packtrain::packet::{Arena, FrameClass};
use packtrain::time::Instant;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// `arm` does not look for packets that wait.
    RxIsAlwaysIdle,
    /// `arm` does not look for room.
    TxIsAlwaysIdle,
    /// No descriptor, and the interrupt is never raised.
    NeverWakes,
    /// A full device drops packets, and reports them as sent.
    DropsWhenFull,
    /// As above, and the rig does not say whether the device becomes full.
    DropsUnnoticed,
}

const RING: usize = 32;

/// One direction of the cable.
#[derive(Default)]
struct Ring {
    frames: VecDeque<Vec<u8>>,
    interrupt: Option<Waker>,
    armed: bool,
}

impl Ring {
    fn raise(&mut self) {
        if std::mem::take(&mut self.armed)
            && let Some(interrupt) = &self.interrupt
        {
            interrupt.wake_by_ref();
        }
    }

    fn arm(&mut self, has_work: bool) -> Armed {
        self.armed = !has_work;
        if has_work {
            Armed::WorkPending
        } else {
            Armed::Idle
        }
    }
}

type Shared = Arc<Mutex<Ring>>;

struct Fake {
    rx: Shared,
    tx: Shared,
    defect: Defect,
}

struct FakeRx(Shared, Arena, Defect);
struct FakeTx(Shared, Defect);

impl Driver for Fake {
    type Rx = FakeRx;
    type Tx = FakeTx;

    fn name(&self) -> &str {
        "fake"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn attach(&mut self, _: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let rx = FakeRx(Arc::clone(&self.rx), arena.clone(), self.defect);
        Ok(vec![(rx, FakeTx(Arc::clone(&self.tx), self.defect))])
    }
}

impl RxDescriptors for FakeRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        arena.packet(FrameClass::Small).is_ok()
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let mut ring = self.0.lock().unwrap();
        while !burst.exhausted() && !ring.frames.is_empty() {
            let Ok(mut packet) = self.1.packet(FrameClass::Small) else {
                break;
            };
            let frame = ring.frames.pop_front().unwrap();
            packet.tailroom_mut()[..frame.len()].copy_from_slice(&frame);
            packet.grow(frame.len()).unwrap();
            burst.push(packet, &RxInfo::default());
        }
        Ok(())
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        if self.2 != Defect::NeverWakes {
            self.0.lock().unwrap().interrupt = Some(interrupt);
        }
    }

    fn arm(&mut self) -> Armed {
        let mut ring = self.0.lock().unwrap();
        let has_work = !ring.frames.is_empty() && self.2 != Defect::RxIsAlwaysIdle;
        ring.arm(has_work)
    }
}

impl TxDescriptors for FakeTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        let mut ring = self.0.lock().unwrap();
        if ring.frames.len() < RING {
            ring.frames.push_back(packet.packet().first().to_vec());
        } else if !matches!(self.1, Defect::DropsWhenFull | Defect::DropsUnnoticed) {
            return Err(Refused::Busy);
        }
        Ok(Accepted::Complete)
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        self.0.lock().unwrap().interrupt = Some(interrupt);
    }

    fn arm(&mut self) -> Option<Armed> {
        let mut ring = self.0.lock().unwrap();
        let has_work = ring.frames.len() < RING && self.1 != Defect::TxIsAlwaysIdle;
        Some(ring.arm(has_work))
    }

    fn doorbells(&self) -> u64 {
        1
    }
}

impl Rig for Fake {
    type Driver = Self;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 16,
            fills: if self.defect == Defect::DropsUnnoticed {
                Fills::Unstated
            } else {
                Fills::Yes
            },
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut Self {
        self
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        let mut ring = self.rx.lock().unwrap();
        ring.frames.push_back(packet.bytes.clone());
        ring.raise();
        true
    }

    fn observe(&mut self) -> Option<Outside> {
        let mut ring = self.tx.lock().unwrap();
        let frame = ring.frames.pop_front()?;
        ring.raise();
        Some(Outside::complete(frame))
    }
}

type Case = fn(Fake, u64) -> Outcome;

/// The cases that fail with `defect`, with their messages.
fn failures(defect: Defect) -> Vec<(&'static str, String)> {
    let cases: [(_, Case); 11] = [
        ("receives_in_order", suite::receives_in_order),
        ("transmits_in_order", suite::transmits_in_order),
        (
            "resumes_after_a_full_device",
            suite::resumes_after_a_full_device,
        ),
        ("keeps_to_the_budget", suite::keeps_to_the_budget),
        (
            "leaks_nothing",
            suite::leaks_nothing_when_detached_in_flight,
        ),
        ("balances_the_ledger", suite::balances_the_ledger),
        (
            "recovers_from_an_empty_arena",
            suite::recovers_from_an_empty_arena,
        ),
        ("arm_reports_waiting_work", suite::arm_reports_waiting_work),
        (
            "interrupt_once",
            suite::an_armed_queue_raises_its_interrupt_once,
        ),
        (
            "transmits_with_offloads",
            suite::transmits_with_the_offloads_it_declares,
        ),
        (
            "transmits_without_offloads",
            suite::transmits_the_same_without_offloads,
        ),
    ];
    // Side by side: a case that fails may have waited for a wake-up that never comes.
    thread::scope(|scope| {
        let run = |(name, case): (_, Case)| {
            let (rx, tx) = Default::default();
            (name, scope.spawn(move || case(Fake { rx, tx, defect }, 1)))
        };
        let ended = cases.map(run).into_iter();
        let failed = ended.filter_map(|(name, case)| match case.join() {
            Ok(outcome) => {
                assert_eq!(outcome, Outcome::Passed, "{name}");
                None
            }
            Err(panic) => {
                let words = panic.downcast::<String>().map_or_else(
                    |other| (*other.downcast::<&str>().unwrap()).to_owned(),
                    |words| *words,
                );
                Some((name, words))
            }
        });
        failed.collect()
    })
}

#[test]
fn a_device_without_a_defect_passes() {
    assert_eq!(failures(Defect::None), []);
}

#[test]
fn defects_of_waiting_are_found_by_the_case_for_them() {
    let defects = [
        (
            Defect::RxIsAlwaysIdle,
            "arm_reports_waiting_work",
            "a packet waited before `arm`",
        ),
        (Defect::TxIsAlwaysIdle, "interrupt_once", "there is room"),
        (
            Defect::NeverWakes,
            "arm_reports_waiting_work",
            "`wake` has no descriptor, and the interrupt of `set_interrupt` was not raised",
        ),
        (
            Defect::DropsWhenFull,
            "resumes_after_a_full_device",
            "the device was never full",
        ),
        (
            Defect::DropsUnnoticed,
            "resumes_after_a_full_device",
            "set `fills` of `Traits`",
        ),
    ];
    thread::scope(|scope| {
        for (defect, case, words) in defects {
            scope.spawn(move || {
                let failed = failures(defect);
                let Some((_, message)) = failed.iter().find(|(name, _)| *name == case) else {
                    panic!("{defect:?} is not found by {case}: {failed:?}");
                };
                assert!(message.contains(words), "{defect:?}: {message}");
            });
        }
    });
}
