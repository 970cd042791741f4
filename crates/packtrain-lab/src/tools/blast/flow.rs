//! One flow: its packets, its sender and its receiver.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::cpu::Usage;
use crate::error::LabError;
use crate::ip::IpVersion;
use crate::sys::Messages;
use crate::threads::AtEnd;
use crate::tool::{Control, STOP_WAIT};
use crate::topology::TwoHosts;
use crate::traffic::is_pause;
use crate::traffic::pace::Pacer;
use crate::traffic::sequence::Sequences;
use crate::traffic::udp::{enlarge, sockets};
use crate::used::Threads;

/// The least payload: the packet's number, and the same inverted, so that a damaged number is
/// detected.
pub(super) const PAYLOAD_MIN: usize = 16;

/// The most packets that a receiver takes with one call.
const RECEIVE_BATCH: usize = 64;

/// What every sender sends.
#[derive(Debug)]
pub(super) struct Load {
    /// Payload bytes of one packet after the other, repeated.
    pub payloads: Vec<usize>,
    /// Packets in one call.
    pub batch: usize,
    /// Packets sent back to back, and the seconds from one such burst to the next; `None` if a
    /// sender sends flat out.
    pub pace: Option<(u64, f64)>,
    /// How long to send.
    pub duration: Duration,
    /// How long a receiver waits after the last packet.
    pub settle: Duration,
}

/// The sockets of a flow, and what its ends have to know of each other.
pub(super) struct Flow {
    sender: UdpSocket,
    receiver: UdpSocket,
    /// Packets passed to the kernel, counted before the call.
    sent: AtomicU64,
    /// When the sender has started.
    began: OnceLock<Instant>,
    /// When the sender has ended.
    ended: OnceLock<Instant>,
}

/// What a sender did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Packets that the kernel accepted.
    pub packets: u64,
    pub calls: u64,
    pub cpu: Usage,
    /// From the start to the end of its last interval.
    pub time: Duration,
}

/// What a receiver found.
#[derive(Debug)]
pub(super) struct Received {
    pub sequences: Sequences,
    pub calls: u64,
    pub cpu: Usage,
    /// When the last packet arrived, since the sender's start.
    pub time: Duration,
    /// The longest time without a packet, between the sender's start and its end.
    pub pause: Duration,
}

impl Flow {
    /// The sockets, sending from the left host to the right one, and the size of the receive
    /// buffer.
    pub(super) fn open(hosts: &TwoHosts, ip: IpVersion) -> Result<(Self, i32), LabError> {
        let (left, right) = (&hosts.left.netns, &hosts.right.netns);
        let (sender, receiver) = sockets(left, right, hosts.right.ip(ip))?;
        // As root a receiver that is not on a CPU for some milliseconds loses nothing.
        let buffer = enlarge(&receiver)?;
        let flow = Self {
            sender,
            receiver,
            sent: AtomicU64::new(0),
            began: OnceLock::new(),
            ended: OnceLock::new(),
        };
        Ok((flow, buffer))
    }

    /// Where its packets go.
    pub(super) fn address(&self) -> Result<SocketAddr, LabError> {
        let address = self.receiver.local_addr();
        address.map_err(LabError::from_io("getsockname"))
    }

    /// Has another program send to the receiver, which ends after it.
    pub(super) fn sent_by<T>(&self, send: impl FnOnce() -> T) -> T {
        let _ended = AtEnd(|| self.end());
        send()
    }

    /// Ends the sender, and notifies the receiver that it has ended.
    pub(super) fn end(&self) {
        self.ended.get_or_init(Instant::now);
    }

    /// Whether the sender has to end early.
    fn is_over(&self, control: &Control<'_>) -> bool {
        control.stopped() || self.ended.get().is_some()
    }

