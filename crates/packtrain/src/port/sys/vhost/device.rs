//! The device behind a vhost-user socket: what the front end has set up, and the rings that the
//! workers use.
//!
//! One thread handles the messages of the front end. It changes a ring under the ring's lock, which
//! a worker holds for a batch of packets.

use super::bell::Bell;
use super::features::{self, MQ, PROTOCOL_FEATURES, REPLY_ACK, protocol};
use super::memory::Memory;
use super::message::{Header, REPLY_BYTES, Request};
use super::ring::Ring;
use crate::driver::{ChangeKind, Moved, PortChanges};
use crate::name::Name;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::read_link;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The class and the command that set the number of pairs (virtio 1.2 §5.1.6.5.5).
const MQ_PAIRS_SET: [u8; 2] = [4, 0];
/// Requests in the control ring that are answered before the front end's messages are looked at.
const CONTROL_REQUESTS_MAX: usize = 64;
const CONTROL_OK: u8 = 0;
const CONTROL_ERROR: u8 = 1;

/// The state of the other side of a vhost-user port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VhostStatus {
    /// A front end is connected.
    pub connected: bool,
    /// Front ends that have connected since the start.
    pub connections: u64,
    /// The feature bits that the guest has set (virtio 1.2 §5.1.3 and §6, and bit 30 of the
    /// vhost-user protocol).
    pub features: u64,
    /// Whether guest memory cannot become shorter, which would end this process; true without a
    /// front end. It is false for a file of memory that takes no seals.
    pub sealed: bool,
    /// Whether all pages of guest memory were allocated when the front end shared it; true without
    /// a front end. Else those that packtrain is the first to touch count as packtrain's memory.
    pub populated: bool,
    /// Messages that were refused, rings that guests broke, and what kept the port from connecting,
    /// since the start.
    pub refused: u64,
    /// Receive buffers of guests that could not be used, since the start.
    pub bad_buffers: u64,
    /// A ring that a guest broke and that is still off; else the last message that was refused, the
    /// last ring that could not be used, or why the port does not connect: one sentence.
    pub problem: Option<String>,
}

/// What the thread of the front end and the workers share.
#[derive(Debug)]
pub(in crate::port) struct Shared {
    /// Two for each pair of queues: packets to the guest, and packets from it. Then the control
    /// ring.
    rings: Vec<Mutex<Ring>>,
    /// As the rings. The last one hears the kicks of the ring that is the control ring.
    bells: Vec<Bell>,
    /// The ring to the guest that each queue uses: its own, or one of those that are in use.
    targets: Vec<AtomicUsize>,
    up: AtomicBool,
    /// How often features were set, and which they are since.
    negotiations: AtomicU64,
    negotiated: AtomicU64,
    /// Readable once a guest has broken a ring.
    alarm: Arc<OwnedFd>,
    status: Mutex<VhostStatus>,
}

impl Shared {
    /// `pairs` pairs of rings that are off.
    ///
    /// # Errors
    ///
    /// The system's, without free descriptors.
    pub(in crate::port) fn new(pairs: usize) -> io::Result<Self> {
        let bells = (0..=2 * pairs).map(|_| Bell::new());
        let alarm = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ring = |_| {
            let mut ring = Ring::default();
            ring.alarm = Some(Arc::clone(&alarm));
            Mutex::new(ring)
        };
        Ok(Self {
            rings: (0..=2 * pairs).map(ring).collect(),
            bells: bells.collect::<io::Result<_>>()?,
            targets: (0..pairs).map(|pair| AtomicUsize::new(2 * pair)).collect(),
            up: AtomicBool::new(false),
            negotiations: AtomicU64::new(0),
            negotiated: AtomicU64::new(0),
            alarm,
            status: Mutex::new(VhostStatus {
                sealed: true,
                populated: true,
                ..VhostStatus::default()
            }),
        })
    }

