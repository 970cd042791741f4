//! Coalescing allocates once, at set-up, as much as it says, and nothing after that.

#![allow(unsafe_code, reason = "an allocator that counts")]

use core::ops::Range;
use packtrain_offload::checksum::{self, Sum};
use packtrain_offload::coalesce::{
    AppendError, Coalescer, Config, Done, Finish, Mode, Owned, Packet, Semantics,
};
use packtrain_offload::layout::Layout as Headers;
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_offload::verify;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Of this thread: what the test harness does beside is none of our business.
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

/// A packet that has room for what it will become.
struct Roomy {
    bytes: Vec<u8>,
    checksum: ChecksumState,
}

impl Packet for Roomy {
    fn head(&self) -> &[u8] {
        &self.bytes
    }

    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.bytes.get_mut(..bytes)
    }

    fn bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn checksum(&self) -> ChecksumState {
        self.checksum
    }

    fn sum(&self, range: Range<u32>) -> Sum {
        checksum::sum(&self.bytes[range.start as usize..range.end as usize])
    }

    fn truncate(&mut self, bytes: u32) {
        self.bytes.truncate(bytes as usize);
    }

    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self> {
        let payload = &tail.bytes[payload.start as usize..payload.end as usize];
        if self.bytes.capacity() - self.bytes.len() < payload.len() {
            return Err(tail);
        }
        self.bytes.extend_from_slice(payload);
        Ok(())
    }

    fn append_checked(
        &mut self,
        tail: Self,
        payload: Range<u32>,
        mut headers: Sum,
    ) -> Result<(), (AppendError, Self)> {
        headers.add_sum(tail.sum(payload.clone()));
        if !headers.is_valid() {
            return Err((AppendError::Checksum, tail));
        }
        self.append(tail, payload)
            .map_err(|tail| (AppendError::Full, tail))
    }
}

/// A packet of flow `port`, right in every field. `long` headers do not fit what is kept of them.
fn packet(port: u16, round: u32, payload: usize, long: bool, state: ChecksumState) -> Roomy {
    let mut bytes = Vec::with_capacity(8 * 1024);
    let transport = if long { 104 } else { 40 };
    bytes.extend([0x60, 0, 0, 0]);
    bytes.extend(((transport - 40 + 20 + payload) as u16).to_be_bytes());
    bytes.extend([if long { 60 } else { 6 }, 64]);
    bytes.extend([0xfd; 32]);
    if long {
        // Destination options: one of 60 bytes.
        bytes.extend([6, 7, 1, 60]);
        bytes.resize(104, 0);
    }
    bytes.extend(port.to_be_bytes());
    bytes.extend([1, 187]);
    bytes.extend((round * 100).to_be_bytes());
    // Two rounds in a row acknowledge the same, so that both semantics find something to merge.
    bytes.extend((round / 2).to_be_bytes());
    bytes.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(transport + 20 + payload, 7);
    let layout = Headers::parse(LinkType::RawIp, &bytes, bytes.len() as u32).unwrap();
    assert_eq!(usize::from(layout.transport), transport);
    let mut sum = checksum::pseudo_header_v6([0xfd; 16], [0xfd; 16], 6, layout.l4_len());
    sum.add(&bytes[transport..]);
    let field = sum.finish().to_be_bytes();
    bytes[transport + 16..transport + 18].copy_from_slice(&field);
    assert!(verify::verify_transport(&bytes, &layout).is_valid());
    Roomy {
        bytes,
        checksum: state,
    }
}

fn train() -> Vec<Roomy> {
    let mut train = Vec::new();
    for round in 0..6 {
        for port in 0..40 {
            let state = match port % 2 {
                0 => ChecksumState::None,
                _ => ChecksumState::Unnecessary,
            };
            let payload = if round == 5 && port % 5 == 0 { 7 } else { 100 };
            let mut one = packet(port, round, payload, port % 4 == 3, state);
            match (port, round) {
                // Wrong, and no packet at all.
                (4, 3) => one.bytes[70] ^= 1,
                (5, 3) => one.bytes.truncate(30),
                _ => {}
            }
            train.push(one);
        }
    }
    train
}

#[test]
fn nothing_is_allocated_after_set_up() {
    for mode in [Mode::Hash, Mode::Sorted, Mode::Auto] {
        for semantics in [Semantics::Reversible, Semantics::Stream] {
            for (flows, finish) in [(4, Finish::Complete), (64, Finish::Partial)] {
                let mut config = Config::new(semantics, LinkType::RawIp, flows);
                config.mode = mode;
                config.finish = finish;
                let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
                let bursts = [train(), train(), train()];
                let mut out = Vec::with_capacity(3 * 240);
                let before = allocations();
                let mut sink = |packet: Roomy, _: &Done| out.push(packet);
                for (now, mut burst) in (0..).zip(bursts) {
                    for one in burst.drain(200..) {
                        coalescer.push(now, one, &mut sink);
                    }
                    coalescer.push_burst(now, burst, &mut sink);
                    coalescer.flush_inactive(now * 1_000_000, 500_000, &mut sink);
                }
                coalescer.flush(&mut sink);
                assert_eq!(allocations() - before, 0, "{mode:?} {semantics:?} {flows}");
                assert!(flows < 40 || coalescer.stats().supers > 0);
                assert!(coalescer.stats().bad_checksums > 0);
            }
        }
    }
}

#[test]
fn one_allocation_of_the_size_that_is_reported() {
    for flows in [1, 8, 1000] {
        for mode in [Mode::Hash, Mode::Auto] {
            let mut config = Config::new(Semantics::Stream, LinkType::RawIp, flows);
            config.mode = mode;
            let (count, bytes) = (allocations(), BYTES.with(Cell::get));
            let storage = Owned::<Roomy>::for_config(&config);
            let reported = storage.bytes() as u64;
            let coalescer = Coalescer::new(config, storage).unwrap();
            assert_eq!(allocations() - count, 1);
            assert_eq!(BYTES.with(Cell::get) - bytes, reported);
            let freed = FREED.with(Cell::get);
            drop(coalescer);
            assert_eq!(FREED.with(Cell::get) - freed, reported);
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
            coalescer.push_burst(0, train(), &mut |_, _| ());
            assert!(coalescer.held() > 0);
        }
        assert_eq!(BYTES.with(Cell::get) - bytes, FREED.with(Cell::get) - freed);
    }
}