    /// Packets passed to the kernel so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(SeqCst)
    }

    /// Sends from `start` on, or from when its thread runs, at most `count` packets.
    pub(super) fn send(
        &self,
        load: &Load,
        count: u64,
        start: Instant,
        control: &Control<'_>,
    ) -> Result<Sent, LabError> {
        let _ended = AtEnd(|| self.end());
        let cpu = Usage::of_thread();
        let start = start.max(Instant::now());
        self.began.get_or_init(|| start);
        let end = start + load.duration;
        // A queue that is stopped and never drained accepts nothing.
        let last_try = end + load.settle;
        let mut messages = Messages::new(load.batch, longest(load));
        let lengths = load.payloads.iter().cycle();
        (0..load.batch)
            .zip(lengths)
            .for_each(|(index, len)| messages.set_len(index, *len));
        let same_size = load.payloads.len() == 1;
        let mut pacer = load.pace.map(|(_, interval)| Pacer::new(start, interval));
        let burst = load.pace.map_or(load.batch as u64, |(burst, _)| burst);
        let (mut next, mut calls, mut refused) = (0, 0, 0);
        while next < count && refused == 0 {
            match &mut pacer {
                // The time of the last burst is not later than that of the end.
                Some(pacer) if pacer.due() < end => pacer.wait(|| self.is_over(control)),
                Some(_) => break,
                None => {}
            }
            if self.is_over(control) {
                break;
            }
            if next > 0 && Instant::now() >= end {
                break;
            }
            let mut left = burst.min(count - next);
            while left > 0 && refused == 0 {
                let batch = left.min(load.batch as u64);
                for index in 0..batch as usize {
                    let number = next + index as u64;
                    if !same_size {
                        let size = number % load.payloads.len() as u64;
                        messages.set_len(index, load.payloads[size as usize]);
                    }
                    let payload = messages.place(index);
                    payload[..8].copy_from_slice(&number.to_le_bytes());
                    payload[8..16].copy_from_slice(&(!number).to_le_bytes());
                }
                next += batch;
                left -= batch;
                self.sent.store(next, SeqCst);
                let sent = self.send_all(&mut messages, batch, last_try, control)?;
                let (accepted, tries) = sent;
                refused = batch - accepted;
                calls += tries;
            }
        }
        // The interval after a burst belongs to it.
        let paced = pacer.map_or(Duration::ZERO, |pacer| pacer.due() - start);
        Ok(Sent {
            packets: next - refused,
            calls,
            cpu: Usage::of_thread().since(&cpu),
            time: start.elapsed().max(paced),
        })
    }

    /// Sends the first `count` messages, until `last_try`. Returns how many the kernel accepted,
    /// and the number of calls.
    fn send_all(
        &self,
        messages: &mut Messages,
        count: u64,
        last_try: Instant,
        control: &Control<'_>,
    ) -> Result<(u64, u64), LabError> {
        let (mut done, mut calls) = (0, 0);
        let all = count as usize;
        while done < all {
            calls += 1;
            match messages.send(self.sender.as_fd(), done..all) {
                Ok(sent) => {
                    done += sent;
                    continue;
                }
                Err(error) if is_pause(&error) => {}
                // No memory, or a full queue that says so: the packet was not accepted.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => thread::yield_now(),
                Err(error) => return Err(LabError::os("sendmmsg", &error)),
            }
            if self.is_over(control) || Instant::now() >= last_try {
                break;
            }
        }
        Ok((done as u64, calls))
    }

    /// Receives until the sender has ended, and nothing has arrived for `Load::settle`. Time in
    /// which packtrain's threads wait for a CPU does not count.
    pub(super) fn receive(&self, load: &Load, control: &Control<'_>) -> Result<Received, LabError> {
        let cpu = Usage::of_thread();
        let mut messages = Messages::new(RECEIVE_BATCH, PAYLOAD_MIN);
        let mut sequences = Sequences::default();
        let threads = || Threads::of([std::process::id()], "packtrain-");
        let (mut quiet, mut seen) = (Duration::ZERO, None::<Threads>);
        let (mut calls, mut last, mut pause) = (0, Instant::now(), Duration::ZERO);
        // `last` may be before the sender's start.
        let began = || *self.began.get().unwrap_or(&Instant::now());
        loop {
            calls += 1;
            match messages.receive(self.receiver.as_fd()) {
                Ok(count) => {
                    let now = Instant::now();
                    let until = self.ended.get().map_or(now, |ended| now.min(*ended));
                    pause = pause.max(until.saturating_duration_since(last.max(began())));
                    (last, quiet, seen) = (now, Duration::ZERO, None);
                    let sent = self.sent();
                    for index in 0..count {
                        sequences.add(number(messages.received(index)), sent);
                    }
                }
                Err(error) if is_pause(&error) => {
                    let settle = if control.stopped() {
                        load.settle.min(STOP_WAIT)
                    } else {
                        load.settle
                    };
                    let Some(ended) = self.ended.get() else {
                        continue;
                    };
                    let is_late = last.max(*ended).elapsed() >= settle;
                    // Packets that arrived before the last look are received by now.
                    if quiet >= settle || (is_late && control.stopped()) {
                        break;
                    }
                    let before = seen.get_or_insert_with(threads);
                    if is_late {
                        let now = threads();
                        quiet += std::mem::replace(before, now).had(before);
                    }
                }
                Err(error) => return Err(LabError::os("recvmmsg", &error)),
            }
        }
        let ended = *self.ended.get().unwrap_or(&last);
        Ok(Received {
            sequences,
            calls,
            pause: pause.max(ended.saturating_duration_since(last.max(began()))),
            cpu: Usage::of_thread().since(&cpu),
            time: last.saturating_duration_since(*self.began.get().unwrap_or(&last)),
        })
    }
}

