use super::*;
use crate::driver::{Attach, Driver};
use crate::limits::BURST_PACKETS_MAX;
use crate::packet::{ArenaConfig, FrameClass};
use crate::port::null::{Null, NullConfig, NullRx, Source};

mod rules;

const AT: Instant = Instant::from_nanos(5_000_000);

fn source(arena: &Arena) -> RxQueue<NullRx> {
    let mut null = Null::new(NullConfig {
        source: Some(Source::default()),
        ..NullConfig::default()
    });
    let (rx, _tx) = null.attach(&Attach::default(), arena).unwrap().remove(0);
    RxQueue::new(
        rx,
        arena.clone(),
        LinkType::Ethernet,
        Ingress::default(),
        Arc::default(),
        Arc::default(),
    )
}

/// A device with packets and no buffers for them would report pending work without end.
#[test]
fn a_queue_without_buffers_waits_for_time_and_not_for_its_device() {
    let arena = Arena::new(ArenaConfig {
        small_frames: 8,
        large_frames: 0,
        lines: 64,
    })
    .unwrap();
    let frame = || arena.packet(FrameClass::Small);
    let hoard: Vec<_> = std::iter::from_fn(|| frame().ok()).collect();
    assert_eq!(hoard.len(), 8);
    let mut queue = source(&arena);
    let mut burst = Burst::new();
    let poll = |queue: &mut RxQueue<NullRx>, burst: &mut Burst| {
        assert!(!queue.poll(AT, burst, BURST_PACKETS_MAX).unwrap());
    };
    poll(&mut queue, &mut burst);
    assert_eq!(burst.len(), 0);
    assert_eq!(queue.arm(), Armed::Idle);
    assert_eq!(queue.next_at(), Some(AT.after(REFILL_RETRY)));
    assert!(queue.counters().alloc_fail.get() > 0);

    drop(hoard);
    poll(&mut queue, &mut burst);
    assert_eq!(burst.len(), 8, "as many as there are buffers");
    assert_eq!(
        queue.arm(),
        Armed::WorkPending,
        "it is not known to be out of buffers"
    );
    poll(&mut queue, &mut burst);
    assert_eq!((burst.len(), queue.arm()), (8, Armed::Idle));

    burst.clear();
    arena.flush_cache();
    poll(&mut queue, &mut burst);
    assert_eq!((burst.len(), queue.arm()), (8, Armed::WorkPending));
}
