//! The coalescers of all interfaces and queues, and the windows in capture time.

use super::options::{BYTES_MAX, Limits, Options, SPAN_MAX};
use packtrain_offload::coalesce::{Coalescer, Done, Finish, Owned, Packet, Semantics, Stats};
use packtrain_offload::offload::LinkType;

/// A packet that stands for one or more packets of the input.
pub(super) trait Counted: Packet {
    /// The checksum that it gets. Decisions do not depend on it.
    const FINISH: Finish;

    /// How many.
    fn count(&self) -> u64;
}

/// The coalescer of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its interface, by the numbers of the report.
    pub interface: u32,
    /// Its queue on that interface.
    pub queue: u16,
    /// What its packets start with.
    pub link: LinkType,
}

/// Takes the packets that leave a coalescer.
pub(super) trait Output<F> {
    /// `frame` left at `at`, in capture time.
    fn output(&mut self, place: Place, frame: F, done: &Done, at: u64);
}

/// The coalescer of one queue.
struct Window<F> {
    place: Place,
    coalescer: Box<Coalescer<F, Owned<F>>>,
    /// The start of the window.
    since: Option<u64>,
    /// Packets that the coalescer took in the window.
    taken: u64,
    /// Their bytes on the wire.
    bytes: u64,
    /// Packets in the coalescer, before merging.
    held: u64,
    held_max: u64,
}

impl<F: Counted> Window<F> {
    fn flush(&mut self, at: u64, out: &mut impl Output<F>) {
        let left = &mut leaving(self.place, &mut self.held, out, at);
        self.coalescer.flush(left);
    }
}

impl<F> Window<F> {
    /// Whether a limit ends the window.
    fn is_full(&self, limits: &Limits) -> bool {
        let (taken, held) = (self.taken, self.held);
        taken >= SPAN_MAX as u64
            || self.bytes >= BYTES_MAX as u64
            || limits
                .window_packets
                .is_some_and(|most| taken >= most.into())
            || limits.packets.is_some_and(|most| held > most.into())
    }
}

/// See the [module](self).
pub(super) struct Engine<F> {
    options: Options,
    /// By interface, then by queue. Made with the first packet that it could merge.
    windows: Vec<Vec<Option<Window<F>>>>,
    /// Those that end now: the end of the hold time, the time of the flush, and which it is.
    ending: Vec<(u64, u64, Place)>,
    /// The timestamp of the last packet.
    now: u64,
    /// The end of the first window.
    deadline: u64,
}

impl<F: Counted> Engine<F> {
    pub fn new(options: Options) -> Self {
        Self {
            options,
            windows: Vec::new(),
            ending: Vec::new(),
            now: 0,
            deadline: u64::MAX,
        }
    }

    /// The timestamp of the last packet.
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Advances the time, and ends windows that are over.
    pub fn advance(&mut self, timestamp_ns: u64, out: &mut impl Output<F>) {
        if timestamp_ns < self.now {
            self.flush(out);
        }
        self.now = timestamp_ns;
        if self.now < self.deadline {
            return;
        }
        let now = self.now;
        self.flush_if(out, |_, end| (end <= now).then_some(end));
    }

    /// Ends all windows now.
    pub fn flush(&mut self, out: &mut impl Output<F>) {
        let now = self.now;
        self.flush_if(out, |_, _| Some(now));
    }

    /// Ends all windows, each at the end of its hold time: no packet follows.
    pub fn finish(&mut self, out: &mut impl Output<F>) {
        self.flush_if(out, |_, end| Some(end));
    }

    /// As [`finish`](Self::finish), for these interfaces.
    pub fn finish_of(&mut self, interfaces: &[u32], out: &mut impl Output<F>) {
        self.flush_if(out, |place, end| {
            interfaces.contains(&place.interface).then_some(end)
        });
    }

