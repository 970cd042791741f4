//! Changes of devices while a session runs: what a queue half reports, and the session's log.

use super::features::Features;
use super::interface::Interface;
use crate::limits::CHANGES_KEPT;
use crate::time::Instant;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What has changed at a device since the last call of
/// [`TxDescriptors::changed`](super::TxDescriptors::changed).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Nothing.
    #[default]
    No,
    /// The device does these offloads from now on and no other ones, since the other side has
    /// negotiated: more than before, fewer, or the same. The queue is planned anew for them, within
    /// the settings of its port. What was refused
    /// ([`Refused::Feature`](super::Refused::Feature)) is no longer.
    Offloads(Features),
    /// The device was removed, or another one is in its place: the queue calls
    /// [`reset`](super::TxDescriptors::reset), offers again what was refused, and waits for the
    /// present descriptor ([`wake`](super::TxDescriptors::wake)). Then it asks once more: a device
    /// that does other offloads than the one before returns [`Change::Offloads`], which is not
    /// recorded as a change of its own. A device that cannot be reset has lost the packets that it
    /// had.
    Restarted,
}

/// A kind of [`ChangeRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// Offloads of a legal packet were refused: software does them from now on.
    Refused,
    /// The other side has negotiated: the device does other offloads than before, or takes packets
    /// in another form.
    Renegotiated,
    /// A port is away: packets for it are dropped.
    Gone,
    /// A port is back.
    Back,
    /// A port has another MTU.
    Mtu,
}

impl ChangeKind {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Renegotiated => "renegotiated",
            Self::Gone => "gone",
            Self::Back => "back",
            Self::Mtu => "mtu",
        }
    }
}

/// Offloads that moved between a device and software.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The device no longer does these: packtrain does them in software.
    pub lost: Features,
    /// The device does these from now on.
    pub gained: Features,
}

impl Moved {
    /// No offload.
    pub const NONE: Self = Self {
        lost: Features::NONE,
        gained: Features::NONE,
    };

    /// From what a device did to what it does now.
    #[must_use]
    pub const fn between(before: Features, now: Features) -> Self {
        Self {
            lost: before.without(now),
            gained: now.without(before),
        }
    }

    /// Whether none moved.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.lost.is_empty() && self.gained.is_empty()
    }
}

impl fmt::Display for Moved {
    /// A clause; empty if no offload moved.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [lost, gained] =
            [self.lost, self.gained].map(|all| all.names().collect::<Vec<_>>().join(", "));
        match (lost.is_empty(), gained.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => write!(f, "packtrain does {lost} in software from now on"),
            (true, false) => write!(f, "it does {gained} from now on"),
            (false, false) => write!(
                f,
                "it does {gained} from now on, and packtrain does {lost} in software"
            ),
        }
    }
}

/// A change of what the plan was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRecord {
    /// When it was noticed.
    pub at: Instant,
    /// The port, counted from 0.
    pub port: u16,
    /// The TX queue that it concerns; `None` for the whole port.
    pub queue: Option<u16>,
    /// What has changed.
    pub kind: ChangeKind,
    /// The offloads that moved.
    pub offloads: Moved,
    /// Why: a part of a sentence.
    pub why: Cow<'static, str>,
}

impl fmt::Display for ChangeRecord {
    /// One line, without the port and the time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(queue) = self.queue {
            write!(f, "txq{queue:02}: ")?;
        }
        f.write_str(&self.why)?;
        if self.kind == ChangeKind::Gone {
            f.write_str("; packets for it are dropped until it is back")?;
        }
        match self.offloads.is_empty() {
            true => Ok(()),
            false => write!(f, "; {}", self.offloads),
        }
    }
}

/// The changes of a run, in a bounded list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// How many there were.
    pub count: u64,
    /// The last ones, at most [`CHANGES_KEPT`], the oldest first.
    pub last: Vec<ChangeRecord>,
}

/// The log of a session. A change takes a lock and the time; no packet does.
pub(crate) struct ChangeLog {
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
    kept: Mutex<Kept>,
    /// The interfaces of the ports that have one.
    claimed: Mutex<Vec<(u16, Interface)>>,
}

#[derive(Debug)]
struct Kept {
    count: u64,
    last: VecDeque<ChangeRecord>,
}

impl fmt::Debug for ChangeLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeLog")
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

