//! The memory that a run requests.

use crate::driver::{Capabilities, PortConfig, RxBuffers};
use crate::engine::arena_config;
use crate::limits::{RX_HELD_LARGE_MAX, SMALL_FRAME_BYTES};
use crate::packet::ArenaConfig;
use crate::plan::{Plan, Side, plan};
use crate::port::sim::RING_MAX;

const MIB: u64 = 1 << 20;

fn plan_of(queues: [usize; 2]) -> Plan {
    let side = |queues| Side {
        name: "test".into(),
        interface: None,
        capabilities: Capabilities {
            queues_max: 16,
            ..Capabilities::default()
        },
        config: PortConfig {
            queues: Some(queues),
            ..PortConfig::default()
        },
    };
    plan(&side(queues[0]), &side(queues[1])).unwrap()
}

/// Frames take memory when they are used. Under load, the small ones fit a container of 64 MiB.
#[test]
fn one_queue_or_four_need_no_more_small_frames_than_an_arena_has_by_default() {
    for queues in [[1, 1], [4, 4]] {
        let config = arena_config(&plan_of(queues));
        assert_eq!(config.small_frames, ArenaConfig::default().small_frames);
        assert!(config.small_frames as usize * SMALL_FRAME_BYTES <= 16 << 20);
        assert!(config.large_frames >= ArenaConfig::default().large_frames);
    }
}

#[test]
fn memory_grows_with_the_queues_and_stays_bounded() {
    let bytes = |queues: usize| {
        let mut plan = plan_of([1, 1]);
        plan.attach.iter_mut().for_each(|how| how.queues = queues);
        arena_config(&plan).bytes()
    };
    let mut last = 0;
    for queues in [1, 4, 16, 64, 256] {
        let now = bytes(queues);
        assert!(now >= last);
        assert!(
            now <= (36 + 2 * queues as u64 * 13) * MIB,
            "{queues}: {now}"
        );
        last = now;
    }
}

/// Posted receive buffers alone must not use up the arena.
#[test]
fn the_largest_rings_leave_frames_for_packets() {
    let mut plan = plan_of([1, 1]);
    for direction in &mut plan.directions {
        direction.ring = Some(RING_MAX);
    }
    let posted = 2 * RING_MAX as u32;
    assert!(arena_config(&plan).small_frames >= 2 * posted);
}

/// Received packets take as many times the frames as a piece is shorter than one.
#[test]
fn short_pieces_have_more_frames() {
    let frames = |bytes: usize| {
        let mut plan = plan_of([1, 1]);
        plan.attach.iter_mut().for_each(|how| how.queues = 16);
        plan.attach[0].rx_buffers = RxBuffers::Pieces { bytes };
        arena_config(&plan).small_frames
    };
    assert_eq!(frames(512) - frames(1792), 16 * 3 * 1024);
    assert_eq!(frames(256) - frames(1792), 16 * 6 * 1024);
}

/// A device that holds received packets has frames for them, besides those into which the queues
/// receive.
#[test]
fn packets_held_by_a_device_have_frames_of_their_own() {
    let mut plan = plan_of([1, 1]);
    plan.attach.iter_mut().for_each(|how| how.queues = 16);
    let without = arena_config(&plan);
    plan.directions[0].held = 1024;
    let with = arena_config(&plan);
    assert_eq!(with.small_frames - without.small_frames, 16 * 1024);
    assert_eq!(
        (with.large_frames - without.large_frames) as usize,
        16 * RX_HELD_LARGE_MAX
    );
}
