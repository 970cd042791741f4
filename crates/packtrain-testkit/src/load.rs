//! Application threads in a world that send for a time, flat out or at a rate, as threads of the
//! same purpose do on a real machine.

use crate::rig::Rig;
use crate::world::Charge;
use packtrain::engine::{Action, Report, Session, TrySendError, TxHandle};
use packtrain::packet::Burst;
use packtrain::policy::idle::LIMIT_MAX;
use packtrain::policy::topology::CpuId;
use packtrain::port::sim::SimControl;
use packtrain::time::Instant;
use packtrain_offload::random::Random;
use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What each sender does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The most packets in one call.
    pub batch: usize,
    /// System calls before each call.
    pub system_calls: u32,
    /// Packets sent back to back, and the seconds from one such burst to the next; `None` if a
    /// sender sends flat out.
    pub pace: Option<(usize, f64)>,
    /// How long to send.
    pub duration: Duration,
}

/// What one sender did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets that the queue accepted.
    pub packets: u64,
    /// Calls that send.
    pub calls: u64,
    /// Calls after which the queue was full.
    pub full: u64,
    /// CPU time of the thread.
    pub cpu: Duration,
}

/// The senders of a world begin at different times, as threads do: all within so long.
pub const STARTS: Duration = Duration::from_micros(10);

/// After so long, the lanes of a session that was added have posted buffers.
pub const POSTED: Duration = Duration::from_micros(50);

/// Where a frame that arrives has its time: behind the headers of UDP over IPv4.
pub const DUE_AT: usize = 42;

/// How long a thread that only computes does so before the scheduler may take its CPU.
const COMPUTES: Duration = Duration::from_micros(5);

/// The world runs for so long before it checks whether the senders have ended.
const QUANTUM: Duration = Duration::from_millis(1);

/// A thread that sends.
struct Sender {
    handle: TxHandle,
    frame: Vec<u8>,
    burst: Burst,
    load: Load,
    start: Instant,
    /// Bursts that were due.
    bursts: u64,
    /// Since when it waits for space.
    waits: Option<Instant>,
    sent: Rc<Cell<Sent>>,
    charge: Charge,
    /// The price of a system call.
    system_call: Duration,
}

impl Sender {
    fn run(&mut self, now: Instant, waker: &Waker) -> Action {
        let end = self.start.after(self.load.duration);
        let mut sent = self.sent.get();
        match self.waits {
            _ if now >= end => return Action::Done,
            // As `send_blocking`: it polls for a time, then sleeps.
            Some(since) if !self.handle.has_space() => {
                if now.since(since) < LIMIT_MAX {
                    return Action::Yield;
                }
                let ready = self.handle.poll_ready(&mut Context::from_waker(waker));
                return match ready {
                    Poll::Ready(()) => Action::Step,
                    Poll::Pending => Action::Sleep { until: Some(end) },
                };
            }
            Some(_) => {}
            None => {
                let (count, interval) = self.load.pace.unwrap_or((self.load.batch, 0.0));
                let due = Duration::from_secs_f64(interval * self.bursts as f64);
                let due = self.start.after(due);
                if due >= end {
                    return Action::Done;
                }
                if now < due {
                    return Action::Sleep { until: Some(due) };
                }
                while self.burst.len() < count {
                    let packet = self.handle.arena().packet_from(&self.frame);
                    let Some(Ok(())) = packet.ok().map(|packet| self.burst.push(packet)) else {
                        // The device has the buffers: those that it has completed are free then.
                        self.handle.reclaim();
                        return Action::Yield;
                    };
                }
                self.bursts += 1;
                self.charge.add(self.system_call * self.load.system_calls);
                sent.calls += 1;
            }
        }
        let accepted = match self.handle.try_send(&mut self.burst) {
            Ok(accepted) => {
                self.waits = None;
                accepted
            }
            Err(TrySendError::Closed) => return Action::Done,
            Err(TrySendError::Full { accepted }) => {
                sent.full += u64::from(self.waits.is_none());
                self.waits.get_or_insert(now);
                accepted
            }
        };
        sent.packets += accepted as u64;
        self.sent.set(sent);
        Action::Step
    }
}

