//! DPDK.

use super::library::{DpdkShim, GRO_HEADER_BYTES};
use super::plain::Summing;
use crate::loops::coalesce::{Engine, Merging, Schedule};
use crate::loops::segments::{Cutter, Cutting};
use crate::loops::sizes::{MSS, PER_FLOW, SEGMENTS};
use crate::loops::trains::Train;
use crate::loops::{Place, Side, Work};
use std::rc::Rc;

/// DPDK, running.
pub type Dpdk = DpdkShim;

pub fn summing(dpdk: Rc<Dpdk>, bytes: usize, place: Place) -> Box<dyn Side> {
    Box::new(Summing::new(bytes, place, move |pieces| {
        dpdk.raw_cksum(pieces)
    }))
}

/// `rte_gro`: a call for each burst, or a context that holds packets across bursts.
struct Gro {
    dpdk: Rc<Dpdk>,
    verify: bool,
}

impl Engine for Gro {
    fn load(&mut self, train: &mut Train, flow: u32) {
        let mut headers = [0; GRO_HEADER_BYTES];
        train.write(flow, &mut headers);
        self.dpdk.gro_load(&headers);
    }

    fn receive(&mut self, count: usize) {
        let bad = self.dpdk.gro_receive(count as u32, self.verify);
        assert_eq!(bad, 0, "DPDK found wrong checksums");
    }

    fn flush(&mut self) {
        self.dpdk.gro_flush();
    }

    fn collect(&mut self) -> usize {
        self.dpdk.gro_collect() as usize
    }
}

impl Drop for Gro {
    fn drop(&mut self) {
        self.dpdk.gro_close();
    }
}

/// Flows that a context can be made for.
const FLOWS_MAX: u32 = u16::MAX as u32;

pub fn merging(dpdk: Rc<Dpdk>, work: Work) -> Result<Box<dyn Side>, String> {
    let schedule = Schedule::of(work).ok_or("merges nothing")?;
    let (held, verify) = match work {
        // The table has a slot for each packet of each flow.
        Work::Held { flows } => {
            let slots = flows * PER_FLOW;
            let flows = flows.min(FLOWS_MAX);
            (Some((flows, slots.div_ceil(flows))), false)
        }
        Work::Burst { verify, .. } => (None, verify),
        _ => return Err("rte_gro does not do this".to_owned()),
    };
    let train = schedule.train();
    dpdk.gro_open(schedule.frames() as u32, train.payload(), held)?;
    Ok(Box::new(Merging::new(Gro { dpdk, verify }, schedule)))
}

/// `rte_gso`.
struct Gso {
    dpdk: Rc<Dpdk>,
    all: bool,
}

impl Cutter for Gso {
    fn load(&mut self, slot: usize, packet: &[u8]) {
        self.dpdk.gso_load(slot, packet);
    }

    fn cut(&mut self, slot: usize) -> usize {
        self.dpdk.gso_cut(slot, MSS, self.all)
    }

    fn clear(&mut self) {
        self.dpdk.gso_clear();
    }
}

impl Drop for Gso {
    fn drop(&mut self) {
        self.dpdk.gso_close();
    }
}

/// With `all`, checksums and a copy into one piece each.
pub fn cutting(dpdk: Rc<Dpdk>, all: bool) -> Result<Box<dyn Side>, String> {
    dpdk.gso_open()?;
    Ok(Box::new(Cutting::new(
        Gso { dpdk, all },
        SEGMENTS,
        false,
        true,
    )))
}
