//! The halves of a queue over rings whose other side is the test, which writes what no kernel does.

use super::line::Line;
use super::receive::{Queue, Receiver};
use super::ring::{ByHand, Consumer, Descriptor, Producer};
use super::send::{Limits, Sender};
use super::socket::{CONTINUED, Socket};
use crate::driver::{Refused, Token};
use crate::limits::{HEADROOM_BYTES, SEGMENTS_MAX, SMALL_FRAME_BYTES};
use crate::packet::{Arena, ArenaConfig, Packet};
use crate::port::sys::device::Device;
use crate::port::sys::socket::Socket as Control;
use crate::stats::DropReason;
use crate::time::Instant;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

/// Entries of each ring, and bytes that a frame holds.
const COUNT: u32 = 4;
const PIECE_BYTES: u32 = (SMALL_FRAME_BYTES - HEADROOM_BYTES) as u32;
const BAD: Option<Result<usize, DropReason>> = Some(Err(DropReason::BadDescriptor));

fn arena(small_frames: u32) -> Arena {
    let config = ArenaConfig {
        small_frames,
        large_frames: 0,
        lines: 2 * small_frames,
    };
    Arena::new(config).expect("memory")
}

fn queue(socket: OwnedFd, zero_copy: bool) -> Arc<Queue> {
    queue_with(socket, zero_copy, false)
}

fn queue_with(socket: OwnedFd, zero_copy: bool, polls_busily: bool) -> Arc<Queue> {
    let control = Control::of(File::open("/dev/null").expect("it is there").into());
    let line = Line::new(Device::new(control, 0, None));
    let (socket, line) = (Socket::of(socket), Arc::new(line));
    Arc::new(Queue::new(socket, line, zero_copy, polls_busily))
}

fn no_socket() -> OwnedFd {
    File::open("/dev/null").expect("it is there").into()
}

/// The RX half, and the other side of its rings.
struct Receiving {
    receiver: Receiver,
    frames: Consumer<u64>,
    arrived: Producer<Descriptor>,
    arena: Arena,
    /// Behind what refers to it.
    fill: ByHand<u64>,
    _rx: ByHand<Descriptor>,
}

impl Receiving {
    fn new(count: u32, queue: &Arc<Queue>, arena: Arena) -> Self {
        let (mut fill, mut rx) = (ByHand::new(count), ByHand::new(count));
        let frames = arena.small_frames();
        let (own, ring) = (fill.producer(), rx.consumer());
        let receiver = Receiver::new(own, ring, Arc::clone(queue), frames, count);
        Self {
            receiver,
            frames: fill.consumer(),
            arrived: rx.producer(),
            arena,
            fill,
            _rx: rx,
        }
    }

    fn of(count: u32) -> Self {
        Self::new(count, &queue(no_socket(), false), arena(2 * count))
    }

    /// The next frame that the kernel may fill.
    fn frame(&mut self) -> u64 {
        let frame = self.frames.take().expect("a frame");
        self.frames.release();
        frame
    }

    fn put(&mut self, address: u64, bytes: u32, options: u32) {
        let descriptor = Descriptor {
            address,
            bytes,
            options,
        };
        assert!(self.arrived.put(descriptor), "room in the ring");
        self.arrived.publish();
    }

    /// The length of the next packet, or why it was not used.
    fn next(&mut self) -> Option<Result<usize, DropReason>> {
        let next = self.receiver.next();
        self.receiver.release();
        next.map(|packet| packet.map(|packet| packet.bytes()))
    }

    fn small_used(&self) -> u32 {
        self.arena.census().small_used
    }
}

/// The TX half, and the other side of its rings.
struct Sending {
    sender: Sender,
    sent: Consumer<Descriptor>,
    complete: Producer<u64>,
    arena: Arena,
    tx: ByHand<Descriptor>,
    _completion: ByHand<u64>,
}

impl Sending {
    fn new(queue: Arc<Queue>) -> Self {
        let arena = arena(8);
        let (mut tx, mut completion) = (ByHand::new(COUNT), ByHand::new(COUNT));
        let limits = Limits {
            segments_max: 3,
            front_bytes: 0,
        };
        let frames = arena.small_frames();
        let (ring, own) = (tx.producer(), completion.consumer());
        Self {
            sender: Sender::new(ring, own, queue, frames, COUNT, limits),
            sent: tx.consumer(),
            complete: completion.producer(),
            arena,
            tx,
            _completion: completion,
        }
    }

    fn packet(&self, pieces: &[usize]) -> Packet {
        let pieces = pieces.iter().map(|&bytes| {
            let piece = self.arena.packet_from(&vec![7; bytes]);
            piece.expect("memory")
        });
        let whole = pieces.reduce(|mut whole, piece| {
            whole.append(piece).expect("room for a segment");
            whole
        });
        whole.expect("a piece")
    }

