//! The sides that ours is compared with.

mod dpdk;
mod gro;
mod library;
mod loader;
mod plain;
mod rust;
mod tun;

use crate::loops::coalesce::{InFrames, Merging, Schedule};
use crate::loops::contest::{Contest, Peer};
use crate::loops::ours::BEST_PEER;
use crate::loops::{Goal, Place, Side, Work};
use dpdk::Dpdk;
use packtrain_measure::native;
use packtrain_measure::report::Conditions;
use plain::Plain;
use std::path::Path;
use std::rc::Rc;

/// Peers that could be found.
pub struct Peers {
    plain: Result<Rc<Plain>, String>,
    dpdk: Result<Rc<Dpdk>, String>,
}

fn rust(work: Work, name: &'static str) -> Peer {
    Peer::new(name, Box::new(move || rust_side(work, name)))
}

/// The most of DPDK's memory, in MiB: a buffer for each packet of 80 000 flows, in one stretch.
const DPDK_MB: i32 = 2048;

impl Peers {
    /// Compiles and loads what there is.
    pub fn find(
        directory: &Path,
        cpu: usize,
        conditions: &mut Conditions,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let plain = Plain::find(directory).map(Rc::new);
        // Last: it keeps this thread to one CPU.
        let dpdk = Dpdk::load(directory, cpu, DPDK_MB).map(Rc::new);
        conditions.add(
            "C peers",
            match (&plain, &dpdk) {
                (Err(missing), _) => format!("none: {missing}"),
                (Ok(_), Err(missing)) => format!("plain C, -O3 -march=native; no DPDK: {missing}"),
                (Ok(_), Ok(dpdk)) => format!(
                    "plain C and inline functions of {}, -O3 -march=native; rte_gro and rte_gso \
                     as the package built them, for any CPU of the architecture",
                    dpdk.version()
                ),
            },
        );
        conditions.add(
            "peers",
            format!("Rust crates, built for {}", native::built_for()),
        );
        Ok(Self { plain, dpdk })
    }

    fn plain(
        &self,
        name: &'static str,
        make: impl FnOnce(Rc<Plain>) -> Result<Box<dyn Side>, String> + 'static,
    ) -> Peer {
        let plain = self.plain.clone();
        Peer::new(name, Box::new(move || make(plain?)))
    }

    fn dpdk(
        &self,
        name: &'static str,
        make: impl FnOnce(Rc<Dpdk>) -> Result<Box<dyn Side>, String> + 'static,
    ) -> Peer {
        let dpdk = self.dpdk.clone();
        Peer::new(name, Box::new(move || make(dpdk?)))
    }

    /// Lets the peers of its work join a contest.
    pub fn join(&self, contest: &mut Contest) {
        let work = contest.work;
        let peers = match work {
            Work::Checksum { bytes, place } => self.checksum(work, bytes, place),
            Work::CopySum { bytes } => self.copy_and_sum(bytes),
            Work::Burst { .. } => self.burst(work),
            Work::Held { flows } => self.held(work, flows),
            Work::Windows { .. } => self.windows(work),
            Work::Acks { .. } | Work::Load { .. } => Vec::new(),
            Work::TunWrite { udp, .. } => {
                let least = if udp { 2.0 } else { 2.5 };
                vec![rust(work, "tun-rs").goal(Goal::AtLeast(least))]
            }
            Work::SegmentCopy { udp, segments } => self.segment(work, udp, segments),
            Work::SegmentShare => vec![
                self.dpdk("rte_gso", |dpdk| dpdk::cutting(dpdk, false))
                    .goal(Goal::AtLeast(1.5)),
            ],
            Work::Group { n, distinct } => {
                let goal = match (n, distinct) {
                    (4097.., _) => Goal::Reported,
                    (_, 1) => Goal::AtLeast(0.8),
                    _ => Goal::AtLeast(1.0),
                };
                contest.best = Some((BEST_PEER, goal));
                self.group(work, n, distinct)
            }
        };
        contest.peers.extend(peers);
    }

    fn checksum(&self, work: Work, bytes: usize, place: Place) -> Vec<Peer> {
        let goal = match (bytes, place) {
            (1500 | 65_536, Place::Warm) => {
                Goal::AtLeast(if plain::has_avx512() { 1.2 } else { 1.1 })
            }
            _ => Goal::Reported,
        };
        let adc = match (bytes, place) {
            (64, Place::Warm) => Goal::AtLeast(0.9),
            _ => Goal::Reported,
        };
        vec![
            self.dpdk("rte_raw_cksum", move |dpdk| {
                Ok(dpdk::summing(dpdk, bytes, place))
            })
            .goal(goal),
            self.plain("C, adc", move |plain| {
                Ok(plain::summing(plain, plain::Sum::Adc, bytes, place))
            })
            .goal(adc),
            self.plain("C, vectors", move |plain| {
                Ok(plain::summing(plain, plain::Sum::Wide, bytes, place))
            }),
            self.plain("limit: C, read only", move |plain| {
                Ok(plain::summing(plain, plain::Sum::Read, bytes, place))
            }),
            rust(work, "smoltcp"),
        ]
    }