    /// The ring of packets from the guest.
    pub(in crate::port) fn ring_from_guest(&self, pair: usize) -> MutexGuard<'_, Ring> {
        self.ring(2 * pair + 1)
    }

    /// The ring of packets to the guest. If the guest does not use that of the queue, another one.
    pub(in crate::port) fn ring_to_guest(&self, pair: usize) -> MutexGuard<'_, Ring> {
        loop {
            let target = self.targets[pair].load(Ordering::Relaxed);
            let ring = self.ring(target);
            // Nothing is put into a ring after it was published for the last time.
            if self.targets[pair].load(Ordering::Relaxed) == target {
                return ring;
            }
        }
    }

    /// What rings if there is work in [`ring_from_guest`](Self::ring_from_guest).
    pub(in crate::port) fn bell_from_guest(&self, pair: usize) -> &Bell {
        &self.bells[2 * pair + 1]
    }

    /// What rings if there is room in [`ring_to_guest`](Self::ring_to_guest).
    pub(in crate::port) fn bell_to_guest(&self, pair: usize) -> &Bell {
        &self.bells[2 * pair]
    }

    /// Whether packets pass.
    pub(in crate::port) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// The features, if they were set since `seen`, which is updated.
    pub(in crate::port) fn negotiated_since(&self, seen: &mut u64) -> Option<u64> {
        let negotiations = self.negotiations.load(Ordering::Acquire);
        let is_new = std::mem::replace(seen, negotiations) != negotiations;
        is_new.then(|| self.negotiated.load(Ordering::Acquire))
    }

    /// The state of the other side.
    pub(in crate::port) fn status(&self) -> VhostStatus {
        let bad = (0..self.targets.len()).map(|pair| self.ring(2 * pair).bad());
        let bad_buffers = bad.sum();
        let mut status = VhostStatus {
            bad_buffers,
            ..lock(&self.status).clone()
        };
        for index in 0..self.rings.len() {
            let (breaks, broken) = self.ring(index).breaks();
            status.refused += breaks;
            if let Some(why) = broken {
                status.problem = Some(format!(
                    "ring {index} {why}, and is off until the front end starts it again; restart \
                     the guest's driver"
                ));
            }
        }
        status
    }

    fn ring(&self, index: usize) -> MutexGuard<'_, Ring> {
        lock(&self.rings[index])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panicked thread left is checked like anything that a guest writes.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device, as its front end sees it. It lives as long as the port, over any number of front
/// ends.
#[derive(Debug)]
pub(in crate::port) struct Device {
    shared: Arc<Shared>,
    pairs: usize,
    offered: u64,
    features: u64,
    protocol: u64,
    memory: Arc<Memory>,
    /// The kicks that the bells hear.
    heard: Vec<Option<Arc<OwnedFd>>>,
    changes: Option<PortChanges>,
    /// Whether the last guest that negotiated has mergeable buffers.
    mergeable: Option<bool>,
}

impl Device {
    /// A device with these rings that offers `offered`.
    pub(in crate::port) fn new(
        shared: Arc<Shared>,
        offered: u64,
        changes: Option<PortChanges>,
    ) -> Self {
        let pairs = shared.targets.len();
        Self {
            heard: vec![None; 2 * pairs + 1],
            shared,
            pairs,
            offered,
            features: 0,
            protocol: 0,
            memory: Arc::default(),
            changes,
            mergeable: None,
        }
    }

    fn record(&self, kind: ChangeKind, why: &'static str) {
        if let Some(changes) = &self.changes {
            changes.record(kind, Moved::NONE, why);
        }
    }

    /// A front end has connected.
    pub(in crate::port) fn connect(&mut self) {
        let mut status = lock(&self.shared.status);
        status.connected = true;
        status.connections += 1;
        let is_first = status.connections == 1;
        drop(status);
        // Until the first one has connected, the port is not away.
        if !is_first {
            self.record(ChangeKind::Back, "a front end has connected again");
        }
    }

    /// The front end has left: everything that it set up is forgotten.
    pub(in crate::port) fn disconnect(&mut self) {
        for index in 0..self.shared.rings.len() {
            let mut ring = self.shared.ring(index);
            ring.forget();
        }
        (self.features, self.protocol) = (0, 0);
        self.memory = Arc::default();
        let mut status = lock(&self.shared.status);
        (status.connected, status.features) = (false, 0);
        (status.sealed, status.populated) = (true, true);
        drop(status);
        self.settle();
    }