    /// The kernel reports an address.
    fn report(&mut self, address: u64) {
        assert!(self.complete.put(address), "room in the ring");
        self.complete.publish();
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.sender.next_complete();
        self.sender.release();
        token
    }
}

/// What a ring says, without a system call: Miri runs these.
mod rings {
    use super::*;

    #[test]
    fn a_frame_is_received_wherever_the_packet_is_in_it() {
        let mut port = Receiving::of(COUNT);
        for (front, bytes) in [
            (0, 0),
            (0, 1),
            (3, 7),
            (1, PIECE_BYTES - 1),
            (PIECE_BYTES - 1, 1),
        ] {
            assert!(port.receiver.refill(&port.arena));
            let at = port.frame() + HEADROOM_BYTES as u64 + u64::from(front);
            port.put(at, bytes, 0);
            assert_eq!(port.next(), Some(Ok(bytes as usize)), "{front} {bytes}");
            assert_eq!(port.next(), None);
        }
        assert_eq!(port.small_used(), COUNT - 1);
    }

    #[test]
    fn a_descriptor_that_is_wrong_costs_one_packet() {
        let mut port = Receiving::of(COUNT);
        let memory = u64::from(2 * COUNT) * SMALL_FRAME_BYTES as u64;
        let inside = HEADROOM_BYTES as u64;
        assert!(port.receiver.refill(&port.arena));
        let posted = [0; COUNT as usize].map(|_| port.frame());
        let never = (0..).step_by(SMALL_FRAME_BYTES);
        let never = never
            .map(|at: usize| at as u64)
            .find(|at| !posted.contains(at));
        let never = never.expect("more frames than posted");
        // Those that name no frame of the kernel's leave all as it is.
        for address in [
            memory,
            memory + inside,
            memory - 1,
            u64::MAX,
            u64::MAX - inside,
            1 << 63,
            never + inside,
        ] {
            if posted.contains(&(address - address % SMALL_FRAME_BYTES as u64)) {
                continue;
            }
            for bytes in [0, 60, PIECE_BYTES, u32::MAX] {
                port.put(address, bytes, 0);
                assert_eq!(port.next(), BAD, "{address:#x} {bytes}");
            }
        }
        assert_eq!(port.small_used(), COUNT);
        // Those with a wrong place in it give the frame back.
        let [a, b, c, good] = posted;
        port.put(a, 60, 0);
        port.put(b + inside - 1, 60, 0);
        port.put(c + inside, PIECE_BYTES + 1, 0);
        for _ in 0..3 {
            assert_eq!(port.next(), BAD);
        }
        assert_eq!(port.small_used(), 1);
        port.put(good + inside, 60, 0);
        // A frame that the kernel has no longer.
        for gone in [good, a, c] {
            port.put(gone + inside, 60, 0);
        }
        assert_eq!(port.next(), Some(Ok(60)));
        for _ in 0..3 {
            assert_eq!(port.next(), BAD);
        }
        assert!(port.receiver.is_starved());
        // All of them are posted again.
        assert!(port.receiver.refill(&port.arena));
        assert_eq!(port.small_used(), COUNT);
    }

    #[test]
    fn a_bad_piece_costs_the_whole_packet_and_no_other() {
        for bad in 0..3 {
            let mut port = Receiving::of(COUNT);
            assert!(port.receiver.refill(&port.arena));
            for piece in 0..3 {
                let at = port.frame() + HEADROOM_BYTES as u64;
                let bytes = if piece == bad { u32::MAX } else { 100 };
                // Other options do not matter.
                let more = if piece < 2 { CONTINUED } else { 0 };
                port.put(at, bytes, !CONTINUED | more);
            }
            let at = port.frame() + HEADROOM_BYTES as u64;
            port.put(at, 60, 0);
            assert_eq!(port.next(), BAD, "{bad}");
            assert_eq!(port.next(), Some(Ok(60)), "{bad}");
            assert_eq!(port.next(), None);
            assert_eq!(port.small_used(), 0);
        }
    }

