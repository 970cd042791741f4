//! What is compared: loops by hand, a handle and lanes, over the same simulated NIC.

use packtrain::driver::{
    Accepted, Armed, Attach, Capabilities, Coalesce, Completed, DeviceError, Driver, Input, Port,
    PortConfig, QueuePair, RxBurst, RxDescriptors, RxInfo, Token, TxDescriptors, WrapDriver,
};
use packtrain::engine::{
    Action, Deliver, Handler, RxId, Session, Settings, TrySendError, TxHandle, Worker,
};
use packtrain::packet::{Arena, ArenaConfig, Burst, Packet};
use packtrain::plan::PathKind;
use packtrain::policy::dispatch::Dispatch;
use packtrain::port::null::{Null, NullConfig};
use packtrain::port::sim::{Far, Sim, SimConfig, SimControl, SimTx};
use packtrain::queue::by_hand;
use packtrain::runtime::System;
use packtrain::time::{Clock, Instant};
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a frame.
pub const FRAME_BYTES: usize = 64;
/// Packets after which a hand-written loop asks what the device is done with, as the framework
/// does.
const RECLAIM_PACKETS: usize = 32;
/// A device that is not done after so many steps of each worker is broken.
const STEPS_MAX: usize = 1_000_000;

/// A way to send.
pub trait Sender {
    /// Sends so many frames in batches, and comes back when the device has put all on the wire.
    fn send(&mut self, packets: usize, batch: usize) -> Result<(), Box<dyn Error>>;
}

fn device() -> Sim {
    Sim::alone(SimConfig::default(), Far::Discard, 1)
}

/// Locally administered addresses, an ethertype for experiments.
fn frame() -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame
}

/// What one would write first: a slot for each packet that the device has, a doorbell for each
/// batch. No second thread, no second device, no limit, no counter.
pub struct ByHand {
    tx: SimTx,
    arena: Arena,
    slots: Vec<Option<Packet>>,
    free: Vec<Token>,
    completed: Completed,
    since_reclaim: usize,
    frame: [u8; FRAME_BYTES],
    // The device is gone with it.
    _sim: Sim,
}

impl ByHand {
    pub fn new() -> Result<Self, Box<dyn Error>> {
        let mut sim = device();
        let arena = Arena::new(ArenaConfig::small())?;
        let ring = SimConfig::default().tx_ring;
        let (_rx, tx) = sim.attach(&Attach::default(), &arena)?.remove(0);
        Ok(Self {
            tx,
            arena,
            slots: (0..ring).map(|_| None).collect(),
            free: (0..ring as u32).map(Token).collect(),
            completed: Completed::with_capacity(ring),
            since_reclaim: 0,
            frame: frame(),
            _sim: sim,
        })
    }

    fn reclaim(&mut self) {
        self.tx.reclaim(Instant::default(), &mut self.completed);
        for token in self.completed.drain() {
            self.slots[token.0 as usize] = None;
            self.free.push(token);
        }
        self.since_reclaim = 0;
    }
}

impl Sender for ByHand {
    fn send(&mut self, packets: usize, batch: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..packets / batch {
            for _ in 0..batch {
                let mut packet = self.arena.packet_from(&self.frame)?;
                let token = self.free.pop().ok_or("the ring is full")?;
                match self.tx.encap(&mut by_hand(&mut packet), token) {
                    Ok(Accepted::Pending) => self.slots[token.0 as usize] = Some(packet),
                    Ok(Accepted::Complete) => self.free.push(token),
                    Err(refused) => return Err(format!("{refused:?}").into()),
                }
            }
            self.tx.flush(Instant::default())?;
            self.since_reclaim += batch;
            if self.since_reclaim >= RECLAIM_PACKETS {
                self.reclaim();
            }
        }
        Ok(())
    }
}

/// A session whose workers the bench drives itself.
struct Driven {
    session: Session,
    workers: Vec<Worker>,
    clock: System,
    /// Of the device that the packets are sent to.
    control: Option<SimControl>,
    /// Packets that the device has been given, or will be.
    sent: u64,
}

impl Driven {
    fn new(
        (session, workers): (Session, Vec<Worker>),
        control: Option<SimControl>,
        kind: PathKind,
    ) -> Result<Self, Box<dyn Error>> {
        let planned = session.plan().paths[0].kind;
        if planned != kind {
            return Err(format!("the path is {planned}, and not {kind}").into());
        }
        let mut driven = Self {
            session,
            workers,
            clock: System::new(),
            control,
            sent: 0,
        };
        driven.rest()?;
        Ok(driven)
    }