    /// The front end has left by itself, or because it was refused.
    pub(in crate::port) fn record_gone(&self) {
        self.record(ChangeKind::Gone, "the front end has left");
    }

    /// The thread that serves the device ends by a panic, which may have left rings in any state.
    pub(in crate::port) fn abandon(&mut self) {
        for index in 0..self.shared.rings.len() {
            self.shared.ring(index).abandon();
        }
        self.disconnect();
        self.record_gone();
        self.report(
            "the thread of the front end has ended by a defect of packtrain; restart packtrain, \
             and report what it has printed"
                .to_owned(),
        );
    }

    /// Something of a front end was refused.
    pub(in crate::port) fn refuse(&self, what: &str) {
        self.report(format!("refused {what}; see the log of the front end"));
    }

    /// Something is wrong.
    pub(in crate::port) fn report(&self, problem: String) {
        let mut status = lock(&self.shared.status);
        status.refused += 1;
        status.problem = Some(problem);
    }

    /// Does what a message asks for, and returns the answer, if it gets one.
    ///
    /// # Errors
    ///
    /// One sentence: the front end is not understood any more, and its connection has to end.
    pub(in crate::port) fn answer(
        &mut self,
        header: &Header,
        payload: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<Option<[u8; REPLY_BYTES]>, String> {
        let request = Request::decode(header, payload, fds);
        let asks = request.as_ref().is_ok_and(Request::asks);
        let result = request.and_then(|request| self.handle(request));
        let acknowledged = header.needs_reply && self.protocol & REPLY_ACK != 0;
        let answer = match result {
            Ok(Some(answer)) => answer,
            Ok(None) if acknowledged => 0,
            Ok(None) => return Ok(None),
            // A request that asks for a number has no number for "no".
            Err(problem) if asks || !acknowledged => return Err(problem),
            Err(problem) => {
                self.refuse(&problem);
                1
            }
        };
        Ok(Some(header.reply(answer)))
    }

    /// Does what a front end asks for. Returns the number that it asked for, if it did.
    ///
    /// # Errors
    ///
    /// One sentence. Nothing but what the sentence is about has changed.
    fn handle(&mut self, request: Request) -> Result<Option<u64>, String> {
        match request {
            Request::GetFeatures => return Ok(Some(self.offered)),
            Request::GetProtocolFeatures => return Ok(Some(protocol(self.pairs))),
            Request::GetQueues => return Ok(Some(self.pairs as u64)),
            Request::Nothing => return Ok(None),
            Request::GetBase(index) => {
                let base = self.ring(index)?.stop();
                self.settle();
                // A ring and its state, two numbers of four bytes.
                return Ok(Some(u64::from(index) | u64::from(base) << 32));
            }
            _ => {}
        }
        let changed = self.change(request);
        self.settle();
        changed.map(|()| None)
    }

    fn change(&mut self, request: Request) -> Result<(), String> {
        match request {
            Request::SetFeatures(features) => return self.set_features(features),
            Request::SetProtocolFeatures(features) => {
                refuse_unoffered("protocol features", features, protocol(self.pairs))?;
                self.protocol = features;
            }
            Request::ResetOwner => {
                for index in 0..self.shared.rings.len() {
                    self.shared.ring(index).stop();
                }
            }
            Request::SetMemory(regions) => {
                let memory = Arc::new(Memory::map(regions)?);
                let mut status = lock(&self.shared.status);
                (status.sealed, status.populated) = (memory.is_sealed(), memory.is_populated());
                drop(status);
                // Unmapped last: workers wait for the lock of a ring.
                let old = std::mem::replace(&mut self.memory, memory);
                let set = self.each(|ring, device| ring.set_memory(&device.memory));
                drop(old);
                return set;
            }
            Request::SetSize(index, size) => self.ring(index)?.set_size(size)?,
            Request::SetAddresses(index, at) => self.ring(index)?.set_addresses(at)?,
            Request::SetBase(index, base) => self.ring(index)?.set_base(base)?,
            Request::SetKick(index, kick) => {
                let kick = kick.ok_or("a ring without a kick descriptor, which is not built")?;
                let kick = Arc::new(event(kick)?);
                let mut ring = self.ring(index)?;
                ring.start(kick)?;
                // Without features of the protocol there is no message that enables it.
                if self.features & PROTOCOL_FEATURES == 0 {
                    ring.set_enabled(true);
                }
            }
            Request::SetCall(index, call) => {
                let call = call.map(event).transpose()?;
                self.ring(index)?.set_call(call);
            }
            Request::SetError(index, error) => {
                let error = error.map(event).transpose()?;
                self.ring(index)?.set_error(error);
            }
            Request::SetEnabled(index, enabled) => self.ring(index)?.set_enabled(enabled),
            Request::GetFeatures
            | Request::GetProtocolFeatures
            | Request::GetQueues
            | Request::GetBase(_)
            | Request::Nothing => {}
        }
        Ok(())
    }

    fn set_features(&mut self, features: u64) -> Result<(), String> {
        refuse_unoffered("features", features, self.offered)?;
        self.features = features;
        lock(&self.shared.status).features = features;
        let form = features::form(features);
        // It neither stops nor disables a ring.
        let set = self.each(|ring, _| ring.set_form(form));
        self.shared.negotiated.store(features, Ordering::Release);
        // Last: a worker that sees it finds the rings with their new form.
        self.shared.negotiations.fetch_add(1, Ordering::Release);
        // Offloads are recorded by the queues.
        match (self.mergeable.replace(form.mergeable), form.mergeable) {
            (Some(false), true) => self.record(
                ChangeKind::Renegotiated,
                "a packet may fill several buffers of the guest from now on (mergeable buffers)",
            ),
            (Some(true), false) => self.record(
                ChangeKind::Renegotiated,
                "a packet has to fit one buffer of the guest from now on (no mergeable buffers)",
            ),
            _ => {}
        }
        set
    }

    /// Does it to all rings, and returns the first error.
    fn each(
        &self,
        mut each: impl FnMut(&mut Ring, &Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let all = 0..self.shared.rings.len();
        all.map(|index| each(&mut self.shared.ring(index), self))
            .fold(Ok(()), Result::and)
    }

    fn ring(&self, index: u32) -> Result<MutexGuard<'_, Ring>, String> {
        let index = index as usize;
        if index >= self.shared.rings.len() {
            let (pairs, last) = (self.pairs, 2 * self.pairs);
            return Err(format!(
                "ring {index}, where {pairs} pairs of rings are 0 to {last}; use as many queues on \
                 both sides (queues=)"
            ));
        }
        Ok(self.shared.ring(index))
    }

    /// What is readable once a guest has broken a ring.
    pub(in crate::port) fn alarm(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.shared.alarm)
    }

