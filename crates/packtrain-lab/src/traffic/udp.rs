//! UDP flows: numbered datagrams, no more of them in flight than every queue can hold.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, setsockopt, sockopt};

use super::gauge::{Gauge, Gauges};
use super::in_force::{InForce, set_buffers};
use super::limits::{End, Limits, Way, is_pause};
use super::pace::{Pacer, usual_burst};
use super::payload::{DatagramCheck, Pattern, SEQUENCE_LEN, datagram_hash};
use super::streams;
use super::transfer::{Pace, Payload, TRAIN_BYTES_MAX, Transfer, TransferReport};
use crate::error::LabError;
use crate::netns::Netns;
use crate::sys;

/// Requested receive buffer, in bytes of kernel memory. Without privilege in the initial user
/// namespace the kernel limits it to `net.core.rmem_max`, and the window shrinks to it.
pub(crate) const RECEIVE_BUFFER: i32 = 8 << 20;

/// How long a socket call waits before it checks whether the transfer has to end.
const QUANTUM: Duration = Duration::from_millis(10);

/// The two sockets of a flow, and the datagrams in flight between them.
#[derive(Debug)]
pub(super) struct Flow {
    sender: UdpSocket,
    receiver: UdpSocket,
    window: u64,
    /// Datagrams of one send.
    train: u32,
    /// Datagrams passed to the kernel (counted before the call).
    sent: AtomicU64,
    /// Datagrams that arrived, right or wrong, copies left out.
    arrived: AtomicU64,
    /// Datagrams written off as lost.
    written_off: AtomicU64,
    /// Datagrams sent before the mark.
    mark: AtomicU64,
    /// The sender waits for room.
    waiting: AtomicBool,
    /// The sender has ended, and waits for no datagram any more.
    finished: AtomicBool,
    sender_thread: OnceLock<Thread>,
}

impl Flow {
    /// From now on datagrams count as sent after the mark.
    pub(super) fn mark(&self) {
        self.mark.store(self.sent.load(SeqCst), SeqCst);
    }

    fn outstanding(&self) -> u64 {
        let gone = self.arrived.load(SeqCst) + self.written_off.load(SeqCst);
        // A datagram that was written off may still arrive.
        self.sent.load(SeqCst).saturating_sub(gone)
    }

    /// The receiver calls it for arrived datagrams. It wakes the sender when half of the window is
    /// free, and not for every datagram.
    fn arrived(&self, datagrams: u64) {
        self.arrived.fetch_add(datagrams, SeqCst);
        if self.waiting.load(SeqCst) && self.outstanding() <= self.window / 2 {
            self.waiting.store(false, SeqCst);
            if let Some(sender) = self.sender_thread.get() {
                sender.unpark();
            }
        }
    }
}

/// Opens every flow.
pub(super) fn open_all(transfer: &Transfer, way: &Way<'_>) -> Result<Vec<Flow>, LabError> {
    (0..transfer.streams).map(|_| open(transfer, way)).collect()
}

/// What the kernel has in force for a flow.
pub(super) fn in_force(flow: &Flow) -> Result<InForce, LabError> {
    Ok(InForce {
        train: Some(flow.train),
        ..InForce::of_buffers(&flow.sender, &flow.receiver)?
    })
}

pub(super) fn run(
    transfer: &Transfer,
    flows: &[Flow],
    gauges: &[Gauges],
    over: &AtomicBool,
) -> Result<TransferReport, LabError> {
    let pattern = Pattern::new(transfer.seed);
    let limits = Limits::until(transfer, over);
    let send = |stream, flow: &Flow, gauge: &Gauge| send(&limits, &pattern, stream, flow, gauge);
    let receive =
        |stream, flow: &Flow, gauge: &Gauge| receive(&limits, &pattern, stream, flow, gauge);
    let (sent, received) = streams::run(&limits, flows, gauges, send, receive)?;
    let hash = |ends: &[End]| ends.iter().map(|end| end.hash).fold(0, u64::wrapping_add);
    let report = streams::report(&sent, &received, hash);
    Ok(TransferReport {
        hash_ok: report.hash_ok && report.datagrams.intact(),
        ..report
    })
}