    /// One step of each worker. True if all of them would sleep now.
    fn step(&mut self) -> Result<bool, Box<dyn Error>> {
        let mut sleep = true;
        for worker in &mut self.workers {
            sleep &= matches!(worker.run(self.clock.now())?, Action::Sleep { .. });
        }
        Ok(sleep)
    }

    /// One step of the worker that has the lane: the plan places lanes first.
    fn step_lane(&mut self) -> Result<(), Box<dyn Error>> {
        self.workers[0].run(self.clock.now())?;
        Ok(())
    }

    /// Steps until all workers sleep: a producer finds the ring idle.
    fn rest(&mut self) -> Result<(), Box<dyn Error>> {
        for _ in 0..STEPS_MAX {
            if self.step()? {
                return Ok(());
            }
        }
        Err("the workers do not sleep".into())
    }

    /// Steps until the device has put `packets` more on the wire than before.
    fn complete(&mut self, packets: usize) -> Result<(), Box<dyn Error>> {
        let Some(control) = &self.control else {
            return Ok(());
        };
        self.sent += packets as u64;
        let control = control.clone();
        for _ in 0..STEPS_MAX {
            if control.counters().wire_packets >= self.sent {
                return Ok(());
            }
            self.step()?;
        }
        Err("the device does not send all packets".into())
    }

    /// Ends the run. An error says what is wrong with its ledger.
    fn finish(self) -> Result<(), Box<dyn Error>> {
        let ledger = self.session.finish_with(self.workers).into_result()?.ledger;
        if !ledger.closed() || ledger.held > 0 || ledger.dropped > 0 {
            return Err(format!("packets are missing: {ledger:?}").into());
        }
        Ok(())
    }
}

/// A session on a port whose queue is worked under `dispatch=direct`.
fn direct() -> Settings {
    Settings {
        dispatch: Dispatch::Direct,
        ..Settings::default()
    }
}

/// The shared path: handle, ring, plan, fit, counters, device.
pub struct Shared {
    handle: TxHandle,
    burst: Burst,
    frame: [u8; FRAME_BYTES],
    driven: Driven,
}

impl Shared {
    pub fn new() -> Result<Self, Box<dyn Error>> {
        let sim = device();
        let control = sim.control();
        let builder = Session::on(sim).senders(0, 1).settings(direct());
        let assembled = builder.assemble(Arc::new(System::new()))?;
        let handle = assembled.0.handle(0, 0).ok_or("no TX queue")?;
        Ok(Self {
            handle,
            burst: Burst::new(),
            frame: frame(),
            driven: Driven::new(assembled, Some(control), PathKind::Shared)?,
        })
    }

    pub fn finish(self) -> Result<(), Box<dyn Error>> {
        drop(self.handle);
        self.driven.finish()
    }
}

impl Sender for Shared {
    fn send(&mut self, packets: usize, batch: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..packets / batch {
            for _ in 0..batch {
                let packet = self.handle.arena().packet_from(&self.frame)?;
                if self.burst.push(packet).is_err() {
                    return Err("a batch is longer than a burst".into());
                }
            }
            while let Err(error) = self.handle.try_send(&mut self.burst) {
                match error {
                    TrySendError::Full { .. } => self.driven.step()?,
                    TrySendError::Closed => return Err(error.into()),
                };
            }
        }
        self.driven.complete(packets / batch * batch)
    }
}

/// A loop that makes packets in the arena and frees each at once: what both the loop by hand and a
/// lane do beside sending.
pub struct Make {
    arena: Arena,
    frame: [u8; FRAME_BYTES],
}

impl Make {
    pub fn new() -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            arena: Arena::new(ArenaConfig::small())?,
            frame: frame(),
        })
    }
}

impl Sender for Make {
    fn send(&mut self, packets: usize, batch: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..packets / batch * batch {
            drop(black_box(self.arena.packet_from(&self.frame)?));
        }
        Ok(())
    }
}

/// A lane whose RX half makes the packets, a batch in each poll.
pub struct Lane {
    want: Arc<Want>,
    driven: Driven,
}

impl Lane {
    /// The owned path: handler, plan, fit, counters, device.
    pub fn owned() -> Result<Self, Box<dyn Error>> {
        let sim = device();
        let control = Some(sim.control());
        Self::new(sim, control, PathKind::Owned, Pass)
    }