impl Rig {
    /// Runs threads that send to the first port of a session until the last one has ended: one for
    /// each frame, which it sends to the queue of its number, modulo their count. Each is bound to
    /// `cpu`, if there is one.
    ///
    /// # Panics
    ///
    /// If no senders were announced for the port, or the world has no such CPU.
    pub fn send(
        &mut self,
        session: usize,
        frames: Vec<Vec<u8>>,
        load: Load,
        cpu: Option<CpuId>,
    ) -> Vec<Sent> {
        let mut random = Random::new(self.world.runtime().seed());
        let count = frames.len() as u32;
        let queues = self.sessions[session].plan().attach[0].queues;
        let senders: Vec<_> = (0u32..)
            .zip(frames)
            .map(|(number, frame)| {
                let start = Duration::from_nanos(random.below(STARTS.as_nanos() as u64));
                // Paced senders alternate.
                let (_, interval) = load.pace.unwrap_or_default();
                let offset = interval * f64::from(number) / f64::from(count);
                let start = start + Duration::from_secs_f64(offset);
                let handle = self.sessions[session].handle(0, number as usize % queues);
                let sent = Rc::default();
                let mut sender = Sender {
                    handle: handle.expect("senders were announced"),
                    frame,
                    burst: Burst::new(),
                    load,
                    start: self.world.now().after(start),
                    bursts: 0,
                    waits: None,
                    sent: Rc::clone(&sent),
                    charge: self.world.charge(),
                    system_call: self.world.costs().syscall,
                };
                let run = move |now: Instant, waker: &Waker| match now < sender.start {
                    true => Action::Sleep {
                        until: Some(sender.start),
                    },
                    false => sender.run(now, waker),
                };
                (self.world.actor(run, cpu), sent)
            })
            .collect();
        let trace = loop {
            let trace = self.world.run(self.world.now().after(QUANTUM));
            let mut tasks = senders.iter().map(|(task, _)| &trace.tasks[*task]);
            if tasks.all(|task| task.ended.is_some()) {
                break trace;
            }
        };
        let sent = senders.iter().map(|(task, sent)| Sent {
            cpu: trace.tasks[*task].busy,
            ..sent.get()
        });
        sent.collect()
    }

    /// Frames arrive at a device from now on, for `duration`, `interval` seconds apart: one flow,
    /// to its first queue. The bytes from [`DUE_AT`] on are the time at which a frame is due, and
    /// arrives, in nanoseconds. Returns how many have arrived so far.
    ///
    /// # Panics
    ///
    /// In the world, if the frame is shorter than the time's end.
    pub fn arrive(
        &mut self,
        device: SimControl,
        mut frame: Vec<u8>,
        interval: f64,
        duration: Duration,
    ) -> Rc<Cell<u64>> {
        let mut random = Random::new(self.world.runtime().seed());
        let jitter = Duration::from_nanos(random.below(STARTS.as_nanos() as u64));
        let start = self.world.now().after(jitter);
        let arrived = Rc::new(Cell::new(0));
        let count = Rc::clone(&arrived);
        self.world.hardware(move |now| {
            let due = |number: u64| start.after(Duration::from_secs_f64(interval * number as f64));
            if now >= due(count.get()) {
                frame[DUE_AT..DUE_AT + 8].copy_from_slice(&now.as_nanos().to_be_bytes());
                device.arrive(0, &frame);
                count.set(count.get() + 1);
            }
            let next = due(count.get());
            (next < start.after(duration)).then_some(next)
        });
        arrived
    }

    /// Adds threads that only compute, until the end.
    pub fn compute(&mut self, threads: u32) {
        for _ in 0..threads {
            let (charge, ends) = (self.world.charge(), Rc::clone(&self.ends));
            let run = move |_: Instant, _: &Waker| match ends.get() {
                true => Action::Done,
                false => {
                    charge.add(COMPUTES);
                    Action::Step
                }
            };
            self.world.actor(run, None);
        }
    }

    /// Stops the sessions, and returns their reports. The time of each is that of the end of its
    /// last worker. A worker that has not ended after three seconds is left.
    pub fn finish(mut self) -> Vec<Report> {
        self.sessions.iter().for_each(Session::stop);
        self.ends.set(true);
        let trace = self
            .world
            .run(self.world.now().after(Duration::from_secs(3)));
        drop(self.world);
        let ended = self.workers.iter().map(|&worker| trace.tasks[worker].ended);
        let last = ended.map(|ended| ended.unwrap_or(trace.now)).max();
        let last = last.unwrap_or(trace.now);
        let finish = |session: Session| {
            let mut report = session.finish();
            report.elapsed = last.since(report.began);
            report
        };
        self.sessions.into_iter().map(finish).collect()
    }
}
