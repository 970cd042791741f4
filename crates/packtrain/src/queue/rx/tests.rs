use super::*;
use crate::driver::{Attach, Driver, RxInfo};
use crate::limits::BURST_PACKETS_MAX;
use crate::packet::{ArenaConfig, FrameClass};
use crate::port::null::{Null, NullConfig, NullRx, Source};
use crate::stats::Counter;
use packtrain_offload::offload::{Gso, GsoKind};
use std::num::NonZeroU16;

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

/// A device that has received a packet with each of these.
struct Given(Vec<RxInfo>, Option<Arena>);

impl RxDescriptors for Given {
    fn refill(&mut self, arena: &Arena) -> bool {
        self.1 = Some(arena.clone());
        true
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        for info in self.0.drain(..) {
            let packet = self
                .1
                .as_ref()
                .expect("refilled first")
                .packet_from(&[0; 64]);
            burst.push(packet.expect("frames"), &info);
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        Armed::Idle
    }
}

/// Where no packet is merged, the layout of a whole packet has no reader.
#[test]
fn a_queue_parses_what_is_cut_or_unfinished_and_the_rest_if_it_is_asked_to() {
    let with = |checksum, gso| RxInfo {
        checksum,
        gso,
        ..RxInfo::default()
    };
    let (start, offset) = (34, 16);
    let infos = [
        with(ChecksumState::None, None),
        with(ChecksumState::Unnecessary, None),
        with(ChecksumState::Partial { start, offset }, None),
        with(
            ChecksumState::Unnecessary,
            Some(Gso::new(GsoKind::TcpV4, NonZeroU16::MIN)),
        ),
    ];
    let few = [false, false, true, true];
    for (parses, merges, expected) in [
        (true, false, [true; 4]),
        (false, true, [true; 4]),
        (false, false, few),
    ] {
        let arena = Arena::new(ArenaConfig::default()).unwrap();
        let device = Given(infos.to_vec(), None);
        let (link, ingress) = (LinkType::Ethernet, Ingress::default());
        let queue = RxQueue::new(device, arena, link, ingress, Arc::default(), Arc::default());
        let mut queue = if parses { queue } else { queue.unparsed() };
        queue.set_merges(merges);
        let mut burst = Burst::new();
        queue.poll(AT, &mut burst, 8).unwrap();
        let parsed = burst.iter().map(|packet| packet.meta().layout.is_some());
        assert!(parsed.eq(expected), "{parses} {merges}");
        let counters = queue.counters();
        let counts = [
            &counters.packets,
            &counters.bytes,
            &counters.gso_packets,
            &counters.csum_none,
            &counters.csum_unnecessary,
        ];
        assert_eq!(counts.map(Counter::get), [4, 4 * 64, 1, 1, 3]);
    }
}
