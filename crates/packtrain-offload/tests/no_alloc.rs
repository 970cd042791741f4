//! Coalescing allocates once, at set-up, the size that it reports, and never after that.

#![allow(unsafe_code, reason = "an allocator that counts")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../src/test_packets/mod.rs"]
mod test_packets;

use packtrain_offload::coalesce::{Coalescer, Config, Done, Finish, Mode, Owned, Semantics};
use packtrain_offload::offload::{ChecksumState, LinkType};
// What `test_packets` names.
use packtrain_offload::{checksum, coalesce, layout, offload};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use test_packets::frame::{Frame, tcp6};
use test_packets::wire::Wire;

struct Counting;

thread_local! {
    /// Of this thread only: the test harness allocates on others.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static FREED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator. Growing is counted too: `realloc` and
// `alloc_zeroed` as they are provided call `alloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        BYTES.with(|n| n.set(n.get() + layout.size() as u64));
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        FREED.with(|n| n.set(n.get() + layout.size() as u64));
        // SAFETY: as the caller says.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// A packet of flow `port`, right in every field. `long` headers do not fit what is kept of them.
fn packet(port: u16, round: u32, payload: usize, long: bool) -> Vec<u8> {
    // Destination options: one of 60 bytes.
    let options = [&[7, 1, 60][..], &[0; 60]].concat();
    let frame = Frame {
        extensions: if long { vec![(60, options)] } else { vec![] },
        ports: (port, 443),
        sequence: round * 100,
        // Two rounds in a row acknowledge the same, so that both semantics find something to merge.
        acknowledgement: round / 2,
        ..tcp6(payload)
    };
    frame.bytes()
}

/// Six rounds of 40 flows.
fn train() -> Vec<Wire> {
    let mut train = Vec::new();
    for round in 0..6 {
        for port in 0..40 {
            let state = match port % 2 {
                0 => ChecksumState::None,
                _ => ChecksumState::Unnecessary,
            };
            let payload = if round == 5 && port % 5 == 0 { 7 } else { 100 };
            let mut bytes = packet(port, round, payload, port % 4 == 3);
            match (port, round) {
                // Wrong, and no packet at all.
                (4, 3) => bytes[70] ^= 1,
                (5, 3) => bytes.truncate(30),
                _ => {}
            }
            let mut wire = Wire::new(bytes, state);
            wire.fixed = true;
            train.push(wire);
        }
    }
    train
}

/// The packets again, each with room for what it will become.
fn roomy(train: &[Wire]) -> Vec<Wire> {
    let again = |wire: &Wire| {
        let mut again = wire.clone();
        again.bytes = Vec::with_capacity(1024);
        again.bytes.extend(&wire.bytes);
        again
    };
    train.iter().map(again).collect()
}

#[test]
fn a_million_packets_in_each_mode_allocate_nothing_after_set_up() {
    const MEASURED: u64 = 1_000_000;
    let train = train();
    // There are four runs in each mode.
    let rounds = (MEASURED / 4).div_ceil(train.len() as u64);
    for mode in [Mode::Hash, Mode::Sorted, Mode::Auto] {
        let mut packets = 0;
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            for (flows, finish) in [(4, Finish::Complete), (64, Finish::Partial)] {
                let mut config = Config::new(semantics, LinkType::RawIp, flows);
                config.mode = mode;
                config.finish = finish;
                let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
                let mut out = Vec::with_capacity(train.len());
                for now in 0..rounds {
                    out.clear();
                    let mut burst = roomy(&train);
                    let before = allocations();
                    let mut sink = |packet: Wire, _: &Done| out.push(packet);
                    for one in burst.drain(200..) {
                        coalescer.push(now, one, &mut sink);
                    }
                    coalescer.push_burst(now, burst, &mut sink);
                    coalescer.flush_inactive(now * 1_000_000, 500_000, &mut sink);
                    coalescer.flush(&mut sink);
                    assert_eq!(allocations() - before, 0, "{mode:?} {semantics:?} {flows}");
                }
                let stats = coalescer.stats();
                packets += stats.packets;
                assert!(flows < 40 || stats.supers > rounds);
                assert_eq!(stats.bad_checksums, rounds);
            }
        }
        assert!(packets >= MEASURED, "{mode:?}: {packets}");
    }
}

#[test]
fn the_storage_has_the_size_that_is_needed() {
    for flows in [1, 8, 1000] {
        for mode in [Mode::Hash, Mode::Auto] {
            let mut config = Config::new(Semantics::Stream, LinkType::RawIp, flows);
            config.mode = mode;
            let before = BYTES.with(Cell::get);
            let storage = Owned::<Wire>::for_config(&config);
            let needed = config.needs().bytes::<Wire>() as u64;
            let all = BYTES.with(Cell::get);
            assert_eq!(all - before, needed);
            drop(Coalescer::new(config, storage).unwrap());
            assert_eq!(BYTES.with(Cell::get), all, "a coalescer allocates nothing");
        }
    }
}

#[test]
fn everything_is_freed_with_packets_inside() {
    for mode in [Mode::Hash, Mode::Sorted] {
        let (bytes, freed) = (BYTES.with(Cell::get), FREED.with(Cell::get));
        {
            let mut config = Config::new(Semantics::Reversible, LinkType::RawIp, 16);
            config.mode = mode;
            let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
            coalescer.push_burst(0, roomy(&train()), &mut |_, _| ());
            assert!(coalescer.held() > 0);
        }
        assert_eq!(BYTES.with(Cell::get) - bytes, FREED.with(Cell::get) - freed);
    }
}