    /// A guest has broken a ring: its queue uses another one, or the link goes down.
    pub(in crate::port) fn calm(&mut self) {
        // Another break may ring it again.
        rustix::io::read(&*self.shared.alarm, &mut [0_u8; 8]).unwrap_or(0);
        self.settle();
    }

    /// Brings what depends on the state of several rings up to date, and wakes all workers.
    fn settle(&mut self) {
        let rings: Vec<_> = (0..2 * self.pairs)
            .map(|index| {
                let mut ring = self.shared.ring(index);
                ring.publish();
                (ring.is_running(), ring.kick().cloned())
            })
            .collect();
        // Ring 2 is the control ring of a guest without several pairs.
        let control = self.control_ring();
        let usable = |index: &usize| Some(*index) != control && rings[*index].0;
        let running: Vec<_> = (0..self.pairs)
            .map(|pair| 2 * pair)
            .filter(usable)
            .collect();
        for &index in &running {
            let others = running.len() < self.pairs;
            self.shared.ring(index).shared = others;
        }
        for pair in 0..self.pairs {
            let own = 2 * pair;
            let target = match running.len() {
                // No packet goes into a control ring.
                0 if Some(own) == control => 0,
                0 => own,
                _ if running.contains(&own) => own,
                count => running[pair % count],
            };
            self.shared.targets[pair].store(target, Ordering::Relaxed);
            self.hear(own, rings[target].1.clone());
            self.hear(own + 1, rings[own + 1].1.clone());
        }
        let kick = control.and_then(|index| self.shared.ring(index).kick().cloned());
        self.hear(2 * self.pairs, kick);
        // What a worker put into a ring that its queue has left meanwhile.
        for index in 0..2 * self.pairs {
            self.shared.ring(index).publish();
        }
        self.shared.up.store(!running.is_empty(), Ordering::Release);
        self.shared.bells.iter().for_each(Bell::ring);
    }

