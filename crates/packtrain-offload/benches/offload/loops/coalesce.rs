//! Traffic for coalescers, and its timing.

use crate::loops::contest::{Sample, Side};
use crate::loops::frames::{Frame, Frames};
use crate::loops::memory::Evictor;
use crate::loops::sizes::{BURST, COLD_BURSTS, PER_FLOW, WINDOW};
use crate::loops::trains::{Kind, Train, Turns};
use crate::loops::work::{Place, Work};
use packtrain_measure::clock::Laps;
use packtrain_measure::random::{Random, mix};

/// An implementation of coalescing, with its own buffers.
///
/// The clock runs in [`receive`](Self::receive) and [`flush`](Self::flush) only. Every packet given
/// out is ready for a TX queue: lengths and the IP header checksum are correct, and the transport
/// checksum is finished or left to the device as a pseudo-header sum.
pub trait Engine {
    /// Puts the next packet of `flow` into a buffer, behind the loaded ones.
    fn load(&mut self, train: &mut Train, flow: u32);

    /// Takes the next `count` loaded packets: one burst.
    fn receive(&mut self, count: usize);

    /// Gives out every held packet.
    fn flush(&mut self);

    /// Takes back the buffers of the packets given out; returns their number. Called after every
    /// loaded packet is received.
    fn collect(&mut self) -> usize;
}

/// An engine that merges packets in [`Frames`].
pub trait Coalescer {
    /// Takes a burst; packets that cannot wait, or are finished, go to `out`.
    fn receive(&mut self, frames: &mut Frames, burst: &[Frame], out: &mut Vec<Frame>);

    /// Gives out every held packet.
    fn flush(&mut self, frames: &mut Frames, out: &mut Vec<Frame>);
}

/// A [`Coalescer`] and its frames.
pub struct InFrames<C> {
    coalescer: C,
    frames: Frames,
    /// [Shuffled](shuffle).
    order: Vec<Frame>,
    used: usize,
    loaded: Vec<Frame>,
    received: usize,
    out: Vec<Frame>,
}

impl<C: Coalescer> InFrames<C> {
    /// With frames for the traffic of `schedule`.
    pub fn new(coalescer: C, schedule: &Schedule) -> Self {
        let count = schedule.frames();
        let mut order: Vec<Frame> = (0..count as Frame).collect();
        shuffle(&mut order);
        Self {
            coalescer,
            frames: Frames::new(count, &schedule.train()),
            order,
            used: 0,
            loaded: Vec::with_capacity(count),
            received: 0,
            out: Vec::with_capacity(count),
        }
    }
}

impl<C: Coalescer> Engine for InFrames<C> {
    fn load(&mut self, train: &mut Train, flow: u32) {
        let frame = self.order[self.used % self.order.len()];
        self.used += 1;
        self.frames.load(frame, train, flow);
        self.loaded.push(frame);
    }

    fn receive(&mut self, count: usize) {
        let burst = &self.loaded[self.received..self.received + count];
        self.coalescer
            .receive(&mut self.frames, burst, &mut self.out);
        self.received += count;
    }

    fn flush(&mut self) {
        self.coalescer.flush(&mut self.frames, &mut self.out);
    }

    fn collect(&mut self) -> usize {
        self.loaded.clear();
        self.received = 0;
        let given = self.out.len();
        self.out.clear();
        given
    }
}

/// The order in which every side uses its buffers: buffers return in random order, and neighbours
/// in a burst are not neighbours in memory.
pub fn shuffle<T>(buffers: &mut [T]) {
    let mut random = Random::new(2);
    for i in (1..buffers.len()).rev() {
        buffers.swap(i, random.below(i as u64 + 1) as usize);
    }
}

/// The order of arrival, and the times of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The kind of packets.
    pub kind: Kind,
    /// Whether they have a link header.
    pub ethernet: bool,
    /// Flows.
    pub flows: u32,
    /// Flows that alternate at a time.
    at_once: u32,
    /// Rounds of each group of flows before the next group.
    turns: u32,
    /// Packets between two flushes.
    pub hold: usize,
    /// Most packets in use at a time, if that is less than these.
    held_max: Option<usize>,
    /// Packets of a sample.
    pub packets: usize,
    /// Whether all packets of the sample are loaded, and out of the caches, before the clock
    /// starts.
    pub cold: bool,
}

/// Packets of a sample, unless the flows need more: about a millisecond.
const PACKETS: usize = 32 * 1024;

impl Schedule {
    /// For work that merges packets; `None` for any other.
    pub fn of(work: Work) -> Option<Self> {
        let across = |kind, flows: u32| {
            let hold = (flows * PER_FLOW) as usize;
            Self {
                kind,
                ethernet: true,
                flows,
                at_once: flows,
                turns: 1,
                hold,
                held_max: None,
                packets: hold.max(PACKETS / hold * hold),
                cold: false,
            }
        };
        let bursts = |kind, flows: u32, count: usize| Self {
            hold: BURST,
            packets: count * BURST,
            ..across(kind, flows)
        };
        match work {
            Work::Burst { flows, place, .. } => Some(match place {
                Place::Warm => bursts(Kind::Tcp, flows, 256),
                Place::Cold => Self {
                    cold: true,
                    ..bursts(Kind::Tcp, flows, COLD_BURSTS)
                },
            }),
            Work::Held { flows } => Some(across(Kind::Tcp, flows)),
            Work::Acks { flows } => Some(across(Kind::Ack, flows)),
            Work::Windows { flows, .. } => {
                let at_once = flows.min(WINDOW as u32 / PER_FLOW);
                Some(Self {
                    at_once,
                    turns: WINDOW as u32 / at_once,
                    hold: WINDOW,
                    packets: PACKETS,
                    ..across(Kind::Tcp, flows)
                })
            }
            Work::TunWrite { flows, udp } => Some(Self {
                ethernet: false,
                ..bursts(if udp { Kind::Udp } else { Kind::Tcp }, flows, 64)
            }),
            _ => None,
        }
    }

