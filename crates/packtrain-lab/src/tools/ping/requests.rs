//! The loop that sends requests and takes replies.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::Times;
use super::echo::Echo;
use crate::cpu::Usage;
use crate::error::{LabError, ToolError};
use crate::tool::{Control, STOP_WAIT};
use crate::traffic::pace::sleep_until;
use crate::traffic::sequence::Sequences;
use hdrhistogram::Histogram;

/// The least data: the request's number, and when it was due.
pub(super) const DATA_MIN: usize = 16;

/// A flood sends a request this long after the last one at the latest, as `ping -f` does.
const FLOOD_WAIT: Duration = Duration::from_millis(10);

/// The longest time that the histograms distinguish from longer ones, in nanoseconds: an hour.
const NANOSECONDS_MAX: u64 = 3_600_000_000_000;

/// How long the loop waits at most before it checks whether the run has to end. If no reply is
/// missing, it waits as long for copies.
const QUANTUM: Duration = Duration::from_millis(20);

/// Recorded in nanoseconds, three digits of each.
#[derive(Debug)]
pub(super) struct Recorded(Histogram<u64>);

impl Recorded {
    pub(super) fn new() -> Result<Self, ToolError> {
        let histogram = Histogram::new_with_bounds(1, NANOSECONDS_MAX, 3);
        histogram
            .map(Self)
            .map_err(|error| ToolError::Failed(format!("no histogram: {error}")))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(super) fn add(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanoseconds.max(1));
    }

    /// In microseconds.
    pub(super) fn figures(&self) -> Times {
        let us = |nanoseconds: f64| (!self.0.is_empty()).then_some(nanoseconds / 1e3);
        let quantile = |q| us(self.0.value_at_quantile(q) as f64);
        Times {
            min: us(self.0.min() as f64),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: us(self.0.max() as f64),
            mean: us(self.0.mean()),
            buckets: self.buckets(),
        }
    }

    /// The least whole microsecond of each bucket that is not empty, with its count. There are
    /// eight buckets between powers of two, and one for each microsecond below 16.
    fn buckets(&self) -> Vec<(u64, u64)> {
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        for times in self.0.iter_recorded() {
            let us = times.value_iterated_to() / 1000;
            let shift = (u64::BITS - us.leading_zeros()).saturating_sub(4);
            let least = us >> shift << shift;
            match buckets.last_mut() {
                Some((last, count)) if *last == least => *count += times.count_at_value(),
                _ => buckets.push((least, times.count_at_value())),
            }
        }
        buckets
    }
}

/// When requests are due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Schedule {
    /// Seconds from one to the next.
    Every(f64),
    /// After the reply to the last one.
    Flood,
}

