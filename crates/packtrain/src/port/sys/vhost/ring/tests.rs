//! Two threads, and the words by which each of them learns whether the other one sleeps. Processors
//! let a load pass an earlier store: without the fences there are rounds in which neither sees the
//! other.

use super::super::message::RegionSpec;
use super::*;
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