    /// Ends windows, in the order of the ends of their hold times: from such an end, `ends` makes
    /// the time at which a window ends.
    fn flush_if(&mut self, out: &mut impl Output<F>, ends: impl Fn(Place, u64) -> Option<u64>) {
        let hold = self.options.hold_ns;
        self.deadline = u64::MAX;
        self.ending.clear();
        for window in self.windows.iter().flatten().flatten() {
            let Some(since) = window.since else { continue };
            let end = since.saturating_add(hold);
            match ends(window.place, end) {
                Some(at) => self.ending.push((end, at, window.place)),
                None => self.deadline = self.deadline.min(end),
            }
        }
        self.ending
            .sort_by_key(|(end, _, place)| (*end, place.interface, place.queue));
        for (_, at, place) in &self.ending {
            let queues = self.windows.get_mut(place.interface as usize);
            let window = queues.and_then(|queues| queues.get_mut(usize::from(place.queue)));
            if let Some(Some(window)) = window {
                window.since = None;
                window.flush(*at, out);
            }
        }
    }

    /// Takes a packet that arrived now; `None` is one that passes by, before which held packets of
    /// its queue are handed on.
    ///
    /// # Errors
    /// The packet, if packets are not merged.
    pub fn take(
        &mut self,
        place: Place,
        frame: Option<F>,
        out: &mut impl Output<F>,
    ) -> Result<(), Option<F>> {
        let Some(semantics) = self.options.coalesce else {
            return Err(frame);
        };
        let (now, limits) = (self.now, &self.options.limits);
        let Some(window) = window(&mut self.windows, &self.options, semantics, place) else {
            return Err(frame);
        };
        let open_for = now - window.since.unwrap_or(now);
        // Sorted mode has no age for each packet.
        if let Some(age) = limits.inactive_ns
            && (!window.coalescer.is_sorting() || open_for >= age)
        {
            let left = &mut leaving(place, &mut window.held, out, now);
            window.coalescer.flush_inactive(now, age, left);
        }
        if window.coalescer.held() == 0 {
            (window.since, window.taken, window.bytes) = (None, 0, 0);
        }
        window.taken += 1;
        match frame {
            Some(frame) => {
                window.bytes += u64::from(frame.bytes());
                window.held += frame.count();
                let left = &mut leaving(place, &mut window.held, out, now);
                window.coalescer.push(now, frame, left);
            }
            // Held packets of its flow must stay before it.
            None => window.flush(now, out),
        }
        window.held_max = window.held_max.max(window.coalescer.held() as u64);
        if window.is_full(limits) {
            window.flush(now, out);
        }
        if window.coalescer.held() == 0 {
            window.since = None;
        } else if window.since.is_none() {
            window.since = Some(now);
            self.deadline = self.deadline.min(now.saturating_add(self.options.hold_ns));
        }
        Ok(())
    }

    /// The counters of each coalescer, and the most packets that it held.
    pub fn stats(&self) -> impl Iterator<Item = (Place, &Stats, u64)> {
        let windows = self.windows.iter().flatten().flatten();
        windows.map(|window| (window.place, window.coalescer.stats(), window.held_max))
    }
}

/// An output for the packets that leave a coalescer at `at`; it takes them off `held`.
fn leaving<F: Counted>(
    place: Place,
    held: &mut u64,
    out: &mut impl Output<F>,
    at: u64,
) -> impl FnMut(F, &Done) {
    move |frame, done| {
        *held -= frame.count();
        out.output(place, frame, done, at);
    }
}

/// The window of a queue.
fn window<'a, F: Counted>(
    windows: &'a mut Vec<Vec<Option<Window<F>>>>,
    options: &Options,
    semantics: Semantics,
    place: Place,
) -> Option<&'a mut Window<F>> {
    let interface = place.interface as usize;
    if windows.len() <= interface {
        windows.resize_with(interface + 1, Vec::new);
    }
    let queues = windows.get_mut(interface)?;
    let queue = usize::from(place.queue);
    if queues.len() <= queue {
        queues.resize_with(queue + 1, || None);
    }
    let slot = queues.get_mut(queue)?;
    if slot.is_none() {
        let mut config = options.config(semantics, place.link);
        config.finish = F::FINISH;
        // The storage was made for this configuration.
        let coalescer = Coalescer::new(config, Owned::for_config(&config)).ok()?;
        *slot = Some(Window {
            place,
            coalescer: Box::new(coalescer),
            since: None,
            taken: 0,
            bytes: 0,
            held: 0,
            held_max: 0,
        });
    }
    slot.as_mut()
}