/// What to send, and how long.
#[derive(Debug)]
pub(super) struct Requests {
    pub schedule: Schedule,
    /// Bytes of data.
    pub data: usize,
    pub count: u64,
    pub duration: Duration,
    pub timeout: Duration,
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Replies {
    /// From when a request was due to its reply.
    pub latency: Recorded,
    /// From when a request was due to when it was sent: the part of `latency` that is this
    /// program's.
    pub delay: Recorded,
    pub sent: u64,
    pub sequences: Sequences,
    /// Requests sent when the next one was due already.
    pub late: u64,
    /// Until no request was due any more.
    pub cpu: Usage,
    /// From the start to the end of the last interval.
    pub time: Duration,
}

impl Requests {
    /// Sends the requests, and takes the replies. `all_sent` is called when no request is due any
    /// more, unless it fails before.
    pub(super) fn run(
        &self,
        echo: &mut Echo,
        control: &Control<'_>,
        all_sent: impl FnOnce(),
    ) -> Result<Replies, ToolError> {
        let mut all_sent = Some(all_sent);
        let cpu = Usage::of_thread();
        let start = Instant::now();
        let mut state = State {
            replies: Replies {
                latency: Recorded::new()?,
                delay: Recorded::new()?,
                sent: 0,
                sequences: Sequences::default(),
                late: 0,
                cpu: Usage::default(),
                time: Duration::ZERO,
            },
            start,
            last_sent: None,
            last_message: start,
            answered: true,
            data: vec![0; self.data],
        };
        let end = state.start + self.duration;
        loop {
            let now = Instant::now();
            let stopped = control.stopped();
            // Requests are sent late, but not for ever.
            let due = (!stopped && now < end + self.timeout)
                .then(|| self.due(&state, now))
                .flatten()
                .filter(|due| *due < end);
            if due.is_none()
                && let Some(all_sent) = all_sent.take()
            {
                state.replies.cpu = Usage::of_thread().since(&cpu);
                all_sent();
            }
            let mut busy = false;
            if let Some(due) = due
                && due <= now
            {
                busy = state.send(self, echo, due, now).map_err(failed("send"))?;
            }
            while state.receive(echo).map_err(failed("recv"))? {
                busy = true;
            }
            if stopped && state.replies.sent == 0 {
                return Err(ToolError::Cancelled);
            }
            if busy {
                continue;
            }
            let until = due.unwrap_or_else(|| {
                let all = state.replies.sequences.unique == state.replies.sent;
                state.last_message
                    + match (all, stopped) {
                        (true, _) => QUANTUM,
                        (false, true) => self.timeout.min(STOP_WAIT),
                        (false, false) => self.timeout,
                    }
            });
            if due.is_none() && until <= now {
                break;
            }
            match sleep_until(until, now) {
                Some(time) => echo.wait(time.min(QUANTUM)).map_err(failed("poll"))?,
                None => thread::yield_now(),
            }
        }
        let mut replies = state.replies;
        let last = state.last_sent.unwrap_or(state.start);
        let scheduled = match self.schedule {
            Schedule::Every(seconds) => Duration::from_secs_f64(seconds * replies.sent as f64),
            Schedule::Flood => Duration::ZERO,
        };
        replies.time = (last - state.start).max(scheduled);
        Ok(replies)
    }

    /// How long requests are due at most.
    pub(super) fn time(&self) -> Duration {
        match self.schedule {
            Schedule::Every(seconds) => Duration::try_from_secs_f64(seconds * self.count as f64)
                .unwrap_or(Duration::MAX)
                .min(self.duration),
            Schedule::Flood => self.duration,
        }
    }

    /// When the next request is due; `None` if it was the last.
    fn due(&self, state: &State, now: Instant) -> Option<Instant> {
        let sent = state.replies.sent;
        if sent >= self.count {
            return None;
        }
        Some(match self.schedule {
            Schedule::Every(seconds) => {
                state.start + Duration::from_secs_f64(seconds * sent as f64)
            }
            Schedule::Flood if state.answered => now,
            Schedule::Flood => state.last_sent.map_or(now, |last| last + FLOOD_WAIT),
        })
    }
}

/// The state of a run.
struct State {
    replies: Replies,
    start: Instant,
    last_sent: Option<Instant>,
    /// The time of the last request or reply.
    last_message: Instant,
    /// The last request has its reply.
    answered: bool,
    data: Vec<u8>,
}

impl State {
    /// Sends a request that is due. Returns whether the kernel accepted it.
    fn send(
        &mut self,
        requests: &Requests,
        echo: &mut Echo,
        due: Instant,
        now: Instant,
    ) -> io::Result<bool> {
        let replies = &mut self.replies;
        // A flood has no times at which a request is due.
        let (due, interval) = match requests.schedule {
            Schedule::Every(seconds) => (due, Duration::from_secs_f64(seconds)),
            Schedule::Flood => (now, Duration::MAX),
        };
        let since_start = u64::try_from((due - self.start).as_nanos()).unwrap_or(u64::MAX);
        self.data[..8].copy_from_slice(&replies.sent.to_le_bytes());
        self.data[8..16].copy_from_slice(&since_start.to_le_bytes());
        if !echo.send(&self.data)? {
            return Ok(false);
        }
        replies.sent += 1;
        replies.delay.add(now - due);
        replies.late += u64::from(now - due > interval);
        self.last_sent = Some(now);
        self.last_message = now;
        self.answered = false;
        Ok(true)
    }