    /// Has a bell hear another kick.
    fn hear(&mut self, bell: usize, kick: Option<Arc<OwnedFd>>) {
        let old = &self.heard[bell];
        let is_same = match (old, &kick) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if is_same {
            return;
        }
        let heard = self.shared.bells[bell].replace(old.as_ref(), kick.as_ref());
        if let Err(error) = heard {
            self.report(format!("the kicks of a ring cannot be waited for: {error}"));
        }
        self.heard[bell] = kick;
    }

    /// The index of the next chain of a ring, and how often the guest broke the ring.
    #[cfg(feature = "internals")]
    pub(in crate::port) fn taken(&self, ring: usize) -> [u64; 2] {
        let ring = self.shared.ring(ring);
        [ring.next().into(), ring.breaks().0]
    }

    /// The index of the control ring, if the guest has one.
    pub(in crate::port) const fn control_ring(&self) -> Option<usize> {
        features::control_ring(self.features, self.pairs)
    }

    /// What rings if there are requests in the control ring, which its front end leaves to us.
    pub(in crate::port) fn control_bell(&self) -> &Bell {
        &self.shared.bells[2 * self.pairs]
    }

    /// Answers what is in the control ring: a bounded number of requests. Returns whether there may
    /// be more.
    pub(in crate::port) fn serve_control(&mut self) -> bool {
        let Some(index) = self.control_ring() else {
            return false;
        };
        self.shared.ring(index).begin_poll();
        let (mut changed, mut more) = (false, false);
        for _ in 0..CONTROL_REQUESTS_MAX {
            let mut request = [0; 4];
            let mut ring = self.shared.ring(index);
            if ring.is_exhausted() {
                more = true;
                break;
            }
            let Some(taken) = ring.take_request(&mut request) else {
                more |= ring.arm();
                break;
            };
            more = true;
            let Ok(bytes) = taken else {
                ring.publish();
                continue;
            };
            let [class, command, low, high] = request;
            let wanted = usize::from(u16::from_le_bytes([low, high]));
            let is_legal = bytes == 4
                && self.features & MQ != 0
                && [class, command] == MQ_PAIRS_SET
                && (1..=self.pairs).contains(&wanted);
            if is_legal {
                changed = true;
                for pair in 0..self.pairs {
                    for index in [2 * pair, 2 * pair + 1] {
                        self.shared.ring(index).set_enabled(pair < wanted);
                    }
                }
            }
            ring.answer(if is_legal { CONTROL_OK } else { CONTROL_ERROR });
        }
        if changed {
            self.settle();
        }
        more
    }
}

fn refuse_unoffered(what: &str, set: u64, offered: u64) -> Result<(), String> {
    let more = set & !offered;
    if more == 0 {
        return Ok(());
    }
    Err(format!("{what} that were not offered: {more:#x}"))
}

/// An eventfd that does not block. Another kind of descriptor could make a worker wait.
fn event(fd: OwnedFd) -> Result<OwnedFd, String> {
    let refused = |error: io::Error| format!("a descriptor cannot be used: {error}");
    // Without /proc nothing is known of it.
    let path = read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    if let Ok(path) = path
        && path.as_os_str() != "anon_inode:[eventfd]"
    {
        return Err(format!("{} in place of an eventfd", Name::from(path)));
    }
    let flags = fcntl_getfl(&fd).map_err(|error| refused(error.into()))?;
    fcntl_setfl(&fd, flags | OFlags::NONBLOCK).map_err(|error| refused(error.into()))?;
    Ok(fd)
}