    /// The same with a ring in front of the TX queue, which the lane drains itself.
    pub fn shared() -> Result<Self, Box<dyn Error>> {
        let sim = device();
        let control = Some(sim.control());
        Self::new(sim, control, PathKind::Shared, Pass)
    }

    /// The RX half alone: the handler takes all packets, and the TX queue has no work in any step.
    pub fn deliver() -> Result<Self, Box<dyn Error>> {
        let null = Null::new(NullConfig::default());
        Self::new(null, None, PathKind::Owned, Deliver)
    }

    fn new<D: Driver + 'static, H: Handler + Clone + 'static>(
        device: D,
        control: Option<SimControl>,
        kind: PathKind,
        handler: H,
    ) -> Result<Self, Box<dyn Error>> {
        let want = Arc::<Want>::default();
        let source = Source {
            device,
            want: Arc::clone(&want),
        };
        // Merging would be work that the other sides do not have.
        let mut config = PortConfig {
            coalesce: Coalesce::Off,
            ..PortConfig::default()
        };
        config.work.shared = kind == PathKind::Shared;
        let port = Port {
            driver: source,
            config,
        };
        let builder = Session::on(port);
        let builder = builder.handler(move |_| handler.clone()).settings(direct());
        let assembled = builder.assemble(Arc::new(System::new()))?;
        let driven = Driven::new(assembled, control, kind)?;
        Ok(Self { want, driven })
    }

    pub fn finish(self) -> Result<(), Box<dyn Error>> {
        self.driven.finish()
    }
}

impl Sender for Lane {
    fn send(&mut self, packets: usize, batch: usize) -> Result<(), Box<dyn Error>> {
        let packets = packets / batch * batch;
        self.want.batch.store(batch, Ordering::Relaxed);
        self.want.packets.store(packets, Ordering::Relaxed);
        // Each step takes one burst. The TX worker of a shared queue sleeps meanwhile.
        for _ in 0..packets / batch {
            self.driven.step_lane()?;
        }
        self.driven.complete(packets)?;
        match self.want.packets.load(Ordering::Relaxed) {
            0 => Ok(()),
            left => Err(format!("the lane has not polled {left} packets").into()),
        }
    }
}

/// Passes on all packets. Counted as [`Deliver`] is, so that lanes with either differ in the TX
/// path only.
#[derive(Clone, Copy)]
struct Pass;

impl Handler for Pass {
    fn handle(&mut self, _now: Instant, _from: RxId, _burst: &mut Burst) {}
}

/// What a source makes next. One thread uses it.
#[derive(Debug, Default)]
struct Want {
    /// Packets of one poll.
    batch: AtomicUsize,
    /// Packets in all, less those that were made.
    packets: AtomicUsize,
}

/// A device whose RX half makes packets.
#[derive(Debug)]
struct Source<D> {
    device: D,
    want: Arc<Want>,
}

impl<D: Driver> WrapDriver for Source<D> {
    type Inner = D;
    type Rx = SourceRx;
    type Tx = D::Tx;

    fn inner(&self) -> &D {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn wrap(&mut self, _: usize, (_rx, tx): QueuePair<D>, arena: &Arena) -> QueuePair<Self> {
        let rx = SourceRx {
            arena: arena.clone(),
            frame: frame(),
            want: Arc::clone(&self.want),
        };
        (rx, tx)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            input: Input::Endless,
            ..self.device.capabilities()
        }
    }
}

struct SourceRx {
    arena: Arena,
    frame: [u8; FRAME_BYTES],
    want: Arc<Want>,
}

impl RxDescriptors for SourceRx {
    fn refill(&mut self, _arena: &Arena) -> bool {
        true
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let left = self.want.packets.load(Ordering::Relaxed);
        let count = self.want.batch.load(Ordering::Relaxed).min(left);
        for _ in 0..count.min(burst.budget()) {
            let packet = self.arena.packet_from(&self.frame);
            let packet = packet.map_err(|_no_buffer| DeviceError::Failed {
                action: "make a packet",
                source: std::io::ErrorKind::OutOfMemory.into(),
            })?;
            burst.push(packet, &RxInfo::default());
        }
        self.want.packets.store(left - count, Ordering::Relaxed);
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        match self.want.packets.load(Ordering::Relaxed) {
            0 => Armed::Idle,
            _ => Armed::WorkPending,
        }
    }
}
