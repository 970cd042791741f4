//! The driver's ends of rings, whose indices run over.

use super::device::Device;
use super::*;
use crate::port::virtqueue::{Buffer, Used, WRITE};
use std::collections::VecDeque;

/// Bytes of a table of the longest chain.
const TABLE_BYTES: usize = 4 * 16;

/// A ring of 8 descriptors with the device's end of it.
fn ring(packed: bool, event_idx: bool) -> (Device, Virtqueue, Arc<Dma>) {
    let features = VERSION_1
        | INDIRECT_DESC
        | if packed { RING_PACKED } else { 0 }
        | if event_idx { EVENT_IDX } else { 0 };
    let device = Device::offering(features);
    let function = Function::find(device.clone(), &DEVICE_IDS, "card").expect("a card");
    function.reset().expect("it answers");
    function.negotiate(features).expect("it offers them");
    let shape = Shape {
        size: 8,
        packed,
        event_idx,
    };
    let bytes = shape.bytes().next_multiple_of(16) + 8 * TABLE_BYTES;
    let memory = Arc::new(Dma::new(&device, bytes).expect("memory"));
    let ring = Virtqueue::new(Arc::clone(&memory), shape);
    function.enable(0, NO_VECTOR, &ring).expect("a ring");
    device.start(true).expect("it starts");
    function.advance(DRIVER_OK).expect("it starts");
    (device, ring, memory)
}

fn buffers(count: u32, number: u32) -> impl Iterator<Item = Buffer> {
    (0..count).map(move |index| {
        let address = 0x1_2345_6780 + u64::from(index);
        let bytes = number as usize;
        match index + 1 == count {
            true => Buffer::to_write(address, bytes),
            false => Buffer::to_read(address, bytes),
        }
    })
}

#[test]
fn chains_of_all_lengths_go_around() {
    let rounds = if cfg!(miri) { 200 } else { 70_000 };
    for packed in [false, true] {
        let (device, mut ring, memory) = ring(packed, true);
        let mut flying = VecDeque::new();
        let mut number = 0;
        for round in 0..rounds {
            while ring.room() > 2 {
                let count = 1 + number % 3;
                // Every other one is in a table behind the ring.
                let slot = if number % 2 == 0 {
                    ring.put(buffers(count, number))
                } else {
                    let end = memory.bytes();
                    let at = end - TABLE_BYTES * (1 + usize::from(ring.next_slot()));
                    ring.put_table(at, buffers(count, number))
                };
                flying.push_back((slot, number, count));
                number += 1;
            }
            ring.publish();
            let chains: Vec<_> = std::iter::from_fn(|| device.take(0)).collect();
            for chain in &chains {
                let (slot, number, count) = flying.pop_front().expect("a chain");
                let expected = buffers(count, number);
                let expected: Vec<_> = expected
                    .map(|buffer| (buffer.address, buffer.bytes, buffer.flags & WRITE != 0))
                    .collect();
                assert_eq!((chain.id, &chain.buffers), (slot, &expected), "{round}");
                device.give_without_interrupt(0, chain, number);
                let used = Used {
                    slot: Some(slot),
                    bytes: number,
                };
                assert_eq!(ring.take(), Some(used), "{round}");
                assert_eq!(ring.take(), None);
            }
            assert_eq!((ring.room(), ring.in_flight()), (8, 0));
        }
        assert!(!ring.is_broken());
    }
}

/// A device that asks for a notification at a place of a split ring gets one when it is passed, and
/// no other.
#[test]
fn the_device_is_notified_where_it_asked_for_it() {
    for packed in [false, true] {
        let (device, mut ring, memory) = ring(packed, true);
        let rounds = if cfg!(miri) { 40 } else { 70_000 };
        for round in 0..rounds {
            // At the chain after the next one. In a packed ring at each: see `Packed::publish`.
            device.ask(0, 1);
            for wants in [packed, true, packed] {
                ring.put(buffers(1, round));
                assert_eq!(ring.publish(), wants, "{round}");
            }
            assert!(!ring.publish(), "nothing was added");
            while let Some(chain) = device.take(0) {
                device.give_without_interrupt(0, &chain, 0);
                assert!(ring.take().is_some());
            }
        }
        if packed {
            device.ask_always(0, false);
            ring.put(buffers(1, 0));
            assert!(!ring.publish(), "it wants none");
        }
        assert!(memory.bytes() > 0);
    }
    for packed in [false, true] {
        let (device, mut ring, _memory) = ring(packed, false);
        for wants in [true, false, true] {
            device.ask_always(0, wants);
            ring.put(buffers(1, 0));
            assert_eq!(ring.publish(), wants);
        }
    }
}