    /// The same bursts between the same flushes, all of one flow. The held packet is given out at
    /// 64 KB.
    pub const fn of_one_flow(self) -> Self {
        Self {
            held_max: Some(2 * BURST),
            flows: 1,
            at_once: 1,
            turns: 1,
            ..self
        }
    }

    /// Flows that may be held at the same time: the size of a table.
    pub fn flows_held(&self) -> usize {
        self.hold.min(self.flows as usize)
    }

    /// The packets.
    pub fn train(&self) -> Train {
        Train::new(self.kind, self.ethernet, self.flows)
    }

    /// The flow of each packet.
    fn turns(&self, seed: u64) -> Turns {
        Turns::windows(self.flows, self.at_once, self.turns, seed)
    }

    /// Most buffers in use at the same time.
    pub fn frames(&self) -> usize {
        if self.cold {
            self.packets
        } else {
            self.held_max.unwrap_or(self.hold).max(BURST)
        }
    }
}

/// An engine and its traffic.
pub struct Merging<E> {
    engine: E,
    schedule: Schedule,
    train: Train,
    evictor: Option<Evictor>,
}

impl<E: Engine> Merging<E> {
    /// The traffic of `schedule`.
    pub fn new(engine: E, schedule: Schedule) -> Self {
        Self {
            engine,
            train: schedule.train(),
            evictor: schedule.cold.then(Evictor::new),
            schedule,
        }
    }

    /// Receives the loaded packets, in bursts, with a flush wherever one is due.
    fn stretch(&mut self, laps: &mut Laps, packets: usize, held: &mut usize) {
        let (engine, hold) = (&mut self.engine, self.schedule.hold);
        laps.time(|| {
            let mut left = packets;
            while left > 0 {
                let now = left.min(BURST).min(hold - *held);
                engine.receive(now);
                left -= now;
                *held += now;
                if *held == hold {
                    engine.flush();
                    *held = 0;
                }
            }
        });
    }
}

impl<E: Engine> Side for Merging<E> {
    fn sample(&mut self, seed: u64) -> Sample {
        let Schedule { packets, cold, .. } = self.schedule;
        let mut turns = self.schedule.turns(seed);
        self.train.restart(mix(seed));
        let (mut laps, mut held, mut given, mut done) = (Laps::new(), 0, 0, 0);
        while done < packets {
            let stretch = if cold {
                packets
            } else {
                BURST.min(packets - done)
            };
            for _ in 0..stretch {
                self.engine.load(&mut self.train, turns.turn());
            }
            if let Some(evictor) = &self.evictor {
                evictor.evict();
            }
            self.stretch(&mut laps, stretch, &mut held);
            done += stretch;
            given += self.engine.collect();
        }
        assert_eq!(held, 0, "a sample ends with a flush");
        Sample {
            ns: laps.per(packets as u64),
            merge: Some(packets as f64 / given.max(1) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges everything, and checks the packets it takes.
    #[derive(Default)]
    struct One {
        head: Option<Frame>,
        received: usize,
        hold: usize,
    }

    impl Coalescer for One {
        fn receive(&mut self, frames: &mut Frames, burst: &[Frame], _: &mut Vec<Frame>) {
            assert!(!burst.is_empty() && burst.len() <= BURST);
            for &frame in burst {
                assert_eq!(frames.line(frame).frames, 1);
                match self.head {
                    Some(head) => frames.link(head, frame, 66),
                    None => self.head = Some(frame),
                }
            }
            self.received += burst.len();
        }

        fn flush(&mut self, frames: &mut Frames, out: &mut Vec<Frame>) {
            let head = self.head.take().unwrap();
            assert_eq!(frames.line(head).frames as usize, self.hold);
            let mut at = Some(head);
            let mut chained = 0;
            while let Some(frame) = at {
                chained += 1;
                at = frames.line(frame).next;
            }
            assert_eq!(chained, self.hold);
            out.push(head);
        }
    }

    #[test]
    fn every_packet_is_received_once_and_flushed_when_due() {
        for work in Work::all() {
            let Some(schedule) = Schedule::of(work) else {
                continue;
            };
            if schedule.flows > 2000 {
                continue;
            }
            let one = One {
                hold: schedule.hold,
                ..One::default()
            };
            let mut merging = Merging::new(InFrames::new(one, &schedule), schedule);
            let sample = merging.sample(1);
            assert_eq!(sample.merge, Some(schedule.hold as f64), "{work:?}");
            assert_eq!(merging.engine.coalescer.received, schedule.packets);
        }
    }
}