    fn copy_and_sum(&self, bytes: usize) -> Vec<Peer> {
        let goal = match bytes {
            1500 => Goal::AtLeast(1.0),
            _ => Goal::Reported,
        };
        let then = move |plain| Ok(plain::copying(plain, plain::Copy::ThenSum, bytes));
        let once = move |plain| Ok(plain::copying(plain, plain::Copy::Once, bytes));
        let only = move |plain| Ok(plain::copying(plain, plain::Copy::Only, bytes));
        vec![
            self.plain("C, memcpy then sum", then).goal(goal),
            self.plain("C, one pass", once),
            self.plain("limit: C, copy only", only),
        ]
    }

    fn burst(&self, work: Work) -> Vec<Peer> {
        let Work::Burst {
            flows,
            verify,
            place,
        } = work
        else {
            return Vec::new();
        };
        let (dpdk, tun) = match (place, verify, flows) {
            (Place::Cold, ..) => (Goal::Reported, Goal::Reported),
            (_, false, 64) => (Goal::AtLeast(5.0), Goal::AtLeast(4.0)),
            (_, true, 64) => (Goal::AtLeast(3.0), Goal::Reported),
            _ => (Goal::AtLeast(2.0), Goal::Reported),
        };
        let name = if verify {
            "rte_gro + checksum check"
        } else {
            "rte_gro"
        };
        let mut peers = vec![
            self.dpdk(name, move |dpdk| dpdk::merging(dpdk, work))
                .goal(dpdk),
            rust(work, "hashbrown GRO"),
            rust(work, "8 x 8 GRO"),
        ];
        if (flows, verify, place) == (64, false, Place::Warm) {
            peers.push(rust(work, "tun-rs").goal(tun));
        }
        peers
    }

    fn held(&self, work: Work, flows: u32) -> Vec<Peer> {
        let dpdk = self.dpdk("rte_gro, context", move |dpdk| dpdk::merging(dpdk, work));
        let dpdk = match flows {
            1024 => dpdk.goal(Goal::AtLeast(25.0)),
            // Seconds, and half a minute, for one round.
            16_384 => dpdk.slow(3),
            80_000 => dpdk.slow(1),
            _ => dpdk,
        };
        vec![
            dpdk,
            rust(work, "hashbrown GRO").goal(Goal::AtLeast(1.3)),
            rust(work, "8 x 8 GRO"),
        ]
    }

    fn windows(&self, work: Work) -> Vec<Peer> {
        let mut sorting = self.plain("sort, then 8 entries", move |plain| {
            let schedule = Schedule::of(work).ok_or("merges nothing")?;
            let engine = InFrames::new(gro::Sorting::new(plain), &schedule);
            Ok(Box::new(Merging::new(engine, schedule)))
        });
        let mut table = rust(work, "hashbrown GRO");
        // Those that count are our own modes.
        (sorting.counts, table.counts) = (false, false);
        vec![sorting, table]
    }

    fn segment(&self, work: Work, udp: bool, segments: usize) -> Vec<Peer> {
        let goal = match (udp, segments) {
            (true, _) => Goal::AtLeast(2.0),
            (false, crate::loops::sizes::SEGMENTS) => Goal::AtLeast(1.5),
            _ => Goal::Reported,
        };
        let mut peers = vec![rust(work, "tun-rs").goal(goal)];
        if !udp && segments == crate::loops::sizes::SEGMENTS {
            let all = |dpdk| dpdk::cutting(dpdk, true);
            peers.push(self.dpdk("rte_gso, checksums, copy", all));
        }
        peers
    }

    fn group(&self, work: Work, n: usize, distinct: usize) -> Vec<Peer> {
        let bits = |name, with_index, goal| {
            self.plain(name, move |plain| {
                plain::grouping(plain, with_index, n, distinct)
            })
            .goal(goal)
        };
        let key_only = if distinct == 1 { 0.8 } else { 3.0 };
        vec![
            rust(work, "sort_unstable"),
            rust(work, "voracious"),
            bits("bit partition, FreeBSD", true, Goal::AtLeast(3.0)),
            bits("bit partition, unstable", false, Goal::AtLeast(key_only)),
        ]
    }
}

/// A peer in Rust.
///
/// # Errors
///
/// That there is none of this name for this work.
pub fn rust_side(work: Work, name: &str) -> Result<Box<dyn Side>, String> {
    let unknown = || Err(format!("{name} does not do this"));
    match (work, name) {
        (Work::Checksum { bytes, place }, "smoltcp") => Ok(rust::checksum(bytes, place)),
        (Work::Group { n, distinct }, _) => rust::grouping(name, n, distinct),
        (Work::SegmentCopy { udp, segments }, "tun-rs") => Ok(tun::cutting(udp, segments)),
        (_, "tun-rs") => tun::merging(work),
        (_, "hashbrown GRO" | "8 x 8 GRO") => {
            let Some(schedule) = Schedule::of(work) else {
                return unknown();
            };
            let verify = matches!(work, Work::Burst { verify: true, .. });
            Ok(match name {
                "hashbrown GRO" => {
                    let table = gro::Table::new(schedule.flows_held(), verify);
                    Box::new(Merging::new(InFrames::new(table, &schedule), schedule))
                }
                _ => {
                    let buckets = gro::Buckets::new(verify);
                    Box::new(Merging::new(InFrames::new(buckets, &schedule), schedule))
                }
            })
        }
        _ => unknown(),
    }
}