impl ChangeLog {
    /// An empty log, with all its memory.
    pub(crate) fn new(clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self {
            clock: Box::new(clock),
            kept: Mutex::new(Kept {
                count: 0,
                last: VecDeque::with_capacity(CHANGES_KEPT),
            }),
            claimed: Mutex::default(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Every user leaves the list whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy.
    pub(crate) fn snapshot(&self) -> Changes {
        // Before the lock, which workers take, too.
        let mut last = Vec::with_capacity(CHANGES_KEPT);
        let kept = self.kept();
        last.extend(kept.last.iter().cloned());
        Changes {
            count: kept.count,
            last,
        }
    }
}

/// Records the changes of one port in the log of its session.
#[derive(Clone, Debug)]
pub struct PortChanges {
    log: Arc<ChangeLog>,
    port: u16,
}

impl PortChanges {
    pub(crate) const fn new(log: Arc<ChangeLog>, port: u16) -> Self {
        Self { log, port }
    }

    /// Records a change of the whole port. `why` is a part of a sentence.
    pub fn record(&self, kind: ChangeKind, offloads: Moved, why: impl Into<Cow<'static, str>>) {
        self.put(None, kind, offloads, why.into());
    }

    /// Makes `interface` that of this port instead of the one before. Returns false, and the port
    /// has none then, if another port of the session has it: what one sends, the other receives.
    #[must_use]
    pub(crate) fn claim(&self, interface: Option<Interface>) -> bool {
        let mut claimed = self.claimed();
        let Some(interface) = interface else {
            return true;
        };
        let is_free = !claimed.iter().any(|(_, other)| other.is_same(&interface));
        if is_free {
            claimed.push((self.port, interface));
        }
        is_free
    }

    /// The port has no interface.
    pub(crate) fn release(&self) {
        drop(self.claimed());
    }

    /// Those of the other ports.
    fn claimed(&self) -> MutexGuard<'_, Vec<(u16, Interface)>> {
        let claimed = self.log.claimed.lock();
        let mut claimed = claimed.unwrap_or_else(PoisonError::into_inner);
        claimed.retain(|(port, _)| *port != self.port);
        claimed
    }

    /// Records a change of a TX queue.
    pub(crate) fn record_queue(
        &self,
        queue: u16,
        kind: ChangeKind,
        offloads: Moved,
        why: impl Into<Cow<'static, str>>,
    ) {
        self.put(Some(queue), kind, offloads, why.into());
    }

    fn put(&self, queue: Option<u16>, kind: ChangeKind, offloads: Moved, why: Cow<'static, str>) {
        let record = ChangeRecord {
            at: (self.log.clock)(),
            port: self.port,
            queue,
            kind,
            offloads,
            why,
        };
        let mut kept = self.log.kept();
        kept.count += 1;
        if kept.last.len() == CHANGES_KEPT {
            kept.last.pop_front();
        }
        kept.last.push_back(record);
    }
}

#[cfg(all(test, not(packtrain_loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_that_of_one_port() {
        let log = Arc::new(ChangeLog::new(|| Instant::from_nanos(7)));
        let [a, b] = [0, 1].map(|port| PortChanges::new(Arc::clone(&log), port));
        let of = |name: &str, index| {
            Some(Interface {
                name: name.into(),
                index: Some(index),
                namespace: Some((4, 7)),
            })
        };
        assert!(a.claim(of("a", 1)) && b.claim(of("b", 2)));
        assert!(a.claim(of("a", 1)), "its own");
        // Renamed.
        assert!(!a.claim(of("a", 2)));
        assert!(b.claim(of("b", 1)), "a has none since it was refused");
        assert!(a.claim(None) && a.claim(of("a", 2)));
        a.release();
        assert!(b.claim(of("a", 2)));
    }

    #[test]
    fn the_last_changes_are_kept_and_all_are_counted() {
        let log = Arc::new(ChangeLog::new(|| Instant::from_nanos(7)));
        let port = PortChanges::new(Arc::clone(&log), 3);
        assert_eq!(log.snapshot(), Changes::default());
        for n in 0..=CHANGES_KEPT as u16 {
            let tso4 = Moved::between(Features::TSO4, Features::NONE);
            port.record_queue(n, ChangeKind::Refused, tso4, "it refused it");
        }
        let Changes { count, last } = log.snapshot();
        assert_eq!((count, last.len()), (CHANGES_KEPT as u64 + 1, CHANGES_KEPT));
        let queues: Vec<_> = last.iter().filter_map(|record| record.queue).collect();
        assert_eq!(queues, (1..=CHANGES_KEPT as u16).collect::<Vec<_>>());
        assert_eq!((last[0].port, last[0].at.as_nanos()), (3, 7));
        assert_eq!(
            last[0].to_string(),
            "txq01: it refused it; packtrain does tso4 in software from now on"
        );
    }

    #[test]
    fn a_record_says_which_offloads_moved_where() {
        let log = Arc::new(ChangeLog::new(|| Instant::from_nanos(7)));
        let port = PortChanges::new(Arc::clone(&log), 0);
        let (none, all) = (Features::NONE, Features::CSUM);
        for (before, now, line) in [
            (all, all, "it is back"),
            (
                all,
                Features::CSUM6,
                "it is back; packtrain does ipv4-checksum in software from now on",
            ),
            (
                none,
                all,
                "it is back; it does ipv4-checksum, ipv6-checksum from now on",
            ),
            (
                Features::CSUM4,
                Features::CSUM6,
                "it is back; it does ipv6-checksum from now on, and packtrain does ipv4-checksum \
                 in software",
            ),
        ] {
            port.record(ChangeKind::Back, Moved::between(before, now), "it is back");
            let last = log.snapshot().last.pop();
            assert_eq!(last.map(|record| record.to_string()).as_deref(), Some(line));
        }
        port.record(ChangeKind::Gone, Moved::NONE, "it left");
        let last = log.snapshot().last.pop().map(|record| record.to_string());
        let line = "it left; packets for it are dropped until it is back";
        assert_eq!(last.as_deref(), Some(line));
    }
}