    /// Takes a message that has arrived. Returns whether there was one.
    fn receive(&mut self, echo: &mut Echo) -> io::Result<bool> {
        let Some(data) = echo.receive()? else {
            return Ok(false);
        };
        let now = Instant::now();
        self.last_message = now;
        let word = |from: usize| Some(u64::from_le_bytes(*data.get(from..)?.first_chunk()?));
        let (Some(number), Some(due)) = (word(0), word(8)) else {
            return Ok(true);
        };
        let replies = &mut self.replies;
        let latency = (now - self.start).checked_sub(Duration::from_nanos(due));
        // What a damaged or foreign message says is not believed.
        let (Some(latency), true) = (latency, number < replies.sent) else {
            return Ok(true);
        };
        if replies.sequences.add(Some(number), replies.sent).is_first() {
            replies.latency.add(latency);
        }
        self.answered |= number + 1 == replies.sent;
        Ok(true)
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> ToolError {
    move |error| LabError::os(what, &error).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::sync::Arc;

    /// The peer answers when no request is due any more.
    #[test]
    fn waiting_for_replies_begins_when_no_request_is_due() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut echo = Echo::over(UdpSocket::from(OwnedFd::from(ours)));
        let requests = Requests {
            schedule: Schedule::Every(0.001),
            data: DATA_MIN,
            count: 3,
            duration: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
        };
        let control = Control {
            stop: Arc::default(),
            progress: &|_| {},
        };
        let answer = || {
            let mut data = [0; DATA_MIN];
            for _ in 0..3 {
                let len = theirs.recv(&mut data).unwrap();
                theirs.send(&data[..len]).unwrap();
            }
        };
        let replies = requests.run(&mut echo, &control, answer).unwrap();
        assert_eq!((replies.sent, replies.sequences.unique), (3, 3));
    }

    #[test]
    fn requests_are_due_for_the_duration_at_most() {
        let times = |schedule, count| {
            let requests = Requests {
                schedule,
                data: DATA_MIN,
                count,
                duration: Duration::from_secs(5),
                timeout: Duration::from_secs(1),
            };
            requests.time().as_millis()
        };
        assert_eq!(times(Schedule::Every(0.01), 20), 200);
        assert_eq!(times(Schedule::Every(1000.0), u64::MAX), 5000);
        assert_eq!(times(Schedule::Flood, 1), 5000);
    }

    #[test]
    fn quantiles_have_three_digits() {
        let mut times = Recorded::new().unwrap();
        assert_eq!(times.figures().p50, None);
        for us in 1..=1000 {
            times.add(Duration::from_micros(us));
        }
        let of = times.figures();
        let exact = [
            (of.min, 1.0),
            (of.p50, 500.0),
            (of.p90, 900.0),
            (of.p99, 990.0),
            (of.p999, 999.0),
            (of.max, 1000.0),
            (of.mean, 500.5),
        ];
        for (found, value) in exact {
            assert!((found.unwrap() / value - 1.0).abs() < 1e-3, "{of:?}");
        }
    }

    #[test]
    fn buckets_are_an_eighth_of_a_power_of_two_wide() {
        let mut times = Recorded::new().unwrap();
        assert_eq!(times.figures().buckets, []);
        for us in [0, 3, 15, 16, 17, 18, 31, 32, 35, 36, 1000] {
            times.add(Duration::from_micros(us));
        }
        let expected = [
            (0, 1),
            (3, 1),
            (15, 1),
            (16, 2),
            (18, 1),
            (30, 1),
            (32, 2),
            (36, 1),
            (960, 1),
        ];
        assert_eq!(times.buckets(), expected);
    }
}