/// Requests [`RECEIVE_BUFFER`] for a socket. Returns the bytes of kernel memory that are granted:
/// twice the requested bytes, or twice `net.core.rmem_max`.
pub(crate) fn enlarge(receiver: &UdpSocket) -> Result<i32, LabError> {
    let bytes = RECEIVE_BUFFER as usize;
    if setsockopt(receiver, sockopt::RcvBufForce, &bytes).is_err() {
        let set = setsockopt(receiver, sockopt::RcvBuf, &bytes);
        set.map_err(LabError::from_errno("SO_RCVBUF"))?;
    }
    let granted = getsockopt(receiver, sockopt::RcvBuf);
    Ok(granted.map_err(LabError::from_errno("SO_RCVBUF"))? as i32)
}

/// The sockets of a flow: the sender's, which is connected, and the receiver's. A call on them
/// waits 10 ms at most.
pub(crate) fn sockets(
    from: &Netns,
    to: &Netns,
    address: IpAddr,
) -> Result<(UdpSocket, UdpSocket), LabError> {
    let receiver = to
        .run(|| UdpSocket::bind((address, 0)))?
        .map_err(LabError::from_io("bind"))?;
    receiver
        .set_read_timeout(Some(QUANTUM))
        .map_err(LabError::from_io("SO_RCVTIMEO"))?;
    let address = receiver.local_addr();
    let address = address.map_err(LabError::from_io("getsockname"))?;
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let sender = from.run(|| {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        socket.set_write_timeout(Some(QUANTUM))?;
        Ok(socket)
    })?;
    let sender = sender.map_err(LabError::from_io("connect (udp)"))?;
    Ok((sender, receiver))
}

fn open(transfer: &Transfer, way: &Way<'_>) -> Result<Flow, LabError> {
    let (sender, receiver) = sockets(way.from, way.to, way.address)?;
    match transfer.buffers {
        Some(bytes) => {
            set_buffers(&receiver, bytes)?;
            set_buffers(&sender, bytes)?;
        }
        None => enlarge(&receiver).map(drop)?,
    }
    if transfer.gro {
        setsockopt(&receiver, sockopt::UdpGroSegment, &true)
            .map_err(LabError::from_errno("UDP_GRO"))?;
    }
    if transfer.exchange.is_some() {
        let client = sender.local_addr().and_then(|at| receiver.connect(at));
        client.map_err(LabError::from_io("connect (udp)"))?;
        sender
            .set_read_timeout(Some(QUANTUM))
            .map_err(LabError::from_io("SO_RCVTIMEO"))?;
    }
    if transfer.train > 1 {
        // Checked before: at most 65000.
        setsockopt(&sender, sockopt::UdpGsoSegment, &(transfer.datagram as i32))
            .map_err(LabError::from_errno("UDP_SEGMENT"))?;
    }
    let buffer = getsockopt(&receiver, sockopt::RcvBuf);
    let buffer = buffer.map_err(LabError::from_errno("SO_RCVBUF"))?;
    let fits = buffer / kernel_memory(transfer.datagram);
    let window = u64::from(transfer.window).min(fits as u64).max(1);
    Ok(Flow {
        sender,
        receiver,
        window,
        train: train_len(transfer, window),
        sent: AtomicU64::new(0),
        arrived: AtomicU64::new(0),
        written_off: AtomicU64::new(0),
        mark: AtomicU64::new(0),
        waiting: AtomicBool::new(false),
        finished: AtomicBool::new(false),
        sender_thread: OnceLock::new(),
    })
}

/// The most that a datagram takes of a receive buffer (`skb->truesize`), with a margin: data
/// with headers and `skb_shared_info`, rounded up as kmalloc does, and the skb itself.
fn kernel_memory(datagram: usize) -> usize {
    let memory = (datagram + 640).next_power_of_two() + 256;
    memory + memory / 4
}

/// Datagrams of one send: as many of the requested train as fit a packet, and half of the window.
fn train_len(transfer: &Transfer, window: u64) -> u32 {
    let fits = (TRAIN_BYTES_MAX / transfer.datagram) as u32;
    let most = match transfer.pace {
        Pace::Window => u32::try_from(window / 2).unwrap_or(u32::MAX),
        Pace::Rate(_) | Pace::FlatOut => u32::MAX,
    };
    transfer.train.min(fits).min(most).max(1)
}

