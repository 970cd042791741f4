//! The thread of a port that returns: it closes what a removed device leaves, and opens the device
//! again.

use super::shared::{Device, Shared, State, is_away};
use crate::driver::{
    Attach, Capabilities, ChangeKind, DeviceCounters, DeviceError, Driver, Features, Moved,
    PortChanges, QueuePair,
};
use crate::packet::Arena;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::borrow::Cow;
use std::fs::{File, metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::linux::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The time between attempts to open the device, also of those that succeed.
const RETRY: Duration = Duration::from_millis(100);

/// Opens the device again.
pub(super) type Open<D> = Box<dyn Fn() -> Result<D, DeviceError> + Send>;

/// What the thread has.
pub(super) struct Reopener<D: Driver> {
    pub(super) shared: Arc<Shared<D>>,
    pub(super) open: Open<D>,
    pub(super) how: Attach,
    pub(super) arena: Arena,
    /// What the plan assumes.
    pub(super) planned: Capabilities,
    /// Of the first device.
    pub(super) notes: Vec<String>,
    pub(super) changes: Option<PortChanges>,
}

/// The thread. It ends when this is dropped.
pub(super) struct Reopening<D: Driver> {
    shared: Arc<Shared<D>>,
    thread: Option<JoinHandle<()>>,
}

impl<D: Driver> Drop for Reopening<D> {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it has panicked, its message was printed.
            thread.join().unwrap_or(());
        }
    }
}

/// A device that was opened again, its queues, and what is different.
struct Opened<D: Driver> {
    driver: D,
    queues: Vec<QueuePair<D>>,
    /// What it had counted before.
    baseline: DeviceCounters,
    /// Offloads of packets to it.
    offers: Features,
    /// The notes that the first device did not have.
    notes: Vec<String>,
}

/// Enters a network namespace, unless the thread is in it.
fn enter(namespace: &File) -> io::Result<()> {
    let (here, there) = (metadata("/proc/thread-self/ns/net")?, namespace.metadata()?);
    if (here.st_dev(), here.st_ino()) == (there.st_dev(), there.st_ino()) {
        return Ok(());
    }
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(namespace.as_fd(), kind)?)
}