    /// A packet that does not end is kept until it does, or has more pieces than a packet may have.
    #[test]
    fn a_packet_without_an_end_is_bounded() {
        let most = SEGMENTS_MAX as u32;
        let count = (most + 2).next_power_of_two();
        let mut port = Receiving::of(count);
        assert!(port.receiver.refill(&port.arena));
        let piece = |port: &mut Receiving, more| {
            let at = port.frame() + HEADROOM_BYTES as u64;
            port.put(at, 10, more);
            port.next()
        };
        for _ in 0..most {
            assert_eq!(piece(&mut port, CONTINUED), None);
        }
        assert_eq!(port.small_used(), count);
        // With one more, all of its frames are free.
        assert_eq!(piece(&mut port, CONTINUED), None);
        assert_eq!(port.small_used(), count - most - 1);
        assert!(port.receiver.refill(&port.arena));
        assert_eq!(piece(&mut port, CONTINUED), None);
        let ended = piece(&mut port, 0);
        assert_eq!(ended, Some(Err(DropReason::TooManySegments)));
        assert_eq!(piece(&mut port, 0), Some(Ok(10)));
        // As long as it may be.
        assert!(port.receiver.refill(&port.arena));
        for _ in 1..most {
            assert_eq!(piece(&mut port, CONTINUED), None);
        }
        assert_eq!(piece(&mut port, 0), Some(Ok(10 * SEGMENTS_MAX)));
    }

    #[test]
    fn a_half_that_has_part_of_a_packet_gives_its_frames_back() {
        let mut port = Receiving::of(COUNT);
        assert!(port.receiver.refill(&port.arena));
        let at = port.frame() + HEADROOM_BYTES as u64;
        port.put(at, 10, CONTINUED);
        assert_eq!(port.next(), None);
        let Receiving {
            receiver, arena, ..
        } = port;
        drop(receiver);
        assert_eq!(arena.census().small_used, 0);
    }

    /// An index beyond the ring: old entries are read again, within it.
    #[test]
    fn an_index_that_jumps_yields_no_frame_twice() {
        let mut port = Receiving::of(COUNT);
        assert!(port.receiver.refill(&port.arena));
        for bytes in 1..=COUNT {
            let at = port.frame() + HEADROOM_BYTES as u64;
            port.put(at, bytes, 0);
        }
        port._rx.jump(3 * COUNT);
        for bytes in 1..=COUNT {
            assert_eq!(port.next(), Some(Ok(bytes as usize)));
        }
        for _ in 0..3 * COUNT {
            assert_eq!(port.next(), BAD);
        }
        assert_eq!(port.next(), None);
    }

    #[test]
    fn a_completion_of_a_frame_that_is_not_in_flight_completes_nothing() {
        const NONE: Option<Token> = Some(Token(u32::MAX));
        let mut port = Sending::new(queue(no_socket(), false));
        let packet = port.packet(&[60, 30]);
        assert_eq!(port.sender.put(&packet, Token(5), 0), Ok(()));
        port.sender.publish();
        let places = [0; 2].map(|_| port.sent.take().expect("published").address);
        let free = (0..8).map(|frame| frame * SMALL_FRAME_BYTES as u64);
        let used = places.map(|at| at - at % SMALL_FRAME_BYTES as u64);
        let free: Vec<_> = free.filter(|at| !used.contains(at)).collect();
        let beyond = 8 * SMALL_FRAME_BYTES as u64;
        for wrong in [
            free[0],
            free[5] + 300,
            beyond,
            beyond - 1 + (1 << 40),
            u64::MAX,
        ] {
            port.report(wrong);
            assert_eq!(port.next(), NONE, "{wrong:#x}");
        }
        // Any address of the frame is its own. Both pieces are needed, in any order.
        port.report(used[1] + 1);
        assert_eq!(port.next(), None);
        port.report(places[1]);
        assert_eq!(port.next(), NONE, "twice");
        port.report(used[0] + SMALL_FRAME_BYTES as u64 - 1);
        assert_eq!(port.next(), Some(Token(5)));
        port.report(places[0]);
        assert_eq!(port.next(), NONE, "of a packet that is complete");
        assert!(!port.sender.has_complete());
    }

    /// Linux before 6.17 shows what it has read of the ring only once it has read all.
    #[test]
    fn a_completion_is_no_room_in_the_ring() {
        let mut port = Sending::new(queue(no_socket(), false));
        let one = port.packet(&[60]);
        for token in 0..COUNT {
            assert_eq!(port.sender.put(&one, Token(token), 0), Ok(()));
        }
        port.sender.publish();
        let sent = [0; 4].map(|_| port.sent.take().expect("published").address);
        port.report(sent[0]);
        port.report(sent[1]);
        assert!(port.next().is_some() && port.next().is_some());
        let full = Err(Refused::NoDescriptor);
        assert_eq!(port.sender.put(&one, Token(0), 0), full);
        port.sent.release();
        port.report(sent[2]);
        port.report(sent[3]);
        assert!(port.next().is_some() && port.next().is_some());
        // Three fill the ring but for one: of a packet in two pieces nothing is put.
        for token in 0..COUNT - 1 {
            assert_eq!(port.sender.put(&one, Token(token), 0), Ok(()));
        }
        let two = port.packet(&[60, 30]);
        assert_eq!(port.sender.put(&two, Token(3), 0), full);
        assert_eq!(port.sender.put(&one, Token(3), 0), Ok(()));
    }
}