fn send(
    limits: &Limits<'_>,
    pattern: &Pattern,
    stream: u32,
    flow: &Flow,
    gauge: &Gauge,
) -> Result<End, LabError> {
    flow.sender_thread.get_or_init(thread::current);
    let size = limits.transfer.datagram;
    let goal = limits
        .transfer
        .share(stream)
        .map_or(u64::MAX, |b| b.div_ceil(size as u64));
    let train = u64::from(flow.train);
    let mut buffer = vec![0; train as usize * size];
    let exchange = limits.transfer.exchange;
    let mut response = vec![0; exchange.map_or(0, |exchange| exchange.response)];
    let mut transactions = 0;
    let mut paced = Paced::new(limits.transfer, stream, train, limits.start);
    let mut sender = Sender {
        limits,
        flow,
        calls: 0,
        last_arrived: 0,
        progress: Instant::now(),
    };
    let (mut next, mut hash) = (0, 0u64);
    while next < goal && !limits.ends(next) {
        let count = train.min(goal - next);
        if limits.transfer.pace == Pace::Window {
            sender.wait_for_room(count)?;
        }
        if let Some(paced) = &mut paced {
            let goes_on = || {
                limits.cancelled()?;
                limits.check_limit("udp send", next * size as u64)
            };
            paced.wait(|| limits.time_is_up() || goes_on().is_err());
            goes_on()?;
            if limits.time_is_up() {
                break;
            }
        }
        let bytes = &mut buffer[..count as usize * size];
        for (sequence, payload) in (next..).zip(bytes.chunks_mut(size)) {
            match limits.transfer.payload {
                Payload::Hashed => {
                    pattern.write_datagram(stream, sequence, payload);
                    hash = hash.wrapping_add(datagram_hash(payload));
                }
                Payload::Plain => {
                    payload[..SEQUENCE_LEN].copy_from_slice(&sequence.to_be_bytes());
                }
            }
        }
        sender.send(bytes, count)?;
        if exchange.is_some() {
            transactions += u64::from(sender.wait_for_response(next, &mut response)?);
            gauge.set_transactions(transactions);
        }
        next += count;
        gauge.set(next * size as u64, sender.calls);
        limits.check_call("udp send", sender.calls, next * size as u64)?;
    }
    sender.drain()?;
    Ok(End {
        bytes: next * size as u64,
        hash,
        calls: sender.calls,
        ..End::default()
    })
}

/// The trains of a flow of [`Pace::Rate`]. The flows alternate.
struct Paced {
    pacer: Pacer,
    /// Trains sent back to back.
    burst: u64,
    /// Of these, the ones that are still to be sent.
    left: u64,
}

impl Paced {
    /// Flow number `stream` of a transfer that starts at `start`; `None` with another pace.
    fn new(transfer: &Transfer, stream: u32, train: u64, start: Instant) -> Option<Self> {
        let Pace::Rate(bits) = transfer.pace else {
            return None;
        };
        let flows = f64::from(transfer.streams);
        let bits_of_train = (train * transfer.datagram as u64 * 8) as f64;
        let rate = bits as f64 / flows / bits_of_train;
        let burst = usual_burst(rate);
        let interval = burst as f64 / rate;
        let offset = Duration::from_secs_f64(interval * f64::from(stream) / flows);
        Some(Self {
            pacer: Pacer::new(start + offset, interval),
            burst,
            left: 0,
        })
    }

    /// Waits until the next train is due, or until `stopped`.
    fn wait(&mut self, stopped: impl Fn() -> bool) {
        if self.left == 0 {
            self.pacer.wait(stopped);
            self.left = self.burst;
        }
        self.left -= 1;
    }
}

struct Sender<'a> {
    limits: &'a Limits<'a>,
    flow: &'a Flow,
    calls: u64,
    last_arrived: u64,
    /// When the sender last saw progress of the receiver.
    progress: Instant,
}

