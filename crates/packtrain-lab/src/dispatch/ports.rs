//! The ports that are sent to.

use super::BenchError;
use super::meter::Meter;
use super::schedule::PortKind;
use crate::error::LabError;
use crate::link::Rtnl;
use crate::netns::Netns;
use crate::tap;
use packtrain::driver::Features;
use packtrain::engine::arena_config;
use packtrain::packet::Arena;
use packtrain::plan::Plan;
use packtrain::port::null::{Null, NullConfig};
use packtrain::port::sim::{Far, Sim, SimConfig};
use packtrain::port::tap::Tap;
use packtrain::stats::Histogram;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The interface, in a namespace where there is no other but the loopback.
const TAP: &str = "dispatch0";
/// How long the kernel may take to make a link usable: milliseconds, unless it is very busy.
const SETTLE: Duration = Duration::from_secs(60);

/// Where ports and the memory of their packets come from.
#[derive(Debug, Default)]
pub(super) struct Ports {
    tap: Option<TapHome>,
    /// The memory of all runs: to map and to touch it anew takes longer than a run, and which pages
    /// a run gets makes a difference that is no setting's.
    arenas: Mutex<HashMap<PortKind, Arena>>,
}

/// A TAP that stays while runs attach to it and leave: to make one and take it down takes the
/// kernel longer than a run.
#[derive(Debug)]
struct TapHome {
    descriptor: OwnedFd,
    /// It lives as long as the interface.
    _netns: Netns,
}

/// A port of either kind.
#[derive(Debug)]
pub(super) enum Port {
    Sim(Meter<Sim>),
    Null(Meter<Null>),
    Tap(Meter<Tap>),
}

impl Ports {
    /// Gets ready for ports of this kind.
    pub(super) fn prepare(&mut self, kind: PortKind) -> Result<(), LabError> {
        if kind == PortKind::Tap && self.tap.is_none() {
            self.tap = Some(TapHome::new()?);
        }
        Ok(())
    }

    /// The memory for runs on ports of this kind, all of which have the same plan.
    pub(super) fn arena(&self, kind: PortKind, plan: &Plan) -> Result<Arena, LabError> {
        let mut arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(arena) = arenas.get(&kind) {
            return Ok(arena.clone());
        }
        let arena = Arena::new(arena_config(plan));
        let arena = arena.map_err(LabError::from_io("map memory for packets"))?;
        arenas.insert(kind, arena.clone());
        Ok(arena)
    }

    /// A port whose queue records into `latency`.
    pub(super) fn open(&self, kind: PortKind, latency: Arc<Histogram>) -> Result<Port, BenchError> {
        Ok(match kind {
            PortKind::Sim => {
                let sim = Sim::alone(SimConfig::default(), Far::Discard, 1);
                Port::Sim(Meter::new(sim, latency))
            }
            PortKind::Null => Port::Null(Meter::new(sink("null0"), latency)),
            PortKind::Tap => {
                let home = self.tap.as_ref();
                let home = home.ok_or(LabError::Setting("a TAP is prepared before its runs"))?;
                Port::Tap(Meter::new(home.attach()?, latency))
            }
        })
    }
}

/// The port on the other side, to which nothing goes.
pub(super) fn sink(name: &str) -> Null {
    Null::new(NullConfig {
        name: name.to_owned(),
        ..NullConfig::default()
    })
}

impl TapHome {
    fn new() -> Result<Self, LabError> {
        let netns = Netns::new()?;
        let mut descriptors = netns.run(|| {
            let descriptors = tap::open_tap(TAP, 1, true)?;
            let mut rtnl = Rtnl::open()?;
            let index = rtnl.link(TAP)?.index;
            // It has no address and is given none; whatever arrives is for nobody.
            rtnl.set_arp(index, false)?;
            rtnl.set_up(index)?;
            let end = Instant::now() + SETTLE;
            while rtnl.link_by_index(index)?.is_settling() {
                if Instant::now() > end {
                    return Err(LabError::Stalled {
                        what: "a TAP that was set up",
                        after: SETTLE,
                        bytes: 0,
                    });
                }
                thread::sleep(Duration::from_millis(1));
            }
            Ok::<_, LabError>(descriptors)
        })??;
        let descriptor = descriptors.pop();
        Ok(Self {
            descriptor: descriptor.ok_or(LabError::Answer("a TAP without a queue"))?,
            _netns: netns,
        })
    }

    fn attach(&self) -> Result<Tap, BenchError> {
        let copy = self.descriptor.as_fd().try_clone_to_owned();
        let copy = copy.map_err(LabError::from_io("duplicate a descriptor"))?;
        Ok(Tap::from_fds(vec![copy], Features::NONE)?)
    }
}