/// A socket of the test, for the system calls.
mod calls {
    use super::*;

    /// Drivers ask for a call when they have found no frame, and may do so only after the frames
    /// have come, with a ring that is full since.
    #[test]
    fn a_driver_that_asks_late_is_called() {
        let (near, _far) = UnixDatagram::pair().expect("a pair");
        let mut port = Receiving::new(COUNT, &queue(near.into(), true), arena(8));
        assert!(port.receiver.refill(&port.arena));
        port.receiver.look_again();
        assert_eq!(port.receiver.calls(), 0, "it does not ask");
        port.fill.ask(true);
        assert!(port.receiver.refill(&port.arena), "it is full");
        assert_eq!(port.receiver.calls(), 0);
        port.receiver.look_again();
        assert_eq!(port.receiver.calls(), 1);
        // It has all frames, so a call would tell it nothing.
        for _ in 0..COUNT {
            port.frame();
        }
        port.receiver.look_again();
        assert_eq!(port.receiver.calls(), 1);
        // New ones are told at once.
        let at = HEADROOM_BYTES as u64;
        port.put(at, 60, 0);
        assert_eq!(port.next(), Some(Ok(60)));
        assert!(port.receiver.refill(&port.arena));
        assert_eq!(port.receiver.calls(), 2);
    }

    #[test]
    fn busy_polling_makes_a_call_in_each_poll_that_finds_nothing() {
        let (near, _far) = UnixDatagram::pair().expect("a pair");
        let shared = queue_with(near.into(), true, true);
        let mut port = Receiving::new(COUNT, &shared, arena(8));
        assert!(port.receiver.refill(&port.arena));
        for calls in 1..4 {
            port.receiver.look_again();
            assert_eq!(port.receiver.calls(), calls);
        }
    }

    /// No completion says that a busy device has room again.
    #[test]
    fn what_a_busy_device_did_not_take_is_offered_again_soon() {
        let (near, far) = UnixDatagram::pair().expect("a pair");
        near.set_nonblocking(true).expect("a mode");
        let mut port = Sending::new(queue(near.try_clone().expect("a copy").into(), true));
        let packet = port.packet(&[60]);
        assert_eq!(port.sender.put(&packet, Token(1), 0), Ok(()));
        port.sender.publish();
        let now = Instant::from_nanos(1_000_000);
        let kick = |port: &mut Sending| {
            port.sender.kick_at(now).expect("the socket is there");
            (port.sender.calls(), port.sender.retry_at())
        };
        assert_eq!(kick(&mut port), (0, None), "the device reads by itself");
        port.tx.ask(true);
        // Full: the kernel says EAGAIN, as for a device that is busy.
        while near.send(&[]).is_ok() {}
        let soon = now.after(Duration::from_millis(1));
        assert_eq!(kick(&mut port), (1, Some(soon)));
        assert_eq!(kick(&mut port), (2, Some(soon)));
        far.recv(&mut [0]).expect("one of them");
        assert_eq!(kick(&mut port), (3, None), "it took the call");
        // It has read the ring: there is nothing to call for.
        port.sent.take().expect("published");
        port.sent.release();
        assert_eq!(kick(&mut port), (3, None));
    }

    /// The device stops only later: frames that it may fill are not given to others.
    #[test]
    fn frames_of_zero_copy_stay_the_devices() {
        for (zero_copy, left) in [(true, COUNT), (false, 0)] {
            let shared = queue(no_socket(), zero_copy);
            let mut port = Receiving::new(COUNT, &shared, arena(8));
            assert!(port.receiver.refill(&port.arena));
            let Receiving {
                receiver, arena, ..
            } = port;
            drop(receiver);
            // The other half still has the socket.
            assert_eq!(arena.census().small_used, COUNT);
            drop(shared);
            assert_eq!(arena.census().small_used, left);
        }
    }

    /// Without a frame everything that arrives is lost, and only the counters of the socket tell.
    #[test]
    fn an_empty_arena_is_starvation() {
        let mut port = Receiving::new(COUNT, &queue(no_socket(), true), arena(2));
        assert!(!port.receiver.refill(&port.arena), "two of four");
        assert!(!port.receiver.is_starved());
        let mut kept = Vec::new();
        for _ in 0..2 {
            let at = port.frame() + HEADROOM_BYTES as u64;
            port.put(at, 60, 0);
            kept.push(
                port.receiver
                    .next()
                    .expect("it arrived")
                    .expect("a good one"),
            );
        }
        assert!(!port.receiver.refill(&port.arena));
        assert!(port.receiver.is_starved());
        drop(kept);
        assert!(!port.receiver.refill(&port.arena));
        assert!(!port.receiver.is_starved());
    }
}