impl Sender<'_> {
    fn payload_sent(&self) -> u64 {
        self.flow.sent.load(SeqCst) * self.limits.transfer.datagram as u64
    }

    /// Passes a train to the kernel, and retries until it is accepted.
    fn send(&mut self, bytes: &[u8], count: u64) -> Result<(), LabError> {
        self.flow.sent.fetch_add(count, SeqCst);
        let idle = Instant::now();
        loop {
            self.calls += 1;
            match self.flow.sender.send(bytes) {
                Ok(len) if len == bytes.len() => return Ok(()),
                Ok(_) => return Err(LabError::Answer("send cut a datagram")),
                Err(error) if is_pause(&error) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    thread::sleep(Duration::from_micros(100));
                }
                Err(error) => return Err(LabError::os("send (udp)", &error)),
            }
            self.limits.check("udp send", idle, self.payload_sent())?;
        }
    }

    /// Waits for the response to request `sequence`; false if none comes within the loss time.
    fn wait_for_response(&mut self, sequence: u64, response: &mut [u8]) -> Result<bool, LabError> {
        let waited = Instant::now();
        while waited.elapsed() < self.limits.transfer.loss_wait {
            self.calls += 1;
            match self.flow.sender.recv(response) {
                // Others are copies, or responses that came too late.
                Ok(_) if response.first_chunk() == Some(&sequence.to_be_bytes()) => {
                    return Ok(true);
                }
                Ok(_) => {}
                Err(error) if is_pause(&error) => self.limits.cancelled()?,
                Err(error) => return Err(LabError::os("recv (udp)", &error)),
            }
        }
        Ok(false)
    }

    /// Waits until `count` more may be in flight. Datagrams that do not arrive within the loss time
    /// are written off. If none arrives for the stall time, that is an error.
    fn wait_for_room(&mut self, count: u64) -> Result<(), LabError> {
        let flow = self.flow;
        if flow.outstanding() + count <= flow.window {
            return Ok(());
        }
        let mut waited = Instant::now();
        loop {
            flow.waiting.store(true, SeqCst);
            let outstanding = flow.outstanding();
            if outstanding + count <= flow.window {
                flow.waiting.store(false, SeqCst);
                return Ok(());
            }
            thread::park_timeout(QUANTUM);
            if self.moved() {
                waited = Instant::now();
            } else if waited.elapsed() >= self.limits.transfer.loss_wait {
                flow.written_off.fetch_add(outstanding, SeqCst);
            }
            self.limits
                .check("udp transfer", self.progress, self.payload_sent())?;
        }
    }

    /// Waits for the datagrams in flight, and then notifies the receiver of the end.
    fn drain(&mut self) -> Result<(), LabError> {
        let mut waited = Instant::now();
        while self.flow.outstanding() > 0 && waited.elapsed() < self.limits.transfer.loss_wait {
            thread::park_timeout(Duration::from_millis(1));
            if self.moved() {
                waited = Instant::now();
            }
            self.limits.cancelled()?;
            self.limits
                .check_limit("udp transfer", self.payload_sent())?;
        }
        self.flow.finished.store(true, SeqCst);
        Ok(())
    }

    /// Whether a datagram has arrived since the last call.
    fn moved(&mut self) -> bool {
        let arrived = self.flow.arrived.load(SeqCst);
        let moved = arrived != self.last_arrived;
        if moved {
            self.last_arrived = arrived;
            self.progress = Instant::now();
        }
        moved
    }
}