impl<D: Driver + 'static> Reopener<D> {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system's, without a free thread or without the right to enter the namespace.
    pub(super) fn start(self, namespace: Option<File>) -> Result<Reopening<D>, DeviceError> {
        let (entered, answer) = channel();
        let shared = Arc::clone(&self.shared);
        let thread = Builder::new().name("returning".to_owned()).spawn(move || {
            let result = namespace.as_ref().map_or(Ok(()), enter);
            let failed = result.is_err();
            // The thread that starts this one waits for it.
            if entered.send(result).is_ok() && !failed {
                self.run();
            }
        });
        let failed = |action| move |source| DeviceError::Failed { action, source };
        let thread = thread.map_err(failed("start the thread that opens the port again"))?;
        let entered = answer.recv().unwrap_or(Ok(()));
        entered.map_err(failed(
            "enter the network namespace in which the port was opened, to open it there again",
        ))?;
        Ok(Reopening {
            shared,
            thread: Some(thread),
        })
    }

    fn run(self) {
        // The device whose absence was recorded, why the last attempt failed, and whether that was
        // long enough ago for another one.
        let (mut recorded, mut failure, mut rested) = (None, None, true);
        let mut offers = self.planned.tx;
        loop {
            let mut state = self.shared.state();
            if state.stop {
                return;
            }
            let life = self.shared.life();
            let away = is_away(life);
            let is_new = away && recorded != Some(life);
            let closed = state.take_closed(away);
            if closed.is_empty() && !is_new && !(away && rested) {
                // A change begins the wait anew. There are only so many without an attempt.
                rested |= self.wait(state, (!rested).then_some(RETRY));
                continue;
            }
            let wakers = wakers(&state);
            drop(state);
            if is_new {
                recorded = Some(life);
                failure = None;
                // The queues still have the device open, so the first attempt is one wait later.
                rested = false;
                self.record(ChangeKind::Gone, Moved::NONE, "the device was removed");
                // Each queue takes back what the device had, and stops waiting for it.
                wakers.iter().for_each(Waker::wake_by_ref);
            }
            // Closing may take the kernel a while: no lock is held.
            drop(closed);
            if away {
                let driver = self.shared.device().driver.take();
                drop(driver);
                self.release();
            }
            // This thread allocates nothing until the next attempt.
            self.arena.flush_cache();
            if !away || !rested {
                continue;
            }
            rested = false;
            let opened = catch_unwind(AssertUnwindSafe(|| self.open()));
            self.arena.flush_cache();
            // The message of a panic was printed.
            let opened = opened.unwrap_or_else(|_| {
                Err(DeviceError::Unsupported("the attempt panicked".to_owned()))
            });
            match opened {
                Ok(opened) => {
                    let moved = Moved::between(offers, opened.offers);
                    offers = opened.offers;
                    let notes = opened.notes.iter().map(|note| format!("; {note}"));
                    let why = format!("the device is back{}", notes.collect::<String>());
                    let wakers = self.install(opened);
                    self.record(ChangeKind::Back, moved, why);
                    wakers.iter().for_each(Waker::wake_by_ref);
                }
                Err(DeviceError::Removed) => self.release(),
                Err(error) => {
                    self.release();
                    let why = format!("it cannot be opened again: {error}");
                    if failure.as_ref() != Some(&why) {
                        failure = Some(why.clone());
                        self.record(ChangeKind::Gone, Moved::NONE, why);
                    }
                }
            }
        }
    }

    /// Another port may have the interface.
    fn release(&self) {
        if let Some(changes) = &self.changes {
            changes.release();
        }
    }

    /// Waits for a change, at most for `time`. Returns whether that has passed.
    fn wait(&self, state: MutexGuard<'_, State<D>>, time: Option<Duration>) -> bool {
        let changed = &self.shared.changed;
        let Some(time) = time else {
            let waited = changed.wait(state);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            return false;
        };
        let waited = changed.wait_timeout(state, time);
        let (_state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        waited.timed_out()
    }

    fn open(&self) -> Result<Opened<D>, DeviceError> {
        let mut driver = (self.open)()?;
        let has = driver.capabilities();
        if let Some(what) = differs(&has, &self.planned) {
            return Err(DeviceError::Unsupported(format!(
                "the plan needs what it no longer has: {what}; end the run and start it again"
            )));
        }
        if let Some(changes) = &self.changes {
            if !changes.claim(driver.interface()) {
                return Err(DeviceError::Unsupported(
                    "it is the interface of another port by now: what one sends, the other would \
                     receive; give it a name of its own"
                        .to_owned(),
                ));
            }
            driver.record_changes(changes.clone());
        }
        // Before it has any packet of this run.
        let baseline = driver.device_counters().unwrap_or_default();
        let how = Attach {
            rx: self.how.rx.intersection(has.rx),
            large_bytes_max: self.how.large_bytes_max.filter(|_| has.limits_large),
            ..self.how
        };
        let queues = driver.attach(&how, &self.arena)?;
        if queues.len() != how.queues {
            let (got, asked) = (queues.len(), how.queues);
            let why = format!("it was attached with {got} of {asked} queues");
            return Err(DeviceError::Unsupported(why));
        }
        let mut notes = driver.capabilities().notes;
        notes.retain(|note| !self.notes.contains(note));
        if how.large_bytes_max != self.how.large_bytes_max {
            notes.push("it takes no limit on its GSO packets: long ones may be copied".to_owned());
        }
        Ok(Opened {
            driver,
            queues,
            baseline,
            offers: has.tx,
            notes,
        })
    }

    /// The queues take their new halves when they notice. Returns what wakes them.
    fn install(&self, opened: Opened<D>) -> Vec<Waker> {
        let mut device = self.shared.device();
        *device = Device {
            counters: (device.counted(), None),
            baseline: opened.baseline,
            driver: Some(opened.driver),
        };
        let mut state = self.shared.state();
        state.offers = opened.offers;
        // The slots are empty since the device before was closed.
        for (slot, (rx, tx)) in state.queues.iter_mut().zip(opened.queues) {
            (slot.rx, slot.tx) = (Some(rx), Some(tx));
        }
        let life = self.shared.life();
        self.shared
            .life
            .store(life.wrapping_add(1), Ordering::Release);
        wakers(&state)
    }

    fn record(&self, kind: ChangeKind, offloads: Moved, why: impl Into<Cow<'static, str>>) {
        if let Some(changes) = &self.changes {
            changes.record(kind, offloads, why);
        }
    }
}

fn wakers<D: Driver>(state: &State<D>) -> Vec<Waker> {
    let slots = state.queues.iter();
    slots
        .flat_map(|slot| slot.wakers.iter().flatten().cloned())
        .collect()
}

/// What a device lacks that its queues rely on, offloads apart.
fn differs(has: &Capabilities, planned: &Capabilities) -> Option<&'static str> {
    let checks = [
        (has.link == planned.link, "its link type"),
        (
            has.tx_segments_max >= planned.tx_segments_max
                && has.tx_gso_segments_max >= planned.tx_gso_segments_max
                && has.tx_segment_bytes_max >= planned.tx_segment_bytes_max,
            "segments of a packet",
        ),
        (has.tx_memory == planned.tx_memory, "its memory"),
        (
            has.tx_ring == planned.tx_ring && has.rx_held_max <= planned.rx_held_max,
            "the size of its rings",
        ),
        (
            !has.contiguous_headers || planned.contiguous_headers,
            "headers in any segment",
        ),
        (
            has.min_packet_bytes <= planned.min_packet_bytes,
            "packets that short",
        ),
    ];
    let failed = checks.into_iter().find(|(holds, _)| !holds);
    failed.map(|(_, what)| what)
}
