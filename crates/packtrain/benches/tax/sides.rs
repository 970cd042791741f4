//! The two ways of sending that are compared, over the same simulated NIC.

use packtrain::conformance::by_hand;
use packtrain::driver::{Accepted, Attach, Completed, Driver, PortConfig, Token, TxDescriptors};
use packtrain::engine::{Port, Session, Settings, TxHandle};
use packtrain::packet::{Arena, ArenaConfig, Burst, Packet};
use packtrain::plan::{Side, plan};
use packtrain::policy::dispatch::Dispatch;
use packtrain::port::null::{Null, NullConfig};
use packtrain::port::sim::{Far, Sim, SimConfig, SimControl, SimTx};
use packtrain::time::Instant;
use std::error::Error;
use std::time::Duration;

/// Bytes of a frame.
pub const FRAME_BYTES: usize = 64;
/// Packets after which a hand-written loop asks what the device is done with, as the framework
/// does.
const RECLAIM_PACKETS: usize = 32;
/// A device that takes nothing for so long is broken.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// The whole way: handle, ring, plan, fit, counters, device.
pub struct Framework {
    handle: TxHandle,
    burst: Burst,
    frame: [u8; FRAME_BYTES],
    control: SimControl,
    sent: u64,
    session: Option<Session<Sim, Null>>,
}

impl Framework {
    pub fn new(dispatch: Dispatch) -> Result<Self, Box<dyn Error>> {
        let (sim, null) = (device(), Null::new(NullConfig::default()));
        let control = sim.control();
        let config = PortConfig::default();
        let plan = plan(&Side::of(&sim, config), &Side::of(&null, config))?;
        let settings = Settings {
            dispatch,
            ..Settings::default()
        };
        let session = Session::forward_with(sim, null, &plan, None, &settings)?;
        let handle = session.tx_handle(Port::A, 0).ok_or("no TX queue")?;
        Ok(Self {
            handle,
            burst: Burst::new(),
            frame: frame(),
            control,
            sent: 0,
            session: Some(session),
        })
    }

    /// Ends the run; says what is wrong with its account.
    pub fn finish(mut self) -> Result<(), Box<dyn Error>> {
        let session = self.session.take().ok_or("it has ended already")?;
        drop(self);
        let report = session.finish();
        if let Some(error) = report.error {
            return Err(error.to_string().into());
        }
        let ledger = report.snapshot.ledger;
        if !ledger.closed() || ledger.held > 0 || ledger.dropped > 0 {
            return Err(format!("the account does not close: {ledger:?}").into());
        }
        Ok(())
    }
}

impl Sender for Framework {
    fn send(&mut self, packets: usize, batch: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..packets / batch {
            for _ in 0..batch {
                let packet = loop {
                    match self.handle.arena().packet_from(&self.frame) {
                        Ok(packet) => break packet,
                        // Those that the worker has not freed yet.
                        Err(_no_buffer) => self.handle.reclaim(),
                    }
                };
                if self.burst.push(packet).is_err() {
                    return Err("a batch is longer than a burst".into());
                }
            }
            self.handle.send_blocking(&mut self.burst, PATIENCE)?;
        }
        self.sent += (packets / batch * batch) as u64;
        // Where the worker drains, it may still be at it.
        while self.control.counters().wire_packets < self.sent {
            std::hint::spin_loop();
        }
        Ok(())
    }
}