fn receive(
    limits: &Limits<'_>,
    pattern: &Pattern,
    stream: u32,
    flow: &Flow,
    gauge: &Gauge,
) -> Result<End, LabError> {
    let (mut buffer, mut control) = (vec![0; 1 << 16], nix::cmsg_space!(i32));
    let mut check = match limits.transfer.payload {
        Payload::Hashed => DatagramCheck::new(pattern, stream),
        Payload::Plain => DatagramCheck::plain(limits.transfer.datagram),
    };
    let mut response = vec![0; limits.transfer.exchange.map_or(0, |all| all.response)];
    let mut calls = 0u64;
    let mut last = limits.start;
    loop {
        calls += 1;
        let result = if limits.transfer.gro {
            sys::receive_gro(flow.receiver.as_fd(), &mut buffer, &mut control)
        } else {
            flow.receiver.recv(&mut buffer).map(|len| (len, len))
        };
        match result {
            Ok((len, size)) => {
                let sent = flow.sent.load(SeqCst);
                check.mark(flow.mark.load(SeqCst));
                // An empty datagram has no chunk, but it arrived.
                let mut count = 0;
                for payload in buffer[..len].chunks(size.max(1)) {
                    // A copy does not replace a datagram that is still on its way.
                    count += u64::from(check.add(payload, sent));
                }
                if let Some((head, _)) = response.split_first_chunk_mut::<SEQUENCE_LEN>() {
                    // A request is one datagram, and its response has its number.
                    let number = buffer[..len].first_chunk();
                    *head = *number.ok_or(LabError::Answer("a request without a number"))?;
                    calls += 1;
                    respond(&flow.receiver, &response)?;
                }
                last = Instant::now();
                flow.arrived(count);
            }
            Err(error) if is_pause(&error) => {
                // The sender detects stalls.
                limits.cancelled()?;
                limits.check_limit("udp receive", check.bytes())?;
            }
            Err(error) => return Err(LabError::os("recv (udp)", &error)),
        }
        gauge.set(check.bytes(), calls);
        // Copies may follow the last datagram. With a window they are no part of the measurement.
        let is_enough = limits.transfer.pace == Pace::Window && flow.outstanding() == 0;
        if flow.finished.load(SeqCst) && (is_enough || flow_is_silent(last)) {
            break;
        }
    }
    let sent = flow.sent.load(SeqCst);
    check.mark(flow.mark.load(SeqCst));
    Ok(End {
        bytes: check.bytes(),
        hash: check.hash(),
        calls,
        elapsed: last.duration_since(limits.start),
        datagrams: [check.finish(sent), check.marked(sent)],
        ..End::default()
    })
}

/// Sends a response. If no buffer is free, it is lost like one that the network drops.
fn respond(socket: &UdpSocket, response: &[u8]) -> Result<(), LabError> {
    match socket.send(response) {
        Ok(_) => Ok(()),
        Err(error) if is_pause(&error) || error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
        Err(error) => Err(LabError::os("send (udp)", &error)),
    }
}

/// After the sender's end: whether late datagrams have stopped coming.
fn flow_is_silent(last: Instant) -> bool {
    last.elapsed() >= QUANTUM
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::IpVersion;
    use crate::traffic::Amount;

    #[test]
    fn a_train_fits_a_packet_and_the_window_if_that_paces() {
        let mut transfer = Transfer::udp(IpVersion::V4, Amount::Open).train(64);
        assert_eq!(train_len(&transfer, 78), 39);
        assert_eq!(train_len(&transfer, 1), 1);
        for pace in [Pace::FlatOut, Pace::Rate(1)] {
            transfer.pace = pace;
            assert_eq!(train_len(&transfer, 78), 44);
        }
    }

    #[test]
    fn a_rate_is_kept_and_flows_alternate() {
        let mut transfer = Transfer::udp(IpVersion::V4, Amount::Open).streams(2);
        transfer.datagram = 1000;
        let start = Instant::now();
        // When the next burst is due after so many trains, in microseconds.
        let due = |transfer: &Transfer, stream, train, trains| {
            let mut paced = Paced::new(transfer, stream, train, start).expect("a rate");
            (0..trains).for_each(|_| paced.wait(|| true));
            (paced.pacer.due() - start).as_micros()
        };
        // A train of each flow in each 4 ms.
        transfer.pace = Pace::Rate(2 * 2 * 1000 * 8 * 250);
        assert_eq!(
            [0, 1, 5].map(|n| due(&transfer, 0, 2, n)),
            [0, 4000, 20_000]
        );
        assert_eq!(
            [0, 1, 5].map(|n| due(&transfer, 1, 2, n)),
            [2000, 6000, 22_000]
        );
        // 25 of 1000 bytes in 100 us go out together.
        transfer.pace = Pace::Rate(4_000_000_000);
        assert_eq!([0, 25, 26].map(|n| due(&transfer, 0, 1, n)), [0, 100, 200]);
    }
}