fn longest(load: &Load) -> usize {
    load.payloads.iter().copied().max().unwrap_or(PAYLOAD_MIN)
}

/// The number of a packet; `None` if it was damaged or cut.
fn number((payload, _): (&[u8], usize)) -> Option<u64> {
    let (number, rest) = payload.split_first_chunk()?;
    let number = u64::from_le_bytes(*number);
    let check = u64::from_le_bytes(*rest.first_chunk()?);
    (check == !number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A peer that takes nothing: its queue is full after some packets.
    #[test]
    fn a_queue_that_is_not_drained_ends_a_blast() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_write_timeout(Some(Duration::from_millis(10)))
            .unwrap();
        let flow = Flow {
            sender: UdpSocket::from(OwnedFd::from(ours)),
            receiver: UdpSocket::from(OwnedFd::from(theirs.try_clone().unwrap())),
            sent: AtomicU64::new(0),
            began: OnceLock::new(),
            ended: OnceLock::new(),
        };
        let load = Load {
            payloads: vec![PAYLOAD_MIN],
            batch: 64,
            pace: None,
            duration: Duration::from_millis(20),
            settle: Duration::from_millis(20),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let control = Control {
            stop: Arc::clone(&stop),
            progress: &|_| {},
        };
        let sent = thread::scope(|scope| {
            let sending = scope.spawn(|| flow.send(&load, u64::MAX, Instant::now(), &control));
            // Without an end of its own it would never end.
            let late = Instant::now() + Duration::from_secs(60);
            while !sending.is_finished() && Instant::now() < late {
                thread::sleep(Duration::from_millis(1));
            }
            stop.store(!sending.is_finished(), Ordering::Relaxed);
            let sent = sending.join().unwrap();
            assert!(!stop.load(Ordering::Relaxed), "it did not end");
            sent
        });
        let sent = sent.unwrap();
        // Each packet that was accepted is there, and no other.
        theirs.set_nonblocking(true).unwrap();
        let arrived = std::iter::repeat_with(|| theirs.recv(&mut [0; 64]));
        let arrived = arrived.take_while(Result::is_ok).count();
        assert!(sent.packets > 0, "{sent:?}");
        assert_eq!(arrived as u64, sent.packets);
    }

    #[test]
    fn a_damaged_number_is_detected() {
        let mut payload = [0; 18];
        payload[..8].copy_from_slice(&77u64.to_le_bytes());
        payload[8..16].copy_from_slice(&(!77u64).to_le_bytes());
        assert_eq!(number((&payload[..16], 18)), Some(77));
        assert_eq!(number((&payload[..15], 15)), None);
        payload[3] ^= 1;
        assert_eq!(number((&payload[..16], 18)), None);
    }
}
