//! packtrain's side of each kind of work.

mod checksum;
mod coalesce;
mod group;
mod segment;

use crate::loops::contest::{Contest, Goal, Maker, Peer, Side};
use crate::loops::memory::{Chase, Growth};
use crate::loops::work::{Mode, Work};

/// Our side of `work`.
///
/// # Errors
///
/// The missing requirement, in words.
pub fn side(work: Work) -> Result<Box<dyn Side>, String> {
    match work {
        Work::Load { bytes } => Ok(Box::new(Chase::new(bytes))),
        Work::Checksum { bytes, place } => Ok(checksum::sum(bytes, place)),
        Work::CopySum { bytes } => Ok(checksum::copy_and_sum(bytes)),
        Work::SegmentCopy { udp, segments } => Ok(segment::copying(segments, udp)),
        Work::SegmentShare => Ok(segment::sharing()),
        Work::Group { n, distinct } => group::group(n, distinct),
        Work::TunWrite { .. } => coalesce::to_tun(work),
        Work::Burst { .. } | Work::Held { .. } | Work::Windows { .. } | Work::Acks { .. } => {
            coalesce::merging(work)
        }
    }
}

fn maker(work: Work) -> Maker {
    Box::new(move || side(work))
}

/// The name of the row in which our side is compared with the fastest peer.
pub const BEST_PEER: &str = "the best of them";
/// The name of the row in which the automatic mode is compared with the faster of the others.
pub const BEST_MODE: &str = "the better mode";

/// `work` with our side in it, and the bounds that we set ourselves.
pub fn contest(work: Work) -> Contest {
    let (peers, best) = bounds(work);
    Contest {
        work,
        ours: maker(work),
        peers,
        best,
    }
}

/// Goals that need no peer.
fn bounds(work: Work) -> (Vec<Peer>, Option<(&'static str, Goal)>) {
    match work {
        Work::Held { flows } if flows > 1 => {
            let bound = |name, one: fn(Work) -> Result<Box<dyn Side>, String>, goal| {
                let make: Maker = Box::new(move || {
                    let growth = Growth::new(one(work)?, coalesce::touched_bytes(work)?);
                    Ok(Box::new(growth))
                });
                let mut bound = Peer::new(name, make);
                bound.counts = false;
                bound.goal(goal)
            };
            // The row with one flow, which is flushed after 4 packets as each of many is; and one
            // that is flushed as seldom as they are, of which 45 packets become one.
            let row = |_| side(Work::Held { flows: 1 });
            let bounds = [
                bound("1 flow + 2 dependent loads", row, Goal::AtLeast(1.0)),
                bound(
                    "1 flow, 45 : 1, + 2 loads",
                    coalesce::one_flow,
                    Goal::Reported,
                ),
            ];
            (bounds.into(), None)
        }
        Work::Windows {
            flows,
            mode: Mode::Auto,
        } => {
            let fixed = [Mode::Hash, Mode::Sorted].map(|mode| {
                let name = format!("packtrain, {}", mode.name());
                Peer::new(&name, maker(Work::Windows { flows, mode }))
            });
            let within = Goal::Within {
                part: 0.03,
                ns: 1.0,
            };
            (fixed.into(), Some((BEST_MODE, within)))
        }
        _ => (Vec::new(), None),
    }
}
