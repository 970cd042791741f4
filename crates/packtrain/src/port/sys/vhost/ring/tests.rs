//! `put_whole` and `whole` compared with `put` and `take`. And two threads, with the words by which
//! each of them learns whether the other one sleeps: processors let a load pass an earlier store,
//! so without the fences there are rounds in which neither sees the other.

use super::super::message::RegionSpec;
use super::*;
use crate::port::virtqueue::{INDIRECT, NEXT, WRITE};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// Where the front end has the ring: descriptors, then what the guest writes, then what it reads.
const AT: u64 = 0x10_0000;
const SIZE: u16 = 8;
/// Of a word in the avail ring, and of one in the used ring: at which index to call, and to kick.
const CALL_AT: usize = 4 + 2 * SIZE as usize;
const KICK_AT: usize = 4 + 8 * SIZE as usize;

/// A ring with `EVENT_IDX`, and the memory that it shares with its guest.
fn ring() -> (Ring, Arc<Memory>) {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
    ftruncate(&file, 3 * PAGE).expect("its length");
    let all = RegionSpec {
        guest: 0,
        bytes: 3 * PAGE,
        user: AT,
        offset: 0,
    };
    let memory = Arc::new(Memory::map(vec![(all, file)]).expect("memory"));
    let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let mut ring = Ring::default();
    let form = Form {
        event_idx: true,
        ..Form::default()
    };
    ring.set_form(form).expect("it is off");
    ring.set_memory(&memory).expect("it is off");
    ring.set_size(u32::from(SIZE)).expect("a power of two");
    let at = RingAddresses {
        descriptors: AT,
        avail: AT + PAGE,
        used: AT + 2 * PAGE,
    };
    ring.set_addresses(at).expect("it is off");
    ring.set_call(Some(event()));
    ring.start(Arc::new(event())).expect("it is in memory");
    (ring, memory)
}

/// Waits until both threads are at this place.
fn meet(own: &AtomicU32, other: &AtomicU32, place: u32) {
    own.store(place, Ordering::Release);
    let mut spins = 0_u32;
    while other.load(Ordering::Acquire) < place {
        spins += 1;
        match spins.is_multiple_of(4096) {
            // For a machine with one CPU.
            true => std::thread::yield_now(),
            false => std::hint::spin_loop(),
        }
    }
}

/// Has both threads do their part of each round at the same time: each returns whether it has seen
/// that of the other one, and one of them has to.
fn one_sees_the_other(
    mut device: impl FnMut(u16) -> bool,
    mut guest: impl FnMut(u16) -> bool + Send,
) {
    const TIME: Duration = Duration::from_millis(500);
    const END: u32 = u32::MAX - 1;
    let (at_device, at_guest, seen) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let began = Instant::now();
    let mut rounds = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                meet(&at_guest, &at_device, 2 * round);
                if at_device.load(Ordering::Acquire) >= END {
                    break;
                }
                // Either side may be the first, by any little time.
                (0..round % 64).for_each(|_| std::hint::spin_loop());
                let saw = guest(round as u16);
                seen.store(u32::from(saw), Ordering::Release);
                meet(&at_guest, &at_device, 2 * round + 1);
            }
        });
        for round in 1.. {
            meet(&at_device, &at_guest, 2 * round);
            (0..round / 64 % 64).for_each(|_| std::hint::spin_loop());
            let saw = device(round as u16);
            meet(&at_device, &at_guest, 2 * round + 1);
            let sleeps = !saw && seen.load(Ordering::Acquire) == 0;
            rounds = round;
            if sleeps || (rounds > 10 && began.elapsed() > TIME) {
                at_device.store(END, Ordering::Release);
                assert!(!sleeps, "round {round}: neither side sees the other");
                break;
            }
        }
    });
}

#[test]
fn a_guest_that_falls_asleep_sees_the_used_chain_or_is_called() {
    let (mut ring, memory) = ring();
    let avail = memory.block(AT + PAGE, CALL_AT + 2, 2).expect("memory");
    let used = memory.block(AT + 2 * PAGE, KICK_AT + 2, 4).expect("memory");
    one_sees_the_other(
        |round| {
            ring.used = round;
            ring.publish().1 == 1
        },
        |round| {
            avail.store(CALL_AT, round.wrapping_sub(1), Ordering::Relaxed);
            fence(Ordering::SeqCst);
            used.load(2, Ordering::Relaxed) == round
        },
    );
}

#[test]
fn a_worker_that_falls_asleep_sees_the_chain_or_is_kicked() {
    let (mut ring, memory) = ring();
    let avail = memory.block(AT + PAGE, CALL_AT + 2, 2).expect("memory");
    let used = memory.block(AT + 2 * PAGE, KICK_AT + 2, 4).expect("memory");
    one_sees_the_other(
        |round| {
            ring.next = round.wrapping_sub(1);
            ring.arm()
        },
        |round| {
            avail.store(2, round, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            used.load(KICK_AT, Ordering::Relaxed) == round.wrapping_sub(1)
        },
    );
}

/// A ring to the guest becomes the control ring if several pairs are not negotiated any more.
#[test]
fn a_ring_that_a_packet_waited_for_and_that_is_taken_from_is_armed_for_its_next_chain() {
    let (mut ring, memory) = ring();
    ring.set_enabled(true);
    let avail = memory.block(AT + PAGE, CALL_AT + 2, 2).expect("memory");
    let put = ring.put(&mut [0; HEADER_BYTES_MAX], 60, [&[0; 60][..]].into_iter());
    assert_eq!(put, Err(NoPut::NoBuffers));
    assert!(ring.is_full() && !ring.arm());
    avail.store(2, 1, Ordering::Release);
    let mut request = [0; 4];
    assert!(
        ring.take_request(&mut request)
            .is_some_and(|taken| taken.is_err())
    );
    assert!(ring.take_request(&mut request).is_none());
    assert!(!ring.arm(), "nothing is there");
}

/// Descriptors of the ring, from the first one on, of which each begins a chain that the guest has
/// made available: a buffer in the last page, or a table there.
fn make_available(memory: &Arc<Memory>, descriptors: &[(u32, u16)]) {
    let all = memory.block(AT, PAGE as usize + 4 + 2 * SIZE as usize, 16);
    let all = all.expect("memory");
    for (number, (bytes, flags)) in descriptors.iter().enumerate() {
        let address = (2 * PAGE + 512 + 256 * number as u64).to_le_bytes();
        let rest = [&bytes.to_le_bytes()[..], &flags.to_le_bytes(), &[0; 2]].concat();
        all.write(16 * number, &[&address[..], &rest].concat());
        all.write(
            PAGE as usize + 4 + 2 * number,
            &(number as u16).to_le_bytes(),
        );
    }
    let count = descriptors.len() as u16;
    all.store(PAGE as usize + 2, count, Ordering::Release);
}

/// All that a guest sees.
fn contents(memory: &Arc<Memory>) -> Vec<u8> {
    let mut all = vec![0; 3 * PAGE as usize];
    let whole = memory.guest(0, 3 * PAGE as u32).expect("memory");
    memory.read(whole, 0, &mut all);
    all
}

/// The worker's state of a ring.
fn state(ring: &Ring) -> impl PartialEq + std::fmt::Debug + use<> {
    let indices = (ring.next, ring.seen, ring.used, ring.waits_at);
    (
        indices,
        ring.suppressed,
        ring.budget,
        ring.bad,
        ring.bad_row,
    )
}

/// A ring with these chains, whose state differs from that at its start.
fn used_ring(event_idx: bool, descriptors: &[(u32, u16)]) -> (Ring, Arc<Memory>) {
    let (mut ring, memory) = ring();
    let form = Form {
        event_idx,
        mergeable: true,
        header: 12,
        ..Form::default()
    };
    ring.set_form(form).expect("it fits");
    ring.set_enabled(true);
    make_available(&memory, descriptors);
    ring.available().expect("chains");
    (ring.budget, ring.bad_row, ring.waits_at) = (1, 3, Some(9));
    ring.suppressed = false;
    (ring, memory)
}

/// `put_whole` changes memory and state as `put` does, or changes nothing.
#[test]
fn a_packet_in_one_buffer_is_put_as_any_other() {
    const PACKET: [u8; 60] = [7; 60];
    let cases = [
        (&[(72, WRITE), (100, WRITE)][..], true),
        (&[(2000, WRITE)], true),
        (&[(71, WRITE), (72, WRITE)], false),
        (&[(72, 0)], false),
        (&[(72, WRITE | NEXT), (72, WRITE)], false),
        (&[(0, WRITE)], false),
        (&[(16, INDIRECT)], false),
        (&[(u32::MAX, WRITE)], false),
    ];
    for (descriptors, is_whole) in cases {
        for event_idx in [false, true] {
            let mut header = [3; HEADER_BYTES_MAX];
            let (mut short, memory) = used_ring(event_idx, descriptors);
            let before = (contents(&memory), state(&short));
            assert_eq!(short.put_whole(&mut header, &PACKET), is_whole);
            let after = (contents(&memory), state(&short));
            if !is_whole {
                assert_eq!(after, before, "{descriptors:?}");
                continue;
            }
            let (mut long, memory) = used_ring(event_idx, descriptors);
            let put = long.put(&mut header, 60, [&PACKET[..]].into_iter());
            assert_eq!(put, Ok(()));
            assert_eq!(after, (contents(&memory), state(&long)), "{descriptors:?}");
        }
    }
}

#[test]
fn a_chain_of_one_buffer_is_taken_as_any_other() {
    for (descriptor, is_whole) in [
        ((72, 0), true),
        ((72, WRITE), false),
        ((72, NEXT), false),
        ((0, 0), false),
        ((u32::MAX, 0), false),
    ] {
        for event_idx in [false, true] {
            let (mut short, memory) = used_ring(event_idx, &[descriptor]);
            short.set_enabled(false);
            assert!(short.whole().is_none(), "what it sends is discarded");
            short.set_enabled(true);
            let before = (contents(&memory), state(&short));
            let found = short.whole();
            assert_eq!(found.map(|piece| piece.bytes()), is_whole.then_some(72));
            assert_eq!((contents(&memory), state(&short)), before);
            let Some(buffer) = found else {
                continue;
            };
            let mut bytes = [1; 4];
            short.read_whole(buffer, 68, &mut bytes);
            assert_eq!(bytes, [0; 4]);
            short.consume_whole();
            let after = (contents(&memory), state(&short));
            let (mut long, memory) = used_ring(event_idx, &[descriptor]);
            assert_eq!(long.take(100), Some(Ok(72)));
            long.consume(0);
            assert_eq!(after, (contents(&memory), state(&long)));
        }
    }
}
